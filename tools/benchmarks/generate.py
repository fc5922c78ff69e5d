"""The sampling engine: many turns of many episodes, and plain rows, against others.

The same trace of prompts for everybody: groups of episodes whose next turn is asked for when the
last one is answered, with replies of different lengths. The system prompt is the same for all, as
it is in a run: it is our engine's preamble. Where tunix is installed, it samples by its
own two ways: rows all together, and one prompt to a call, as its agentic learner does. Where
transformers and torch are installed, `generate` takes the turns of all episodes in static batches,
each as long as its longest reply.
"""

from __future__ import annotations

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
from webagent_jax.inference.kv_cache import token_bytes
from webagent_jax.types import IntArray

Turns = list[tuple[IntArray, int]]
"""Of an episode: (prompt, tokens to sample)."""

_ROWS, _PROMPT, _RESPONSE = 8, 256, 64
_SLOTS = 16
_GROUPS = 8
_TASK = 50  # tokens at the end of a system prompt that are a group's own
_TRACES = tuple(Shape(system=system, turns=8, page=(600, 600)) for system in (300, 1_300))
_REPLIES = (20, 40, 60, 80, 100)
_CACHE_BYTES = 2**29  # room for the prefixes of all episodes
_PEER_EPISODES = 8  # of the trace: one prompt to a call takes long


def run(repeats: int, peer_python: str) -> Iterator[dict[str, Any]]:
    """A result per comparison. `peer_python` belongs to an environment with google-tunix."""
    params = policy.init(baseline.MODEL, jax.random.key(0))
    traces = [_trace(shape) for shape in _TRACES]
    theirs: dict[str, Any] = {}
    static = _static(params, repeats)
    if peer_python:
        asked = baseline.sizes() | {"repeats": repeats, "rows": _ROWS}
        episodes = [
            [(prompt.tolist(), reply) for prompt, reply in turns]
            for turns in traces[-1][:_PEER_EPISODES]
        ]
        longest = max(len(prompt) for turns in traces[-1] for prompt, _ in turns)
        theirs = baseline.ask(
            peer_python,
            "tunix/generate.py",
            {
                "static": asked | {"prompt": _PROMPT, "response": _RESPONSE},
                "agentic": asked
                | {"prompt": longest, "response": max(_REPLIES), "episodes": episodes},
            },
        )
        again = _static(params, repeats)
        static = min(static, again, key=lambda result: result["seconds"])
    yield _static_result(static, theirs)
    for shape, trace in zip(_TRACES, traces, strict=True):
        yield _trace_result(params, shape, trace, theirs if shape is _TRACES[-1] else {})


# --- plain rows ----------------------------------------------------------------------------------


def _static(params: policy.Params, repeats: int) -> dict[str, float]:
    """Seconds for all rows of one length together, and of these for the prompts."""
    rng = np.random.default_rng(0)
    with Engine(baseline.MODEL, params, slots=_ROWS, max_tokens=_PROMPT + _RESPONSE) as engine:
        engine.warmup()

        def sample(tokens: int) -> None:
            prompts = rng.integers(
                0, baseline.MODEL.vocab_size, (_ROWS, _PROMPT)
            )  # never seen before
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


def _static_result(ours: dict[str, float], theirs: dict[str, Any]) -> dict[str, Any]:
    def told(of: dict[str, float]) -> dict[str, float]:
        step = (of["seconds"] - of["prefill_seconds"]) / (_RESPONSE - 1)
        rate = _ROWS * _RESPONSE / of["seconds"]
        return of | {"decode_step_seconds": step, "tokens_per_second": rate}

    weights = policy.weight_bytes(baseline.MODEL)
    cached = _ROWS * (_PROMPT + _RESPONSE // 2) * token_bytes(baseline.MODEL)
    floor = (weights + cached) / timing.bandwidth()
    found = told(ours)
    result: dict[str, Any] = {
        "name": f"generate: {_ROWS} plain rows, prompts of {_PROMPT}, replies of {_RESPONSE}",
        "ours": found,
        "decode step / time to read weights and cache once": found["decode_step_seconds"] / floor,
    }
    if theirs:
        result["tunix"] = told(theirs["static"])
        result["tunix / ours"] = theirs["static"]["seconds"] / ours["seconds"]
    return result


# --- many turns ----------------------------------------------------------------------------------


def _trace(shape: Shape) -> list[Turns]:
    """By episode; the order of the episodes of a group is kept."""
    rng = np.random.default_rng(1)
    preamble = rng.integers(0, baseline.MODEL.vocab_size, shape.system - _TASK).astype(np.int32)
    episodes = []
    for group in range(_GROUPS):
        turns = branches(shape, baseline.MODEL.vocab_size, seed=group)
        for start in range(0, len(turns), shape.turns):
            replies = rng.choice(_REPLIES, shape.turns)
            prompts = [
                np.concatenate([preamble, turn.prompt_ids[len(preamble) :]])
                for turn in turns[start : start + shape.turns]
            ]
            episodes.append(list(zip(prompts, map(int, replies), strict=True)))
    return episodes


def _trace_result(
    params: policy.Params, shape: Shape, trace: Sequence[Turns], theirs: dict[str, Any]
) -> dict[str, Any]:
    tokens = sum(reply for turns in trace for _, reply in turns)
    seconds, prefilled, prompted = _played(params, trace, shape.system - _TASK)
    ours = tokens / seconds
    result: dict[str, Any] = {
        "name": f"generate: {len(trace)} episodes of {shape.turns} turns, system of {shape.system}",
        "ours": {
            "seconds": seconds,
            "tokens_per_second": ours,
            "prompt_tokens": prompted,
            "prefilled_tokens": prefilled,
        },
        "prompt tokens / prefilled": prompted / prefilled,
    }
    if (static := _static_batches(params, trace)) is not None:
        result["transformers"] = {"seconds": static, "tokens_per_second": tokens / static}
        result["transformers / ours"] = static / seconds
    if theirs:
        told = theirs["agentic"]
        warm = told["warm_tokens"] / told["warm_seconds"]
        result["tunix, agentic"] = told | {
            "tokens_per_second": told["tokens"] / told["seconds"],
            "warm_tokens_per_second": warm,
        }
        result["ours / tunix, agentic"] = ours * told["seconds"] / told["tokens"]
        result["ours / tunix, agentic, without its compilations"] = ours / warm
    return result


def _played(params: policy.Params, trace: Sequence[Turns], common: int) -> tuple[float, int, int]:
    """Seconds, tokens that were computed, tokens of prompts, of which so many are in common."""
    longest = max(len(prompt) + reply for turns in trace for prompt, reply in turns)
    with Engine(
        baseline.MODEL,
        params,
        slots=_SLOTS,
        max_tokens=longest,
        cache_bytes=_CACHE_BYTES,
        preamble=trace[0][0][0][:common],
    ) as engine:
        engine.warmup()

        def play(seed: int, turns: Turns) -> None:
            for number, (prompt, reply) in enumerate(turns):
                engine.submit(prompt, max_new_tokens=reply, seed=seed * 1000 + number).result()

        begun = time.perf_counter()
        threads = [threading.Thread(target=play, args=job) for job in enumerate(trace)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - begun
        stats = engine.stats()
    return seconds, stats.prefilled_tokens, stats.prompt_tokens


def _static_batches(params: policy.Params, trace: Sequence[Turns]) -> float | None:
    """Seconds of transformers; None where it or torch is not installed."""
    try:
        import torch
        import transformers
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as directory:
        policy.save_hf(directory, baseline.MODEL, params)
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    turns = len(trace[0])
    begun = time.perf_counter()
    for number in range(turns):
        for first in range(0, len(trace), _SLOTS):
            batch = [episode[number] for episode in trace[first : first + _SLOTS]]
            longest = max(len(prompt) for prompt, _ in batch)
            ids = np.zeros((len(batch), longest), np.int64)
            mask = np.zeros_like(ids)
            for row, (prompt, _) in enumerate(batch):
                ids[row, longest - len(prompt) :] = prompt
                mask[row, longest - len(prompt) :] = 1
            reply = max(reply for _, reply in batch)
            with torch.no_grad():
                model.generate(
                    torch.from_numpy(ids),
                    attention_mask=torch.from_numpy(mask),
                    do_sample=True,
                    max_new_tokens=reply,
                    min_new_tokens=reply,
                    pad_token_id=0,
                )
    return time.perf_counter() - begun
