"""Tests of learning rate schedules, gradient clipping and AdamW."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from webagent_jax.config import OptimizerConfig
from webagent_jax.learn import learning_rate_schedule, make_optimizer


def test_learning_rate_is_constant_by_default():
    schedule = learning_rate_schedule(OptimizerConfig(learning_rate=0.3), 10)
    np.testing.assert_allclose([schedule(step) for step in (0, 5, 99)], 0.3, rtol=1e-6)


def test_warmup_rises_from_first_step():
    schedule = learning_rate_schedule(OptimizerConfig(learning_rate=0.4, warmup_fraction=0.4), 10)
    np.testing.assert_allclose(
        [schedule(step) for step in range(6)], [0.1, 0.2, 0.3, 0.4, 0.4, 0.4], rtol=1e-6
    )


def test_cosine_schedule_is_zero_after_last_step():
    config = OptimizerConfig(learning_rate=0.4, schedule="cosine", warmup_fraction=0.2)
    schedule = learning_rate_schedule(config, 10)
    expected = [0.2, 0.4, *(0.2 * (1 + np.cos(np.pi * step / 8)) for step in range(8)), 0]
    np.testing.assert_allclose(
        [schedule(step) for step in range(11)], expected, rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("warmup_fraction", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_schedules_use_full_rate_for_single_step(schedule, warmup_fraction):
    config = OptimizerConfig(schedule=schedule, warmup_fraction=warmup_fraction)
    assert learning_rate_schedule(config, 1)(0) == pytest.approx(config.learning_rate)


def test_first_adamw_step_uses_clipped_gradient():
    config = OptimizerConfig(
        learning_rate=0.1, b1=0.9, b2=0.99, weight_decay=0.5, max_grad_norm=1e-7
    )
    optimizer = make_optimizer(config, 10)
    params = {"a": jnp.array([2.0]), "b": jnp.array([-1.0])}
    grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    updates, _ = optimizer.update(grads, optimizer.init(params), params)
    # After clipping to norm 1e-7, g = (0.6e-7, 0.8e-7); Adam's epsilon is 1e-8.
    for name, g in (("a", 0.6e-7), ("b", 0.8e-7)):
        expected = params[name] - 0.1 * (g / (g + 1e-8) + 0.5 * params[name])
        np.testing.assert_allclose(optax.apply_updates(params, updates)[name], expected, rtol=1e-5)


def test_second_adamw_step_averages_moments():
    config = OptimizerConfig(
        learning_rate=0.1, b1=0.6, b2=0.7, weight_decay=0.5, max_grad_norm=100.0
    )
    optimizer = make_optimizer(config, 10)
    params = jnp.array([2.0, -1.0])
    first, second = np.array([3.0, -4.0]), np.array([-1.0, 2.0])
    state = optimizer.init(params)
    for grads in (first, second):
        updates, state = optimizer.update(jnp.asarray(grads, jnp.float32), state, params)
        params = optax.apply_updates(params, updates)
    # The bias correction of the first step cancels the decay rates: g / |g| is the sign.
    expected = np.array([2.0, -1.0])
    expected = expected - 0.1 * (np.sign(first) + 0.5 * expected)
    mean = (0.6 * 0.4 * first + 0.4 * second) / (1 - 0.6**2)
    square = (0.7 * 0.3 * first**2 + 0.3 * second**2) / (1 - 0.7**2)
    expected = expected - 0.1 * (mean / np.sqrt(square) + 0.5 * expected)
    np.testing.assert_allclose(params, expected, rtol=1e-5)
