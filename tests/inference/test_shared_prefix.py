"""Tests of the shared prefix of prompts: less prefill, and equal completions."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
import pytest

from webagent_jax import inference, policy
from webagent_jax.types import Completion, IntArray

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48, rope_theta=1_000.0)
# Programs are compiled once for all tests.
ENGINE_OPTIONS = {"slots": 4, "max_model_len": 320, "steps_per_dispatch": 4}
TIMEOUT = 120.0  # seconds


def _params(seed: int) -> Any:
    """Return params with larger embeddings than at initialization, so that probabilities differ."""
    params = policy.init(CONFIG, jax.random.key(seed))
    return {**params, "embed": params["embed"] * 20.0}


PARAMS = _params(0)
SHARED_PREFIX = np.random.default_rng(7).integers(0, 61, 100).astype(np.int32)


def _prompts(prefix: IntArray = SHARED_PREFIX) -> list[IntArray]:
    """Return prompts that begin with the prefix, are a part of it, or share nothing with it."""
    rng = np.random.default_rng(0)
    suffix = rng.integers(0, 61, 200)
    long_prompts = [np.concatenate([prefix, suffix[:n]]) for n in (1, 2, 63, 64, 65, 66, 130, 200)]
    other = np.concatenate([prefix[:-1], (prefix[-1:] + 1) % 61, suffix[:70]])  # one token differs
    return [
        *long_prompts,
        long_prompts[6],
        prefix[:1],
        prefix[:70],
        prefix,
        other,
        suffix[:3],
        suffix[:150],
    ]


def _sample(engine: inference.Engine, order: Any, prompts: list[IntArray]) -> list[Completion]:
    futures = {i: engine.submit(prompts[i], max_new_tokens=12, seed=int(i)) for i in order}
    return [futures[i].result(TIMEOUT) for i in range(len(prompts))]


def _assert_equal(actual: list[Completion], expected: list[Completion], atol: float = 0.0) -> None:
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
        np.testing.assert_allclose(a.logp, b.logp, rtol=0, atol=atol)


def _make_engine(**options: Any) -> inference.Engine:
    return inference.Engine(
        CONFIG, PARAMS, **ENGINE_OPTIONS | {"shared_prefix": SHARED_PREFIX} | options
    )


@pytest.fixture(scope="module")
def single_completions():
    """Return the completion of each prompt sampled by itself."""
    prompts = _prompts()
    with _make_engine() as engine:
        return [
            engine.submit(prompt, max_new_tokens=12, seed=i).result(TIMEOUT)
            for i, prompt in enumerate(prompts)
        ]


def test_completions_match_engine_without_prefix(single_completions):
    with _make_engine(shared_prefix=()) as plain_engine:
        _assert_equal(
            single_completions,
            _sample(plain_engine, range(len(single_completions)), _prompts()),
            atol=1e-5,
        )


@pytest.mark.parametrize("seed", [0, 1])
def test_completions_are_independent_of_batch_and_order(single_completions, seed):
    rng = np.random.default_rng(seed)
    with _make_engine() as engine:
        for _ in range(2):  # with an empty cache, then with a full one
            _assert_equal(
                _sample(engine, rng.permutation(len(single_completions)), _prompts()),
                single_completions,
            )


def test_long_prefix_matches_engine_without_prefix():
    prefix = np.random.default_rng(8).integers(0, 61, 700)
    prompts = _prompts(prefix)
    with _make_engine(max_model_len=1100, shared_prefix=prefix) as engine:
        completions = _sample(engine, range(len(prompts)), prompts)
        _assert_equal(_sample(engine, reversed(range(len(prompts))), prompts), completions)
    with _make_engine(max_model_len=1100, shared_prefix=()) as plain_engine:
        _assert_equal(completions, _sample(plain_engine, range(len(prompts)), prompts), atol=1e-5)


def test_requests_wait_for_free_pages(single_completions):
    page_bytes = 64 * 2 * CONFIG.num_layers * CONFIG.num_kv_heads * CONFIG.head_dim * 4
    with _make_engine(cache_bytes=7 * page_bytes) as engine:
        _assert_equal(
            _sample(engine, range(len(single_completions)), _prompts()), single_completions
        )
        assert engine.stats().num_free_pages == 6


def test_prefix_is_prefilled_once_and_counted():
    prompt = np.concatenate([SHARED_PREFIX, np.arange(61), np.arange(10)])
    with _make_engine() as engine:
        for last_token, num_prefilled in ((1, 100 + 71), (2, 7), (2, 7)):
            start_stats = engine.stats()
            engine.submit(np.append(prompt, last_token), max_new_tokens=2).result(TIMEOUT)
            delta = engine.stats().delta(start_stats)
            assert (delta.prefilled_tokens, delta.prompt_tokens) == (num_prefilled, 172)


def test_no_compilation_after_warmup():
    with _make_engine() as engine:
        engine.warmup()
        num_programs = engine.stats().num_compiled_programs
        _sample(engine, range(6), _prompts()[:6])
        engine.update_weights(PARAMS, version=1)
        engine.sleep()
        engine.wake_up()
        _sample(engine, range(6), _prompts()[:6])
        assert engine.stats().num_compiled_programs == num_programs


@pytest.mark.parametrize("mode", ["drain", "continue", "recompute"])
def test_update_weights_recomputes_prefix(mode):
    new_params, prompts = _params(1), _prompts()
    with inference.Engine(
        CONFIG, new_params, **ENGINE_OPTIONS, shared_prefix=SHARED_PREFIX
    ) as engine:
        expected = _sample(engine, range(len(prompts)), prompts)
    with _make_engine() as engine:
        _sample(engine, range(4), prompts[:4])
        engine.update_weights(new_params, version=1, in_flight=mode)
        _assert_equal(_sample(engine, range(len(prompts)), prompts), expected)
        assert engine.stats().prefilled_tokens > 2 * len(SHARED_PREFIX)


def test_sleep_frees_memory_and_requests_continue(single_completions):
    with _make_engine() as engine:
        prompts = _prompts()
        futures = [
            engine.submit(prompt, max_new_tokens=12, seed=i) for i, prompt in enumerate(prompts)
        ]
        while not engine.stats().sampled_tokens:
            time.sleep(0.01)
        engine.sleep()
        assert engine._state is None
        assert not engine._shared_prefix
        engine.wake_up()
        _assert_equal([future.result(TIMEOUT) for future in futures], single_completions, atol=1e-5)


def test_short_prefix_compiles_no_additional_programs():
    with _make_engine(shared_prefix=SHARED_PREFIX[:63]) as engine:
        engine.warmup()
        with _make_engine(shared_prefix=()) as plain_engine:
            plain_engine.warmup()
            assert (
                engine.stats().num_compiled_programs == plain_engine.stats().num_compiled_programs
            )


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ([1] * 319, "a shared prefix of 319 tokens leaves no space"),
        ([61] * 80, "shared_prefix has ids outside the vocabulary"),
        ([[1] * 80], "shared_prefix must be a flat sequence"),
    ],
)
def test_invalid_prefix_is_rejected(prefix, message):
    with pytest.raises(ValueError, match=message):
        _make_engine(shared_prefix=prefix)
