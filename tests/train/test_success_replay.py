"""Tests of the replay of successes: stored episodes, groups of failures, restored state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.rollout.fakes import TASK
from webagent_jax.config import GRPOConfig, RunConfig
from webagent_jax.tracking.episode_log import append_episodes
from webagent_jax.train.resume import episode_file
from webagent_jax.train.success_replay import SuccessReplay
from webagent_jax.types import (
    Completion,
    Episode,
    Group,
    Observation,
    Outcome,
    ParseError,
    Turn,
)

CFG = RunConfig(grpo=GRPOConfig(success_replay=True))
OTHER_TASK = replace(TASK, id="other/task/1")


def make_episode(reward, *, task=TASK, update=0, group=0, attempt=0) -> Episode:
    """Return an episode whose behavior log-probability identifies it."""
    ids = np.zeros(1, np.int32)
    logp = np.asarray([-(update + group / 10 + attempt / 100)], np.float32)
    turn = Turn(ids, Completion(ids, logp, ids, "stop"), "", ParseError(""), Observation("", ""))
    outcome = Outcome.INFRA if reward is None else Outcome.SUCCESS if reward else Outcome.FAILURE
    return Episode(task, "", (turn,), reward, outcome, group=group, attempt=attempt, update=update)


def make_group(*rewards, task=TASK, update=0, group=0) -> Group:
    return Group(
        task,
        tuple(
            make_episode(reward, task=task, update=update, group=group, attempt=attempt)
            for attempt, reward in enumerate(rewards)
        ),
    )


@pytest.fixture
def finish_update(tmp_path):
    """Return a function that logs and records the groups of an update."""

    def finish(replay: SuccessReplay, update: int, *groups: Group) -> None:
        episodes = [episode for group in groups for episode in group.episodes]
        append_episodes(tmp_path / episode_file(update, 0), episodes)
        replay.record(episodes)

    return finish


def logps(group: Group) -> list[float]:
    return [round(float(e.turns[0].completion.behavior_logp[0]), 2) for e in group.episodes]


def test_success_replaces_last_failure_of_group_of_failures(tmp_path, finish_update):
    replay = SuccessReplay(CFG, tmp_path, {})
    failures = make_group(0, 0, None, update=3, group=7)
    assert replay.fill(failures) is failures
    finish_update(replay, 1, make_group(0, 1, group=4, update=1))
    filled = replay.fill(failures)
    assert [episode.reward for episode in filled.episodes] == [0, 1, None]
    # The success has the log-probabilities of its own policy.
    assert logps(filled) == [-3.7, -1.41, -3.72]
    for group in (
        make_group(0, 1, update=3),
        make_group(None, None, update=3),
        make_group(0, 0, task=OTHER_TASK, update=3),
    ):
        assert replay.fill(group) is group


def test_latest_success_of_task_is_stored(tmp_path, finish_update):
    replay = SuccessReplay(CFG, tmp_path, {})
    finish_update(replay, 0, make_group(1, 1))
    finish_update(replay, 2, make_group(1, 0, update=2), make_group(1, task=OTHER_TASK, group=1))
    finish_update(replay, 3, make_group(0, 0, update=3))
    assert logps(replay.fill(make_group(0, 0, update=4))) == [-4.0, -2.0]


@pytest.mark.parametrize(("option", "reward"), [("score", 1), ("mask", 0), ("zero", 0)])
def test_truncated_success_is_replayed_only_if_it_counts(tmp_path, finish_update, option, reward):
    cfg = RunConfig(grpo=GRPOConfig(success_replay=True, truncated_episodes=option))
    replay = SuccessReplay(cfg, tmp_path, {})
    group = make_group(0, 1)
    truncated = replace(group, episodes=tuple(replace(e, truncated=True) for e in group.episodes))
    finish_update(replay, 0, truncated)
    filled = replay.fill(make_group(0, 0, update=2))
    assert [episode.reward for episode in filled.episodes] == [0, reward]


@pytest.mark.parametrize("option", ["score", "mask", "zero"])
def test_group_of_truncated_successes_has_replay_if_they_are_zeroed(
    tmp_path, finish_update, option
):
    replay = SuccessReplay(
        RunConfig(grpo=GRPOConfig(success_replay=True, truncated_episodes=option)), tmp_path, {}
    )
    finish_update(replay, 0, make_group(0, 1))
    group = make_group(0, 1, update=2)
    group = replace(group, episodes=tuple(replace(e, truncated=True) for e in group.episodes))
    filled = replay.fill(group)
    # The replayed success is not truncated.
    assert [e.truncated for e in filled.episodes] == [True, option != "zero"]


def test_restored_replay_has_equal_successes(tmp_path, finish_update):
    replay = SuccessReplay(CFG, tmp_path, {})
    finish_update(replay, 0, make_group(0, 1))
    restored = SuccessReplay(CFG, tmp_path, replay.state())
    assert logps(restored.fill(make_group(0, 0, update=4))) == [-4.0, -0.01]


def test_missing_log_leaves_group_unchanged(tmp_path, finish_update):
    replay = SuccessReplay(CFG, tmp_path, {})
    finish_update(replay, 0, make_group(0, 1))
    (tmp_path / episode_file(0, 0)).unlink()
    group = make_group(0, 0)
    assert replay.fill(group) is group


def test_disabled_replay_stores_nothing(tmp_path, finish_update):
    replay = SuccessReplay(RunConfig(), tmp_path, {})
    finish_update(replay, 0, make_group(0, 1))
    group = make_group(0, 0)
    assert replay.fill(group) is group and replay.state() == {}


def test_success_of_process_that_no_longer_exists_is_found(tmp_path):
    success = make_group(0, 1, group=3)
    append_episodes(tmp_path / episode_file(0, 1), success.episodes)
    # A resumed run with one process records the episodes of both.
    replay = SuccessReplay(CFG, tmp_path, {})
    replay.record(success.episodes)
    assert logps(replay.fill(make_group(0, 0, update=2))) == [-2.0, -0.31]
