"""Tests of the credit of turns: graph of pages, comparison on equal pages, use in the objective."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests import reference
from tests.learn.random_batches import V, make_batch
from webagent_jax import learn
from webagent_jax.config import GRPOConfig, RolloutConfig
from webagent_jax.learn import has_signal
from webagent_jax.learn.step_credit import num_compared_turns, step_advantages
from webagent_jax.types import Action, ActionKind, Episode, Group

CFG = GRPOConfig(step_advantage_weight=1.0, step_discount=0.5, row_tokens=64)


def make_group(*episodes: tuple[float, list[int]]) -> Group:
    """Return a group of episodes with a reward and the pages of their turns."""
    turns = {
        page: reference.Turn(np.zeros((1, V)), [0], [-1.0], [-1.0], page=page) for page in range(9)
    }
    (group,) = make_batch(
        [[reference.Episode(reward, [turns[p] for p in pages]) for reward, pages in episodes]]
    ).groups
    return group


def scored(group: Group) -> list[Episode]:
    return [episode for episode in group.episodes if episode.reward is not None]


def advantages(*episodes: tuple[float, list[int]]) -> list[list[float]]:
    advantages = step_advantages(scored(make_group(*episodes)), discount=CFG.step_discount)
    return [[round(float(value), 4) for value in each] for each in advantages]


def test_turn_toward_success_is_better_than_other_turns_on_its_page():
    # From page 0, page 1 is one turn before the success; page 2 leads to a failure.
    assert advantages((1, [0, 1]), (0, [0, 2])) == [[0.25, 0.0], [-0.25, 0.0]]


def test_pages_of_two_worlds_are_compared():
    group = make_group((1, [0, 1]), (0, [0, 2]))
    for world, episode in enumerate(group.episodes):
        for turn in episode.turns:
            url = f"http://shop.w{world}.localhost:8000/{turn.observation.text}"
            object.__setattr__(turn.observation, "url", url)
    advantages = step_advantages(scored(group), discount=CFG.step_discount)
    assert [each.tolist() for each in advantages] == [[0.25, 0.0], [-0.25, 0.0]]
    assert num_compared_turns(group.episodes) == num_compared_turns(
        make_group((1, [0, 1]), (0, [0, 2])).episodes
    )


def test_failed_episode_gets_credit_for_its_right_turns():
    # Both go to page 1; there, one succeeds.
    assert advantages((1, [0, 1]), (0, [0, 1])) == [[0.0, 0.5], [0.0, -0.5]]
    # The turn from 3 to 0 of the failed episode leads to a page with a path to a success.
    assert advantages((1, [0]), (0, [3, 0]), (0, [3, 4]))[1][0] == 0.25


def test_detour_is_worse_than_shortest_path():
    # Page 0 to itself: a refused or useless action.
    direct, detour = advantages((1, [0]), (1, [0, 0]))
    assert direct == detour[1:] == [round(1 - (1 + 0.5 + 1) / 3, 4)]
    assert detour[0] == round(0.5 - (1 + 0.5 + 1) / 3, 4)


def truncated(group: Group, *attempts: int) -> list[Episode]:
    """Return the scored episodes; those of `attempts` ended at the turn or token limit."""
    return [
        dataclasses.replace(episode, truncated=attempt in attempts)
        for attempt, episode in enumerate(scored(group))
    ]


def test_last_turn_of_truncated_episode_is_not_compared():
    # Both go to page 1; there, the second ends at the limit, before its next page is observed.
    episodes = truncated(make_group((1, [0, 1]), (0, [0, 1])), 1)
    advantages = step_advantages(episodes, discount=CFG.step_discount)
    assert [each.tolist() for each in advantages] == [[0.0, 0.0], [0.0, 0.0]]
    # The earlier turns count: the one from page 0 to page 2, which leads to no success.
    episodes = truncated(make_group((1, [0, 1]), (0, [0, 2])), 1)
    advantages = step_advantages(episodes, discount=CFG.step_discount)
    assert [each.tolist() for each in advantages] == [[0.25, 0.0], [-0.25, 0.0]]


def test_success_of_truncated_episode_is_observed():
    episodes = truncated(make_group((1, [0]), (0, [0])), 0)
    advantages = step_advantages(episodes, discount=CFG.step_discount)
    assert [each.tolist() for each in advantages] == [[0.5], [-0.5]]


def test_truncated_episode_without_turns_has_no_advantages():
    episodes = truncated(make_group((1, [0]), (0, [0])), 1)
    episodes[1] = dataclasses.replace(episodes[1], turns=())
    advantages = step_advantages(episodes, discount=CFG.step_discount)
    assert [each.tolist() for each in advantages] == [[0.0], []]


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_equal_episodes_and_unreached_success_have_no_step_advantage(reward):
    assert advantages((reward, [0, 1]), (reward, [0, 1])) == [[0.0, 0.0], [0.0, 0.0]]
    assert advantages((0, [0, 1]), (0, [0, 2])) == [[0.0, 0.0], [0.0, 0.0]]


def test_group_of_successes_has_signal_if_paths_differ():
    group = make_group((1, [0]), (1, [0, 0]))
    assert has_signal(group, CFG)
    assert not has_signal(group, GRPOConfig())
    assert not has_signal(make_group((1, [0]), (1, [0])), CFG)
    assert not has_signal(make_group((0, [0]), (0, [0, 0])), CFG)


def test_packed_tokens_have_advantages_of_their_turns():
    group = make_group((1, [0, 1]), (0, [0, 2]))
    cfg = GRPOConfig(
        advantage_estimator="group_mean",
        step_advantage_weight=2.0,
        step_discount=0.5,
        row_tokens=64,
    )
    rows = learn.pack_groups([group], cfg, RolloutConfig()).rows
    weighted = rows.loss_weights != 0
    assert sorted(rows.advantages[weighted].tolist()) == [-1.0, -0.5, 0.5, 1.0]


def test_compared_turns_have_two_actions_on_their_page():
    episodes = scored(make_group((1, [0, 1]), (0, [0, 2]), (0, [2])))
    # The actions of `make_batch` are equal.
    assert num_compared_turns(episodes) == 0
    first, *others = episodes[0].turns
    click = dataclasses.replace(first, action=Action(ActionKind.CLICK, "1"))
    episodes[0] = dataclasses.replace(episodes[0], turns=(click, *others))
    # Two turns on page 0; page 1 has one turn, and page 2 two equal ones.
    assert num_compared_turns(episodes) == 2
