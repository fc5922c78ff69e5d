"""Optimizer and learning rate schedule."""

from __future__ import annotations

import math

import optax

from webagent_jax.config import OptimizerConfig


def learning_rate_schedule(config: OptimizerConfig, total_steps: int) -> optax.Schedule:
    """Return the learning rate as a function of the number of completed optimizer steps.

    It rises linearly over the first `warmup_fraction` of the steps, from above 0 at the first step.
    Then it stays constant, or decays to 0 along half a cosine.

    Args:
        config: options of the optimizer.
        total_steps: number of optimizer steps of the run.
    """
    warmup = math.ceil(config.warmup_fraction * total_steps)
    peak = config.learning_rate
    if config.schedule == "cosine":
        # optax requires at least one decay step, even if the warmup covers the whole run.
        schedule = optax.cosine_decay_schedule(peak, max(total_steps - warmup, 1))
    else:
        schedule = optax.constant_schedule(peak)
    if warmup == 0:
        return schedule
    # Step s of the warmup has the rate peak (s + 1) / warmup, which is above 0 at s = 0.
    ramp = optax.linear_schedule(peak / warmup, peak, max(warmup - 1, 1))
    return optax.join_schedules([ramp, schedule], [warmup])


def make_optimizer(
    config: OptimizerConfig, total_steps: int
) -> optax.GradientTransformationExtraArgs:
    """Return AdamW with gradients clipped to a global norm of `max_grad_norm`.

    Weight decay applies to all params.

    Args:
        config: options of the optimizer.
        total_steps: number of optimizer steps of the run, for the learning rate schedule.
    """
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.adamw(
            learning_rate_schedule(config, total_steps),
            b1=config.b1,
            b2=config.b2,
            weight_decay=config.weight_decay,
        ),
    )
