"""Which groups an update learns from, and how far ahead of it the collectors play."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webagent_jax import learn, seeds
from webagent_jax.config import GRPOConfig, RunConfig
from webagent_jax.rollout import Groups, Job
from webagent_jax.rollout.runtime import Stage
from webagent_jax.seeds import Stream
from webagent_jax.types import Episode, Group, Suite, Task


@dataclass(frozen=True)
class Batch:
    """What one update learns from, and what was seen on the way."""

    groups: Sequence[Group]  # those with a policy gradient, or all when none are dropped
    played: Sequence[Episode]  # all episodes, of dropped groups too
    flat: int  # groups that were dropped


def next_batch(cfg: GRPOConfig, groups: Groups, update: int) -> Batch:
    """The groups of the update-th batch, from 0; those without variance are replaced to a budget.

    With `staleness` 0 no group is begun that this batch does not need, so what it holds follows
    from the outcomes alone, in whatever order they come. Else groups for that many later updates
    are kept under way, and one that would be too old for the next update belongs to this one:
    nothing that was played is thrown away for its age.
    """
    wanted = cfg.tasks_per_update
    budget = wanted + (cfg.max_refills if cfg.drop_flat_groups else 0)
    ahead = min(cfg.staleness, cfg.updates - 1 - update) * wanted
    oldest = update - cfg.staleness
    kept: dict[int, Group] = {}
    taken: dict[int, Group] = {}
    while True:
        missing = max(0, min(wanted - len(kept), budget - len(taken)))
        groups.begin(missing + ahead - len(groups.open), version=update)
        if not missing and not groups.begun_by(oldest):
            break
        played = groups.take(begun_by=None if missing else oldest)
        taken[played.number] = played.group
        if not cfg.drop_flat_groups or learn.has_signal(played.group, cfg):
            kept[played.number] = played.group
    return Batch(
        groups=[kept[number] for number in sorted(kept)],
        played=[e for number in sorted(taken) for e in taken[number].episodes],
        flat=len(taken) - len(kept),
    )


@dataclass(frozen=True)
class Minibatch:
    """Groups of one optimizer step."""

    groups: Sequence[Group]
    full_size: int  # number of groups when none of the batch is missing


def split_minibatches(groups: Sequence[Group], cfg: GRPOConfig) -> list[Minibatch]:
    """Deal the groups of a batch to `cfg.minibatches` minibatches.

    Where their number does not divide `cfg.tasks_per_update`, the first ones have one group more.
    """
    count = cfg.minibatches
    return [
        Minibatch(groups[at::count], full_size=len(range(at, cfg.tasks_per_update, count)))
        for at in range(count)
    ]


def siblings(cfg: RunConfig, stage: Stage, number: int) -> list[Job]:
    """The episodes of the number-th group of a run."""
    task = draw_task(cfg, stage.suite, number)
    rules = stage.rules(cfg.rollout.max_turns)
    return [
        Job(
            task,
            seeds.derive(cfg.seed, Stream.SAMPLING, number, sibling),
            rules,
            stage.policy_agent,
            group=number,
            sibling=sibling,
        )
        for sibling in range(cfg.grpo.group_size)
    ]


def draw_task(cfg: RunConfig, suite: Suite, number: int) -> Task:
    """The number-th task of a run: all names in turn, in an order of their own each time."""
    names = suite.names("train")
    time_around, place = divmod(number, len(names))
    order = seeds.generator(cfg.seed, Stream.TASKS, time_around)
    name = names[order.permutation(len(names))[place]]
    index = seeds.generator(cfg.seed, Stream.TASKS, time_around, place)
    return suite.task(name, "train", int(index.integers(cfg.suite.train_seeds)))
