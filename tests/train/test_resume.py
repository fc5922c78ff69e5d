"""Interrupted runs: every group is taken once and in time, on any number of hosts."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.rollout.fakes import TASK, FakeSuite
from webagent_jax import distributed, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.config import GRPOConfig
from webagent_jax.rollout import Collector, EpisodeConfig, GroupScheduler, Job
from webagent_jax.train.batches import Batch, collect_batch
from webagent_jax.train.resume import EpisodeJournal, TaskStreamState
from webagent_jax.types import AgentRequest, Completion

pytestmark = pytest.mark.timeout(120)  # a deadlock is a failure

HOSTS = (1, 2, 4)
CFG = GRPOConfig(updates=6, tasks_per_update=4, group_size=2, max_extra_groups=80)


def is_flat(number: int) -> bool:
    """Flat groups have odd numbers, so that hosts draw unequally far."""
    return number % 6 in (1, 3)


class Learner:
    """A count of updates in place of params, and agents whose replies bear it as version."""

    def __init__(self) -> None:
        self.update = 0
        tokenizer = ChatTokenizer(policy.resolve_dir("webagent-tiny"))
        self._rules = EpisodeConfig(tokenizer, TEMPLATES["compact"], True, 1, 500, 60.0)
        self._replies = [
            tokenizer.encode_response(f'<answer> exit(message="{answer}") </answer>')
            for answer in (41, 42)
        ]

    def jobs(self, number: int) -> list[Job]:
        return [
            Job(TASK, 0, self._rules, lambda at=at: _Agent(self, number, at), number, at)
            for at in range(CFG.group_size)
        ]

    def complete(self, number: int, sibling: int) -> Completion:
        ids = self._replies[1 if is_flat(number) else sibling]
        versions = np.full(len(ids), self.update, np.int32)
        return Completion(ids, np.zeros(len(ids), np.float32), versions, "stop")


@dataclass(frozen=True)
class _Agent:
    learner: Learner
    number: int
    sibling: int

    def respond(self, request: AgentRequest) -> Completion:
        return self.learner.complete(self.number, self.sibling)


@dataclass
class Run:
    """A run of all its hosts in one process, by the update: groups taken, checkpoint after it."""

    learner: Learner
    folder: Path  # of its journal
    staleness: int
    taken: list[set[int]] = field(default_factory=list)
    saved: list[dict] = field(default_factory=list)

    def go_on(self, monkeypatch, count: int, after: int, until: int, lost=lambda episode: False):
        """Plays on `count` hosts from the checkpoint after so many updates."""
        del self.taken[after:], self.saved[after:]
        cfg = replace(
            CFG,
            max_staleness=self.staleness,
            tasks_per_update=CFG.tasks_per_update // count,
            max_extra_groups=CFG.max_extra_groups // count,
        )
        monkeypatch.setattr(distributed, "process_count", lambda: count)
        monkeypatch.setattr(distributed, "allgather", lambda value: [value])
        self.learner.update = after
        ended: set[tuple[int, int]] = set()
        with ExitStack() as opened:
            everyone = []
            for this in range(count):
                monkeypatch.setattr(distributed, "process_index", lambda this=this: this)
                position = TaskStreamState.from_checkpoint(self.saved[-1] if after else {})
                journal = EpisodeJournal(self.folder, this)
                known = {
                    key: episode
                    for key, episode in journal.load(since=after - self.staleness).items()
                    if not lost(episode)
                }

                def on_episode(episode, journal=journal, ended=ended):
                    journal.add(episode)
                    ended.add((episode.group, episode.attempt))

                groups = GroupScheduler(
                    Collector(FakeSuite(), max_concurrent_episodes=2, infra_retries=0),
                    self.learner.jobs,
                    first=position.next_index,
                    stride=count,
                    resume=position.pending,
                    backlog=position.backlog,
                    finished=known,
                    max_staleness=self.staleness,
                    on_episode=on_episode,
                )
                everyone.append(opened.enter_context(groups))
                ended |= set(known)
            for update in range(after, until):
                self.learner.update = update
                batches = [collect_batch(cfg, groups, update) for groups in everyone]
                self.check(update, batches)
                self.taken.append({e.group for batch in batches for e in batch.all_episodes})
                each = [
                    TaskStreamState.to_checkpoint(update + 1, groups)["processes"][0]
                    for groups in everyone
                ]
                self.saved.append({"update": update + 1, "processes": each})
                running = {
                    (n, at) for groups in everyone for n in groups.pending for at in range(2)
                }
                while update + 1 < until and not running <= ended:  # they end during the update
                    time.sleep(0.001)

    def check(self, update: int, batches: list[Batch]) -> None:
        for batch in batches:
            assert len(batch.groups) >= CFG.tasks_per_update // len(batches)
            for group in batch.groups:
                assert len(group.episodes) == CFG.group_size
            for episode in batch.all_episodes:
                version = min(t.completion.policy_version.min() for t in episode.turns)
                assert episode.update <= version
                assert update - version <= self.staleness
                assert self.staleness or version == update

    def check_end(self) -> None:
        """Every group of the whole run was taken once."""
        taken = [number for numbers in self.taken for number in numbers]
        assert len(taken) == len(set(taken)), "a group was taken twice"
        assert len(self.taken) == CFG.updates
        ends = self.saved[-1]["processes"]
        assert not any(host["pending"] for host in ends), "a group was begun and not taken"
        coming = {n for host in ends for n in host["backlog"]}
        for host in ends:
            coming |= set(range(host["next_index"], 1_000, len(ends)))
        assert set(taken) == set(range(1_000)) - coming, "a group was skipped"


@pytest.fixture(scope="module")
def learner():
    return Learner()


@pytest.mark.parametrize("staleness", [0, 1, 2, 3])
@pytest.mark.parametrize("before", HOSTS)
def test_a_run_resumes_at_any_update_on_any_number_of_hosts(
    learner, tmp_path, monkeypatch, staleness, before
):
    whole = Run(learner, tmp_path, staleness)
    whole.go_on(monkeypatch, before, 0, CFG.updates)
    whole.check_end()
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    dice = random.Random(staleness)
    for after, count in product(range(1, CFG.updates), HOSTS):
        for path in tmp_path.iterdir():
            path.unlink()
        for path, content in files.items():
            path.write_bytes(content)
        resumed = Run(learner, tmp_path, staleness, whole.taken[:], whole.saved[:])
        # Killed right after the checkpoint or some updates later; half of the episodes were lost.
        killed = dice.randint(after, CFG.updates)
        resumed.go_on(
            monkeypatch,
            count,
            after,
            CFG.updates,
            lost=lambda e, killed=killed: e.update >= killed or dice.random() < 0.5,
        )
        resumed.check_end()


@pytest.mark.parametrize("seed", range(8))
def test_a_run_resumes_however_often_it_is_killed(learner, tmp_path, monkeypatch, seed):
    dice = random.Random(seed)
    run = Run(learner, tmp_path, staleness=seed % 4)
    for _ in range(8):
        after = max(0, len(run.saved) - dice.randrange(3))  # of some updates no checkpoint is left
        until = min(CFG.updates, after + dice.randrange(1, 4))
        run.go_on(monkeypatch, dice.choice(HOSTS), after, until)
    run.go_on(monkeypatch, dice.choice(HOSTS), len(run.saved), CFG.updates)
    run.check_end()
