"""Endurance test of the engine: ten thousand requests with cancels and weight updates."""

from __future__ import annotations

import gc
import resource
from concurrent.futures import CancelledError

import jax
import numpy as np
import pytest

from webagent_jax import inference, policy

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48, rope_theta=1_000.0)
REQUESTS, BATCH = 10_000, 250
MAX_GROWTH_BYTES = 64 * 2**20  # after the first thousand requests


def _resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_engine_ends_all_requests_without_leaks():
    params = policy.init(CONFIG, jax.random.key(0))
    rng = np.random.default_rng(0)
    prefixes = [rng.integers(0, 61, 200) for _ in range(6)]
    num_done = num_cancelled = 0
    with inference.Engine(
        CONFIG,
        params,
        slots=8,
        max_model_len=320,
        shared_prefix=prefixes[0][:100],
        num_speculative_tokens=2,
    ) as engine:
        engine.warmup()
        start_stats = engine.stats()
        resident_bytes = 0
        for batch in range(REQUESTS // BATCH):
            futures = []
            for number in range(BATCH):
                shared_tokens = int(rng.integers(0, 201))
                prompt = np.concatenate(
                    [
                        prefixes[rng.integers(6)][:shared_tokens],
                        rng.integers(0, 61, rng.integers(1, 80)),
                    ]
                )
                future = engine.submit(
                    prompt,
                    max_new_tokens=int(rng.integers(1, 40)),
                    temperature=float(rng.choice([0.0, 1.0])),
                    top_k=int(rng.choice([0, 0, 0, 5])),
                    seed=number,
                )
                futures.append(future)
                if rng.random() < 0.1:
                    futures[rng.integers(len(futures))].cancel()
                if rng.random() < 0.005:
                    mode = str(rng.choice(["drain", "continue", "recompute"]))
                    engine.update_weights(params, version=batch, in_flight=mode)  # type: ignore[arg-type]
                if rng.random() < 0.002:
                    engine.sleep()
                    engine.wake_up()
            for future in futures:
                try:
                    assert 1 <= len(future.result(300).token_ids) <= 40
                    num_done += 1
                except CancelledError:
                    num_cancelled += 1
            if batch == 1_000 // BATCH:
                gc.collect()
                resident_bytes = _resident_bytes()
        gc.collect()
        end_stats = engine.stats()
        assert _resident_bytes() - resident_bytes < MAX_GROWTH_BYTES
    assert num_done + num_cancelled == REQUESTS
    assert num_done > 8_000
    assert num_cancelled > 100
    assert end_stats.num_compiled_programs == start_stats.num_compiled_programs
    assert end_stats.num_queued == 0
    assert end_stats.num_free_pages == start_stats.num_free_pages
