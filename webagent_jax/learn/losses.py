"""The objectives. Arrays in, arrays out: no model, no config, no masks.

A loss is a sum over tokens weighted by `weights`, which the host computes (learn/advantages.py). So
packing, padding, cutting into microbatches and sharding cannot change the objective: the parts of a
batch add up to the batch, loss, gradient and statistics alike.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


class Surrogate(NamedTuple):
    """What is summed over the tokens (docs/objectives.md); all of it is known when compiling."""

    policy_loss: Literal["clip", "logp"] = "clip"
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: Literal["k3", "k1"] = "k3"
    kl_beta: float = 0.0
    importance_cap: float = 2.0


class GRPOStats(NamedTuple):
    """Scalars, Σ w (...): means over the batch when divided by the sum of its weights."""

    kl: Array  # k3 estimate of KL(policy || reference); 0 without a reference
    ratio: Array  # of the policy to the proximal one
    clip_fraction: Array  # tokens whose gradient the clip has cut off
    importance: Array  # of the proximal policy to the one that sampled, capped; 1 on policy
    capped: Array  # tokens whose importance the cap has cut off
    logp_gap: Array  # |logp - behaviour_logp|; near 0 on policy, or the two forwards disagree


def grpo_loss(
    logp: Array,
    behaviour_logp: ArrayLike,
    advantages: ArrayLike,
    weights: ArrayLike,
    *,
    surrogate: Surrogate,
    prox_logp: ArrayLike | None = None,
    ref_logp: ArrayLike | None = None,
) -> tuple[Array, GRPOStats]:
    """Multi-turn GRPO, WebAgent-R1 (arXiv 2505.16421), section 3.3, and its kin.

        L  = -Σ w [c min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) - kl_beta k3]     clip
        L  = -Σ w [c A logp - kl_beta k3]                                               logp
        r  = exp(logp - prox_logp)
        c  = min(exp(prox_logp - behaviour_logp), importance_cap)
        k3 = exp(ref_logp - logp) - (ref_logp - logp) - 1

    with k3 after Schulman, "Approximating KL Divergence" (2020). The proximal policy is decoupled
    from the one that sampled after Hilton et al. (arXiv 2110.00641); on policy both are the same,
    and c is 1. With kl="k1" there is no k3; every token is charged in its advantage instead,

        A' = A - kl_beta (logp - ref_logp),

    through which no gradient flows: its policy gradient is that of KL(policy || reference) of the
    next token, as k1's own derivative is not (Tang and Munos, arXiv 2506.09477).

    What stands under a weight of 0 changes nothing, whatever it is.

    Args:
        logp: [B, R] of the response tokens under the policy; the gradient flows through it alone.
        behaviour_logp: [B, R] when sampled.
        advantages: [B, R] A.
        weights: [B, R] w.
        prox_logp: [B, R] under the policy before the update; None means `behaviour_logp`.
        ref_logp: [B, R] under the reference policy. None leaves the KL out, and is an error unless
            `kl_beta` is 0.

    Returns:
        The loss, a float32 scalar, and statistics.
    """
    if ref_logp is None and surrogate.kl_beta > 0:
        raise ValueError("kl_beta is above 0: grpo_loss needs ref_logp")
    weights = jnp.asarray(weights)

    def scored(x: ArrayLike) -> Array:  # before any exp: 0 · inf would be NaN, in the gradient too
        return jnp.where(weights != 0, x, 0.0)

    logp, gain, behaviour = scored(logp), scored(advantages), scored(behaviour_logp)
    prox = behaviour if prox_logp is None else scored(prox_logp)
    k3 = charge = jnp.zeros_like(logp)
    if ref_logp is not None:
        away = scored(ref_logp) - logp
        k3 = jnp.exp(away) - away - 1
        if surrogate.kl == "k1":
            gain = gain + surrogate.kl_beta * jax.lax.stop_gradient(away)
        else:
            charge = surrogate.kl_beta * k3

    ratio = jnp.exp(logp - prox)
    drift = jnp.exp(prox - behaviour)
    importance = jnp.minimum(drift, surrogate.importance_cap)
    if surrogate.policy_loss == "clip":
        free = ratio * gain
        clipped = jnp.clip(ratio, 1 - surrogate.clip_low, 1 + surrogate.clip_high) * gain
        gained, cut = jnp.minimum(free, clipped), clipped < free
    else:
        gained, cut = logp * gain, jnp.zeros_like(logp, bool)
    stats = GRPOStats(
        kl=jnp.sum(weights * k3),
        ratio=jnp.sum(weights * ratio),
        clip_fraction=jnp.sum(weights * cut),
        importance=jnp.sum(weights * importance),
        capped=jnp.sum(weights * (drift > surrogate.importance_cap)),
        logp_gap=jnp.sum(weights * jnp.abs(logp - behaviour)),
    )
    return -jnp.sum(weights * (importance * gained - charge)), stats


def bc_loss(logp: Array, weights: ArrayLike) -> Array:
    """Behaviour cloning: L = -Σ w logp, the negative log-likelihood of demonstrated tokens.

    logp, weights: [B, R]. Returns a float32 scalar.
    """
    weights = jnp.asarray(weights)
    return -jnp.sum(weights * jnp.where(weights != 0, logp, 0.0))
