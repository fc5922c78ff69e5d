"""Tests of batches: seeds of jobs, group filter, extra groups, replay and staleness limit."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from configs import quickstart
from tests.rollout.fakes import TASK
from webagent_jax.config import GRPOConfig, LogConfig, RunConfig, SuiteConfig
from webagent_jax.policy.loading import initial_policy
from webagent_jax.rollout import CompletedGroup, EpisodeConfig
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.suites.site import SiteSuite, SiteTask
from webagent_jax.tracking.episode_log import append_episodes
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.train.batches import collect_batch, group_jobs
from webagent_jax.train.resume import episode_file
from webagent_jax.train.success_replay import Location, SuccessReplay
from webagent_jax.train.task_sampling import TaskSampler
from webagent_jax.types import (
    Completion,
    Episode,
    Group,
    Observation,
    Outcome,
    ParseError,
    Turn,
)

ONE_TOKEN = np.zeros(1, np.int32)
TURN = Turn(
    ONE_TOKEN,
    Completion(ONE_TOKEN, ONE_TOKEN.astype(np.float32), ONE_TOKEN, "stop"),
    "",
    ParseError(""),
    Observation("", ""),
)


def make_episode(reward, group_index=0):
    outcome = Outcome.INFRA if reward is None else Outcome.SUCCESS if reward else Outcome.FAILURE
    return Episode(TASK, "", (TURN,), reward, outcome, group=group_index)


class FakeScheduler:
    """Scheduler that completes pending groups in random order.

    Flat groups have equal rewards, `flat_reward`; other groups have one failure and one success.
    """

    def __init__(self, is_flat=lambda index: False, seed=0, flat_reward=1.0) -> None:
        self._is_flat, self._rng = is_flat, random.Random(seed)
        self._flat_rewards = (flat_reward, flat_reward)
        self._pending: dict[int, int] = {}
        self.next_index = 0
        self.max_pending = 0
        self.completed_groups: list[tuple[int, int]] = []

    @property
    def pending(self):
        return dict(self._pending)

    def schedule(self, count, update):
        for _ in range(count):
            self._pending[self.next_index] = update
            self.next_index += 1
        self.max_pending = max(self.max_pending, len(self._pending))

    def num_scheduled_by(self, update):
        return sum(scheduled_update <= update for scheduled_update in self._pending.values())

    def next_group(self, max_update=None):
        candidates = [
            pending_index
            for pending_index, scheduled_update in self._pending.items()
            if max_update is None or scheduled_update <= max_update
        ]
        index = self._rng.choice(candidates)
        self.completed_groups.append((index, self._pending.pop(index)))
        rewards = self._flat_rewards if self._is_flat(index) else (0.0, 1.0)
        return CompletedGroup(
            index,
            Group(
                TASK,
                tuple(
                    replace(make_episode(reward, index), attempt=attempt)
                    for attempt, reward in enumerate(rewards)
                ),
            ),
        )


CFG = GRPOConfig(updates=20, tasks_per_update=4, max_extra_groups=3)


def group_indices(batch):
    return [group.episodes[0].group for group in batch.groups]


def test_on_policy_batch_is_independent_of_completion_order():
    def is_flat(index):
        return index % 3 == 1

    batch_lists = []
    for seed in range(10):
        scheduler = FakeScheduler(is_flat, seed)
        batch_lists.append(
            [group_indices(collect_batch(CFG, scheduler, update)) for update in range(6)]
        )
        assert scheduler.pending == {}
        assert scheduler.max_pending <= CFG.tasks_per_update
    assert all(batch_indices == batch_lists[0] for batch_indices in batch_lists)
    assert batch_lists[0][0] == [0, 2, 3, 5]
    assert batch_lists[0][1] == [6, 8, 9, 11]


def test_collect_batch_replaces_flat_groups_up_to_limit():
    scheduler = FakeScheduler(lambda index: True)
    batch = collect_batch(CFG, scheduler, 0)
    assert not batch.groups
    assert (batch.num_filtered, scheduler.next_index, len(batch.all_episodes)) == (7, 7, 14)


def test_collect_batch_keeps_flat_groups_without_filter():
    scheduler = FakeScheduler(lambda index: True)
    batch = collect_batch(replace(CFG, filter_groups=False), scheduler, 0)
    assert group_indices(batch) == [0, 1, 2, 3] and batch.num_filtered == 0


@pytest.mark.parametrize("staleness", [1, 2, 5])
@pytest.mark.parametrize("flat_fraction", [0.0, 0.4])
def test_collect_batch_limits_staleness_and_loses_no_group(staleness, flat_fraction):
    cfg = replace(CFG, max_staleness=staleness)
    rng = random.Random(staleness)
    flat_indices = {group_index for group_index in range(2_000) if rng.random() < flat_fraction}
    scheduler = FakeScheduler(lambda index: index in flat_indices, 7)
    trained_indices, num_checked = [], 0
    for update in range(cfg.updates):
        batch = collect_batch(cfg, scheduler, update)
        staleness_values = [
            update - scheduled_update
            for _, scheduled_update in scheduler.completed_groups[num_checked:]
        ]
        num_checked = len(scheduler.completed_groups)
        assert max(staleness_values) <= staleness
        assert len(batch.groups) >= cfg.tasks_per_update or len(staleness_values) >= 7
        trained_indices += group_indices(batch)
        expected_pending = min(staleness, cfg.updates - 1 - update) * cfg.tasks_per_update
        assert len(scheduler.pending) == expected_pending, (
            "rollouts must continue during the train step"
        )
    assert scheduler.pending == {}, "all scheduled groups must be trained on"
    assert sorted(trained_indices) == [
        group_index
        for group_index in range(scheduler.next_index)
        if group_index not in flat_indices
    ]


REPLAY_CFG = RunConfig(grpo=GRPOConfig(tasks_per_update=2, max_extra_groups=3, success_replay=True))


def test_collect_batch_replays_success_in_groups_of_failures(tmp_path):
    success = replace(make_episode(1.0, 9), attempt=3, update=4)
    append_episodes(tmp_path / episode_file(4, 0), [success])
    location = Location(update=4, process=0, group=9, attempt=3)
    replay = SuccessReplay(REPLAY_CFG, tmp_path, {TASK.id: location})
    scheduler = FakeScheduler(lambda index: True, flat_reward=0.0)
    batch = collect_batch(REPLAY_CFG.grpo, scheduler, 5, replay)
    # The success makes both groups trainable, so no extra group replaces them.
    assert (batch.num_replayed, batch.num_filtered, scheduler.next_index) == (2, 0, 2)
    rewards = [episode.reward for group in batch.groups for episode in group.episodes]
    assert rewards == [0, 1, 0, 1]
    # Metrics and task sampling use the episodes as sampled, without the replayed one.
    assert [(e.group, e.reward) for e in batch.all_episodes] == [(0, 0), (0, 0), (1, 0), (1, 0)]
    assert replay.state() == {TASK.id: location}


def test_collect_batch_records_successes_for_replay(tmp_path):
    replay = SuccessReplay(REPLAY_CFG, tmp_path, {})
    batch = collect_batch(REPLAY_CFG.grpo, FakeScheduler(), 0, replay)
    assert (batch.num_replayed, len(batch.groups)) == (0, 2)
    (success,) = (e for e in batch.groups[1].episodes if e.reward)
    location = Location(success.update, 0, group=1, attempt=1)
    assert replay.state() == {TASK.id: location}


def test_group_jobs_have_one_task_and_different_seeds_per_group():
    cfg = RunConfig(grpo=GRPOConfig(group_size=3))

    def make_task(rng):
        return SiteTask("Go.", lambda page, answer: True)

    class Runtime:
        """Runtime without browsers and engine."""

        suite = SiteSuite(
            None, SuiteConfig(), "http://localhost:9", {"go": make_task, "run": make_task}
        )
        policy_agent = None

        def episode_config(self, max_turns):
            return EpisodeConfig(None, None, max_turns, 500, 60.0)

    def make_jobs():
        sampler = TaskSampler(cfg, Runtime.suite, {})
        return [group_jobs(cfg, Runtime(), sampler, number) for number in range(4)]

    groups = make_jobs()
    for number, group in enumerate(groups):
        assert [(job.group_index, job.attempt) for job in group] == [
            (number, attempt) for attempt in range(3)
        ]
        assert len({job.task.id for job in group}) == 1
    jobs = [job for group in groups for job in group]
    # With equal seeds, the attempts of a group could sample equal responses.
    assert len({job.seed for job in jobs}) == len(jobs) == 12
    assert len({job.task.id for job in jobs}) > 1
    repeated = [job for group in make_jobs() for job in group]
    assert [(job.task, job.seed) for job in repeated] == [(job.task, job.seed) for job in jobs]


@pytest.mark.browser
def test_first_attempt_of_a_sample_of_groups_keeps_screenshots():
    smoke = quickstart.get_config("smoke")
    cfg = replace(
        smoke,
        grpo=replace(smoke.grpo, tasks_per_update=3, group_size=2),
        log=LogConfig(screenshots_per_update=1),
    )
    with RolloutRuntime(cfg, NullProgress(), *initial_policy(cfg)) as runtime:
        sampler = TaskSampler(cfg, runtime.suite, {})
        jobs = [job for number in range(4) for job in group_jobs(cfg, runtime, sampler, number)]
    keeps = {(job.group_index, job.attempt) for job in jobs if job.config.keep_screenshots}
    assert len(jobs) == 8 and keeps == {(0, 0), (3, 0)}
