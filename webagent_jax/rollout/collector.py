"""Many episodes at once: worker threads around `run_episode`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from webagent_jax.rollout.episode import Rules, run_episode
from webagent_jax.types import Agent, Episode, InfraError, Outcome, Suite, Task


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play."""

    task: Task
    seed: int  # of its sampling
    rules: Rules
    make_agent: Callable[[], Agent]  # agents may have a memory: one for each try
    group: int = -1  # as in Episode, and so are the next two
    sibling: int = 0
    update: int = -1


class Collector:
    """Plays jobs on `contexts` threads, each episode in a world of its own.

    A fault of browser or site costs one try: the same job is played again, with the same seeds, up
    to `infra_retries` times. Only then it counts as INFRA.
    """

    def __init__(
        self,
        suite: Suite,
        *,
        contexts: int,
        infra_retries: int,
        on_try: Callable[[Episode], None] = lambda episode: None,
    ) -> None:
        """`on_try` is called, from the worker threads, for every try that has ended."""
        self._suite = suite
        self._contexts = contexts
        self._infra_retries = infra_retries
        self._on_try = on_try

    def collect(
        self, jobs: Iterable[Job], on_episode: Callable[[Episode], None] = lambda episode: None
    ) -> list[Episode]:
        """Episodes in the order of the jobs; an error that is no InfraError stops all and raises.

        `on_episode` is called, from the caller's thread, as each of them is finished.
        """
        episodes: dict[int, Episode] = {}
        with self.start(jobs) as crew:
            for index, episode in crew:
                on_episode(episode)
                episodes[index] = episode
        return [episodes[index] for index in sorted(episodes)]

    def start(
        self, jobs: Iterable[Job], on_episode: Callable[[Episode], None] = lambda episode: None
    ) -> Crew:
        """Threads at work on the jobs; `on_episode` is called from them, once for every job."""

        def work(job: Job) -> Episode:
            episode = self.play(job)
            on_episode(episode)
            return episode

        return Crew(work, jobs, self._contexts)

    def play(self, job: Job) -> Episode:
        """One job, on the thread of the caller."""
        for left in reversed(range(self._infra_retries + 1)):
            episode = replace(
                self._try(job), group=job.group, sibling=job.sibling, update=job.update
            )
            self._on_try(episode)
            if episode.outcome is not Outcome.INFRA or not left:
                return episode
        raise AssertionError("unreachable: the last try returns")

    def _try(self, job: Job) -> Episode:
        try:
            environment = self._suite.open(job.task)
        except InfraError as fault:
            return Episode(job.task, job.task.intent, (), None, Outcome.INFRA, note=str(fault))
        try:
            return run_episode(environment, job.make_agent(), job.task, job.rules, seed=job.seed)
        finally:
            environment.close()


_GONE = object()  # what a thread that has left tells


class Crew:
    """Threads that draw jobs one by one, as they become free, and what they have finished.

    An iterator that blocks holds them back; whoever gave it must let it end before `close`. Leaving
    early, or an error in a thread, lets the running episodes end and starts no more.
    """

    def __init__(self, work: Callable[[Job], Episode], jobs: Iterable[Job], size: int) -> None:
        self._work = work
        self._jobs = enumerate(jobs)
        self._drawing = threading.Lock()
        self._finished: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._there = size
        self._workers = [
            threading.Thread(target=self._run, name=f"rollout-{number}", daemon=True)
            for number in range(size)
        ]
        for worker in self._workers:
            worker.start()

    def get(self, timeout: float | None = None) -> tuple[int, Episode] | None:
        """The next that is finished: index of the job, and episode. None: not within `timeout`.

        Raises:
            StopIteration: all jobs are played.
            Exception: whatever went wrong in a thread.
        """
        while self._there:
            try:
                result = self._finished.get(timeout=timeout)
            except queue.Empty:
                return None
            if isinstance(result, BaseException):
                raise result
            if isinstance(result, tuple):
                return result
            self._there -= 1
        raise StopIteration

    def __iter__(self) -> Iterator[tuple[int, Episode]]:
        return self

    def __next__(self) -> tuple[int, Episode]:
        result = self.get()
        assert result is not None, "without a time-out something comes"
        return result

    def close(self) -> None:
        """Waits for the running episodes."""
        self._stop.set()
        for worker in self._workers:
            worker.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with self._drawing:
                    drawn = next(self._jobs, None)
                if drawn is None:
                    break
                index, job = drawn
                self._finished.put((index, self._work(job)))
        except BaseException as error:  # handed to whoever waits: nothing is swallowed
            self._finished.put(error)
        self._finished.put(_GONE)
