"""Tests of the properties of the losses.

test_objective.py compares loss and gradient of each objective with the reference implementation.
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
NUM_TOKENS = 24
NUM_UNWEIGHTED = 5  # number of final tokens without weight
COLUMNS = ("behavior", "prox", "ref", "weights", "advantages")
SURROGATES = [
    PolicyLossConfig(),
    PolicyLossConfig(kl_beta=0.3),
    PolicyLossConfig(kl_beta=0.3, kl_estimator="k1"),
    PolicyLossConfig(policy_loss="logp", kl_beta=0.3, importance_weight_cap=1.1),
]


def make_batch(
    seed: int, ratio_spread: float = 0.5, behavior_spread: float = 0.5
) -> dict[str, np.ndarray]:
    """Return one row; a `ratio_spread` of 0.5 moves log-ratios beyond both clip bounds."""
    rng = np.random.default_rng(seed)
    batch = {
        "logits": rng.normal(size=(1, NUM_TOKENS, V)),
        "tokens": rng.integers(0, V, (1, NUM_TOKENS)),
    }
    logp = np.asarray(select_logp(batch["logits"], batch["tokens"]))
    batch["prox"] = logp + ratio_spread * rng.normal(size=logp.shape)
    batch["behavior"] = batch["prox"] + behavior_spread * rng.normal(size=logp.shape)
    batch["ref"] = logp + 0.5 * rng.normal(size=logp.shape)
    batch["advantages"] = rng.normal(size=logp.shape)
    batch["weights"] = rng.uniform(0.5, 1.5, logp.shape)
    batch["weights"][:, -NUM_UNWEIGHTED:] = 0
    return {
        name: values.astype(np.int32 if name == "tokens" else np.float32)
        for name, values in batch.items()
    }


def select_logp(logits, tokens):
    return jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1)[..., 0]


@partial(jax.jit, static_argnames=("surrogate",))
def grpo_loss_and_grad(logits, batch, surrogate):
    def loss(logits):
        return grpo_loss(
            select_logp(logits, batch["tokens"]),
            batch["behavior"],
            batch["advantages"],
            batch["weights"],
            config=surrogate,
            prox_logp=batch["prox"],
            ref_logp=batch["ref"],
        )

    return jax.value_and_grad(loss, has_aux=True)(logits)


@jax.jit
@jax.value_and_grad
def bc_loss_and_grad(logits, batch):
    return bc_loss(select_logp(logits, batch["tokens"]), batch["weights"])


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("garbage", [1e30, -1e30, np.inf, np.nan])
def test_losses_ignore_values_at_zero_weight(garbage, surrogate):
    batch = make_batch(5)
    zero_weight = batch["weights"] == 0
    garbage_batch = {
        name: np.where(zero_weight, garbage, batch[name]).astype(np.float32) for name in COLUMNS
    }
    garbage_batch |= {"tokens": batch["tokens"], "weights": batch["weights"]}
    logits = np.where(zero_weight[..., None], 1e30 * np.arange(V), batch["logits"]).astype(
        np.float32
    )
    jax.tree.map(
        np.testing.assert_array_equal,
        (
            grpo_loss_and_grad(logits, garbage_batch, surrogate),
            bc_loss_and_grad(logits, garbage_batch),
        ),
        (
            grpo_loss_and_grad(batch["logits"], batch, surrogate),
            bc_loss_and_grad(batch["logits"], batch),
        ),
    )


@pytest.mark.parametrize("surrogate", SURROGATES)
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**32 - 1), split=st.integers(0, NUM_TOKENS))
def test_grpo_loss_sums_over_microbatches(surrogate, seed, split):
    batch = make_batch(seed)
    expected = grpo_loss_and_grad(batch["logits"], batch, surrogate)
    first_mask = np.arange(NUM_TOKENS)[None] < split
    results = [
        grpo_loss_and_grad(
            batch["logits"], batch | {"weights": np.where(mask, batch["weights"], 0)}, surrogate
        )
        for mask in (first_mask, ~first_mask)
    ]
    actual = jax.tree.map(np.add, *results)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), actual, expected)


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_on_policy_clip_gradient_equals_reinforce_gradient(seed):
    batch = make_batch(seed, ratio_spread=0.0, behavior_spread=0.0)
    (_, stats), grad = grpo_loss_and_grad(batch["logits"], batch, PolicyLossConfig())
    _, expected = grpo_loss_and_grad(batch["logits"], batch, PolicyLossConfig(policy_loss="logp"))
    np.testing.assert_allclose(grad, expected, atol=1e-5)
    total = batch["weights"].sum()
    assert stats.ratio == pytest.approx(total, rel=1e-5)
    assert stats.importance_weight == pytest.approx(total, rel=1e-5)
    assert stats.clip_fraction == stats.importance_capped_fraction == 0
    assert stats.logp_difference == pytest.approx(0, abs=1e-4)


def test_grpo_stats_report_clipped_and_capped_fractions():
    batch = make_batch(0)
    surrogate = PolicyLossConfig(clip_low=0.2, clip_high=0.3, importance_weight_cap=1.2)
    (_, stats), _ = grpo_loss_and_grad(batch["logits"], batch, surrogate)
    weights, advantages = batch["weights"], batch["advantages"]
    ratio = np.exp(np.asarray(select_logp(batch["logits"], batch["tokens"])) - batch["prox"])
    importance_weight = np.exp(batch["prox"] - batch["behavior"])
    clip_mask = ((ratio > 1.3) & (advantages > 0)) | ((ratio < 0.8) & (advantages < 0))
    assert 0 < np.sum(weights * clip_mask) < weights.sum()
    assert stats.clip_fraction == pytest.approx(np.sum(weights * clip_mask), rel=1e-5)
    assert stats.importance_capped_fraction == pytest.approx(
        np.sum(weights * (importance_weight > 1.2)), rel=1e-5
    )
    assert stats.importance_weight == pytest.approx(
        np.sum(weights * np.minimum(importance_weight, 1.2)), rel=1e-5
    )
    assert stats.ratio == pytest.approx(np.sum(weights * ratio), rel=1e-5)


def test_grpo_loss_is_on_policy_loss_if_prox_is_behavior():
    """Compare with the loss formula of on-policy training, bit for bit."""

    @jax.jit
    @jax.value_and_grad
    def on_policy_loss_and_grad(logits, batch):
        weights = batch["weights"]
        logp, advantages, behavior, ref = (
            jnp.where(weights != 0, x, 0.0)
            for x in (
                select_logp(logits, batch["tokens"]),
                batch["advantages"],
                batch["behavior"],
                batch["ref"],
            )
        )
        ratio, log_ratio = jnp.exp(logp - behavior), ref - logp
        clipped = jnp.clip(ratio, 0.8, 1.2) * advantages
        k3 = jnp.exp(log_ratio) - log_ratio - 1
        return -jnp.sum(weights * (jnp.minimum(ratio * advantages, clipped) - 0.3 * k3))

    for seed in range(5):
        batch = make_batch(seed, behavior_spread=0.0)
        (loss, _), grad = grpo_loss_and_grad(batch["logits"], batch, PolicyLossConfig(kl_beta=0.3))
        expected_loss, expected_grad = on_policy_loss_and_grad(batch["logits"], batch)
        assert loss == expected_loss
        np.testing.assert_array_equal(grad, expected_grad)


@pytest.mark.parametrize(
    ("kl_estimator", "direction"), [("k1", "of the policy to the reference"), ("k3", "and back")]
)
def test_kl_gradient_equals_gradient_of_exact_kl(kl_estimator, direction):
    """Weight all tokens of the vocabulary by their probability under the policy."""
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
            config=PolicyLossConfig(kl_estimator=kl_estimator, kl_beta=1.0),
            ref_logp=ref[None],
        )
        return loss

    def divergence(logits):
        logp = jax.nn.log_softmax(logits)
        forward = jnp.sum(jnp.exp(logp) * (logp - ref))
        return forward if kl_estimator == "k1" else jnp.sum(jnp.exp(ref) * (ref - logp))

    np.testing.assert_allclose(
        jax.jit(jax.grad(expected_loss))(logits),
        jax.jit(jax.grad(divergence))(logits),
        atol=1e-6,
        err_msg=direction,
    )


def test_bc_loss_matches_reference():
    batch = make_batch(7)
    num_tokens = NUM_TOKENS - NUM_UNWEIGHTED
    batch["weights"] = (batch["weights"] > 0) / np.float32(num_tokens)
    loss, grad = bc_loss_and_grad(batch["logits"], batch)
    logits = batch["logits"][0, :num_tokens].astype(np.float64)
    tokens = batch["tokens"][0, :num_tokens].tolist()
    turns = [
        reference.Turn(logits[span], tokens[span], [], []) for span in (slice(9), slice(9, None))
    ]
    expected_loss, expected_grads = reference.bc_loss(turns)
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    np.testing.assert_allclose(grad[0, :num_tokens], np.concatenate(expected_grads), atol=1e-6)


def test_kl_requires_ref_logp():
    ones = jnp.ones((1, 1))
    with pytest.raises(ValueError, match="ref_logp"):
        grpo_loss(ones, ones, ones, ones, config=PolicyLossConfig(kl_beta=0.1))
