"""Many episodes at once: worker threads around `run_episode`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from webagent_jax.rollout.episode import Rules, run_episode
from webagent_jax.types import Agent, Episode, InfraError, Outcome, Suite, Task


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play."""

    task: Task
    seed: int  # of its sampling
    rules: Rules
    make_agent: Callable[[], Agent]  # agents may have a memory: one for each try


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
        for index, episode in self.stream(jobs):
            on_episode(episode)
            episodes[index] = episode
        return [episodes[index] for index in sorted(episodes)]

    def stream(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Episode]]:
        """(index of the job, episode) as they finish.

        Leaving the generator early, or an error in a worker, lets the running episodes end and
        starts no more.
        """
        waiting: queue.SimpleQueue[tuple[int, Job]] = queue.SimpleQueue()
        count = 0
        for index, job in enumerate(jobs):
            waiting.put((index, job))
            count += 1
        finished: queue.SimpleQueue[tuple[int, Episode] | BaseException] = queue.SimpleQueue()
        stop = threading.Event()
        workers = [
            threading.Thread(
                target=self._work, args=(waiting, finished, stop), name=f"rollout-{n}", daemon=True
            )
            for n in range(min(self._contexts, count))
        ]
        for worker in workers:
            worker.start()
        try:
            for _ in range(count):
                result = finished.get()
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            stop.set()
            for worker in workers:
                worker.join()

    def _work(
        self,
        waiting: queue.SimpleQueue[tuple[int, Job]],
        finished: queue.SimpleQueue[tuple[int, Episode] | BaseException],
        stop: threading.Event,
    ) -> None:
        try:
            while not stop.is_set():
                index, job = waiting.get_nowait()
                finished.put((index, self._play(job)))
        except queue.Empty:
            pass
        except BaseException as error:  # handed to whoever iterates: nothing is swallowed
            finished.put(error)

    def _play(self, job: Job) -> Episode:
        for left in reversed(range(self._infra_retries + 1)):
            episode = self._try(job)
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
