"""Losses of M-GRPO and behavior cloning as functions of arrays, without model, config or masks.

A loss is a sum over tokens weighted by `weights`, which the host computes (learn/advantages.py). So
packing, padding, microbatches and sharding cannot change the objective: loss, gradient and
statistics of the parts of a batch add up to those of the batch.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


class PolicyLossConfig(NamedTuple):
    """Options of the policy loss (docs/objectives.md), static under jit."""

    policy_loss: Literal["clip", "logp"] = "clip"
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_estimator: Literal["k3", "k1"] = "k3"
    kl_beta: float = 0.0
    kl_reference: Literal["initial", "previous"] = "initial"
    importance_weight_cap: float = 2.0

    @property
    def needs_reference(self) -> bool:
        """True if the loss reads log-probabilities of a reference policy."""
        return self.kl_beta > 0 and self.kl_reference == "initial"


class GRPOStats(NamedTuple):
    """Sums Σ w (...) over tokens; batch means when divided by the sum of the weights."""

    kl: Array  # k3 estimate of KL(policy || reference); 0 without a reference
    ratio: Array  # ratio of the policy to the proximal policy
    clip_fraction: Array  # fraction of tokens whose gradient is clipped to 0
    importance_weight: Array  # capped ratio of the proximal to the behavior policy; 1 on policy
    importance_capped_fraction: Array  # fraction of tokens whose importance weight is capped
    # |logp - behavior_logp|; near 0 on policy unless engine and learner compute differently
    logp_difference: Array


def grpo_loss(
    logp: Array,
    behavior_logp: ArrayLike,
    advantages: ArrayLike,
    weights: ArrayLike,
    *,
    config: PolicyLossConfig,
    prox_logp: ArrayLike | None = None,
    ref_logp: ArrayLike | None = None,
) -> tuple[Array, GRPOStats]:
    """Return loss and statistics of multi-turn GRPO (WebAgent-R1, arXiv 2505.16421, section 3.3).

        L  = -Σ w [c min(ρ A, clip(ρ, 1 - clip_low, 1 + clip_high) A) - kl_beta k3]     clip
        L  = -Σ w [c A logp - kl_beta k3]                                               logp
        ρ  = exp(logp - prox_logp)
        c  = min(exp(prox_logp - behavior_logp), importance_weight_cap)
        k3 = exp(ref_logp - logp) - (ref_logp - logp) - 1

    k3 is from Schulman, "Approximating KL Divergence" (2020). The proximal policy is decoupled from
    the behavior policy as in Hilton et al. (arXiv 2110.00641); on policy both are equal and c is 1.
    With kl_estimator="k1" there is no k3. The penalty is part of the advantage instead, without a
    gradient:

        A' = A - kl_beta (logp - ref_logp)

    Its policy gradient is that of KL(policy || reference) of the next token, unlike the derivative
    of k1 itself (Tang and Munos, arXiv 2506.09477).

    With kl_reference="previous", the reference is the proximal policy. The KL term then bounds the
    steps of one update, as in TRPO with a penalty (Schulman et al., arXiv 1502.05477).

    Tokens with a weight of 0 have no effect, whatever their values.

    Args:
        logp: [B, R], log-probabilities of the response tokens under the policy; the only input with
            a gradient.
        behavior_logp: [B, R], log-probabilities when sampled.
        advantages: [B, R], A.
        weights: [B, R], w.
        config: options of the policy loss.
        prox_logp: [B, R], log-probabilities under the policy before the update; None means
            `behavior_logp`.
        ref_logp: [B, R], log-probabilities under the reference policy; None omits the KL. Not read
            with kl_reference="previous".

    Returns:
        The loss, a float32 scalar, and statistics.

    Raises:
        ValueError: the loss needs `ref_logp`, or an array is not of floats or has another shape
            than `logp`.
    """
    _check_arrays(
        logp,
        behavior_logp=behavior_logp,
        advantages=advantages,
        weights=weights,
        prox_logp=prox_logp,
        ref_logp=ref_logp,
    )
    if ref_logp is None and config.needs_reference:
        raise ValueError("kl_beta is above 0: pass ref_logp to grpo_loss, or set kl_beta to 0")
    weights = jnp.asarray(weights)

    # Mask before any exp: 0 · inf would be NaN, in the gradient as well.
    def mask(x: ArrayLike) -> Array:
        return jnp.where(weights != 0, x, 0.0)

    logp, advantage, behavior = mask(logp), mask(advantages), mask(behavior_logp)
    prox = behavior if prox_logp is None else mask(prox_logp)
    ref = prox if config.kl_reference == "previous" else ref_logp
    # Without a reference, both the KL metric and the penalty are 0.
    k3 = penalty = jnp.zeros_like(logp)
    if ref is not None:
        # [B, R]; k3 is at least 0 for every token.
        log_ratio = mask(ref) - logp
        k3 = jnp.exp(log_ratio) - log_ratio - 1
        # k1 acts through the advantage, because its own derivative is 0 in expectation.
        if config.kl_estimator == "k1":
            advantage = advantage + config.kl_beta * jax.lax.stop_gradient(log_ratio)
        else:
            penalty = config.kl_beta * k3

    # Masked tokens have a ratio of 1 here; their weight of 0 removes them from all sums.
    ratio = jnp.exp(logp - prox)
    # c has no gradient: neither `prox` nor `behavior` depends on the trained params.
    uncapped_importance = jnp.exp(prox - behavior)
    importance = jnp.minimum(uncapped_importance, config.importance_weight_cap)
    if config.policy_loss == "clip":
        unclipped = ratio * advantage
        clipped = jnp.clip(ratio, 1 - config.clip_low, 1 + config.clip_high) * advantage
        # Where the minimum is the clipped term, the ratio is out of bounds and the gradient is 0.
        surrogate, is_clipped = jnp.minimum(unclipped, clipped), clipped < unclipped
    else:
        surrogate, is_clipped = logp * advantage, jnp.zeros_like(logp, bool)
    stats = GRPOStats(
        kl=jnp.sum(weights * k3),
        ratio=jnp.sum(weights * ratio),
        clip_fraction=jnp.sum(weights * is_clipped),
        importance_weight=jnp.sum(weights * importance),
        importance_capped_fraction=jnp.sum(
            weights * (uncapped_importance > config.importance_weight_cap)
        ),
        logp_difference=jnp.sum(weights * jnp.abs(logp - behavior)),
    )
    return -jnp.sum(weights * (importance * surrogate - penalty)), stats


def bc_loss(logp: Array, weights: ArrayLike) -> Array:
    """Return the behavior cloning loss -Σ w logp, a negative log-likelihood.

    Args:
        logp: [B, R], log-probabilities of the demonstrated tokens.
        weights: [B, R], w.

    Returns:
        A float32 scalar.

    Raises:
        ValueError: the shapes differ, or an array is not of floats.
    """
    _check_arrays(logp, weights=weights)
    weights = jnp.asarray(weights)
    # Mask before the product, as in `grpo_loss`: 0 · inf would be NaN.
    return -jnp.sum(weights * jnp.where(weights != 0, logp, 0.0))


def _check_arrays(logp: Array, **arrays: ArrayLike | None) -> None:
    """Check shapes and dtypes: a wrong shape would broadcast to a wrong loss without an error."""
    for name, array in ({"logp": logp} | arrays).items():
        if array is None:
            continue
        if jnp.shape(array) != logp.shape:
            raise ValueError(f"{name} has the shape {jnp.shape(array)}, but logp has {logp.shape}")
        if not jnp.issubdtype(jnp.result_type(array), jnp.floating):
            raise ValueError(f"{name} has the dtype {jnp.result_type(array)}, not float")
