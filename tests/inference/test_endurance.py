"""Ten thousand requests of all kinds, with cancels and updates among them."""

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
GROWTH = 64 * 2**20  # bytes that the process may grow by after its first thousand requests


def _memory() -> int:
    """Bytes that the process has in memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_is_lost_over_ten_thousand_requests():
    params = policy.init(CONFIG, jax.random.key(0))
    rng = np.random.default_rng(0)
    common = [rng.integers(0, 61, 200) for _ in range(6)]
    done = cancelled = expired = 0
    with inference.Engine(
        CONFIG, params, slots=8, max_model_len=320, shared_prefix=common[0][:100]
    ) as engine:
        engine.warmup()
        before = engine.stats()
        memory = 0
        for batch in range(REQUESTS // BATCH):
            futures = []
            for number in range(BATCH):
                shared = int(rng.integers(0, 201))
                prompt = np.concatenate(
                    [common[rng.integers(6)][:shared], rng.integers(0, 61, rng.integers(1, 80))]
                )
                future = engine.submit(
                    prompt,
                    max_new_tokens=int(rng.integers(1, 40)),
                    temperature=float(rng.choice([0.0, 1.0])),
                    top_k=int(rng.choice([0, 0, 0, 5])),
                    seed=number,
                    timeout=float(rng.choice([0.05, 60.0], p=[0.02, 0.98])),
                )
                futures.append(future)
                if rng.random() < 0.1:
                    futures[rng.integers(len(futures))].cancel()
                if rng.random() < 0.005:
                    running = str(rng.choice(["drain", "continue", "recompute"]))
                    engine.update_weights(params, version=batch, in_flight=running)  # type: ignore[arg-type]
                if rng.random() < 0.002:
                    engine.sleep()
                    engine.wake_up()
            for future in futures:
                try:
                    assert 1 <= len(future.result(300).token_ids) <= 40
                    done += 1
                except CancelledError:
                    cancelled += 1
                except inference.RequestTimeout:
                    expired += 1
            if batch == 1_000 // BATCH:
                gc.collect()
                memory = _memory()
        gc.collect()
        after = engine.stats()
        assert _memory() - memory < GROWTH
    assert done + cancelled + expired == REQUESTS
    assert done > 8_000
    assert cancelled > 100
    assert after.num_compiled_programs == before.num_compiled_programs
    assert after.num_queued == 0
    assert after.num_free_pages == before.num_free_pages
