"""The optimizer, from its config."""

from __future__ import annotations

import math

import optax

from webagent_jax.config import OptimizerConfig


def learning_rate(config: OptimizerConfig, total_updates: int) -> optax.Schedule:
    """Learning rate by the number of updates already done.

    Rises linearly over the first `warmup_fraction` of `total_updates`, the first update having a
    share of it already, then stays, or falls to 0 along half a cosine.
    """
    warmup = math.ceil(config.warmup_fraction * total_updates)
    peak = config.learning_rate
    if config.schedule == "cosine":
        main = optax.cosine_decay_schedule(peak, max(total_updates - warmup, 1))
    else:
        main = optax.constant_schedule(peak)
    if warmup == 0:
        return main
    rise = optax.linear_schedule(peak / warmup, peak, max(warmup - 1, 1))
    return optax.join_schedules([rise, main], [warmup])


def make_optimizer(
    config: OptimizerConfig, total_updates: int
) -> optax.GradientTransformationExtraArgs:
    """AdamW on gradients clipped to a global norm of `max_grad_norm`.

    `total_updates` sets the length of the schedule. Weight decay, where asked for, reaches every
    param.
    """
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.adamw(
            learning_rate(config, total_updates),
            b1=config.b1,
            b2=config.b2,
            weight_decay=config.weight_decay,
        ),
    )
