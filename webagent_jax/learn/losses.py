"""The objectives. Arrays in, arrays out: no model, no config, no masks.

A loss is a sum over tokens weighted by `weights`, which the host computes (learn/advantages.py). So
packing, padding, cutting into microbatches and sharding cannot change the objective: the parts of a
batch add up to the batch, loss, gradient and statistics alike.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


class GRPOStats(NamedTuple):
    """Scalars, Σ w (...): means over the batch when its weights sum to 1."""

    kl: Array  # k3 estimate of KL(policy || reference); 0 without a reference
    ratio: Array  # of the policy to the one that sampled
    clip_fraction: Array  # tokens whose gradient the clip has cut off
    logp_gap: Array  # |logp - behaviour_logp|; near 0 on policy, or the two forwards disagree


def grpo_loss(
    logp: Array,
    behaviour_logp: ArrayLike,
    advantages: ArrayLike,
    weights: ArrayLike,
    *,
    clip_low: float,
    clip_high: float,
    kl_beta: float,
    ref_logp: ArrayLike | None = None,
) -> tuple[Array, GRPOStats]:
    """Multi-turn GRPO, WebAgent-R1 (arXiv 2505.16421), section 3.3.

        L  = -Σ w [min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) - kl_beta k3]
        r  = exp(logp - behaviour_logp)
        k3 = exp(ref_logp - logp) - (ref_logp - logp) - 1

    with k3 after Schulman, "Approximating KL Divergence" (2020). What stands under a weight of 0
    changes nothing, whatever it is.

    Args:
        logp: [B, R] of the response tokens under the policy; the gradient flows through it alone.
        behaviour_logp: [B, R] when sampled.
        advantages: [B, R] A.
        weights: [B, R] w.
        ref_logp: [B, R] under the reference policy. None leaves k3 out, and is an error unless
            `kl_beta` is 0.

    Returns:
        The loss, a float32 scalar, and statistics.
    """
    if ref_logp is None and kl_beta > 0:
        raise ValueError("kl_beta is above 0: grpo_loss needs ref_logp")
    weights = jnp.asarray(weights)

    def scored(x: ArrayLike) -> Array:  # before any exp: 0 · inf would be NaN, in the gradient too
        return jnp.where(weights != 0, x, 0.0)

    logp, gain = scored(logp), scored(advantages)
    log_ratio = logp - scored(behaviour_logp)
    ratio = jnp.exp(log_ratio)
    free = ratio * gain
    clipped = jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * gain
    k3 = jnp.zeros_like(logp)
    if ref_logp is not None:
        away = scored(ref_logp) - logp
        k3 = jnp.exp(away) - away - 1
    stats = GRPOStats(
        kl=jnp.sum(weights * k3),
        ratio=jnp.sum(weights * ratio),
        clip_fraction=jnp.sum(weights * (clipped < free)),
        logp_gap=jnp.sum(weights * jnp.abs(log_ratio)),
    )
    return -jnp.sum(weights * (jnp.minimum(free, clipped) - kl_beta * k3)), stats


def bc_loss(logp: Array, weights: ArrayLike) -> Array:
    """Behaviour cloning: L = -Σ w logp, the negative log-likelihood of demonstrated tokens.

    logp, weights: [B, R]. Returns a float32 scalar.
    """
    weights = jnp.asarray(weights)
    return -jnp.sum(weights * jnp.where(weights != 0, logp, 0.0))
