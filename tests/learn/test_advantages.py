"""Tests of group advantages and loss weights."""

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

group_rewards = st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=9)


def test_group_advantages_match_golden_values():
    # mean 1/4, unbiased variance (3/16 + 9/16) / 3 = 1/4
    advantages = group_advantages(np.array([0, 0, 1, 0]), std_eps=0.0)
    np.testing.assert_allclose(advantages, [-0.5, -0.5, 1.5, -0.5], rtol=1e-6)
    damped_advantages = group_advantages(np.array([0, 0, 1, 0]), std_eps=0.5)
    np.testing.assert_allclose(damped_advantages, [-0.25, -0.25, 0.75, -0.25], rtol=1e-6)


@pytest.mark.parametrize("rewards", [[], [1], [0, 0, 0], [0.1] * 7])
def test_group_advantages_are_zero_for_equal_rewards(rewards):
    assert has_equal_rewards(np.array(rewards))
    np.testing.assert_array_equal(
        group_advantages(np.array(rewards), std_eps=0.0), [0] * len(rewards)
    )


@settings(deadline=None)
@given(group_rewards, st.sampled_from([-2.0, 0.5, 8.0]), st.randoms())
def test_group_advantages_ignore_shift_and_follow_permutation(rewards, shift, random):
    reward_array = np.array(rewards)
    order = random.sample(range(len(reward_array)), len(reward_array))
    advantages = group_advantages(reward_array, std_eps=1e-4)
    np.testing.assert_allclose(
        group_advantages(reward_array + shift, std_eps=1e-4), advantages, atol=1e-6
    )
    np.testing.assert_allclose(
        group_advantages(reward_array[order], std_eps=1e-4), advantages[order], atol=1e-6
    )
    assert has_equal_rewards(reward_array) == (len(set(rewards)) == 1)


def test_episode_turn_token_weights_average_three_levels():
    weights = episode_turn_token_weights([[2, 4], [5]])
    np.testing.assert_allclose(weights[0], [1 / (2 * 2 * 2), 1 / (2 * 2 * 4)], rtol=1e-6)
    np.testing.assert_allclose(weights[1], [1 / (2 * 1 * 5)], rtol=1e-6)


def test_turn_mean_weights_are_equal_per_turn():
    weights = turn_mean_weights([[2, 4], [5]])
    np.testing.assert_allclose(weights[0], [1 / (3 * 2), 1 / (3 * 4)], rtol=1e-6)
    np.testing.assert_allclose(weights[1], [1 / (3 * 5)], rtol=1e-6)
    (partial_weights,) = turn_mean_weights([[5]], turns=3)
    np.testing.assert_array_equal(partial_weights, weights[1])


@pytest.mark.parametrize(
    "weight_fn", [episode_turn_token_weights, token_mean_weights, turn_mean_weights]
)
def test_loss_weights_sum_to_one_over_batch(weight_fn):
    token_counts = [[3, 1, 7], [2], [9, 9]]
    weights = weight_fn(token_counts)
    assert sum(
        np.dot(counts, turn_weights)
        for counts, turn_weights in zip(token_counts, weights, strict=True)
    ) == pytest.approx(1)
