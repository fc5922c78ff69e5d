"""State that lets an interrupted training resume: task stream, episode journal, shared workdir."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_jax import distributed
from webagent_jax.config import RunConfig
from webagent_jax.rollout import GroupScheduler
from webagent_jax.rollout.groups import Key
from webagent_jax.tracking import episode_log, metric_writers, run_metadata
from webagent_jax.tracking.metric_writers import MetricsWriter
from webagent_jax.types import Episode


@dataclass(frozen=True, slots=True)
class TaskStreamState:
    """State of one process in the task stream.

    The stream numbers the groups of a run. Of N processes, each takes every N-th number.
    """

    update: int  # number of completed updates
    next_index: int  # next number that this process takes from the stream
    pending: Mapping[int, int]  # scheduled groups that no update trained on, and their updates
    backlog: tuple[int, ...]  # numbers below `next_index` that are not scheduled yet

    @classmethod
    def from_checkpoint(cls, saved: Mapping[str, Any]) -> TaskStreamState:
        """Return the state of this process; an empty mapping is the start of a run.

        A run may resume with another number of processes. Pending groups, and numbers that some
        processes had not reached, are then redistributed: no group is skipped or trained on twice.
        """
        num_processes, process = distributed.process_count(), distributed.process_index()
        if not saved:
            return cls(0, process, {}, ())
        states: Sequence[Mapping[str, Any]] = saved["processes"]
        if len(states) == num_processes:
            own = states[process]
            return cls(
                saved["update"], own["next_index"], dict(own["pending"]), tuple(own["backlog"])
            )
        ends = [state["next_index"] for state in states]
        unreached = (n for n in range(min(ends), max(ends)) if n >= ends[n % len(ends)])
        # The numbers of process i are i modulo the number of processes.
        first = -(-max(ends) // num_processes) * num_processes
        earlier_backlog = (n for state in states for n in state["backlog"])
        backlog = sorted([*earlier_backlog, *unreached, *range(max(ends), first)])
        # Sort by update first, so that every process gets as many groups of each age.
        groups = sorted((update, n) for state in states for n, update in state["pending"])
        pending = {n: update for update, n in groups[process::num_processes]}
        return cls(
            saved["update"], first + process, pending, tuple(backlog[process::num_processes])
        )

    @staticmethod
    def to_checkpoint(update: int, scheduler: GroupScheduler) -> dict[str, Any]:
        """Return the states of all processes for a checkpoint; a collective call.

        Args:
            update: number of completed updates.
            scheduler: of this process.
        """
        own = {
            "next_index": scheduler.next_index,
            "pending": list(scheduler.pending.items()),
            "backlog": scheduler.backlog,
        }
        return {"update": update, "processes": distributed.allgather(own)}


class EpisodeJournal:
    """Episode log of a training, with one file per update at which groups were scheduled.

    Thread-safe. Each episode is on disk when `add` returns.
    """

    def __init__(self, folder: Path, host: int = 0) -> None:
        self._folder = folder
        self._suffix = f"-process-{host}" if host else ""
        self._lock = threading.Lock()

    def add(self, episode: Episode) -> None:
        """Append an episode to the file of its update; file names count updates from 1."""
        path = self._folder / f"update-{episode.update + 1:05d}{self._suffix}.jsonl"
        with self._lock:
            episode_log.append_episodes(path, [episode])

    def load(self, since: int) -> dict[Key, Episode]:
        """Return the episodes of all processes in groups scheduled at update `since` or later.

        Updates count from 0. Episodes without a reward are omitted, since they run again. The
        latest episode of a key replaces earlier ones.
        """
        episodes = (
            episode
            for path in sorted(self._folder.glob("update-*.jsonl"))
            if int(path.stem.split("-")[1]) > since
            for episode in episode_log.load_episodes(path)
        )
        return {(e.group, e.attempt): e for e in episodes if e.reward is not None}


def init_shared_workdir(workdir: Path, cfg: RunConfig) -> None:
    """Initialize the workdir on one process, and check it on all; a collective call.

    Raises:
        ConfigError: the workdir contains a run with another config.
    """
    if distributed.process_index() == 0:
        run_metadata.init_workdir(workdir, cfg)
    distributed.barrier("workdir")
    if distributed.process_index() > 0:
        run_metadata.init_workdir(workdir, cfg)


def make_process_writer(workdir: Path, cfg: RunConfig) -> MetricsWriter:
    """Return the metrics writer; processes other than the first get one that writes nothing."""
    if distributed.process_index() > 0:
        return metric_writers.NullWriter()
    return metric_writers.make_writer(workdir, cfg.log.wandb_project)
