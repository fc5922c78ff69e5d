"""Batches of groups: tasks and jobs of each group, collection, split into minibatches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from webagent_jax import learn, seeds
from webagent_jax.config import GRPOConfig, RunConfig
from webagent_jax.rollout import GroupScheduler, Job
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.seeds import RandomStream
from webagent_jax.train.success_replay import SuccessReplay
from webagent_jax.train.task_sampling import TaskSampler
from webagent_jax.types import Episode, Group


@dataclass(frozen=True)
class Batch:
    """Groups that one update trains on, and all episodes collected for it."""

    # Groups to train on; with `filter_groups`, those with a policy gradient.
    groups: Sequence[Group]
    all_episodes: Sequence[Episode]  # episodes of all groups, filtered ones included
    num_filtered: int  # number of groups dropped by `filter_groups`
    num_replayed: int = 0  # number of `groups` with a replayed success


def collect_batch(
    cfg: GRPOConfig,
    scheduler: GroupScheduler,
    update: int,
    replay: SuccessReplay | None = None,
) -> Batch:
    """Collect the batch of an update; extra groups replace filtered ones.

    With `max_staleness` 0, only groups that this batch needs are scheduled. Its content then
    depends on the outcomes alone, not on the order in which groups complete. Otherwise, groups for
    up to `max_staleness` later updates are scheduled as well. A group that would be too old for the
    next update joins this batch, so no completed episode is discarded for its age.

    Args:
        cfg: options of this process.
        scheduler: schedules groups and returns completed ones.
        update: index of the update, from 0.
        replay: adds successes to groups of failures, and receives those of the batch.
    """
    target = cfg.tasks_per_update
    # `filter_groups` replaces filtered groups until `max_extra_groups` extra ones are collected.
    budget = target + (cfg.max_extra_groups if cfg.filter_groups else 0)
    # Groups that are sampled during training; none for updates after the last one.
    num_ahead = min(cfg.max_staleness, cfg.updates - 1 - update) * target
    # A pending group scheduled by then would exceed max_staleness at the next update.
    oldest = update - cfg.max_staleness
    trainable: dict[int, Group] = {}
    collected: dict[int, Group] = {}
    while True:
        # 1. Schedule the groups that this batch still lacks, and those ahead.
        missing = max(0, min(target - len(trainable), budget - len(collected)))
        scheduler.schedule(missing + num_ahead - len(scheduler.pending), update=update)
        # 2. Stop once the batch is complete and no pending group is too old for the next one.
        if not missing and not scheduler.num_scheduled_by(oldest):
            break
        # 3. Wait for any group; for a complete batch only for those that are too old.
        completed = scheduler.next_group(max_update=None if missing else oldest)
        collected[completed.index] = completed.group
        group = replay.fill(completed.group) if replay else completed.group
        if not cfg.filter_groups or learn.has_signal(group, cfg):
            trainable[completed.index] = group
    # Sorted by index, because the order of completion varies between runs.
    all_episodes = [e for index in sorted(collected) for e in collected[index].episodes]
    if replay:
        replay.record(all_episodes)
    return Batch(
        groups=[trainable[index] for index in sorted(trainable)],
        all_episodes=all_episodes,
        num_filtered=len(collected) - len(trainable),
        num_replayed=sum(trainable[i] is not collected[i] for i in trainable),
    )


@dataclass(frozen=True)
class Minibatch:
    """Groups of one optimizer step."""

    groups: Sequence[Group]
    full_size: int  # number of groups of this minibatch in a batch of full size


def split_minibatches(groups: Sequence[Group], cfg: GRPOConfig) -> list[Minibatch]:
    """Split the groups of a batch round-robin into `cfg.minibatches` minibatches.

    If `cfg.minibatches` does not divide `cfg.tasks_per_update`, the first ones get one more group.
    """
    count = cfg.minibatches
    return [
        # full_size: number of groups of this minibatch in a batch of `tasks_per_update` groups.
        Minibatch(groups[number::count], full_size=len(range(number, cfg.tasks_per_update, count)))
        for number in range(count)
    ]


def group_jobs(
    cfg: RunConfig, runtime: RolloutRuntime, task_sampler: TaskSampler, number: int
) -> list[Job]:
    """Return the jobs of a group, one per attempt.

    The first attempt of the first `log.screenshots_per_update` groups of every
    `grpo.tasks_per_update` keeps screenshots.

    Args:
        cfg: config of the run.
        runtime: options and agent of the episodes.
        task_sampler: source of the task.
        number: index of the group in the task stream of the run.
    """
    # Seeds depend on index and attempt only, so retries and resumed runs repeat them.
    task = task_sampler.task(number)
    config = runtime.episode_config(cfg.rollout.max_turns)
    is_shown = number % cfg.grpo.tasks_per_update < cfg.log.screenshots_per_update
    first_config = dataclasses.replace(config, keep_screenshots=is_shown)
    return [
        Job(
            task,
            seeds.derive_seed(cfg.seed, RandomStream.SAMPLING, number, attempt),
            config if attempt else first_config,
            runtime.policy_agent,
            group_index=number,
            attempt=attempt,
        )
        for attempt in range(cfg.grpo.group_size)
    ]
