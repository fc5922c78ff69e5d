"""The engine: what it samples, that company does not matter, and that nobody hangs."""

from __future__ import annotations

import functools
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webagent_jax import inference, policy
from webagent_jax.inference import engine_shapes
from webagent_jax.types import Completion

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48, rope_theta=1_000.0)
BUILD = {"slots": 4, "max_model_len": 320, "steps_per_dispatch": 4}  # compiled once for all tests
LONG = {**BUILD, "max_model_len": 1100}  # long enough for stretches of several pages
TIMEOUT = 120.0  # seconds


def _params(seed: int) -> Any:
    """Params with larger embeddings than at birth, so that tokens differ in probability."""
    params = policy.init(CONFIG, jax.random.key(seed))
    return {**params, "embed": params["embed"] * 20.0}


PARAMS = _params(0)


@dataclass(frozen=True)
class Ask:
    prompt: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)


def _asks(n: int, seed: int = 0) -> list[Ask]:
    """Requests of all kinds: lengths over several buckets, greedy, tempered, nucleus, stops."""
    rng = np.random.default_rng(seed)
    asks = []
    for i in range(n):
        length = int(rng.choice([1, 2, 40, 64, 65, 130, 200, 290]))
        options = {
            "max_new_tokens": int(rng.integers(1, 24)),
            "temperature": float(rng.choice([0.0, 0.7, 1.0])),
            "top_p": float(rng.choice([1.0, 1.0, 0.8])),
            "top_k": int(rng.choice([0, 0, 5])),
            "seed": i,
            "stop_ids": tuple(map(int, rng.integers(0, 61, rng.integers(0, 3)))),
        }
        asks.append(Ask(tuple(map(int, rng.integers(0, 61, length))), options))
    return asks


def _submit(engine: inference.Engine, ask: Ask) -> Future[Completion]:
    return engine.submit(ask.prompt, **ask.options)


def _same(a: Completion, b: Completion) -> None:
    np.testing.assert_array_equal(a.token_ids, b.token_ids)
    np.testing.assert_array_equal(a.logp, b.logp)
    assert a.finish == b.finish


@pytest.fixture(scope="module")
def engine():
    with inference.Engine(CONFIG, PARAMS, **BUILD) as engine:
        yield engine


@pytest.fixture(scope="module")
def long_engine():
    with inference.Engine(CONFIG, PARAMS, **LONG) as engine:
        yield engine


_forward = jax.jit(lambda params, tokens: policy.logits(CONFIG, params, tokens))


def _teacher_forced(prompt, reply, params=PARAMS) -> np.ndarray:
    """Log-probabilities [C, V] from one pass over prompt and reply."""
    row = np.zeros((1, 320 if len(prompt) + len(reply) <= 320 else 1100), np.int32)
    row[0, : len(prompt) + len(reply)] = [*prompt, *reply]
    logits = _forward(params, row)[0, len(prompt) - 1 : len(prompt) + len(reply) - 1]
    return np.asarray(jax.nn.log_softmax(logits, axis=-1))


# --- what it samples ------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 64, 65, 66, 200])
def test_greedy_is_the_argmax_of_one_pass(engine, length):
    prompt = np.random.default_rng(length).integers(0, 61, length)
    done = engine.submit(prompt, max_new_tokens=20, temperature=0.0).result(TIMEOUT)
    table = _teacher_forced(prompt, done.token_ids)
    np.testing.assert_array_equal(done.token_ids, table.argmax(axis=-1))
    assert done.finish == "length"
    assert done.token_ids.dtype == done.policy_version.dtype == np.int32


@pytest.mark.parametrize("length", [1, 200, 257, 1000])
def test_greedy_is_the_argmax_over_long_prompts(long_engine, length):
    test_greedy_is_the_argmax_of_one_pass(long_engine, length)


def test_logp_is_the_untempered_policy_s(engine):
    for ask in _asks(12, seed=3):
        done = _submit(engine, ask).result(TIMEOUT)
        table = _teacher_forced(ask.prompt, done.token_ids)
        picked = table[np.arange(len(done.token_ids)), done.token_ids]
        np.testing.assert_allclose(done.logp, picked, atol=1e-4)


def test_stop_ids_end_a_reply_and_are_part_of_it(engine):
    prompt = [5, 6, 7]
    free = engine.submit(prompt, max_new_tokens=30, seed=1).result(TIMEOUT)
    stop = int(free.token_ids[9])
    first = int(np.flatnonzero(free.token_ids == stop)[0])
    done = engine.submit(prompt, max_new_tokens=30, seed=1, stop_ids=(60, stop)).result(TIMEOUT)
    np.testing.assert_array_equal(done.token_ids, free.token_ids[: first + 1])
    assert done.finish == "stop"
    last = engine.submit(prompt, max_new_tokens=first + 1, seed=1, stop_ids=(stop,))
    assert last.result(TIMEOUT).finish == "stop"


def test_limits_cut_a_reply(engine):
    for prompt, wanted, length in (([1], 7, 7), ([1] * 316, 64, 4), ([1] * 319, 64, 1)):
        done = engine.submit(prompt, max_new_tokens=wanted).result(TIMEOUT)
        assert (len(done.token_ids), done.finish) == (length, "length")


def test_replies_follow_the_policy(engine):
    # 600 first tokens: a frequency is off by 0.1 or more with odds below 61 * 1e-5 (Hoeffding).
    prompt, n = [9, 8, 7], 600
    futures = [engine.submit(prompt, max_new_tokens=1, seed=i) for i in range(n)]
    tokens = [int(future.result(TIMEOUT).token_ids[0]) for future in futures]
    frequency = np.bincount(tokens, minlength=61) / n
    expected = np.exp(_teacher_forced(prompt, [0])[0])
    assert expected.max() > 0.15
    assert np.abs(frequency - expected).max() < 0.1


# --- company does not matter ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(engine):
    """Each of the asks sampled by itself."""
    return [_submit(engine, ask).result(TIMEOUT) for ask in _asks(24)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_completions_are_the_same_in_any_company_and_order(engine, alone, seed):
    rng = np.random.default_rng(seed)
    asks = _asks(24)
    futures = {}
    for index in rng.permutation(len(asks)):
        futures[index] = _submit(engine, asks[index])
        if rng.random() < 0.3:
            time.sleep(float(rng.uniform(0.0, 0.02)))
    for index, future in futures.items():
        _same(future.result(TIMEOUT), alone[index])


def test_completions_do_not_depend_on_the_dispatch(alone):
    with inference.Engine(
        CONFIG, PARAMS, slots=4, max_model_len=320, steps_per_dispatch=7
    ) as other:
        futures = [_submit(other, ask) for ask in _asks(24)]
        for future, expected in zip(futures, alone, strict=True):
            _same(future.result(TIMEOUT), expected)


@pytest.mark.parametrize("ahead", [1, 2])
def test_completions_do_not_depend_on_who_reads_them_when(alone, ahead):
    with inference.Engine(CONFIG, PARAMS, **BUILD, dispatches_ahead=ahead) as other:
        futures = [_submit(other, ask) for ask in _asks(24)]
        for future, expected in zip(futures, alone, strict=True):
            _same(future.result(TIMEOUT), expected)


def test_threads_may_submit_together(engine, alone):
    asks = _asks(24)
    results: list[Completion | None] = [None] * len(asks)

    def ask(start: int) -> None:
        for index in range(start, len(asks), 4):
            results[index] = _submit(engine, asks[index]).result(TIMEOUT)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    for result, expected in zip(results, alone, strict=True):
        _same(result, expected)


def test_seeds_matter_and_are_64_bit(engine):
    def tokens(seed: int | None) -> list[int]:
        return (
            engine.submit([3, 4], max_new_tokens=12, seed=seed).result(TIMEOUT).token_ids.tolist()
        )

    assert tokens(5) == tokens(5)
    drawn = {tuple(tokens(seed)) for seed in (5, 6, 5 + 2**32, -5, None, None)}
    assert len(drawn) == 6


def test_an_engine_s_own_seeds_repeat():
    def replies() -> list[list[int]]:
        with inference.Engine(CONFIG, PARAMS, **BUILD, seed=3) as engine:
            futures = [engine.submit([1, 2], max_new_tokens=6) for _ in range(3)]
            return [future.result(TIMEOUT).token_ids.tolist() for future in futures]

    assert replies() == replies()


def test_all_slots_at_once_sample_what_one_after_the_other_does(engine, monkeypatch):
    """As they are decoded where weights are large: a computation of another shape."""
    asks = _asks(24)
    apart = [_submit(engine, ask) for ask in asks]
    monkeypatch.setattr(engine_shapes, "_CPU_CACHE_BYTES", 0)
    with inference.Engine(CONFIG, PARAMS, **BUILD) as whole:
        for one, ask in zip(apart, asks, strict=True):
            expected, found = one.result(TIMEOUT), _submit(whole, ask).result(TIMEOUT)
            np.testing.assert_array_equal(found.token_ids, expected.token_ids)
            np.testing.assert_allclose(found.logp, expected.logp, atol=1e-4)


# --- prefixes ------------------------------------------------------------------------------------


def test_prompts_that_begin_alike_are_computed_once():
    history = tuple(range(60)) * 4
    with inference.Engine(CONFIG, PARAMS, **BUILD) as engine:
        for end, computed in ((1, 240), (2, 48), (2, 48), (3, 48)):
            before = engine.stats().prefilled_tokens
            engine.submit((*history, end), max_new_tokens=2).result(TIMEOUT)
            assert engine.stats().prefilled_tokens - before == computed
        assert engine.stats().prompt_tokens == 4 * 241


def _families(shared: list[int], own: int) -> st.SearchStrategy[Any]:
    """Schedules of requests whose prompts begin alike, by kind."""
    request = st.tuples(
        st.sampled_from(shared),  # tokens that all prompts of a kind share
        st.integers(0, 2),  # the kind
        st.integers(1, own),  # tokens of its own, at most
        st.integers(0, 3),  # a seed
        st.floats(0.0, 0.01),  # seconds before the next
        st.booleans(),  # whether it is cancelled soon
    )
    return st.lists(request, min_size=1, max_size=24)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(schedule=_families([0, 64, 128, 200], 90))
def test_a_request_gets_the_same_in_any_schedule(engine, schedule):
    _gets_the_same(engine, schedule, 320)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(schedule=_families([0, 64, 320, 700], 300))
def test_a_long_request_gets_the_same_in_any_schedule(long_engine, schedule):
    _gets_the_same(long_engine, schedule, 1100)


def _gets_the_same(engine: inference.Engine, schedule: Any, max_tokens: int) -> None:
    def ask(shared: int, kind: int, own: int, seed: int) -> Ask:
        common = np.random.default_rng(kind).integers(0, 61, shared)
        rest = np.random.default_rng([kind, own]).integers(0, 61, own)
        prompt = tuple(map(int, (*common, *rest)))
        return Ask(prompt, {"max_new_tokens": 12, "seed": seed})

    futures = []
    for shared, kind, own, seed, pause, cancelled in schedule:
        future = _submit(engine, ask(shared, kind, own, seed))
        time.sleep(pause)
        if cancelled:
            future.cancel()
        futures.append((ask(shared, kind, own, seed), future))
    for asked, future in futures:
        if not future.cancelled():
            expected = _alone(asked.prompt, asked.options["seed"], max_tokens)
            _same(future.result(TIMEOUT), expected)


@functools.cache
def _alone(prompt: tuple[int, ...], seed: int, max_tokens: int) -> Completion:
    """By an engine that has nothing in its cache."""
    build = {**BUILD, "max_model_len": max_tokens}
    with inference.Engine(CONFIG, PARAMS, **build) as fresh:
        return fresh.submit(prompt, max_new_tokens=12, seed=seed).result(TIMEOUT)


def test_little_memory_makes_requests_wait(alone):
    one = 5 * 64 * 2 * CONFIG.num_layers * CONFIG.num_kv_heads * CONFIG.head_dim * 4
    with inference.Engine(CONFIG, PARAMS, **BUILD, cache_bytes=one * 3 // 2) as engine:
        futures = [_submit(engine, ask) for ask in _asks(24)]
        for future, expected in zip(futures, alone, strict=True):
            _same(future.result(TIMEOUT), expected)
        assert engine.stats().num_free_pages == 6
    with pytest.raises(ValueError, match="too small for one sequence of max_model_len=320"):
        inference.Engine(CONFIG, PARAMS, **BUILD, cache_bytes=one)


# --- other params ---------------------------------------------------------------------------------


def test_update_switches_between_requests():
    other = _params(1)
    prompt = list(range(20))
    options = {"max_new_tokens": 30, "temperature": 0.0}
    with inference.Engine(CONFIG, PARAMS, **BUILD, version=4) as engine:
        before = [engine.submit(prompt, **options) for _ in range(6)]
        engine.update_weights(other, version=5)
        after = [engine.submit(prompt, **options) for _ in range(3)]
        for futures, params, version in ((before, PARAMS, 4), (after, other, 5)):
            for future in futures:
                done = future.result(TIMEOUT)
                table = _teacher_forced(prompt, done.token_ids, params)
                np.testing.assert_array_equal(done.token_ids, table.argmax(axis=-1))
                np.testing.assert_array_equal(done.policy_version, version)


@pytest.mark.parametrize("running", ["continue", "recompute"])
def test_update_may_come_between_two_tokens(running):
    other = _params(1)
    prompt, options = list(range(20)), {"max_new_tokens": 200, "temperature": 0.0}
    with inference.Engine(CONFIG, PARAMS, **BUILD) as engine:
        known = [*range(61), *range(61)]
        engine.submit(known, max_new_tokens=2).result(TIMEOUT)  # leaves a prefix
        _slow_down(engine)
        futures = [engine.submit(prompt, **options) for _ in range(6)]
        while engine.stats().sampled_tokens < 60:
            time.sleep(0.01)
        engine.update_weights(other, version=1, in_flight=running)
        done = engine.submit(known, max_new_tokens=8, seed=1).result(TIMEOUT)
        table = _teacher_forced(known, done.token_ids, other)
        np.testing.assert_allclose(done.logp, table[np.arange(8), done.token_ids], atol=1e-4)
        for number, future in enumerate(futures):
            done = future.result(TIMEOUT)
            version = done.policy_version
            first = int(np.argmax(version))
            np.testing.assert_array_equal(version, np.arange(200) >= first)
            assert (first > 0) == (number < 4)  # four had a slot
            before = _teacher_forced(prompt, done.token_ids).argmax(axis=-1)
            after = _teacher_forced(prompt, done.token_ids, other).argmax(axis=-1)
            np.testing.assert_array_equal(done.token_ids[:first], before[:first])
            if running == "recompute" or first == 0:
                np.testing.assert_array_equal(done.token_ids[first:], after[first:])


def test_an_update_that_cannot_wait_overtakes_one_that_can():
    with inference.Engine(CONFIG, PARAMS, **BUILD) as engine:
        _slow_down(engine)
        running = engine.submit([1], max_new_tokens=100)
        engine.update_weights(PARAMS, version=1)
        engine.update_weights(PARAMS, version=2, in_flight="continue")
        after = engine.submit([1], max_new_tokens=3).result(TIMEOUT)
        assert after.policy_version.tolist() == [2] * 3
        assert running.result(TIMEOUT).policy_version[-1] == 2


def test_memory_may_be_given_back_for_a_while(alone):
    with inference.Engine(CONFIG, PARAMS, **BUILD) as engine:
        _slow_down(engine)
        futures = [_submit(engine, ask) for ask in _asks(24)]
        while not engine.stats().sampled_tokens:
            time.sleep(0.01)
        engine.sleep()
        assert engine._state is None
        late = engine.submit([1], max_new_tokens=2)
        hopeless = engine.submit([1], timeout=0.01)
        with pytest.raises(inference.RequestTimeout):
            hopeless.result(TIMEOUT)
        assert not late.done()
        engine.update_weights(PARAMS, version=1)
        engine.wake_up()
        for future, expected in zip(futures, alone, strict=True):
            done = future.result(TIMEOUT)
            np.testing.assert_allclose(done.logp, expected.logp, atol=1e-4)
            np.testing.assert_array_equal(done.token_ids, expected.token_ids)
        assert len(late.result(TIMEOUT).token_ids) == 2


def test_the_caller_may_donate_what_it_gave():
    params = jax.tree.map(jnp.copy, PARAMS)
    with inference.Engine(CONFIG, params, **BUILD) as engine:
        engine.update_weights(params, version=1)
        for leaf in jax.tree.leaves(params):
            leaf.delete()
        done = engine.submit([1, 2], max_new_tokens=4).result(TIMEOUT)
        assert done.policy_version.tolist() == [1] * 4


def test_update_refuses_other_shapes(engine):
    with pytest.raises(ValueError, match="differ"):
        engine.update_weights({**PARAMS, "embed": PARAMS["embed"][:-1]}, version=1)


# --- callers that err, leave or are let down ------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([1] * 320, {}, "max_model_len=320"),
        ([], {}, "one token id"),
        ([[1, 2]], {}, "flat"),
        ([0.5], {}, "token id"),
        ([61], {}, "0 to 60"),
        ([-1], {}, "0 to 60"),
        ([1], {"max_new_tokens": 0}, "max_new_tokens=0"),
        ([1], {"temperature": -1.0}, "temperature=-1"),
        ([1], {"temperature": float("nan")}, "temperature=nan"),
        ([1], {"top_p": 0.0}, "top_p=0"),
        ([1], {"top_k": -1}, "top_k=-1"),
        ([1], {"stop_ids": range(9)}, "9 stop_ids"),
        ([1], {"stop_ids": [2**40]}, "stop_ids has ids outside"),
    ],
)
def test_bad_requests_are_refused_at_once(engine, prompt, options, message):
    with pytest.raises(ValueError, match=message):
        engine.submit(prompt, **options)


def test_bad_engines_are_refused():
    for options in ({"slots": 0}, {"max_model_len": 1}, {"steps_per_dispatch": 0}):
        with pytest.raises(ValueError, match="or more"):
            inference.Engine(CONFIG, PARAMS, **options)
    with pytest.raises(ValueError, match="32768 positions"):
        inference.Engine(CONFIG, PARAMS, max_model_len=32769)


def _slow_down(engine: inference.Engine) -> None:
    """Makes every dispatch take a while, so that requests can be caught running."""
    decode = engine._programs.decode

    def slow(*args: Any) -> Any:
        time.sleep(0.02)
        return decode(*args)

    engine._programs.decode = slow


def test_cancelling_frees_the_slot():
    with inference.Engine(CONFIG, PARAMS, **BUILD) as engine:
        _slow_down(engine)
        futures = [engine.submit([1], max_new_tokens=300) for _ in range(6)]
        while not engine.stats().dispatches:
            time.sleep(0.01)
        assert all(future.cancel() for future in futures)
        assert len(engine.submit([1], max_new_tokens=3).result(TIMEOUT).token_ids) == 3
        stats = engine.stats()
    assert stats.requests == 5  # two were cancelled before they had a slot
    assert stats.sampled_tokens < 4 * 300


def test_deadlines_are_kept():
    with inference.Engine(CONFIG, PARAMS, **BUILD) as engine:
        _slow_down(engine)
        futures = [engine.submit([1], max_new_tokens=300, timeout=0.2) for _ in range(6)]
        for future in futures:
            with pytest.raises(inference.RequestTimeout, match="deadline"):
                future.result(TIMEOUT)
        assert len(engine.submit([1], max_new_tokens=3, timeout=TIMEOUT).result().token_ids) == 3


def test_a_failing_device_fails_everybody():
    with inference.Engine(CONFIG, PARAMS, **BUILD) as engine:
        assert engine.submit([1], max_new_tokens=1).result(TIMEOUT)
        go = threading.Event()

        def broken(*_: object) -> None:
            go.wait(TIMEOUT)
            raise RuntimeError("out of memory")

        engine._programs.decode = broken
        futures = [engine.submit([1]) for _ in range(5)]
        go.set()
        for future in futures:
            with pytest.raises(inference.EngineError, match="out of memory") as caught:
                future.result(TIMEOUT)
            assert isinstance(caught.value.__cause__, RuntimeError)
        with pytest.raises(inference.EngineError, match="out of memory"):
            engine.submit([1])
        with pytest.raises(inference.EngineError):
            engine.update_weights(PARAMS, version=1)


def test_close_fails_what_is_left_and_leaves_no_thread():
    before = threading.active_count()
    engine = inference.Engine(CONFIG, PARAMS, **BUILD)
    _slow_down(engine)
    futures = [engine.submit([1], max_new_tokens=300) for _ in range(6)]
    engine.close()
    engine.close()
    for future in futures:
        with pytest.raises(inference.EngineError, match="closed"):
            future.result(TIMEOUT)
    with pytest.raises(inference.EngineError, match="closed"):
        engine.submit([1])
    assert threading.active_count() == before


def test_a_callback_may_close_the_engine():
    engine = inference.Engine(CONFIG, PARAMS, **BUILD)
    closed = threading.Event()

    def close(_: Future[Completion]) -> None:
        engine.close()
        closed.set()

    engine.submit([1], max_new_tokens=1).add_done_callback(close)
    assert closed.wait(TIMEOUT)
    engine.close()


# --- accounts -------------------------------------------------------------------------------------


def test_warmup_compiles_all_there_is_and_stats_add_up():
    calls = []
    with inference.Engine(CONFIG, PARAMS, **BUILD) as engine:
        engine.warmup(lambda done, total: calls.append((done, total)))
        compiled = engine.stats().num_compiled_programs
        assert calls == [(i, compiled) for i in range(compiled + 1)]
        futures = [engine.submit([1] * n, max_new_tokens=5) for n in (1, 300, 3, 150, 1, 1)]
        for future in futures:
            future.result(TIMEOUT)
        stats = engine.stats()
    assert stats.num_compiled_programs == compiled
    assert (stats.requests, stats.prompt_tokens, stats.sampled_tokens) == (6, 456, 30)
    assert stats.num_queued == 0
    assert stats.occupancy == pytest.approx(30 / (4 * stats.decode_steps))
    assert 0.25 < stats.occupancy <= 1.0
