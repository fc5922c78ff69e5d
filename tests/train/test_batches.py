"""What a batch holds, how far collectors may play ahead, and how old a group may get."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.rollout.fakes import TASK
from webagent_jax.config import GRPOConfig
from webagent_jax.rollout import Played
from webagent_jax.train.batches import next_batch
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


class Groups:
    """Closes the groups that are begun in an order of its own."""

    def __init__(self, flat=lambda number: False, seed=0) -> None:
        self._flat, self._order = flat, random.Random(seed)
        self._versions: dict[int, int] = {}
        self.drawn = 0
        self.most_open = 0
        self.ages: list[tuple[int, int]] = []

    @property
    def open(self):
        return dict(self._versions)

    def begin(self, count, version):
        for _ in range(count):
            self._versions[self.drawn] = version
            self.drawn += 1
        self.most_open = max(self.most_open, len(self._versions))

    def begun_by(self, version):
        return sum(v <= version for v in self._versions.values())

    def take(self, begun_by=None):
        ready = [n for n, v in self._versions.items() if begun_by is None or v <= begun_by]
        number = self._order.choice(ready)
        self.ages.append((number, self._versions.pop(number)))
        rewards = (1.0, 1.0) if self._flat(number) else (0.0, 1.0)
        return Played(number, Group(TASK, tuple(episode(r, number) for r in rewards)))


CFG = GRPOConfig(updates=20, tasks_per_update=4, max_refills=3)


def numbers(batch):
    return [group.episodes[0].group for group in batch.groups]


def test_on_policy_a_batch_does_not_depend_on_who_is_done_first():
    def flat(number):
        return number % 3 == 1

    batches = []
    for seed in range(10):
        groups = Groups(flat, seed)
        batches.append([numbers(next_batch(CFG, groups, u)) for u in range(6)])
        assert groups.open == {}
        assert groups.most_open <= CFG.tasks_per_update
    assert all(one == batches[0] for one in batches)
    assert batches[0][0] == [0, 2, 3, 5]
    assert batches[0][1] == [6, 8, 9, 11]


def test_flat_groups_are_replaced_up_to_the_budget():
    groups = Groups(lambda number: True)
    batch = next_batch(CFG, groups, 0)
    assert not batch.groups
    assert (batch.flat, groups.drawn, len(batch.played)) == (7, 7, 14)


def test_flat_groups_are_kept_where_that_was_asked():
    groups = Groups(lambda number: True)
    batch = next_batch(replace(CFG, drop_flat_groups=False), groups, 0)
    assert numbers(batch) == [0, 1, 2, 3] and batch.flat == 0


@pytest.mark.parametrize("staleness", [1, 2, 5])
@pytest.mark.parametrize("share_flat", [0.0, 0.4])
def test_no_group_is_older_than_it_may_be_and_none_is_lost(staleness, share_flat):
    cfg = replace(CFG, staleness=staleness)
    dice = random.Random(staleness)
    flats = {n for n in range(2_000) if dice.random() < share_flat}
    groups = Groups(lambda number: number in flats, 7)
    learned, seen = [], 0
    for update in range(cfg.updates):
        batch = next_batch(cfg, groups, update)
        ages = [update - version for _, version in groups.ages[seen:]]
        seen = len(groups.ages)
        assert max(ages) <= staleness
        assert len(batch.groups) >= cfg.tasks_per_update or len(ages) >= 7
        learned += numbers(batch)
        ahead = min(staleness, cfg.updates - 1 - update) * cfg.tasks_per_update
        assert len(groups.open) == ahead, "collectors are kept busy while the learner learns"
    assert groups.open == {}, "what is begun is learned from, to the last"
    assert sorted(learned) == [n for n in range(groups.drawn) if n not in flats]
