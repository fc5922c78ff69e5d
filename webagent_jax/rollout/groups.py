"""Groups of siblings, played ahead of whoever learns from them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from webagent_jax.rollout.collector import Collector, Job
from webagent_jax.types import Episode, Group, Task

_LEAST = 2  # episodes with a reward that make a group: advantages need siblings

Key = tuple[int, int]
"""Of an episode in a training: its group and which sibling it is."""


@dataclass(frozen=True, slots=True)
class Played:
    """A group that is closed."""

    number: int  # of the draw
    group: Group


@dataclass(slots=True)
class _Open:
    """A group that is begun and not taken yet."""

    task: Task
    size: int
    version: int  # no episode was sampled by a policy before that of this update
    episodes: dict[int, Episode]  # by sibling
    begun: float | None = None  # by time.monotonic, when its first episode was

    @property
    def full(self) -> bool:
        return len(self.episodes) == self.size


class Groups:
    """Draws tasks by number, has their episodes played, and hands the groups over.

    Nobody plays more than was begun with `begin`: that is how a learner paces its collectors. A
    group is handed over when all its episodes have ended or, `timeout` seconds after the first of
    them began, with those that have: at least two with a reward. Later ones are left out of it.
    """

    def __init__(
        self,
        collector: Collector,
        jobs: Callable[[int], Sequence[Job]],
        *,
        first: int = 0,
        stride: int = 1,
        again: Mapping[int, int] | None = None,
        backlog: Sequence[int] = (),
        known: Mapping[Key, Episode] | None = None,
        staleness: int = 0,
        timeout: float = 0.0,
        on_episode: Callable[[Episode], None] = lambda episode: None,
    ) -> None:
        """
        Args:
            jobs: the siblings of the number-th draw, with `group` and `sibling` set.
            first: number of the next draw; the one after it is `first` + `stride`.
            again: groups that an interrupted run had begun, and their versions: begun at once.
            backlog: numbers below `first` that no process has scheduled: they are drawn first.
            known: episodes that it had finished, of these draws and later ones.
            staleness: a known episode further than so many updates from the version at which its
                group is begun is played again.
            timeout: seconds; 0 waits for every episode.
            on_episode: called from the worker threads for every episode that has ended.
        """
        self._jobs = jobs
        self._drawn, self._stride = first, stride
        self._backlog = deque(backlog)
        self._known = dict(known or {})
        self._staleness = staleness
        self._timeout = timeout
        self._open: dict[int, _Open] = {}  # in the order of their beginning
        self._changed = threading.Condition()  # guards the next two
        self._waiting: deque[Job] = deque()
        self._closed = False
        for number, version in (again or {}).items():
            self._schedule(number, version)
        self._crew = collector.start(self._feed(), on_episode)

    @property
    def drawn(self) -> int:
        """The number of the next draw."""
        return self._drawn

    @property
    def backlog(self) -> tuple[int, ...]:
        """Numbers below `drawn` that are not begun yet."""
        return tuple(self._backlog)

    @property
    def open(self) -> dict[int, int]:
        """Versions of the groups that are begun and not taken yet, by number."""
        return {number: opened.version for number, opened in self._open.items()}

    def begin(self, count: int, version: int) -> None:
        """Has `count` more groups played, the next numbers. None where it is 0 or less.

        `version` is what `take` compares: the update of the policy that is current now.
        """
        for _ in range(count):
            self._schedule(self._draw(), version)

    def begun_by(self, version: int) -> int:
        """How many of the open groups were begun at `version` or before it."""
        return sum(opened.version <= version for opened in self._open.values())

    def take(self, begun_by: int | None = None) -> Played:
        """The lowest number that is closed, of those begun at that version or before it; waits.

        Raises:
            ValueError: no such group is open.
            Exception: whatever went wrong in a thread that plays.
        """
        if not (self._open if begun_by is None else self.begun_by(begun_by)):
            raise ValueError("no such group is begun: there is nothing to wait for")
        while True:
            for number in sorted(self._open):
                opened = self._open[number]
                late = begun_by is not None and opened.version > begun_by
                if not late and (opened.full or self._is_over(opened)):
                    del self._open[number]
                    in_order = (opened.episodes[at] for at in sorted(opened.episodes))
                    return Played(number, Group(opened.task, tuple(in_order)))
            self._wait()

    def close(self) -> None:
        """Waits for the running episodes, and starts no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _schedule(self, number: int, version: int) -> None:
        """Open a group, as old as the oldest of its known episodes, and queue the others."""
        jobs = self._jobs(number)
        known = {job.sibling: self._known.pop((job.group, job.sibling), None) for job in jobs}
        episodes = {
            at: episode
            for at, episode in known.items()
            if episode is not None and abs(version - episode.update) <= self._staleness
        }
        version = min([version, *(episode.update for episode in episodes.values())])
        self._open[number] = _Open(jobs[0].task, len(jobs), version, episodes)
        missing = [replace(job, update=version) for job in jobs if job.sibling not in episodes]
        with self._changed:
            self._waiting.extend(missing)
            self._changed.notify_all()

    def _draw(self) -> int:
        if self._backlog:
            return self._backlog.popleft()
        self._drawn += self._stride
        return self._drawn - self._stride

    def _feed(self) -> Iterator[Job]:
        """Jobs as they are begun: the worker threads block here while there is none."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                job = self._waiting.popleft()
            opened = self._open.get(job.group)
            if opened is None:  # closed without it
                continue
            opened.begun = opened.begun or time.monotonic()
            yield job

    def _wait(self) -> None:
        """For the next episode, or until the next deadline."""
        ends = [
            opened.begun + self._timeout
            for opened in self._open.values()
            if self._timeout and opened.begun is not None and self._scored(opened) >= _LEAST
        ]
        left = max(0.0, min(ends) - time.monotonic()) + 0.01 if ends else None
        finished = self._crew.get(left)
        if finished is None:
            return
        _, episode = finished
        opened = self._open.get(episode.group)
        if opened is not None:
            opened.episodes[episode.sibling] = episode

    def _is_over(self, opened: _Open) -> bool:
        return bool(
            self._timeout
            and opened.begun is not None
            and time.monotonic() > opened.begun + self._timeout
            and self._scored(opened) >= _LEAST
        )

    @staticmethod
    def _scored(opened: _Open) -> int:
        return sum(episode.reward is not None for episode in opened.episodes.values())
