"""State that lets an interrupted training resume: task stream, episode journal, shared workdir."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_jax import distributed
from webagent_jax.config import RunConfig
from webagent_jax.rollout import Groups
from webagent_jax.rollout.groups import Key
from webagent_jax.tracking import episode_log, metric_writers, run_metadata
from webagent_jax.tracking.metric_writers import MetricsWriter
from webagent_jax.types import Episode


@dataclass(frozen=True, slots=True)
class Position:
    """State of one process in the sequence of tasks: of N processes it draws every N-th task."""

    update: int  # updates done
    drawn: int  # number of its next draw
    open: Mapping[int, int]  # groups begun that no update has learned from, and their versions
    backlog: tuple[int, ...]  # numbers below `drawn` that it has not begun

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Position:
        """What `saved` left to this host, empty where a run begins.

        A run may go on with other hosts than it had: then open groups and the numbers that some of
        them had not come to are dealt anew, and none is skipped or learned twice.
        """
        count, this = distributed.process_count(), distributed.process_index()
        if not saved:
            return cls(0, this, {}, ())
        everyone: Sequence[Mapping[str, Any]] = saved["hosts"]
        if len(everyone) == count:
            mine = everyone[this]
            return cls(saved["update"], mine["drawn"], dict(mine["open"]), tuple(mine["backlog"]))
        ends = [host["drawn"] for host in everyone]
        behind = (n for n in range(min(ends), max(ends)) if n >= ends[n % len(ends)])
        first = -(-max(ends) // count) * count  # numbers of this host are `this` modulo `count`
        before = (n for host in everyone for n in host["backlog"])
        backlog = sorted([*before, *behind, *range(max(ends), first)])
        # By version first, so that every host gets as many of each age.
        groups = sorted((version, n) for host in everyone for n, version in host["open"])
        share = {n: version for version, n in groups[this::count]}
        return cls(saved["update"], first + this, share, tuple(backlog[this::count]))

    @staticmethod
    def saved(update: int, groups: Groups) -> dict[str, Any]:
        """To be kept with the checkpoint of an update; all hosts call it together."""
        mine = {
            "drawn": groups.drawn,
            "open": list(groups.open.items()),
            "backlog": groups.backlog,
        }
        return {"update": update, "hosts": distributed.allgather(mine)}


class Journal:
    """Episode log of a training, with a file for the groups scheduled at each update.

    Thread-safe. Every episode is on disk when `add` returns.
    """

    def __init__(self, folder: Path, host: int = 0) -> None:
        self._folder = folder
        self._suffix = f"-host-{host}" if host else ""
        self._lock = threading.Lock()

    def add(self, episode: Episode) -> None:
        """Append an episode to the file of its update, 1 for the first."""
        path = self._folder / f"update-{episode.update + 1:05d}{self._suffix}.jsonl"
        with self._lock:
            episode_log.append_episodes(path, [episode])

    def load(self, since: int) -> dict[Key, Episode]:
        """Return all hosts' episodes of groups scheduled at update `since`, from 0, or later.

        Those that are to be played again are left out. Of several of one key it is the latest.
        """
        episodes = (
            episode
            for path in sorted(self._folder.glob("update-*.jsonl"))
            if int(path.stem.split("-")[1]) > since
            for episode in episode_log.load_episodes(path)
        )
        return {(e.group, e.sibling): e for e in episodes if e.reward is not None}


def open_folder(workdir: Path, cfg: RunConfig) -> None:
    """As `provenance.open_workdir`, and returns when all hosts have found it good.

    Raises ConfigError: the workdir holds a run with another config.
    """
    if distributed.process_index() == 0:
        run_metadata.open_workdir(workdir, cfg)
    distributed.barrier("workdir")
    if distributed.process_index() > 0:
        run_metadata.open_workdir(workdir, cfg)


def open_writer(workdir: Path, cfg: RunConfig) -> MetricsWriter:
    """Of the metrics; one that writes nothing on all hosts but the first."""
    if distributed.process_index() > 0:
        return metric_writers.NullWriter()
    return metric_writers.open_writer(workdir, cfg.log.wandb_project)
