"""Tests of the engine: sampling, batch invariance, weight updates, errors and statistics."""

from __future__ import annotations

import concurrent.futures
import functools
import math
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
from webagent_jax.inference import engine as engine_module
from webagent_jax.inference import engine_shapes, gpu_paged_attention
from webagent_jax.types import Completion

CONFIG = policy.ModelConfig(61, 32, 2, 4, 2, 8, 48, rope_theta=1_000.0)
# Programs are compiled once for all tests.
ENGINE_OPTIONS = {"slots": 4, "max_model_len": 320, "steps_per_dispatch": 4}
# Long prompts are prefilled in chunks of several pages.
LONG_ENGINE_OPTIONS = {**ENGINE_OPTIONS, "max_model_len": 1100}
TIMEOUT = 120.0  # seconds


def _params(seed: int) -> Any:
    """Return params with larger embeddings than at initialization, so that probabilities differ."""
    params = policy.init(CONFIG, jax.random.key(seed))
    return {**params, "embed": params["embed"] * 20.0}


PARAMS = _params(0)


@dataclass(frozen=True)
class SamplingRequest:
    prompt: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)


def _make_requests(n: int, seed: int = 0) -> list[SamplingRequest]:
    """Return requests with various lengths, temperatures, filters and stop ids."""
    rng = np.random.default_rng(seed)
    requests = []
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
        requests.append(SamplingRequest(tuple(map(int, rng.integers(0, 61, length))), options))
    return requests


def _submit(engine: inference.Engine, request: SamplingRequest) -> Future[Completion]:
    return engine.submit(request.prompt, **request.options)


def _assert_equal(a: Completion, b: Completion) -> None:
    np.testing.assert_array_equal(a.token_ids, b.token_ids)
    np.testing.assert_array_equal(a.logp, b.logp)
    assert a.finish == b.finish


@pytest.fixture(scope="module")
def engine():
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as engine:
        yield engine


@pytest.fixture(scope="module")
def long_engine():
    with inference.Engine(CONFIG, PARAMS, **LONG_ENGINE_OPTIONS) as engine:
        yield engine


_forward = jax.jit(lambda params, tokens: policy.logits(CONFIG, params, tokens))


def _forward_logp(prompt, response, params=PARAMS) -> np.ndarray:
    """Return log-probabilities [C, V] of the response positions from one forward pass."""
    row = np.zeros((1, 320 if len(prompt) + len(response) <= 320 else 1100), np.int32)
    row[0, : len(prompt) + len(response)] = [*prompt, *response]
    logits = _forward(params, row)[0, len(prompt) - 1 : len(prompt) + len(response) - 1]
    return np.asarray(jax.nn.log_softmax(logits, axis=-1))


# --- sampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 64, 65, 66, 200])
def test_greedy_tokens_match_argmax_of_forward(engine, length):
    prompt = np.random.default_rng(length).integers(0, 61, length)
    completion = engine.submit(prompt, max_new_tokens=20, temperature=0.0).result(TIMEOUT)
    logp = _forward_logp(prompt, completion.token_ids)
    np.testing.assert_array_equal(completion.token_ids, logp.argmax(axis=-1))
    assert completion.finish == "length"
    assert completion.token_ids.dtype == completion.policy_version.dtype == np.int32


@pytest.mark.parametrize("length", [1, 200, 257, 1000])
def test_greedy_tokens_match_argmax_for_long_prompts(long_engine, length):
    test_greedy_tokens_match_argmax_of_forward(long_engine, length)


def test_logp_is_independent_of_sampling_options(engine):
    for request in _make_requests(12, seed=3):
        completion = _submit(engine, request).result(TIMEOUT)
        logp = _forward_logp(request.prompt, completion.token_ids)
        expected = logp[np.arange(len(completion.token_ids)), completion.token_ids]
        np.testing.assert_allclose(completion.logp, expected, atol=1e-4)


def test_stop_id_ends_response_and_is_included(engine):
    prompt = [5, 6, 7]
    baseline = engine.submit(prompt, max_new_tokens=30, seed=1).result(TIMEOUT)
    stop = int(baseline.token_ids[9])
    first = int(np.flatnonzero(baseline.token_ids == stop)[0])
    completion = engine.submit(prompt, max_new_tokens=30, seed=1, stop_ids=(60, stop)).result(
        TIMEOUT
    )
    np.testing.assert_array_equal(completion.token_ids, baseline.token_ids[: first + 1])
    assert completion.finish == "stop"
    future = engine.submit(prompt, max_new_tokens=first + 1, seed=1, stop_ids=(stop,))
    assert future.result(TIMEOUT).finish == "stop"


def test_token_limits_truncate_response(engine):
    for prompt, max_new_tokens, length in (([1], 7, 7), ([1] * 316, 64, 4), ([1] * 319, 64, 1)):
        completion = engine.submit(prompt, max_new_tokens=max_new_tokens).result(TIMEOUT)
        assert (len(completion.token_ids), completion.finish) == (length, "length")


def test_token_frequencies_match_policy(engine):
    # 600 first tokens: a frequency is off by 0.1 or more with odds below 61 * 1e-5 (Hoeffding).
    prompt, n = [9, 8, 7], 600
    futures = [engine.submit(prompt, max_new_tokens=1, seed=i) for i in range(n)]
    tokens = [int(future.result(TIMEOUT).token_ids[0]) for future in futures]
    frequency = np.bincount(tokens, minlength=61) / n
    expected = np.exp(_forward_logp(prompt, [0])[0])
    assert expected.max() > 0.15
    assert np.abs(frequency - expected).max() < 0.1


# --- batch invariance -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def single_completions(engine):
    """Return the completion of each request sampled by itself."""
    return [_submit(engine, request).result(TIMEOUT) for request in _make_requests(24)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_completions_are_independent_of_batch_and_order(engine, single_completions, seed):
    rng = np.random.default_rng(seed)
    requests = _make_requests(24)
    futures = {}
    for index in rng.permutation(len(requests)):
        futures[index] = _submit(engine, requests[index])
        if rng.random() < 0.3:
            time.sleep(float(rng.uniform(0.0, 0.02)))
    for index, future in futures.items():
        _assert_equal(future.result(TIMEOUT), single_completions[index])


def test_completions_are_independent_of_steps_per_dispatch(single_completions):
    with inference.Engine(
        CONFIG, PARAMS, slots=4, max_model_len=320, steps_per_dispatch=7
    ) as other_engine:
        futures = [_submit(other_engine, request) for request in _make_requests(24)]
        for future, expected in zip(futures, single_completions, strict=True):
            _assert_equal(future.result(TIMEOUT), expected)


def test_waiting_requests_refill_a_sixteenth_of_the_slots_at_once():
    limits = [2, 4, *[12] * 30, 4, 4]
    with inference.Engine(CONFIG, PARAMS, slots=32, max_model_len=64) as engine:
        engine.sleep()
        futures = [engine.submit([1], max_new_tokens=limit) for limit in limits]
        engine.wake_up()
        for future, limit in zip(futures, limits, strict=True):
            assert len(future.result(TIMEOUT).token_ids) == limit
        stats = engine.stats()
    # The first dispatch ends at step 4, when a second slot has finished, not at step 2.
    assert (stats.dispatches, stats.decode_steps) == (2, 12)


@pytest.mark.parametrize("unread", [1, 2])
def test_completions_are_independent_of_unread_dispatches(single_completions, unread, monkeypatch):
    monkeypatch.setattr(engine_module, "_max_unread_dispatches", lambda: unread)
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as other_engine:
        futures = [_submit(other_engine, request) for request in _make_requests(24)]
        for future, expected in zip(futures, single_completions, strict=True):
            _assert_equal(future.result(TIMEOUT), expected)


def test_concurrent_submits_match_single_completions(engine, single_completions):
    requests = _make_requests(24)
    results: list[Completion | None] = [None] * len(requests)

    def submit_requests(start: int) -> None:
        for index in range(start, len(requests), 4):
            results[index] = _submit(engine, requests[index]).result(TIMEOUT)

    threads = [threading.Thread(target=submit_requests, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    for result, expected in zip(results, single_completions, strict=True):
        _assert_equal(result, expected)


def test_64_bit_seeds_give_distinct_responses(engine):
    def sample(seed: int | None) -> list[int]:
        return (
            engine.submit([3, 4], max_new_tokens=12, seed=seed).result(TIMEOUT).token_ids.tolist()
        )

    assert sample(5) == sample(5)
    responses = {tuple(sample(seed)) for seed in (5, 6, 5 + 2**32, -5, None, None)}
    assert len(responses) == 6


def test_engine_seed_reproduces_responses():
    def sample() -> list[list[int]]:
        with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS, seed=3) as engine:
            futures = [engine.submit([1, 2], max_new_tokens=6) for _ in range(3)]
            return [future.result(TIMEOUT).token_ids.tolist() for future in futures]

    assert sample() == sample()


def test_batched_decode_matches_sequential_decode(engine, monkeypatch):
    """Large weights are decoded in a batch: a computation of another shape."""
    requests = _make_requests(24)
    futures = [_submit(engine, request) for request in requests]
    monkeypatch.setattr(engine_shapes, "_CPU_CACHE_BYTES", 0)
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as batch_engine:
        for future, request in zip(futures, requests, strict=True):
            expected, actual = (
                future.result(TIMEOUT),
                _submit(batch_engine, request).result(TIMEOUT),
            )
            np.testing.assert_array_equal(actual.token_ids, expected.token_ids)
            np.testing.assert_allclose(actual.logp, expected.logp, atol=1e-4)


@pytest.mark.parametrize("layout, attention", [("rows", "xla"), ("fused", "xla"), ("rows", "gpu")])
def test_accelerator_attention_matches_cpu(single_completions, layout, attention, monkeypatch):
    monkeypatch.setattr(engine_shapes, "_kv_layout", lambda config, platform: layout)
    monkeypatch.setattr(engine_shapes, "_decode_attention", lambda config, platform: attention)
    interpreted = functools.partial(gpu_paged_attention.attend, interpret=True)
    monkeypatch.setattr(gpu_paged_attention, "attend", interpreted)
    monkeypatch.setattr(engine_shapes, "_CPU_DECODE_PAGES_PER_BLOCK", 4)
    monkeypatch.setattr(engine_shapes, "_CPU_CACHE_BYTES", 0)
    requests = _make_requests(24)
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as other_engine:
        together = [_submit(other_engine, request) for request in requests]
        for request, future, expected in zip(requests, together, single_completions, strict=True):
            completion = future.result(TIMEOUT)
            _assert_equal(_submit(other_engine, request).result(TIMEOUT), completion)
            np.testing.assert_array_equal(completion.token_ids, expected.token_ids)
            np.testing.assert_allclose(completion.logp, expected.logp, atol=1e-4)


# --- prefix cache ---------------------------------------------------------------------------------


def test_common_prefix_is_prefilled_once():
    history = tuple(range(60)) * 4
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as engine:
        for last_token, num_prefilled in ((1, 240), (2, 48), (2, 48), (3, 48)):
            start = engine.stats().prefilled_tokens
            engine.submit((*history, last_token), max_new_tokens=2).result(TIMEOUT)
            assert engine.stats().prefilled_tokens - start == num_prefilled
        assert engine.stats().prompt_tokens == 4 * 241


def _schedules(prefix_lengths: list[int], max_own_tokens: int) -> st.SearchStrategy[Any]:
    """Return schedules of requests of three kinds; prompts of a kind share a prefix."""
    request = st.tuples(
        st.sampled_from(prefix_lengths),  # length of the shared prefix
        st.integers(0, 2),  # kind
        st.integers(1, max_own_tokens),  # number of other tokens
        st.integers(0, 3),  # seed
        st.floats(0.0, 0.01),  # seconds before the next request
        st.booleans(),  # whether the request is cancelled
    )
    return st.lists(request, min_size=1, max_size=24)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(schedule=_schedules([0, 64, 128, 200], 90))
def test_completions_are_independent_of_schedule(engine, schedule):
    _check_schedule(engine, schedule, 320)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(schedule=_schedules([0, 64, 320, 700], 300))
def test_long_completions_are_independent_of_schedule(long_engine, schedule):
    _check_schedule(long_engine, schedule, 1100)


def _check_schedule(engine: inference.Engine, schedule: Any, max_tokens: int) -> None:
    def make_request(prefix_tokens: int, kind: int, own_tokens: int, seed: int) -> SamplingRequest:
        common = np.random.default_rng(kind).integers(0, 61, prefix_tokens)
        rest = np.random.default_rng([kind, own_tokens]).integers(0, 61, own_tokens)
        prompt = tuple(map(int, (*common, *rest)))
        return SamplingRequest(prompt, {"max_new_tokens": 12, "seed": seed})

    futures = []
    for prefix_tokens, kind, own_tokens, seed, pause, is_cancelled in schedule:
        future = _submit(engine, make_request(prefix_tokens, kind, own_tokens, seed))
        time.sleep(pause)
        if is_cancelled:
            future.cancel()
        futures.append((make_request(prefix_tokens, kind, own_tokens, seed), future))
    for request, future in futures:
        if not future.cancelled():
            expected = _sample_with_empty_cache(request.prompt, request.options["seed"], max_tokens)
            _assert_equal(future.result(TIMEOUT), expected)


@functools.cache
def _sample_with_empty_cache(prompt: tuple[int, ...], seed: int, max_tokens: int) -> Completion:
    options = {**ENGINE_OPTIONS, "max_model_len": max_tokens}
    with inference.Engine(CONFIG, PARAMS, **options) as engine:
        return engine.submit(prompt, max_new_tokens=12, seed=seed).result(TIMEOUT)


def test_requests_wait_for_free_pages(single_completions):
    sequence_bytes = 5 * 64 * 2 * CONFIG.num_layers * CONFIG.num_kv_heads * CONFIG.head_dim * 4
    with inference.Engine(
        CONFIG, PARAMS, **ENGINE_OPTIONS, cache_bytes=sequence_bytes * 3 // 2
    ) as engine:
        futures = [_submit(engine, request) for request in _make_requests(24)]
        for future, expected in zip(futures, single_completions, strict=True):
            _assert_equal(future.result(TIMEOUT), expected)
        assert engine.stats().num_free_pages == 6
    with pytest.raises(ValueError, match="too small for one sequence of max_model_len=320"):
        inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS, cache_bytes=sequence_bytes)


# --- weight updates -------------------------------------------------------------------------------


def test_update_weights_applies_to_later_requests():
    new_params = _params(1)
    prompt = list(range(20))
    options = {"max_new_tokens": 30, "temperature": 0.0}
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS, version=4) as engine:
        old_futures = [engine.submit(prompt, **options) for _ in range(6)]
        engine.update_weights(new_params, version=5)
        new_futures = [engine.submit(prompt, **options) for _ in range(3)]
        for futures, params, version in ((old_futures, PARAMS, 4), (new_futures, new_params, 5)):
            for future in futures:
                completion = future.result(TIMEOUT)
                logp = _forward_logp(prompt, completion.token_ids, params)
                np.testing.assert_array_equal(completion.token_ids, logp.argmax(axis=-1))
                np.testing.assert_array_equal(completion.policy_version, version)


@pytest.mark.parametrize("mode", ["continue", "recompute"])
def test_in_flight_update_applies_between_tokens(mode):
    new_params = _params(1)
    prompt, options = list(range(20)), {"max_new_tokens": 200, "temperature": 0.0}
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as engine:
        cached_prompt = [*range(61), *range(61)]
        engine.submit(cached_prompt, max_new_tokens=2).result(TIMEOUT)  # caches the prompt
        _slow_down(engine)
        futures = [engine.submit(prompt, **options) for _ in range(6)]
        while engine.stats().sampled_tokens < 60:
            time.sleep(0.01)
        engine.update_weights(new_params, version=1, in_flight=mode)
        completion = engine.submit(cached_prompt, max_new_tokens=8, seed=1).result(TIMEOUT)
        logp = _forward_logp(cached_prompt, completion.token_ids, new_params)
        np.testing.assert_allclose(
            completion.logp, logp[np.arange(8), completion.token_ids], atol=1e-4
        )
        for number, future in enumerate(futures):
            completion = future.result(TIMEOUT)
            version = completion.policy_version
            num_old_tokens = int(np.argmax(version))
            np.testing.assert_array_equal(version, np.arange(200) >= num_old_tokens)
            assert (num_old_tokens > 0) == (number < 4)  # four had a slot
            old_argmax = _forward_logp(prompt, completion.token_ids).argmax(axis=-1)
            new_argmax = _forward_logp(prompt, completion.token_ids, new_params).argmax(axis=-1)
            np.testing.assert_array_equal(
                completion.token_ids[:num_old_tokens], old_argmax[:num_old_tokens]
            )
            if mode == "recompute" or num_old_tokens == 0:
                np.testing.assert_array_equal(
                    completion.token_ids[num_old_tokens:], new_argmax[num_old_tokens:]
                )


def test_in_flight_update_supersedes_pending_update():
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as engine:
        _slow_down(engine)
        future = engine.submit([1], max_new_tokens=100)
        engine.update_weights(PARAMS, version=1)
        engine.update_weights(PARAMS, version=2, in_flight="continue")
        completion = engine.submit([1], max_new_tokens=3).result(TIMEOUT)
        assert completion.policy_version.tolist() == [2] * 3
        assert future.result(TIMEOUT).policy_version[-1] == 2


def test_sleep_frees_memory_and_requests_continue(single_completions):
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as engine:
        _slow_down(engine)
        futures = [_submit(engine, request) for request in _make_requests(24)]
        while not engine.stats().sampled_tokens:
            time.sleep(0.01)
        engine.sleep()
        assert engine._state is None
        late_future = engine.submit([1], max_new_tokens=2)
        canceled_future = engine.submit([1])
        assert canceled_future.cancel()
        assert not late_future.done()
        engine.update_weights(PARAMS, version=1)
        engine.wake_up()
        for future, expected in zip(futures, single_completions, strict=True):
            completion = future.result(TIMEOUT)
            np.testing.assert_allclose(completion.logp, expected.logp, atol=1e-4)
            np.testing.assert_array_equal(completion.token_ids, expected.token_ids)
        assert len(late_future.result(TIMEOUT).token_ids) == 2


def test_request_preempted_during_prefill_is_counted_once(monkeypatch):
    prompt = np.random.default_rng(0).integers(0, 61, 100)
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as engine:
        expected = engine.submit(prompt, max_new_tokens=5, seed=0).result(TIMEOUT)
        initial_stats, prefill, num_calls = engine.stats(), engine._scheduler.prefill, 0

        def preempt_before_prefill():
            nonlocal num_calls
            num_calls += 1
            if num_calls > 1:
                return prefill()
            # The engine has admitted the request and preempts it next.
            engine.update_weights(PARAMS, version=1, in_flight="recompute")
            return None

        monkeypatch.setattr(engine._scheduler, "prefill", preempt_before_prefill)
        completion = engine.submit(prompt, max_new_tokens=5, seed=0).result(TIMEOUT)
        counts = engine.stats().delta(initial_stats)
    _assert_equal(completion, expected)
    assert set(completion.policy_version) == {1}
    assert (counts.requests, counts.prompt_tokens) == (1, len(prompt))


def test_caller_can_delete_params_after_update():
    params = jax.tree.map(jnp.copy, PARAMS)
    with inference.Engine(CONFIG, params, **ENGINE_OPTIONS) as engine:
        engine.update_weights(params, version=1)
        for leaf in jax.tree.leaves(params):
            leaf.delete()
        completion = engine.submit([1, 2], max_new_tokens=4).result(TIMEOUT)
        assert completion.policy_version.tolist() == [1] * 4


def test_update_weights_rejects_other_shapes(engine):
    with pytest.raises(ValueError, match="differ"):
        engine.update_weights({**PARAMS, "embed": PARAMS["embed"][:-1]}, version=1)


# --- invalid requests, cancels and failures -------------------------------------------------------


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
def test_submit_rejects_invalid_requests(engine, prompt, options, message):
    with pytest.raises(ValueError, match=message):
        engine.submit(prompt, **options)


def test_engine_rejects_invalid_options():
    for options in ({"slots": 0}, {"max_model_len": 1}, {"steps_per_dispatch": 0}):
        with pytest.raises(ValueError, match="or more"):
            inference.Engine(CONFIG, PARAMS, **options)
    with pytest.raises(ValueError, match="context length 32768"):
        inference.Engine(CONFIG, PARAMS, max_model_len=32769)


def _slow_down(engine: inference.Engine) -> None:
    """Delay every dispatch, so that tests can act on running requests."""
    decode = engine._programs.decode

    def slow_decode(*args: Any) -> Any:
        time.sleep(0.02)
        return decode(*args)

    engine._programs.decode = slow_decode


def test_cancel_frees_slot():
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as engine:
        _slow_down(engine)
        futures = [engine.submit([1], max_new_tokens=300) for _ in range(6)]
        while not engine.stats().dispatches:
            time.sleep(0.01)
        assert all(future.cancel() for future in futures)
        assert len(engine.submit([1], max_new_tokens=3).result(TIMEOUT).token_ids) == 3
        stats = engine.stats()
    assert stats.requests == 5  # two were cancelled before they had a slot
    assert stats.sampled_tokens < 4 * 300


def test_cancel_wakes_waiting_threads():
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as engine:
        _slow_down(engine)
        engine._next_sweep = math.inf
        # Four requests have slots, and the fifth one is at the head of the queue.
        futures = [engine.submit([1], max_new_tokens=300) for _ in range(5)]
        while not engine.stats().dispatches:
            time.sleep(0.01)
        assert all(future.cancel() for future in futures)
        assert not concurrent.futures.wait(futures, TIMEOUT).not_done
        # An engine that is asleep admits nothing: only the sweep drops canceled requests.
        engine._next_sweep = 0.0
        engine.sleep()
        future = engine.submit([1])
        assert future.cancel()
        assert not concurrent.futures.wait([future], TIMEOUT).not_done


def test_device_failure_fails_all_requests():
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as engine:
        assert engine.submit([1], max_new_tokens=1).result(TIMEOUT)
        failure_event = threading.Event()

        def fail(*_: object) -> None:
            failure_event.wait(TIMEOUT)
            raise RuntimeError("out of memory")

        engine._programs.decode = fail
        futures = [engine.submit([1]) for _ in range(5)]
        failure_event.set()
        for future in futures:
            with pytest.raises(inference.EngineError, match="out of memory") as error:
                future.result(TIMEOUT)
            assert isinstance(error.value.__cause__, RuntimeError)
        with pytest.raises(inference.EngineError, match="out of memory"):
            engine.submit([1])
        with pytest.raises(inference.EngineError):
            engine.update_weights(PARAMS, version=1)


def test_close_fails_pending_requests_and_ends_thread():
    num_threads = threading.active_count()
    engine = inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS)
    _slow_down(engine)
    futures = [engine.submit([1], max_new_tokens=300) for _ in range(6)]
    engine.close()
    engine.close()
    for future in futures:
        with pytest.raises(inference.EngineError, match="closed"):
            future.result(TIMEOUT)
    with pytest.raises(inference.EngineError, match="closed"):
        engine.submit([1])
    assert threading.active_count() == num_threads


def test_callback_can_close_engine():
    engine = inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS)
    close_event = threading.Event()

    def close(_: Future[Completion]) -> None:
        engine.close()
        close_event.set()

    engine.submit([1], max_new_tokens=1).add_done_callback(close)
    assert close_event.wait(TIMEOUT)
    engine.close()


# --- statistics -----------------------------------------------------------------------------------


def test_warmup_compiles_all_programs_and_stats_are_exact():
    calls = []
    with inference.Engine(CONFIG, PARAMS, **ENGINE_OPTIONS) as engine:
        engine.warmup(lambda done, total: calls.append((done, total)))
        num_programs = engine.stats().num_compiled_programs
        assert calls == [(i, num_programs) for i in range(num_programs + 1)]
        futures = [engine.submit([1] * n, max_new_tokens=5) for n in (1, 300, 3, 150, 1, 1)]
        for future in futures:
            future.result(TIMEOUT)
        stats = engine.stats()
    assert stats.num_compiled_programs == num_programs
    assert (stats.requests, stats.prompt_tokens, stats.sampled_tokens) == (6, 456, 30)
    assert stats.num_queued == 0
    assert stats.occupancy == pytest.approx(30 / (4 * stats.decode_steps))
    assert 0.25 < stats.occupancy <= 1.0
