"""Tests of speculative decoding: drafts save steps and change completions by rounding only."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from webagent_jax import inference, policy
from webagent_jax.inference import engine_shapes, prompt_lookup
from webagent_jax.types import Completion

CONFIG = policy.ModelConfig(
    vocab_size=31, d_model=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, d_ff=48
)
MAX_MODEL_LEN = 128  # complete pages: a draft after the last one has no page
TIMEOUT = 120.0  # seconds


def _params() -> Any:
    # Larger embeddings than at initialization, so that probabilities differ.
    params = policy.init(CONFIG, jax.random.key(0))
    return {**params, "embed": params["embed"] * 20.0}


def _requests(count: int) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """Return prompts that repeat themselves and each other, with options of all kinds."""
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 31, 12) for _ in range(4)]
    requests = []
    for seed in range(count):
        prompt = np.concatenate([parts[i] for i in rng.integers(0, 4, rng.integers(1, 9))])
        options = {
            "max_new_tokens": int(rng.choice([1, 2, 7, 40, 200])),
            "temperature": float(rng.choice([0.0, 0.3, 1.0])),
            "top_p": float(rng.choice([1.0, 0.8])),
            "top_k": int(rng.choice([0, 5])),
            "stop_ids": tuple(map(int, rng.integers(0, 31, rng.integers(0, 3)))),
            "seed": seed,
        }
        requests.append((prompt, options))
    # Prompts that leave space for one and for two tokens.
    requests += [(np.arange(n) % 31, {"temperature": 0.0}) for n in (127, 126)]
    return requests


def _sample(
    num_speculative_tokens: int, *, order: list[int] | None = None
) -> tuple[list[Completion], inference.EngineStats]:
    requests = _requests(40)
    with inference.Engine(
        CONFIG,
        _params(),
        slots=4,
        max_model_len=MAX_MODEL_LEN,
        num_speculative_tokens=num_speculative_tokens,
    ) as engine:
        futures = {}
        for index in order or range(len(requests)):
            prompt, request_options = requests[index]
            futures[index] = engine.submit(prompt, **request_options)
        completions = [futures[index].result(TIMEOUT) for index in range(len(requests))]
        return completions, engine.stats()


@pytest.fixture(scope="module")
def reference() -> tuple[list[Completion], inference.EngineStats]:
    return _sample(0)


@pytest.mark.parametrize("num_speculative_tokens", [1, 3, 6])
@pytest.mark.parametrize("sequential_slots", [True, False])
def test_drafts_save_steps_and_change_no_completion(
    reference, num_speculative_tokens, sequential_slots, monkeypatch
):
    monkeypatch.setattr(engine_shapes, "fits_cpu_cache", lambda config: sequential_slots)
    expected, expected_stats = reference
    completions, stats = _sample(num_speculative_tokens)
    for actual, target in zip(completions, expected, strict=True):
        np.testing.assert_array_equal(actual.token_ids, target.token_ids)
        # Matmuls of another width round differently.
        np.testing.assert_allclose(actual.logp, target.logp, atol=1e-4)
        np.testing.assert_allclose(actual.sampling_logp, target.sampling_logp, atol=1e-4)
        assert actual.finish == target.finish
    assert stats.sampled_tokens == expected_stats.sampled_tokens
    assert expected_stats.acceptance_length == 1.0
    assert 1.2 < stats.acceptance_length <= 1 + num_speculative_tokens
    assert stats.decode_steps < expected_stats.decode_steps
    assert 0.0 < stats.occupancy <= 1.0


def test_completions_are_bitwise_independent_of_recent_responses():
    # Another order gives other recent responses, other drafts and other neighbors.
    order = list(map(int, np.random.default_rng(1).permutation(42)))
    expected, expected_stats = _sample(3)
    completions, stats = _sample(3, order=order)
    for actual, target in zip(completions, expected, strict=True):
        np.testing.assert_array_equal(actual.token_ids, target.token_ids)
        np.testing.assert_array_equal(actual.logp, target.logp)
    assert stats.slot_steps != expected_stats.slot_steps


def test_shared_prefix_and_preemption_keep_completions(reference):
    requests = _requests(40)
    prefix = requests[0][0][:70]
    with inference.Engine(
        CONFIG,
        _params(),
        slots=4,
        max_model_len=MAX_MODEL_LEN,
        shared_prefix=prefix,
        steps_per_dispatch=2,
        num_speculative_tokens=3,
    ) as engine:
        futures = [engine.submit(prompt, **options) for prompt, options in requests]
        for _ in range(5):
            engine.sleep()  # returns running requests to the queue
            engine.wake_up()
        for future, target in zip(futures, reference[0], strict=True):
            np.testing.assert_array_equal(future.result(TIMEOUT).token_ids, target.token_ids)


def test_negative_number_of_tokens_raises_value_error():
    with pytest.raises(ValueError, match="num_speculative_tokens=-1 must be 0 or more"):
        inference.Engine(CONFIG, _params(), num_speculative_tokens=-1)


def _reference_proposal(context: list[int], num_tokens: int) -> list[int] | None:
    """Return the tokens after the latest occurrence of the longest n-gram; None without one."""
    for n in range(prompt_lookup.MAX_NGRAM, 0, -1):
        ngram = context[-n:]
        if -1 in ngram:
            continue
        for start in range(len(context) - n - 1, -1, -1):
            if context[start : start + n] == ngram:
                return context[start + n : start + n + num_tokens]
    return None


@pytest.mark.parametrize("vocab", [2, 5, 40])
def test_proposal_continues_latest_occurrence_of_longest_ngram(vocab):
    rng = np.random.default_rng(vocab)
    batch, size = 20, 30
    history = rng.integers(0, vocab, (batch, size)).astype(np.int32)
    length = rng.integers(1, size + 1, batch).astype(np.int32)
    recent = np.append(np.full(4, -1), rng.integers(0, vocab, 16)).astype(np.int32)
    actual = np.asarray(prompt_lookup.propose(recent, history, length, 4))
    num_found = 0
    for row, tokens, count in zip(actual, history, length, strict=True):
        separator = [-1] * prompt_lookup.MAX_NGRAM
        context = [*separator, *recent.tolist(), *separator, *tokens[:count].tolist()]
        expected = _reference_proposal(context, 4)
        if expected is not None:
            num_found += 1
            # What follows the sequence, and padding, is arbitrary.
            known = [] if -1 in expected else expected
            assert row[: len(known)].tolist() == known
    assert num_found >= 5
