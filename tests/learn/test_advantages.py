"""Group-relative advantages and the weights of the means."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from webagent_jax.learn import (
    episode_turn_token_weights,
    group_advantages,
    has_equal_rewards,
    token_mean_weights,
    turn_mean_weights,
)

rewards_of_a_group = st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=9)


def test_golden_group():
    # mean 1/4, unbiased variance (3/16 + 9/16) / 3 = 1/4
    advantages = group_advantages(np.array([0, 0, 1, 0]), std_eps=0.0)
    np.testing.assert_allclose(advantages, [-0.5, -0.5, 1.5, -0.5], rtol=1e-6)
    damped = group_advantages(np.array([0, 0, 1, 0]), std_eps=0.5)
    np.testing.assert_allclose(damped, [-0.25, -0.25, 0.75, -0.25], rtol=1e-6)


@pytest.mark.parametrize("rewards", [[], [1], [0, 0, 0], [0.1] * 7])
def test_a_flat_group_has_no_advantage(rewards):
    assert has_equal_rewards(np.array(rewards))
    np.testing.assert_array_equal(
        group_advantages(np.array(rewards), std_eps=0.0), [0] * len(rewards)
    )


@settings(deadline=None)
@given(rewards_of_a_group, st.sampled_from([-2.0, 0.5, 8.0]), st.randoms())
def test_shift_changes_nothing_and_permutation_permutes(rewards, shift, random):
    r = np.array(rewards)
    order = random.sample(range(len(r)), len(r))
    advantages = group_advantages(r, std_eps=1e-4)
    np.testing.assert_allclose(group_advantages(r + shift, std_eps=1e-4), advantages, atol=1e-6)
    np.testing.assert_allclose(
        group_advantages(r[order], std_eps=1e-4), advantages[order], atol=1e-6
    )
    assert has_equal_rewards(r) == (len(set(rewards)) == 1)


def test_three_levels_of_means():
    weights = episode_turn_token_weights([[2, 4], [5]])
    np.testing.assert_allclose(weights[0], [1 / (2 * 2 * 2), 1 / (2 * 2 * 4)], rtol=1e-6)
    np.testing.assert_allclose(weights[1], [1 / (2 * 1 * 5)], rtol=1e-6)


def test_turn_mean_weighs_every_turn_alike():
    weights = turn_mean_weights([[2, 4], [5]])
    np.testing.assert_allclose(weights[0], [1 / (3 * 2), 1 / (3 * 4)], rtol=1e-6)
    np.testing.assert_allclose(weights[1], [1 / (3 * 5)], rtol=1e-6)
    (part,) = turn_mean_weights([[5]], turns=3)
    np.testing.assert_array_equal(part, weights[1])


@pytest.mark.parametrize(
    "weigh", [episode_turn_token_weights, token_mean_weights, turn_mean_weights]
)
def test_the_weights_of_a_batch_sum_to_one(weigh):
    tokens = [[3, 1, 7], [2], [9, 9]]
    weights = weigh(tokens)
    assert sum(np.dot(n, w) for n, w in zip(tokens, weights, strict=True)) == pytest.approx(1)
