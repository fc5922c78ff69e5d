"""The losses alone: what is under the surrogates, and by which properties they can be told.

Loss and gradient of every objective against the slow twin: test_objective.py.
"""

from __future__ import annotations

from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from tests import reference
from webagent_jax.learn import PolicyLossConfig, bc_loss, grpo_loss

V = 7
TOKENS = 24
EMPTY = 5  # tokens at the end that have no weight
COLUMNS = ("behaviour", "prox", "ref", "weights", "advantages")
SURROGATES = [
    PolicyLossConfig(),
    PolicyLossConfig(kl_beta=0.3),
    PolicyLossConfig(kl_beta=0.3, kl_estimator="k1"),
    PolicyLossConfig(policy_loss="logp", kl_beta=0.3, importance_weight_cap=1.1),
]


def draw(seed: int, gap: float = 0.5, stale: float = 0.5) -> dict[str, np.ndarray]:
    """Tokens of one row; `gap` spreads the log-ratios, 0.5 over both clip bounds."""
    rng = np.random.default_rng(seed)
    a = {"logits": rng.normal(size=(1, TOKENS, V)), "tokens": rng.integers(0, V, (1, TOKENS))}
    logp = np.asarray(logp_of(a["logits"], a["tokens"]))
    a["prox"] = logp + gap * rng.normal(size=logp.shape)
    a["behaviour"] = a["prox"] + stale * rng.normal(size=logp.shape)
    a["ref"] = logp + 0.5 * rng.normal(size=logp.shape)
    a["advantages"] = rng.normal(size=logp.shape)
    a["weights"] = rng.uniform(0.5, 1.5, logp.shape)
    a["weights"][:, -EMPTY:] = 0
    return {k: v.astype(np.int32 if k == "tokens" else np.float32) for k, v in a.items()}


def logp_of(logits, tokens):
    return jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1)[..., 0]


@partial(jax.jit, static_argnames=("surrogate",))
def objective(logits, a, surrogate):
    def loss(logits):
        return grpo_loss(
            logp_of(logits, a["tokens"]),
            a["behaviour"],
            a["advantages"],
            a["weights"],
            surrogate=surrogate,
            prox_logp=a["prox"],
            ref_logp=a["ref"],
        )

    return jax.value_and_grad(loss, has_aux=True)(logits)


@jax.jit
@jax.value_and_grad
def cloning(logits, a):
    return bc_loss(logp_of(logits, a["tokens"]), a["weights"])


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("garbage", [1e30, -1e30, np.inf, np.nan])
def test_garbage_under_zero_weight_changes_nothing(garbage, surrogate):
    a = draw(5)
    empty = a["weights"] == 0
    dirty = {name: np.where(empty, garbage, a[name]).astype(np.float32) for name in COLUMNS}
    dirty |= {"tokens": a["tokens"], "weights": a["weights"]}
    logits = np.where(empty[..., None], 1e30 * np.arange(V), a["logits"]).astype(np.float32)
    jax.tree.map(
        np.testing.assert_array_equal,
        (objective(logits, dirty, surrogate), cloning(logits, dirty)),
        (objective(a["logits"], a, surrogate), cloning(a["logits"], a)),
    )


@pytest.mark.parametrize("surrogate", SURROGATES)
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, TOKENS))
def test_microbatches_sum_to_the_batch(surrogate, seed, cut):
    a = draw(seed)
    whole = objective(a["logits"], a, surrogate)
    first = np.arange(TOKENS)[None] < cut
    parts = [
        objective(a["logits"], a | {"weights": np.where(part, a["weights"], 0)}, surrogate)
        for part in (first, ~first)
    ]
    summed = jax.tree.map(np.add, *parts)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), summed, whole)


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_on_policy_the_gradient_is_that_of_reinforce(seed):
    a = draw(seed, gap=0.0, stale=0.0)
    (_, stats), grad = objective(a["logits"], a, PolicyLossConfig())
    _, expected = objective(a["logits"], a, PolicyLossConfig(policy_loss="logp"))
    np.testing.assert_allclose(grad, expected, atol=1e-5)
    total = a["weights"].sum()
    assert stats.ratio == pytest.approx(total, rel=1e-5)
    assert stats.importance_weight == pytest.approx(total, rel=1e-5)
    assert stats.clip_fraction == stats.importance_capped_fraction == 0
    assert stats.logp_difference == pytest.approx(0, abs=1e-4)


def test_statistics_tell_what_was_cut_off():
    a = draw(0)
    surrogate = PolicyLossConfig(clip_low=0.2, clip_high=0.3, importance_weight_cap=1.2)
    (_, stats), _ = objective(a["logits"], a, surrogate)
    w, gain = a["weights"], a["advantages"]
    ratio = np.exp(np.asarray(logp_of(a["logits"], a["tokens"])) - a["prox"])
    drift = np.exp(a["prox"] - a["behaviour"])
    off = ((ratio > 1.3) & (gain > 0)) | ((ratio < 0.8) & (gain < 0))
    assert 0 < np.sum(w * off) < w.sum()
    assert stats.clip_fraction == pytest.approx(np.sum(w * off), rel=1e-5)
    assert stats.importance_capped_fraction == pytest.approx(np.sum(w * (drift > 1.2)), rel=1e-5)
    assert stats.importance_weight == pytest.approx(np.sum(w * np.minimum(drift, 1.2)), rel=1e-5)
    assert stats.ratio == pytest.approx(np.sum(w * ratio), rel=1e-5)


def test_a_proximal_policy_that_is_the_one_that_sampled_changes_no_bit():
    """The loss as it is written down for on-policy training."""

    @jax.jit
    @jax.value_and_grad
    def on_policy(logits, a):
        w = a["weights"]
        logp, gain, behaviour, ref = (
            jnp.where(w != 0, x, 0.0)
            for x in (logp_of(logits, a["tokens"]), a["advantages"], a["behaviour"], a["ref"])
        )
        ratio, away = jnp.exp(logp - behaviour), ref - logp
        clipped = jnp.clip(ratio, 0.8, 1.2) * gain
        k3 = jnp.exp(away) - away - 1
        return -jnp.sum(w * (jnp.minimum(ratio * gain, clipped) - 0.3 * k3))

    for seed in range(5):
        a = draw(seed, stale=0.0)
        (loss, _), grad = objective(a["logits"], a, PolicyLossConfig(kl_beta=0.3))
        expected_loss, expected = on_policy(a["logits"], a)
        assert loss == expected_loss
        np.testing.assert_array_equal(grad, expected)


@pytest.mark.parametrize(
    ("kl", "direction"), [("k1", "of the policy to the reference"), ("k3", "and back")]
)
def test_the_gradient_of_each_kl_in_expectation(kl, direction):
    """Over all tokens of the vocabulary, drawn as often as the policy draws them."""
    rng = np.random.default_rng(3)
    logits, ref_logits = rng.normal(size=(2, V)).astype(np.float32)
    policy, ref = jax.nn.log_softmax(logits), jax.nn.log_softmax(ref_logits)

    def expected_loss(logits):
        logp = jax.nn.log_softmax(logits)
        loss, _ = grpo_loss(
            logp[None],
            policy[None],
            jnp.zeros((1, V)),
            jnp.exp(policy)[None],
            surrogate=PolicyLossConfig(kl_estimator=kl, kl_beta=1.0),
            ref_logp=ref[None],
        )
        return loss

    def divergence(logits):
        logp = jax.nn.log_softmax(logits)
        forward = jnp.sum(jnp.exp(logp) * (logp - ref))
        return forward if kl == "k1" else jnp.sum(jnp.exp(ref) * (ref - logp))

    np.testing.assert_allclose(
        jax.jit(jax.grad(expected_loss))(logits),
        jax.jit(jax.grad(divergence))(logits),
        atol=1e-6,
        err_msg=direction,
    )


def test_cloning_agrees_with_the_slow_twin():
    a = draw(7)
    count = TOKENS - EMPTY
    a["weights"] = (a["weights"] > 0) / np.float32(count)
    loss, grad = cloning(a["logits"], a)
    logits = a["logits"][0, :count].astype(np.float64)
    tokens = a["tokens"][0, :count].tolist()
    turns = [reference.Turn(logits[s], tokens[s], [], []) for s in (slice(9), slice(9, None))]
    expected_loss, expected = reference.bc_loss(turns)
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    np.testing.assert_allclose(grad[0, :count], np.concatenate(expected), atol=1e-6)


def test_kl_needs_a_reference():
    one = jnp.ones((1, 1))
    with pytest.raises(ValueError, match="ref_logp"):
        grpo_loss(one, one, one, one, surrogate=PolicyLossConfig(kl_beta=0.1))
