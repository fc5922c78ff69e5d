"""Tests of resume: each group is in one batch, for any number of processes."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tests.rollout.fakes import TASK, FakeSuite
from webagent_jax import distributed, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.config import GRPOConfig, LogConfig, RunConfig
from webagent_jax.rollout import Collector, EpisodeConfig, GroupScheduler, Job
from webagent_jax.tracking import metric_writers
from webagent_jax.tracking.episode_log import EpisodeJournal
from webagent_jax.train.batches import Batch, collect_batch
from webagent_jax.train.resume import (
    TaskStreamState,
    episode_file,
    episode_files,
    open_process_writer,
)
from webagent_jax.types import AgentRequest, Completion, InfraError, Outcome

pytestmark = pytest.mark.timeout(120)  # a deadlock is a failure

PROCESS_COUNTS = (1, 2, 4)
CFG = GRPOConfig(updates=6, tasks_per_update=4, group_size=2, max_extra_groups=80)


def is_flat(group_index: int) -> bool:
    """Return true for odd indices only, so that processes schedule different numbers of groups."""
    return group_index % 6 in (1, 3)


class Learner:
    """Update counter in place of params; completions have the count as policy version."""

    def __init__(self) -> None:
        self.update = 0
        self.infra_keys: frozenset[tuple[int, int]] = frozenset()  # episodes that end as INFRA
        tokenizer = ChatTokenizer(policy.resolve_dir("webagent-tiny"))
        self._episode_config = EpisodeConfig(
            tokenizer, PromptFormat(TEMPLATES["compact"]), 1, 500, 60.0
        )
        self._responses = [
            tokenizer.encode_response(f'<answer> exit(message="{answer}") </answer>')
            for answer in (41, 42)
        ]

    def make_jobs(self, group_index: int) -> list[Job]:
        return [
            Job(
                TASK,
                0,
                self._episode_config,
                lambda attempt=attempt: _Agent(self, group_index, attempt),
                group_index,
                attempt,
            )
            for attempt in range(CFG.group_size)
        ]

    def complete(self, group_index: int, attempt: int) -> Completion:
        if (group_index, attempt) in self.infra_keys:
            raise InfraError("the site is down")
        ids = self._responses[1 if is_flat(group_index) else attempt]
        versions = np.full(len(ids), self.update, np.int32)
        return Completion(ids, np.zeros(len(ids), np.float32), versions, "stop")


@dataclass(frozen=True)
class _Agent:
    learner: Learner
    group_index: int
    attempt: int

    def respond(self, request: AgentRequest) -> Completion:
        return self.learner.complete(self.group_index, self.attempt)


@dataclass
class Run:
    """Run whose processes are simulated in one process."""

    learner: Learner
    folder: Path  # folder of the episode journal
    staleness: int
    # Group indices, rewards and checkpoints by update.
    batch_groups: list[set[int]] = field(default_factory=list)
    batch_rewards: list[dict[tuple[int, int], float | None]] = field(default_factory=list)
    checkpoints: list[dict] = field(default_factory=list)

    def run_updates(
        self, monkeypatch, num_processes: int, start: int, stop: int, is_lost=lambda episode: False
    ):
        """Resume at update `start` on `num_processes` processes and run until update `stop`."""
        del self.batch_groups[start:], self.batch_rewards[start:], self.checkpoints[start:]
        cfg = replace(
            CFG,
            max_staleness=self.staleness,
            tasks_per_update=CFG.tasks_per_update // num_processes,
            max_extra_groups=CFG.max_extra_groups // num_processes,
        )
        monkeypatch.setattr(distributed, "process_count", lambda: num_processes)
        monkeypatch.setattr(distributed, "allgather", lambda value: [value])
        self.learner.update = start
        completed: set[tuple[int, int]] = set()
        with ExitStack() as stack:
            schedulers = []
            for process in range(num_processes):
                monkeypatch.setattr(distributed, "process_index", lambda process=process: process)
                state = TaskStreamState.from_checkpoint(self.checkpoints[-1] if start else {})
                journal = EpisodeJournal(self.folder, key=lambda e: (e.group, e.attempt))
                files = episode_files(self.folder, first_update=start - self.staleness)
                known_episodes = {
                    key: episode
                    for key, episode in journal.load(files, for_replay=not self.staleness).items()
                    if not is_lost(episode)
                }

                def on_episode(episode, journal=journal, completed=completed, process=process):
                    journal.add(episode, episode_file(episode.update, process))
                    completed.add((episode.group, episode.attempt))

                scheduler = GroupScheduler(
                    Collector(FakeSuite(), max_concurrent_episodes=2, infra_retries=0),
                    self.learner.make_jobs,
                    first=state.next_index,
                    stride=num_processes,
                    resume=state.pending,
                    backlog=state.backlog,
                    finished=known_episodes,
                    max_staleness=self.staleness,
                    on_episode=on_episode,
                )
                schedulers.append(stack.enter_context(scheduler))
                completed |= set(known_episodes)
            for update in range(start, stop):
                self.learner.update = update
                batches = [collect_batch(cfg, scheduler, update) for scheduler in schedulers]
                self.check_batches(update, batches)
                self.batch_groups.append(
                    {episode.group for batch in batches for episode in batch.all_episodes}
                )
                self.batch_rewards.append(
                    {(e.group, e.attempt): e.reward for b in batches for e in b.all_episodes}
                )
                process_states = [
                    TaskStreamState.to_checkpoint(update + 1, scheduler)["processes"][0]
                    for scheduler in schedulers
                ]
                self.checkpoints.append({"update": update + 1, "processes": process_states})
                pending_attempts = {
                    (group_index, attempt)
                    for scheduler in schedulers
                    for group_index in scheduler.pending
                    for attempt in range(2)
                }
                # Pending episodes complete during the update.
                while update + 1 < stop and not pending_attempts <= completed:
                    time.sleep(0.001)

    def check_batches(self, update: int, batches: list[Batch]) -> None:
        for batch in batches:
            assert len(batch.groups) >= CFG.tasks_per_update // len(batches)
            for group in batch.groups:
                assert len(group.episodes) == CFG.group_size
            for episode in batch.all_episodes:
                if not episode.turns:
                    assert episode.outcome is Outcome.INFRA
                    continue
                version = min(turn.completion.policy_version.min() for turn in episode.turns)
                assert episode.update <= version
                assert update - version <= self.staleness
                assert self.staleness or version == update

    def check_end(self) -> None:
        """Check that each group is in one batch."""
        indices = [index for group_indices in self.batch_groups for index in group_indices]
        assert len(indices) == len(set(indices)), "a group is in two batches"
        assert len(self.batch_groups) == CFG.updates
        process_states = self.checkpoints[-1]["processes"]
        assert not any(state["pending"] for state in process_states), "a group is still pending"
        remaining = {index for state in process_states for index in state["backlog"]}
        for state in process_states:
            remaining |= set(range(state["next_index"], 1_000, len(process_states)))
        assert set(indices) == set(range(1_000)) - remaining, "a group was skipped"


@pytest.fixture(scope="module")
def learner():
    return Learner()


@pytest.mark.parametrize("num_processes", PROCESS_COUNTS)
def test_synchronous_run_repeats_batches_with_infra_episodes(
    learner, tmp_path, monkeypatch, num_processes
):
    run = Run(learner, tmp_path, staleness=0)
    with monkeypatch.context() as patch:
        patch.setattr(learner, "infra_keys", frozenset((n, n // 3 % 2) for n in range(0, 60, 3)))
        run.run_updates(monkeypatch, num_processes, 0, 3)
    first_rewards = run.batch_rewards[:]
    assert all(None in rewards.values() for rewards in first_rewards)
    # Killed before the first checkpoint; then the site works.
    run.run_updates(monkeypatch, num_processes, 0, CFG.updates)
    assert run.batch_rewards[:2] == first_rewards[:2]
    assert not any(None in rewards.values() for rewards in run.batch_rewards[2:])
    run.check_end()


@pytest.mark.parametrize("staleness", [0, 1, 2, 3])
@pytest.mark.parametrize("initial_count", PROCESS_COUNTS)
def test_run_resumes_at_any_update_on_any_process_count(
    learner, tmp_path, monkeypatch, staleness, initial_count
):
    full_run = Run(learner, tmp_path, staleness)
    full_run.run_updates(monkeypatch, initial_count, 0, CFG.updates)
    full_run.check_end()
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    rng = random.Random(staleness)
    for start, num_processes in product(range(1, CFG.updates), PROCESS_COUNTS):
        for path in tmp_path.iterdir():
            path.unlink()
        for path, content in files.items():
            path.write_bytes(content)
        resumed_run = Run(
            learner,
            tmp_path,
            staleness,
            full_run.batch_groups[:],
            checkpoints=full_run.checkpoints[:],
        )
        # The run dies after the checkpoint or some updates later; half of its episodes are lost.
        kill_update = rng.randint(start, CFG.updates)
        resumed_run.run_updates(
            monkeypatch,
            num_processes,
            start,
            CFG.updates,
            is_lost=lambda episode, kill_update=kill_update: (
                episode.update >= kill_update or rng.random() < 0.5
            ),
        )
        resumed_run.check_end()


@pytest.mark.parametrize("seed", range(8))
def test_run_resumes_after_repeated_interruptions(learner, tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    run = Run(learner, tmp_path, staleness=seed % 4)
    for _ in range(8):
        # Some updates have no checkpoint.
        start = max(0, len(run.checkpoints) - rng.randrange(3))
        stop = min(CFG.updates, start + rng.randrange(1, 4))
        run.run_updates(monkeypatch, rng.choice(PROCESS_COUNTS), start, stop)
    run.run_updates(monkeypatch, rng.choice(PROCESS_COUNTS), len(run.checkpoints), CFG.updates)
    run.check_end()


def test_first_process_writes_metrics_to_wandb_project(tmp_path, monkeypatch):
    make_writer = Mock()
    monkeypatch.setattr(metric_writers, "make_writer", make_writer)
    cfg = RunConfig(log=LogConfig(wandb_project="agents"))
    with open_process_writer(tmp_path, cfg, 3) as writer:
        make_writer.assert_called_once_with(tmp_path, "agents")
        writer.truncate_after.assert_called_once_with(3)
    writer.close.assert_called_once_with()
    monkeypatch.setattr(distributed, "process_index", lambda: 1)
    with open_process_writer(tmp_path, cfg, 3) as writer:
        assert isinstance(writer, metric_writers.NullWriter)
