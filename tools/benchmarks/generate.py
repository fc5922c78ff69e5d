"""Benchmark of the inference engine: multi-turn episodes and plain rows, with baselines.

All engines use the same trace of prompts: groups of episodes with responses of different lengths,
where each turn starts after the previous response. As in a run, all prompts share the system
prompt, which is the shared prefix of our engine.

Baselines:

- google-tunix samples rows in one batch, and one prompt per call as in its agentic learner.
- transformers on torch, if installed: `generate` on static batches of all episodes, each as long as
  its longest response.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from tools.benchmarks import baseline, timing
from tools.benchmarks.episodes import Shape, branches
from webagent_jax import policy
from webagent_jax.inference import Engine
from webagent_jax.inference.kv_cache import kv_bytes_per_token
from webagent_jax.types import IntArray

Turns = list[tuple[IntArray, int]]
"""Turns of an episode: prompt and number of tokens to sample."""

_ROWS, _PROMPT, _RESPONSE = 8, 256, 64
_SLOTS = 16
_GROUPS = 8
_TASK = 50  # tokens at the end of the system prompt that differ between groups
_TRACES = tuple(Shape(system=system, turns=8, page=(600, 600)) for system in (300, 1_300))
_RESPONSE_LENGTHS = (20, 40, 60, 80, 100)
_CACHE_BYTES = 2**29  # fits the prefixes of all episodes
_BASELINE_EPISODES = 8  # episodes of the trace for one prompt per call, which is slow


def run(repeats: int, baseline_python: str) -> Iterator[dict[str, Any]]:
    """Yield one result for plain rows, and one per trace.

    Args:
        repeats: number of runs per measurement.
        baseline_python: Python interpreter with google-tunix; empty skips it.
    """
    params = policy.init(baseline.MODEL, jax.random.key(0))
    traces = [_trace(shape) for shape in _TRACES]
    tunix: dict[str, Any] = {}
    static = _static(params, repeats)
    if baseline_python:
        request = baseline.sizes() | {"repeats": repeats, "rows": _ROWS}
        episodes = [
            [(prompt.tolist(), num_tokens) for prompt, num_tokens in turns]
            for turns in traces[-1][:_BASELINE_EPISODES]
        ]
        longest = max(len(prompt) for turns in traces[-1] for prompt, _ in turns)
        tunix = baseline.run_script(
            baseline_python,
            "tunix/generate.py",
            {
                "static": request | {"prompt": _PROMPT, "response": _RESPONSE},
                "agentic": request
                | {"prompt": longest, "response": max(_RESPONSE_LENGTHS), "episodes": episodes},
            },
        )
    yield _static_result(static, tunix)
    for shape, trace in zip(_TRACES, traces, strict=True):
        yield _trace_result(params, shape, trace, repeats, tunix if shape is _TRACES[-1] else {})


# --- plain rows ----------------------------------------------------------------------------------


def _static(params: policy.Params, repeats: int) -> dict[str, float]:
    """Return the seconds for a batch of equal rows, and those of its prefill."""
    rng = np.random.default_rng(0)
    with Engine(baseline.MODEL, params, slots=_ROWS, max_model_len=_PROMPT + _RESPONSE) as engine:
        engine.warmup()

        def sample(tokens: int) -> None:
            # New prompts, so that the prefix cache does not contain them.
            prompts = rng.integers(0, baseline.MODEL.vocab_size, (_ROWS, _PROMPT))
            futures = [
                engine.submit(prompt, max_new_tokens=tokens, seed=i)
                for i, prompt in enumerate(prompts)
            ]
            for future in futures:
                future.result()

        return {
            "seconds": timing.seconds(lambda: sample(_RESPONSE), repeats),
            "prefill_seconds": timing.seconds(lambda: sample(1), repeats),
        }


def _static_result(engine_times: dict[str, float], tunix: dict[str, Any]) -> dict[str, Any]:
    def with_rates(times: dict[str, float]) -> dict[str, float]:
        step = (times["seconds"] - times["prefill_seconds"]) / (_RESPONSE - 1)
        rate = _ROWS * _RESPONSE / times["seconds"]
        return times | {"decode_step_seconds": step, "tokens_per_second": rate}

    weights = policy.weight_bytes(baseline.MODEL)
    cache = _ROWS * (_PROMPT + _RESPONSE // 2) * kv_bytes_per_token(baseline.MODEL)
    floor = (weights + cache) / timing.bandwidth()
    rates = with_rates(engine_times)
    result: dict[str, Any] = {
        "name": f"generate: {_ROWS} plain rows, prompts of {_PROMPT}, responses of {_RESPONSE}",
        "ours": rates,
        "decode step / time to read weights and cache once": rates["decode_step_seconds"] / floor,
    }
    if tunix:
        result["tunix"] = with_rates(tunix["static"])
        result["tunix / ours"] = tunix["static"]["seconds"] / engine_times["seconds"]
    return result


# --- many turns ----------------------------------------------------------------------------------


def _trace(shape: Shape) -> list[Turns]:
    """Return the turns by episode; episodes of a group are adjacent."""
    rng = np.random.default_rng(1)
    shared_prefix = rng.integers(0, baseline.MODEL.vocab_size, shape.system - _TASK).astype(
        np.int32
    )
    episodes = []
    for group in range(_GROUPS):
        turns = branches(shape, baseline.MODEL.vocab_size, seed=group)
        for start in range(0, len(turns), shape.turns):
            lengths = rng.choice(_RESPONSE_LENGTHS, shape.turns)
            prompts = [
                np.concatenate([shared_prefix, turn.prompt_ids[len(shared_prefix) :]])
                for turn in turns[start : start + shape.turns]
            ]
            episodes.append(list(zip(prompts, map(int, lengths), strict=True)))
    return episodes


def _trace_result(
    params: policy.Params,
    shape: Shape,
    trace: Sequence[Turns],
    repeats: int,
    tunix: dict[str, Any],
) -> dict[str, Any]:
    tokens = sum(num_tokens for turns in trace for _, num_tokens in turns)
    ours = timing.medians([_run_trace(params, trace, shape.system - _TASK) for _ in range(repeats)])
    engine_rate = tokens / ours["seconds"]
    result: dict[str, Any] = {
        "name": f"generate: {len(trace)} episodes of {shape.turns} turns, system of {shape.system}",
        "ours": ours | {"tokens_per_second": engine_rate},
        "prompt tokens / prefilled": ours["prompt_tokens"] / ours["prefilled_tokens"],
    }
    if (static := _static_batches(params, trace, repeats)) is not None:
        result["transformers"] = {"seconds": static, "tokens_per_second": tokens / static}
        result["transformers / ours"] = static / ours["seconds"]
    if tunix:
        agentic = tunix["agentic"]
        warm_rate = agentic["warm_tokens"] / agentic["warm_seconds"]
        result["tunix, agentic"] = agentic | {
            "tokens_per_second": agentic["tokens"] / agentic["seconds"],
            "warm_tokens_per_second": warm_rate,
        }
        result["ours / tunix, agentic"] = engine_rate * agentic["seconds"] / agentic["tokens"]
        result["ours / tunix, agentic, without its compilations"] = engine_rate / warm_rate
    return result


def _run_trace(
    params: policy.Params, trace: Sequence[Turns], prefix_tokens: int
) -> dict[str, float]:
    """Return seconds, prompt tokens and prefilled tokens of one run of our engine, a new one.

    Args:
        params: params of the policy.
        trace: turns by episode.
        prefix_tokens: length of the shared prefix.
    """
    longest = max(len(prompt) + num_tokens for turns in trace for prompt, num_tokens in turns)
    with Engine(
        baseline.MODEL,
        params,
        slots=_SLOTS,
        max_model_len=longest,
        cache_bytes=_CACHE_BYTES,
        shared_prefix=trace[0][0][0][:prefix_tokens],
    ) as engine:
        engine.warmup()

        def run_episode(seed: int, turns: Turns) -> None:
            for number, (prompt, num_tokens) in enumerate(turns):
                engine.submit(prompt, max_new_tokens=num_tokens, seed=seed * 1000 + number).result()

        start = time.perf_counter()
        threads = [threading.Thread(target=run_episode, args=job) for job in enumerate(trace)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - start
        stats = engine.stats()
    return {
        "seconds": seconds,
        "prompt_tokens": stats.prompt_tokens,
        "prefilled_tokens": stats.prefilled_tokens,
    }


def _static_batches(params: policy.Params, trace: Sequence[Turns], repeats: int) -> float | None:
    """Return the median seconds of transformers; None if it or torch is not installed."""
    try:
        import torch
        import transformers
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as directory:
        policy.save_hf(directory, baseline.MODEL, params)
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)

    def generate(batch: Turns) -> None:
        longest = max(len(prompt) for prompt, _ in batch)
        ids = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros_like(ids)
        for row, (prompt, _) in enumerate(batch):
            ids[row, longest - len(prompt) :] = prompt
            mask[row, longest - len(prompt) :] = 1
        num_tokens = max(num_tokens for _, num_tokens in batch)
        with torch.no_grad():
            model.generate(
                torch.from_numpy(ids),
                attention_mask=torch.from_numpy(mask),
                do_sample=True,
                # The whole distribution, as our engine samples; the default of top_k is 50.
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                repetition_penalty=1.0,
                max_new_tokens=num_tokens,
                min_new_tokens=num_tokens,
                pad_token_id=0,
            )

    batches = [
        [episode[number] for episode in trace[first : first + _SLOTS]]
        for number in range(len(trace[0]))
        for first in range(0, len(trace), _SLOTS)
    ]
    generate(batches[0])  # warmup
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for batch in batches:
            generate(batch)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
