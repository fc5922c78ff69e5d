"""Tests of the sampler against numpy and a chi-squared test."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from webagent_jax.inference import sampler

VOCAB = 150  # not a multiple of the block width


def _logits(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=2.0, size=(rows, VOCAB)).astype(np.float32)


def _no_top_k(rows: int) -> jnp.ndarray:
    """Return values of top_k that keep every token."""
    return jnp.zeros(rows, jnp.int32)


def _nucleus(logits: np.ndarray, top_p: float) -> np.ndarray:
    """Return bool [V]: add the most likely remaining token until the mass is reached."""
    p = np.exp(logits.astype(np.float64))
    p /= p.sum()
    mask, mass = np.zeros(len(p), bool), 0.0
    for token in np.argsort(-p):
        if mass >= top_p:
            break
        mask[token] = True
        mass += p[token]
    return mask


def test_top_p_filter_matches_reference():
    logits = _logits(6)
    top_p = [0.05, 0.3, 0.6, 0.9, 0.99, 1.0]
    actual = np.asarray(
        sampler.filter_top_k_top_p(jnp.array(logits), jnp.array(top_p), _no_top_k(6))
    )
    for row, p in enumerate(top_p):
        expected = _nucleus(logits[row], p)
        np.testing.assert_array_equal(np.isfinite(actual[row]), expected)
        np.testing.assert_array_equal(actual[row][expected], logits[row][expected])


def test_top_p_filter_keeps_ties_and_whole_row_at_one():
    logits = jnp.array([[1.0, 1.0, 1.0, 0.0], [0.0, -200.0, -200.0, -200.0]])
    mask = np.isfinite(sampler.filter_top_k_top_p(logits, jnp.array([0.0, 1.0]), _no_top_k(2)))
    np.testing.assert_array_equal(mask, [[True, True, True, False], [True] * 4])


def test_sample_categorical_follows_softmax():
    # A chi-squared test at 1e-6: one false alarm in a million seeds, and the seed is fixed.
    logits = jnp.array(_logits(1))
    n = 40_000
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(7), i))(jnp.arange(n))
    samples = sampler.sample_categorical(jnp.broadcast_to(logits, (n, VOCAB)), keys)
    counts = np.bincount(samples, minlength=VOCAB)
    softmax_counts = np.asarray(jax.nn.softmax(logits[0])).astype(np.float64) * n
    rare_tokens = softmax_counts < 20  # pooled, so that every cell is large enough for the test
    actual = np.append(counts[~rare_tokens], counts[rare_tokens].sum())
    expected = np.append(softmax_counts[~rare_tokens], softmax_counts[rare_tokens].sum())
    assert stats.chisquare(actual, expected * (n / expected.sum())).pvalue > 1e-6


def test_sample_categorical_excludes_filtered_tokens():
    logits = jnp.full((64, VOCAB), -jnp.inf).at[:, 149].set(-50.0)
    samples = sampler.sample_categorical(logits, jax.random.split(jax.random.key(0), 64))
    np.testing.assert_array_equal(samples, 149)


def test_temperature_and_filters_do_not_affect_logp():
    logits = _logits(6)
    keys = jnp.broadcast_to(jax.random.key(3), (6,))
    temperature = jnp.array([0.0, 0.5, 2.0, 1.0, 1.0, 0.5])
    top_p, top_k = jnp.array([1.0, 1.0, 1.0, 0.4, 1.0, 0.6]), jnp.array([0, 0, 0, 0, 3, 5])
    sample = sampler.sample(
        jnp.array(logits), keys, temperature=temperature, top_p=top_p, top_k=top_k
    )
    sampling_logits = logits / np.array([1.0, 0.5, 2.0, 1.0, 1.0, 0.5], np.float32)[:, None]
    sampling_logits[3][~_nucleus(sampling_logits[3], 0.4)] = -np.inf
    for row, k in ((4, 3), (5, 5)):
        sampling_logits[row][sampling_logits[row] < np.sort(sampling_logits[row])[-k]] = -np.inf
    sampling_logits[5][~_nucleus(sampling_logits[5], 0.6)] = -np.inf
    assert sample.token[0] == logits[0].argmax()
    np.testing.assert_array_equal(
        sample.token[1:], sampler.sample_categorical(jnp.array(sampling_logits), keys)[1:]
    )
    rows, token = np.arange(6), np.asarray(sample.token)
    logp = np.asarray(jax.nn.log_softmax(jnp.array(logits)))
    np.testing.assert_allclose(sample.logp, logp[rows, token], atol=1e-5)
    expected = np.asarray(jax.nn.log_softmax(jnp.array(sampling_logits)))[rows, token]
    expected[0] = 0.0  # greedy sampling has one token
    np.testing.assert_allclose(sample.sampling_logp, expected, atol=1e-5)


def test_filters_do_not_affect_other_rows():
    logits, keys = jnp.array(_logits(2)), jax.random.split(jax.random.key(1), 2)
    ones = jnp.ones(2)
    baseline = sampler.sample(logits, keys, temperature=ones, top_p=ones, top_k=_no_top_k(2))
    for top_p, top_k in (([1.0, 0.1], [0, 0]), ([1.0, 1.0], [0, 4])):
        result = sampler.sample(
            logits, keys, temperature=ones, top_p=jnp.array(top_p), top_k=jnp.array(top_k)
        )
        for expected, actual in zip(baseline, result, strict=True):
            np.testing.assert_array_equal(expected[0], actual[0])
