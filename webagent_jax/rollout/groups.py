"""Scheduler of groups: runs the attempts of tasks ahead of training."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from webagent_jax.rollout.collector import Collector, Job
from webagent_jax.types import Episode, Group, Task

# A group needs two episodes with a reward: advantages compare attempts.
_MIN_SCORED_EPISODES = 2

Key = tuple[int, int]
"""Index of the group and attempt of an episode in a training run."""


@dataclass(frozen=True, slots=True)
class CompletedGroup:
    """Group whose episodes are complete."""

    index: int  # index in the task stream
    group: Group


@dataclass(slots=True)
class _PendingGroup:
    """Scheduled group that `next_group` has not returned."""

    task: Task
    size: int
    update: int  # earliest update whose policy sampled one of its episodes
    episodes: dict[int, Episode]  # completed episodes by attempt
    start_time: float | None = None  # time.monotonic() at the start of its first episode

    @property
    def is_full(self) -> bool:
        return len(self.episodes) == self.size

    @property
    def num_scored(self) -> int:
        return sum(episode.reward is not None for episode in self.episodes.values())


class GroupScheduler:
    """Scheduler that runs groups of the task stream in worker threads and returns completed ones.

    Only groups of `resume` and `schedule` run, so the training loop paces the rollouts. A group is
    complete when all its episodes have ended. It is also complete `timeout` seconds after its first
    episode started, once two episodes have a reward; later episodes are discarded, and their
    retries do not start.

    Args:
        collector: runs the jobs.
        make_jobs: returns the jobs of the group at an index, with `group_index` and `attempt` set.
        first: next index of the task stream.
        stride: difference of consecutive indices of this process.
        resume: pending groups of the interrupted run, with their updates: scheduled at once.
        backlog: indices below `first` that no process has scheduled: they come first.
        finished: completed episodes of the interrupted run, of these groups and later ones.
        max_staleness: an episode of `finished` runs again if its update and that of its group
            differ by more than this.
        timeout: seconds from the first episode of a group; 0 waits for every episode.
        on_episode: called from the worker threads for every completed episode.
    """

    def __init__(
        self,
        collector: Collector,
        make_jobs: Callable[[int], Sequence[Job]],
        *,
        first: int = 0,
        stride: int = 1,
        resume: Mapping[int, int] | None = None,
        backlog: Sequence[int] = (),
        finished: Mapping[Key, Episode] | None = None,
        max_staleness: int = 0,
        timeout: float = 0.0,
        on_episode: Callable[[Episode], None] = lambda episode: None,
    ) -> None:
        self._make_jobs = make_jobs
        self._next_index, self._stride = first, stride
        self._backlog = deque(backlog)
        self._finished = dict(finished or {})
        self._max_staleness = max_staleness
        self._timeout = timeout
        # In the order of scheduling.
        self._pending: dict[int, _PendingGroup] = {}
        # Guards the queue and the flag.
        self._condition = threading.Condition()
        self._queue: deque[Job] = deque()
        self._is_closed = False
        # Queued before the threads start, so these groups run first.
        for index, update in (resume or {}).items():
            self._schedule(index, update)
        self._pool = collector.start(
            self._job_stream(), on_episode, lambda job: job.group_index in self._pending
        )

    @property
    def next_index(self) -> int:
        """Next index of the task stream, after the backlog."""
        return self._next_index

    @property
    def backlog(self) -> tuple[int, ...]:
        """Indices below `next_index` that are not scheduled yet."""
        return tuple(self._backlog)

    @property
    def pending(self) -> dict[int, int]:
        """Updates of the pending groups by index."""
        return {index: group.update for index, group in self._pending.items()}

    def schedule(self, count: int, update: int) -> None:
        """Schedule the next groups of the task stream.

        Args:
            count: number of groups; none if it is 0 or less.
            update: update of the current policy, which `next_group` compares.
        """
        for _ in range(count):
            self._schedule(self._take_index(), update)

    def num_scheduled_by(self, update: int) -> int:
        """Return the number of pending groups scheduled at or before `update`."""
        return sum(group.update <= update for group in self._pending.values())

    def next_group(self, max_update: int | None = None) -> CompletedGroup:
        """Wait for a completed group, and return the one with the lowest index.

        Args:
            max_update: consider only groups scheduled at or before this update; None: all.

        Raises:
            ValueError: no such group is pending.
            Exception: the error of a worker thread.
        """
        if not (self._pending if max_update is None else self.num_scheduled_by(max_update)):
            raise ValueError("no such group is pending: call schedule first")
        while True:
            for index in sorted(self._pending):
                group = self._pending[index]
                is_excluded = max_update is not None and group.update > max_update
                if not is_excluded and (group.is_full or self._has_timed_out(group)):
                    # `_receive_episode` discards later episodes of the group.
                    del self._pending[index]
                    # In the order of attempts, whatever the order of completion.
                    episodes = (group.episodes[attempt] for attempt in sorted(group.episodes))
                    return CompletedGroup(index, Group(group.task, tuple(episodes)))
            self._receive_episode()

    def close(self) -> None:
        """Start no more episodes, and wait for the running ones."""
        with self._condition:
            self._is_closed = True
            # Threads in `_job_stream` wait for this; the pool then waits for the threads.
            self._condition.notify_all()
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _schedule(self, index: int, update: int) -> None:
        """Add a pending group with its finished episodes, and queue the jobs of the others.

        The update of the group is that of its oldest episode.
        """
        jobs = self._make_jobs(index)
        finished = {
            job.attempt: self._finished.pop((job.group_index, job.attempt), None) for job in jobs
        }
        # With adaptive task sampling, the index may have had another task; or the user has changed
        # the instruction, which for some tasks is known only after a reset.
        task = jobs[0].task
        episodes = {
            attempt: episode
            for attempt, episode in finished.items()
            if episode is not None
            and episode.task.id == task.id
            and task.intent in ("", episode.task.intent)
            and abs(update - episode.update) <= self._max_staleness
        }
        update = min([update, *(episode.update for episode in episodes.values())])
        # Before its jobs are queued, because `_job_stream` skips jobs without a pending group.
        self._pending[index] = _PendingGroup(task, len(jobs), update, episodes)
        missing = [replace(job, update=update) for job in jobs if job.attempt not in episodes]
        with self._condition:
            self._queue.extend(missing)
            self._condition.notify_all()

    def _take_index(self) -> int:
        if self._backlog:
            return self._backlog.popleft()
        self._next_index += self._stride
        return self._next_index - self._stride

    def _job_stream(self) -> Iterator[Job]:
        """Yield queued jobs; worker threads wait here while the queue is empty."""
        while True:
            with self._condition:
                # Lock order: the caller holds the job lock of WorkerPool, then this one.
                self._condition.wait_for(lambda: self._queue or self._is_closed)
                if self._is_closed:
                    return
                job = self._queue.popleft()
            group = self._pending.get(job.group_index)
            # The group completed by timeout without this job.
            if group is None:
                continue
            group.start_time = group.start_time or time.monotonic()
            yield job

    def _receive_episode(self) -> None:
        """Wait for the next episode or the next timeout of a group."""
        # Without two rewards, a group has no deadline: only another episode can complete it.
        deadlines = [
            group.start_time + self._timeout
            for group in self._pending.values()
            if self._timeout
            and group.start_time is not None
            and group.num_scored >= _MIN_SCORED_EPISODES
        ]
        # 10 ms after the deadline, so that `_has_timed_out` finds it passed.
        timeout = max(0.0, min(deadlines) - time.monotonic()) + 0.01 if deadlines else None
        result = self._pool.next_result(timeout)
        if result is None:
            return
        _, episode = result
        group = self._pending.get(episode.group)
        # A group that completed by timeout is no longer pending: drop its episode.
        if group is not None:
            group.episodes[episode.attempt] = episode

    def _has_timed_out(self, group: _PendingGroup) -> bool:
        return bool(
            self._timeout
            and group.start_time is not None
            and time.monotonic() > group.start_time + self._timeout
            and group.num_scored >= _MIN_SCORED_EPISODES
        )
