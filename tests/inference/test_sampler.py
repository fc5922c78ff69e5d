"""From logits to a token, against numpy and against the odds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from webagent_jax.inference import sampler

VOCAB = 150  # not a multiple of the block width


def _logits(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=2.0, size=(rows, VOCAB)).astype(np.float32)


def _all(rows: int) -> jnp.ndarray:
    """top_k that keeps every token."""
    return jnp.zeros(rows, jnp.int32)


def _nucleus(logits: np.ndarray, top_p: float) -> np.ndarray:
    """bool [V], token by token: take the next most likely one until the mass is reached."""
    p = np.exp(logits.astype(np.float64))
    p /= p.sum()
    inside, mass = np.zeros(len(p), bool), 0.0
    for token in np.argsort(-p):
        if mass >= top_p:
            break
        inside[token] = True
        mass += p[token]
    return inside


def test_nucleus_is_the_slow_one():
    logits = _logits(6)
    top_p = [0.05, 0.3, 0.6, 0.9, 0.99, 1.0]
    kept = np.asarray(sampler.filter_top_k_top_p(jnp.array(logits), jnp.array(top_p), _all(6)))
    for row, p in enumerate(top_p):
        expected = _nucleus(logits[row], p)
        np.testing.assert_array_equal(np.isfinite(kept[row]), expected)
        np.testing.assert_array_equal(kept[row][expected], logits[row][expected])


def test_nucleus_keeps_equals_and_the_whole_row_at_one():
    logits = jnp.array([[1.0, 1.0, 1.0, 0.0], [0.0, -200.0, -200.0, -200.0]])
    kept = np.isfinite(sampler.filter_top_k_top_p(logits, jnp.array([0.0, 1.0]), _all(2)))
    np.testing.assert_array_equal(kept, [[True, True, True, False], [True] * 4])


def test_draws_follow_softmax():
    # A chi-squared test at 1e-6: one false alarm in a million seeds, and the seed is fixed.
    logits = jnp.array(_logits(1))
    n = 40_000
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(7), i))(jnp.arange(n))
    draws = sampler.sample_categorical(jnp.broadcast_to(logits, (n, VOCAB)), keys)
    counts = np.bincount(draws, minlength=VOCAB)
    expected = np.asarray(jax.nn.softmax(logits[0])).astype(np.float64) * n
    rare = expected < 20  # pooled, so that every cell is large enough for the test
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    assert stats.chisquare(observed, wanted * (n / wanted.sum())).pvalue > 1e-6


def test_what_is_filtered_out_is_never_drawn():
    logits = jnp.full((64, VOCAB), -jnp.inf).at[:, 149].set(-50.0)
    draws = sampler.sample_categorical(logits, jax.random.split(jax.random.key(0), 64))
    np.testing.assert_array_equal(draws, 149)


def test_temperature_and_filters_shape_the_draw_and_not_the_logp():
    logits = _logits(6)
    keys = jnp.broadcast_to(jax.random.key(3), (6,))
    temperature = jnp.array([0.0, 0.5, 2.0, 1.0, 1.0, 0.5])
    top_p, top_k = jnp.array([1.0, 1.0, 1.0, 0.4, 1.0, 0.6]), jnp.array([0, 0, 0, 0, 3, 5])
    drawn = sampler.sample(
        jnp.array(logits), keys, temperature=temperature, top_p=top_p, top_k=top_k
    )
    shaped = logits / np.array([1.0, 0.5, 2.0, 1.0, 1.0, 0.5], np.float32)[:, None]
    shaped[3][~_nucleus(shaped[3], 0.4)] = -np.inf
    for row, k in ((4, 3), (5, 5)):
        shaped[row][shaped[row] < np.sort(shaped[row])[-k]] = -np.inf
    shaped[5][~_nucleus(shaped[5], 0.6)] = -np.inf
    assert drawn.token[0] == logits[0].argmax()
    np.testing.assert_array_equal(
        drawn.token[1:], sampler.sample_categorical(jnp.array(shaped), keys)[1:]
    )
    rows, token = np.arange(6), np.asarray(drawn.token)
    full = np.asarray(jax.nn.log_softmax(jnp.array(logits)))
    np.testing.assert_allclose(drawn.logp, full[rows, token], atol=1e-5)
    expected = np.asarray(jax.nn.log_softmax(jnp.array(shaped)))[rows, token]
    expected[0] = 0.0  # the only token there is
    np.testing.assert_allclose(drawn.sampling_logp, expected, atol=1e-5)


def test_neighbours_with_a_filter_do_not_disturb():
    logits, keys = jnp.array(_logits(2)), jax.random.split(jax.random.key(1), 2)
    one = jnp.ones(2)
    alone = sampler.sample(logits, keys, temperature=one, top_p=one, top_k=_all(2))
    for top_p, top_k in (([1.0, 0.1], [0, 0]), ([1.0, 1.0], [0, 4])):
        mixed = sampler.sample(
            logits, keys, temperature=one, top_p=jnp.array(top_p), top_k=jnp.array(top_k)
        )
        for one_of, other in zip(alone, mixed, strict=True):
            np.testing.assert_array_equal(one_of[0], other[0])
