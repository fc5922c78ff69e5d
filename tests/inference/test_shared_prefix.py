"""What prompts begin with, kept once for all: it saves work and changes no reply."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
import pytest

from webagent_jax import inference, policy
from webagent_jax.types import Completion, IntArray

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48, rope_theta=1_000.0)
BUILD = {"slots": 4, "max_model_len": 320, "steps_per_dispatch": 4}  # compiled once for all tests
TIMEOUT = 120.0  # seconds


def _params(seed: int) -> Any:
    """Params with larger embeddings than at birth, so that tokens differ in probability."""
    params = policy.init(CONFIG, jax.random.key(seed))
    return {**params, "embed": params["embed"] * 20.0}


PARAMS = _params(0)
PREAMBLE = np.random.default_rng(7).integers(0, 61, 100).astype(np.int32)


def _prompts(preamble: IntArray = PREAMBLE) -> list[IntArray]:
    """That begin with it, that are a part of it, and that have nothing to do with it."""
    rng = np.random.default_rng(0)
    rest = rng.integers(0, 61, 200)
    long = [np.concatenate([preamble, rest[:n]]) for n in (1, 2, 63, 64, 65, 66, 130, 200)]
    off = np.concatenate([preamble[:-1], (preamble[-1:] + 1) % 61, rest[:70]])  # but for one token
    return [*long, long[6], preamble[:1], preamble[:70], preamble, off, rest[:3], rest[:150]]


def _sample(engine: inference.Engine, order: Any, prompts: list[IntArray]) -> list[Completion]:
    futures = {i: engine.submit(prompts[i], max_new_tokens=12, seed=int(i)) for i in order}
    return [futures[i].result(TIMEOUT) for i in range(len(prompts))]


def _alike(actual: list[Completion], expected: list[Completion], atol: float = 0.0) -> None:
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
        np.testing.assert_allclose(a.logp, b.logp, rtol=0, atol=atol)


def _engine(**options: Any) -> inference.Engine:
    return inference.Engine(CONFIG, PARAMS, **BUILD | {"shared_prefix": PREAMBLE} | options)


@pytest.fixture(scope="module")
def alone():
    """Each of the prompts by itself."""
    prompts = _prompts()
    with _engine() as engine:
        return [
            engine.submit(prompt, max_new_tokens=12, seed=i).result(TIMEOUT)
            for i, prompt in enumerate(prompts)
        ]


def test_replies_are_those_of_an_engine_without(alone):
    with _engine(shared_prefix=()) as plain:
        _alike(alone, _sample(plain, range(len(alone)), _prompts()), atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_company_and_order_change_no_bit(alone, seed):
    rng = np.random.default_rng(seed)
    with _engine() as engine:
        for _ in range(2):  # with nothing in the cache, and with all of it
            _alike(_sample(engine, rng.permutation(len(alone)), _prompts()), alone)


def test_a_long_preamble_is_met_in_pieces():
    preamble = np.random.default_rng(8).integers(0, 61, 700)
    prompts = _prompts(preamble)
    with _engine(max_model_len=1100, shared_prefix=preamble) as engine:
        first = _sample(engine, range(len(prompts)), prompts)
        _alike(_sample(engine, reversed(range(len(prompts))), prompts), first)
    with _engine(max_model_len=1100, shared_prefix=()) as plain:
        _alike(first, _sample(plain, range(len(prompts)), prompts), atol=1e-5)


def test_little_memory_makes_requests_wait(alone):
    page = 64 * 2 * CONFIG.num_layers * CONFIG.num_kv_heads * CONFIG.head_dim * 4
    with _engine(cache_bytes=7 * page) as engine:
        _alike(_sample(engine, range(len(alone)), _prompts()), alone)
        assert engine.stats().num_free_pages == 6


def test_it_is_computed_once_and_counted():
    prompt = np.concatenate([PREAMBLE, np.arange(61), np.arange(10)])
    with _engine() as engine:
        for last, computed in ((1, 100 + 71), (2, 7), (2, 7)):
            before = engine.stats()
            engine.submit(np.append(prompt, last), max_new_tokens=2).result(TIMEOUT)
            spent = engine.stats().delta(before)
            assert (spent.prefilled_tokens, spent.prompt_tokens) == (computed, 172)


def test_nothing_compiles_after_the_warmup():
    with _engine() as engine:
        engine.warmup()
        compiled = engine.stats().num_compiled_programs
        _sample(engine, range(6), _prompts()[:6])
        engine.update_weights(PARAMS, version=1)
        engine.sleep()
        engine.wake_up()
        _sample(engine, range(6), _prompts()[:6])
        assert engine.stats().num_compiled_programs == compiled


@pytest.mark.parametrize("running", ["drain", "continue", "recompute"])
def test_an_update_forgets_the_keys_of_the_old_params(running):
    other, prompts = _params(1), _prompts()
    with inference.Engine(CONFIG, other, **BUILD, shared_prefix=PREAMBLE) as engine:
        expected = _sample(engine, range(len(prompts)), prompts)
    with _engine() as engine:
        _sample(engine, range(4), prompts[:4])
        engine.update_weights(other, version=1, in_flight=running)
        _alike(_sample(engine, range(len(prompts)), prompts), expected)
        assert engine.stats().prefilled_tokens > 2 * len(PREAMBLE)


def test_memory_may_be_given_back_for_a_while(alone):
    with _engine() as engine:
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
        _alike([future.result(TIMEOUT) for future in futures], alone, atol=1e-5)


def test_a_short_one_stays_in_the_pages():
    with _engine(shared_prefix=PREAMBLE[:63]) as engine:
        engine.warmup()
        with _engine(shared_prefix=()) as plain:
            plain.warmup()
            assert engine.stats().num_compiled_programs == plain.stats().num_compiled_programs


@pytest.mark.parametrize(
    ("preamble", "message"),
    [
        ([1] * 319, "a shared prefix of 319 tokens leaves no space"),
        ([61] * 80, "shared_prefix has ids outside the vocabulary"),
        ([[1] * 80], "shared_prefix must be a flat sequence"),
    ],
)
def test_a_bad_one_is_refused(preamble, message):
    with pytest.raises(ValueError, match=message):
        _engine(shared_prefix=preamble)
