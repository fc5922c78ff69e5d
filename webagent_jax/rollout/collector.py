"""Parallel episodes: worker threads that call `run_episode`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from webagent_jax.rollout.episode import EpisodeConfig, run_episode
from webagent_jax.types import Agent, Episode, InfraError, Outcome, Suite, Task


@dataclass(frozen=True, slots=True)
class Job:
    """Episode to run."""

    task: Task
    seed: int  # seed of the sampling in this episode
    config: EpisodeConfig
    agent_factory: Callable[[], Agent]  # agents may have state: one per run
    group_index: int = -1  # this and the next two as in Episode
    attempt: int = 0
    update: int = -1


class Collector:
    """Runner of jobs on `max_concurrent_episodes` threads, with a separate environment per episode.

    After a fault of browser or site, the job runs again with the same seeds, up to `infra_retries`
    times, while its episode is needed. Only then does the episode count as INFRA.

    Args:
        suite: makes the environments.
        max_concurrent_episodes: number of threads.
        infra_retries: maximum number of retries of a job.
        on_run: called from the worker threads after every run, retries included.
    """

    def __init__(
        self,
        suite: Suite,
        *,
        max_concurrent_episodes: int,
        infra_retries: int,
        on_run: Callable[[Episode], None] = lambda episode: None,
    ) -> None:
        self._suite = suite
        self._max_concurrent_episodes = max_concurrent_episodes
        self._infra_retries = infra_retries
        self._on_run = on_run

    def run_jobs(
        self, jobs: Iterable[Job], on_episode: Callable[[Episode], None] = lambda episode: None
    ) -> list[Episode]:
        """Run all jobs and return their episodes in the order of the jobs.

        An error other than InfraError stops all jobs and propagates, as does Ctrl-C; running
        episodes complete before.

        Args:
            jobs: drawn as threads become free.
            on_episode: called from the caller's thread for each completed episode.
        """
        episodes: dict[int, Episode] = {}
        pool = self.start(jobs)
        is_recording = False
        try:
            with pool:
                for index, episode in pool:
                    is_recording = True
                    on_episode(episode)
                    is_recording = False
                    episodes[index] = episode
        except BaseException:
            # Other episodes completed while the pool closed. They are not passed to an `on_episode`
            # that has failed.
            if not is_recording:
                for episode in pool.remaining_episodes():
                    on_episode(episode)
            raise
        return [episodes[index] for index in sorted(episodes)]

    def start(
        self,
        jobs: Iterable[Job],
        on_episode: Callable[[Episode], None] = lambda episode: None,
        is_needed: Callable[[Job], bool] = lambda job: True,
    ) -> WorkerPool:
        """Start the worker threads and return their pool.

        Args:
            jobs: drawn as threads become free.
            on_episode: called from the worker threads, once per job.
            is_needed: called from the worker threads before each retry; False prevents it.
        """
        stop = threading.Event()

        def work(job: Job) -> Episode:
            episode = self._run_job(job, lambda: is_needed(job) and not stop.is_set())
            on_episode(episode)
            return episode

        return WorkerPool(work, jobs, self._max_concurrent_episodes, stop)

    def _run_job(self, job: Job, can_retry: Callable[[], bool]) -> Episode:
        """Run one job with its retries on the caller's thread."""
        # `num_retries` is the number of retries left.
        for num_retries in reversed(range(self._infra_retries + 1)):
            episode = replace(
                self._run_once(job), group=job.group_index, attempt=job.attempt, update=job.update
            )
            self._on_run(episode)
            if episode.outcome is not Outcome.INFRA or not num_retries or not can_retry():
                return episode
        raise AssertionError("unreachable: the last run returns")

    def _run_once(self, job: Job) -> Episode:
        try:
            environment = self._suite.make_env(job.task)
        except InfraError as error:
            return Episode(
                job.task, job.task.intent, (), None, Outcome.INFRA, infra_error=str(error)
            )
        try:
            return run_episode(
                environment, job.agent_factory(), job.task, job.config, seed=job.seed
            )
        finally:
            environment.close()


_WORKER_EXITED = object()  # queued by each thread when it exits


class WorkerPool:
    """Threads that draw jobs one at a time, and an iterator over their results.

    An iterable of jobs may block to pace the threads; it must end before `close` is called. After
    `close` or an error in a thread, running episodes complete and no others start.

    Args:
        work: runs a job on a worker thread.
        jobs: drawn under a lock, one job per free thread.
        size: number of threads.
        stop: event that the pool sets on `close` or an error in a thread.
    """

    def __init__(
        self,
        work: Callable[[Job], Episode],
        jobs: Iterable[Job],
        size: int,
        stop: threading.Event,
    ) -> None:
        self._work = work
        self._jobs = enumerate(jobs)
        self._jobs_lock = threading.Lock()
        self._results: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._stop = stop
        self._num_running = size
        self._workers = [
            # Daemon threads do not keep the process alive if a call blocks.
            threading.Thread(target=self._run, name=f"rollout-{number}", daemon=True)
            for number in range(size)
        ]
        for worker in self._workers:
            worker.start()

    def next_result(self, timeout: float | None = None) -> tuple[int, Episode] | None:
        """Wait for the next result: index of the job, and its episode.

        Args:
            timeout: seconds; without it, wait until a result exists.

        Returns:
            None after the timeout.

        Raises:
            StopIteration: all jobs are done.
            Exception: the error of a worker thread.
        """
        while self._num_running:
            try:
                result = self._results.get(timeout=timeout)
            except queue.Empty:
                return None
            if isinstance(result, BaseException):
                raise result
            if isinstance(result, tuple):
                return result
            # `_WORKER_EXITED`: one thread less to wait for.
            self._num_running -= 1
        raise StopIteration

    def __iter__(self) -> Iterator[tuple[int, Episode]]:
        return self

    def __next__(self) -> tuple[int, Episode]:
        result = self.next_result()
        assert result is not None, "a wait without timeout returns a result"
        return result

    def remaining_episodes(self) -> list[Episode]:
        """Return the completed episodes that were not received, after `close` or its failure."""
        episodes: list[Episode] = []
        while not self._results.empty():
            result = self._results.get()
            # The other results are errors of threads, after the first one, and `_WORKER_EXITED`.
            if isinstance(result, tuple):
                episodes.append(result[1])
        return episodes

    def close(self) -> None:
        """Start no more jobs, and wait for the running episodes."""
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
                # `next` may block until a job exists. The other threads then wait for the lock.
                with self._jobs_lock:
                    item = next(self._jobs, None)
                if item is None:
                    break
                index, job = item
                self._results.put((index, self._work(job)))
        except BaseException as error:
            # The consumer raises it.
            self._results.put(error)
            self._stop.set()
        # Last, even after an error, so that `next_result` counts the threads correctly.
        self._results.put(_WORKER_EXITED)
