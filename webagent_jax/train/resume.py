"""State that lets an interrupted training resume: task stream, episode files, shared workdir."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_jax import distributed
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.rollout import GroupScheduler
from webagent_jax.tracking import metric_writers, run_metadata
from webagent_jax.tracking.metric_writers import MetricsWriter
from webagent_jax.tracking.run_metadata import Command


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

        A run may resume with another number of processes. Pending groups, and group indices that
        some processes had not reached, are then redistributed: no group is skipped or trained on
        twice.
        """
        num_processes, process = distributed.process_count(), distributed.process_index()
        if not saved:
            return cls(0, process, {}, ())
        states: Sequence[Mapping[str, Any]] = saved["processes"]
        # Each process continues with its own state.
        if len(states) == num_processes:
            state = states[process]
            return cls(
                saved["update"],
                state["next_index"],
                dict(state["pending"]),
                tuple(state["backlog"]),
            )
        # Of N old processes, process i took the numbers that are i modulo N, below `ends[i]`.
        ends = [state["next_index"] for state in states]
        unreached = (n for n in range(min(ends), max(ends)) if n >= ends[n % len(ends)])
        # The numbers of process i are i modulo the number of processes.
        first = -(-max(ends) // num_processes) * num_processes
        earlier_backlog = (n for state in states for n in state["backlog"])
        backlog = sorted([*earlier_backlog, *unreached, *range(max(ends), first)])
        # Sort by update first, so that every process gets the same number of groups of each age.
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
            scheduler: scheduler of this process.
        """
        state = {
            "next_index": scheduler.next_index,
            "pending": list(scheduler.pending.items()),
            "backlog": scheduler.backlog,
        }
        return {"update": update, "processes": distributed.allgather(state)}


def episode_file(update: int, process: int) -> str:
    """Return the file name in `workdir/episodes` of groups that a process scheduled at `update`.

    Updates count from 0; file names count them from 1.
    """
    suffix = f"-process-{process}" if process else ""
    return f"update-{update + 1:05d}{suffix}.jsonl"


def episode_files(folder: Path, first_update: int) -> list[str]:
    """Return the files of all processes with groups scheduled at `first_update` or later."""
    names = sorted(path.name for path in folder.glob("update-*.jsonl"))
    # File names count updates from 1, so the file of `first_update` has the number above it.
    return [name for name in names if int(Path(name).stem.split("-")[1]) > first_update]


def init_shared_workdir(workdir: Path, cfg: RunConfig, command: Command) -> None:
    """Initialize the workdir on one process, and check it on all; a collective call.

    Raises:
        ConfigError: the workdir contains another run, or processes have different configs.
    """
    if distributed.process_index() == 0:
        run_metadata.init_workdir(workdir, cfg, command)
    distributed.barrier("workdir")
    # On all processes, because one alone would leave the others waiting.
    run_metadata.check_collective_options(distributed.allgather(dataclasses.asdict(cfg)))
    if distributed.process_index() > 0:
        try:
            run_metadata.check_same_run(workdir, cfg, command)
        except ConfigError as error:
            raise ConfigError(
                f"process {distributed.process_index()} differs from process 0: {error}.\n"
                "All processes need the same command and options."
            ) from error


@contextmanager
def open_process_writer(workdir: Path, cfg: RunConfig, done: int) -> Iterator[MetricsWriter]:
    """Return a context with the metrics writer; that of processes after the first writes nothing.

    A resumed run repeats the updates after its checkpoint, and writes their records again.

    Args:
        workdir: workdir of the run.
        cfg: config of the run.
        done: number of completed updates; later records are removed.
    """
    if distributed.process_index() > 0:
        yield metric_writers.NullWriter()
        return
    with closing(metric_writers.make_writer(workdir, cfg.log.wandb_project)) as writer:
        writer.truncate_after(done)
        yield writer
