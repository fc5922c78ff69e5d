"""What a batch holds, how far collectors may play ahead, and how old a group may get."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.rollout.fakes import TASK
from webagent_jax.config import GRPOConfig
from webagent_jax.rollout import CompletedGroup
from webagent_jax.train.batches import collect_batch
from webagent_jax.types import (
    Completion,
    Episode,
    Group,
    Observation,
    Outcome,
    ParseError,
    Turn,
)

NOTHING = np.zeros(1, np.int32)
TURN = Turn(
    NOTHING,
    Completion(NOTHING, NOTHING.astype(np.float32), NOTHING, "stop"),
    "",
    ParseError(""),
    Observation("", ""),
)


def episode(reward, number=0):
    outcome = Outcome.INFRA if reward is None else Outcome.SUCCESS if reward else Outcome.FAILURE
    return Episode(TASK, "", (TURN,), reward, outcome, group=number)


class FakeScheduler:
    """Closes the groups that are begun in an order of its own."""

    def __init__(self, flat=lambda number: False, seed=0) -> None:
        self._flat, self._order = flat, random.Random(seed)
        self._versions: dict[int, int] = {}
        self.next_index = 0
        self.most_open = 0
        self.ages: list[tuple[int, int]] = []

    @property
    def pending(self):
        return dict(self._versions)

    def schedule(self, count, update):
        for _ in range(count):
            self._versions[self.next_index] = update
            self.next_index += 1
        self.most_open = max(self.most_open, len(self._versions))

    def num_scheduled_by(self, update):
        return sum(v <= update for v in self._versions.values())

    def next_group(self, max_update=None):
        ready = [n for n, v in self._versions.items() if max_update is None or v <= max_update]
        number = self._order.choice(ready)
        self.ages.append((number, self._versions.pop(number)))
        rewards = (1.0, 1.0) if self._flat(number) else (0.0, 1.0)
        return CompletedGroup(number, Group(TASK, tuple(episode(r, number) for r in rewards)))


CFG = GRPOConfig(updates=20, tasks_per_update=4, max_extra_groups=3)


def numbers(batch):
    return [group.episodes[0].group for group in batch.groups]


def test_on_policy_a_batch_does_not_depend_on_who_is_done_first():
    def flat(number):
        return number % 3 == 1

    batches = []
    for seed in range(10):
        groups = FakeScheduler(flat, seed)
        batches.append([numbers(collect_batch(CFG, groups, u)) for u in range(6)])
        assert groups.pending == {}
        assert groups.most_open <= CFG.tasks_per_update
    assert all(one == batches[0] for one in batches)
    assert batches[0][0] == [0, 2, 3, 5]
    assert batches[0][1] == [6, 8, 9, 11]


def test_flat_groups_are_replaced_up_to_the_budget():
    groups = FakeScheduler(lambda number: True)
    batch = collect_batch(CFG, groups, 0)
    assert not batch.groups
    assert (batch.num_filtered, groups.next_index, len(batch.all_episodes)) == (7, 7, 14)


def test_flat_groups_are_kept_where_that_was_asked():
    groups = FakeScheduler(lambda number: True)
    batch = collect_batch(replace(CFG, filter_groups=False), groups, 0)
    assert numbers(batch) == [0, 1, 2, 3] and batch.num_filtered == 0


@pytest.mark.parametrize("staleness", [1, 2, 5])
@pytest.mark.parametrize("share_flat", [0.0, 0.4])
def test_no_group_is_older_than_it_may_be_and_none_is_lost(staleness, share_flat):
    cfg = replace(CFG, max_staleness=staleness)
    dice = random.Random(staleness)
    flats = {n for n in range(2_000) if dice.random() < share_flat}
    groups = FakeScheduler(lambda number: number in flats, 7)
    learned, seen = [], 0
    for update in range(cfg.updates):
        batch = collect_batch(cfg, groups, update)
        ages = [update - version for _, version in groups.ages[seen:]]
        seen = len(groups.ages)
        assert max(ages) <= staleness
        assert len(batch.groups) >= cfg.tasks_per_update or len(ages) >= 7
        learned += numbers(batch)
        ahead = min(staleness, cfg.updates - 1 - update) * cfg.tasks_per_update
        assert len(groups.pending) == ahead, "collectors are kept busy while the learner learns"
    assert groups.pending == {}, "what is begun is learned from, to the last"
    assert sorted(learned) == [n for n in range(groups.next_index) if n not in flats]
