"""Schedules, clipping, and AdamW's first step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from webagent_jax.config import OptimizerConfig
from webagent_jax.learn import learning_rate_schedule, make_optimizer


def test_constant_is_the_default():
    rate = learning_rate_schedule(OptimizerConfig(learning_rate=0.3), 10)
    np.testing.assert_allclose([rate(i) for i in (0, 5, 99)], 0.3, rtol=1e-6)


def test_warm_up_rises_from_the_first_update_on():
    rate = learning_rate_schedule(OptimizerConfig(learning_rate=0.4, warmup_fraction=0.4), 10)
    np.testing.assert_allclose(
        [rate(i) for i in range(6)], [0.1, 0.2, 0.3, 0.4, 0.4, 0.4], rtol=1e-6
    )


def test_cosine_falls_to_zero_after_the_last_update():
    config = OptimizerConfig(learning_rate=0.4, schedule="cosine", warmup_fraction=0.2)
    rate = learning_rate_schedule(config, 10)
    expected = [0.2, 0.4, *(0.2 * (1 + np.cos(np.pi * i / 8)) for i in range(8)), 0]
    np.testing.assert_allclose([rate(i) for i in range(11)], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("warmup_fraction", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_every_schedule_moves_even_a_run_of_one_update(schedule, warmup_fraction):
    config = OptimizerConfig(schedule=schedule, warmup_fraction=warmup_fraction)
    assert learning_rate_schedule(config, 1)(0) == pytest.approx(config.learning_rate)


def test_first_step_of_adamw_on_a_clipped_gradient():
    config = OptimizerConfig(
        learning_rate=0.1, b1=0.9, b2=0.99, weight_decay=0.5, max_grad_norm=1e-7
    )
    optimizer = make_optimizer(config, 10)
    params = {"a": jnp.array([2.0]), "b": jnp.array([-1.0])}
    grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    updates, _ = optimizer.update(grads, optimizer.init(params), params)
    # clipped to a norm of 1e-7, g = (0.6e-7, 0.8e-7), beside Adam's 1e-8 under the root
    for name, g in (("a", 0.6e-7), ("b", 0.8e-7)):
        expected = params[name] - 0.1 * (g / (g + 1e-8) + 0.5 * params[name])
        np.testing.assert_allclose(optax.apply_updates(params, updates)[name], expected, rtol=1e-5)
