"""Success rates, with all that is needed to believe them, of whoever replies to a suite's tasks."""

from __future__ import annotations

import dataclasses
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from webagent_jax import seeds
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.endpoint import Usage
from webagent_jax.policy.loading import initial_policy
from webagent_jax.report import html
from webagent_jax.rollout import Job
from webagent_jax.rollout.runtime import Stage
from webagent_jax.seeds import Stream
from webagent_jax.tracking import atomic_files, episode_log, episode_stats, run_metadata
from webagent_jax.tracking.progress import NullProgress, Progress
from webagent_jax.types import (
    Agent,
    Completion,
    Episode,
    EvalReport,
    ReplyRequest,
    Task,
)

_SINGLE_TASKS = ("arena", "webarena_lite")
"""Suites whose tasks have one world each."""

_Key = tuple[str, int]
"""Of an episode: task id and attempt."""


def evaluate(
    cfg: RunConfig, workdir: Path, progress: Progress | None = None, *, name: str = "evaluation"
) -> EvalReport:
    """Plays `eval.attempts` at `eval.episodes_per_task` worlds of every task of `eval.split`.

    Which tasks they are does not depend on the seed of the run, and how one of them is sampled not
    on which others are asked for. Writes eval.json, episodes/ and report.html.

    Goes on where it stopped: episodes/episodes.jsonl is its journal, and an episode in it that has
    a reward is not played again. An episode that browser or site spoilt is tried again by the
    collector, and once more when all others are done; after that it is an INFRA of the report,
    which the next start tries again.

    Raises:
        ConfigError: the workdir holds a run with another config, or there are no tasks, or not as
            many worlds of one.
    """
    progress = progress or NullProgress()
    run_metadata.open_workdir(workdir, cfg)
    journal = _Journal(workdir / "episodes")
    finished = _finished(workdir / "eval.json", journal)
    if finished:
        report = _report(cfg, journal, finished)
    else:
        with Stage(cfg, progress, *initial_policy(cfg)) as stage:
            jobs = _jobs(cfg, stage, journal.meter)
            progress.phase(name, len(jobs), "episodes", done=len(journal.episodes))
            _play(jobs, stage, journal, progress)
        report = _report(cfg, journal, [_key(job) for job in jobs])
        atomic_files.write_json(
            workdir / "eval.json", episode_log.eval_json(report, cfg, run_metadata.commit())
        )
    html.write_report(workdir)
    return report


def _finished(path: Path, journal: _Journal) -> list[_Key]:
    """All episodes of an evaluation of which none is left to be played, and else nothing."""
    if not path.exists():
        return []
    keys = [(told["task_id"], told["attempt"]) for told in atomic_files.read_json(path)["tasks"]]
    return keys if all(key in journal.episodes for key in keys) else []


def _report(cfg: RunConfig, journal: _Journal, keys: Sequence[_Key]) -> EvalReport:
    episodes = [journal.episodes[key] for key in keys]
    seconds = journal.spent["seconds"]
    busy = {
        "browser": episode_stats.browser_seconds(episodes)
        / max(seconds * cfg.rollout.contexts, 1e-9),
        "engine": journal.spent["engine"] / max(seconds, 1e-9),
    }
    return episode_stats.summarize(
        episodes,
        seconds,
        max_turns=cfg.eval.max_turns,
        busy=busy,
        usage=journal.spent.get("usage"),
    )


# --- what is played ------------------------------------------------------------------------------


def _jobs(cfg: RunConfig, stage: Stage, meter: _Meter) -> list[Job]:
    """The same tasks for every policy and every seed; the first world of each with pictures.

    Attempts stand side by side, so that the engine finds the prompt of the first in its cache.
    """
    jobs = []
    names = stage.suite.names(cfg.eval.split)
    if not names:
        raise ConfigError(f"suite.tasks names no task of the {cfg.eval.split} split")
    for world in range(_worlds(cfg)):
        rules = stage.rules(max(cfg.eval.max_turns), evaluation=True)
        first = dataclasses.replace(rules, pictures=world < cfg.eval.pictures_per_task)
        for name in names:
            task = _task(stage, cfg, name, world)
            jobs += [
                Job(
                    task,
                    seeds.derive(cfg.seed, Stream.EVALUATION, _number(task.id), attempt),
                    rules if attempt else first,
                    lambda: _Metered(stage.policy_agent(evaluation=True), meter),
                    sibling=attempt,
                )
                for attempt in range(cfg.eval.attempts)
            ]
    return jobs


def _worlds(cfg: RunConfig) -> int:
    return 1 if cfg.suite.name in _SINGLE_TASKS else cfg.eval.episodes_per_task


def _task(stage: Stage, cfg: RunConfig, name: str, world: int) -> Task:
    try:
        return stage.suite.task(name, cfg.eval.split, world)
    except IndexError as error:
        raise ConfigError(
            f"eval.episodes_per_task={_worlds(cfg)} is more than the {world} worlds that {name} "
            f"has in the {cfg.eval.split} split"
        ) from error


def _number(task_id: str) -> int:
    """The same for a task whichever others are evaluated with it."""
    return zlib.crc32(task_id.encode())


def _key(job: Job) -> _Key:
    return job.task.id, job.sibling


def _play(jobs: Sequence[Job], stage: Stage, journal: _Journal, progress: Progress) -> None:
    """All that the journal does not hold yet; what was spoilt twice, the second time for good."""
    left = [job for job in jobs if _key(job) not in journal.episodes]
    with journal.clock(lambda: stage.usage):
        played = stage.play(left, lambda episode: _keep(episode, journal, progress, last=False))
        left = [job for job, e in zip(left, played, strict=True) if e.reward is None]
        if left:
            progress.log(f"{len(left)} episodes that got no reward are played once more")
            stage.play(left, lambda episode: _keep(episode, journal, progress, last=True))


def _keep(episode: Episode, journal: _Journal, progress: Progress, *, last: bool) -> None:
    if last or episode.reward is not None:
        journal.add(episode)
        progress.advance()


# --- what a killed run leaves behind -------------------------------------------------------------


class _Journal:
    """What has been played, and what it took: all that the next start has to know.

    `episodes.jsonl` holds the episodes, of which the last one of a task and attempt counts;
    `spent.json` what all starts took together: seconds of playing, seconds in which somebody waited
    for a reply, and the usage of an endpoint.
    """

    def __init__(self, folder: Path) -> None:
        self._log, self._ledger = folder / "episodes.jsonl", folder / "spent.json"
        loaded = episode_log.load_episodes(self._log)
        self.episodes = {(e.task.id, e.sibling): e for e in loaded if e.reward is not None}
        known = atomic_files.read_json(self._ledger) if self._ledger.exists() else {}
        self._before: dict[str, Any] = {"seconds": 0.0, "engine": 0.0} | known
        self.spent = self._before
        self.meter = _Meter()
        self._began = 0.0
        self._usage: Callable[[], Usage | None] = lambda: None

    @contextmanager
    def clock(self, usage: Callable[[], Usage | None]) -> Iterator[None]:
        """Meanwhile there is playing; `usage` says what it has cost since this start began."""
        self._began, self._usage = time.monotonic(), usage
        yield
        self._count()

    def add(self, episode: Episode) -> None:
        episode_log.append_episodes(self._log, [episode])
        self.episodes[episode.task.id, episode.sibling] = episode
        self._count()

    def _count(self) -> None:
        now = {"seconds": time.monotonic() - self._began, "engine": self.meter.seconds()}
        self.spent = _sum(self._before, now)
        usage = self._usage()
        if usage is not None:
            before = self._before.get("usage", {})
            self.spent["usage"] = _sum(before, dataclasses.asdict(usage))
        atomic_files.write_json(self._ledger, self.spent)


def _sum(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Entry by entry; what is not known on one side is not known of both."""
    return {
        name: None if None in (value, before.get(name, 0)) else before.get(name, 0) + value
        for name, value in now.items()
    }


class _Meter:
    """Seconds in which at least one reply was waited for. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running, self._since, self._total = 0, 0.0, 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        self._move(+1)
        try:
            yield
        finally:
            self._move(-1)

    def seconds(self) -> float:
        self._move(0)
        return self._total

    def _move(self, change: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._total += now - self._since if self._running else 0.0
            self._since = now
            self._running += change


class _Metered:
    """The agent, its replies metered."""

    def __init__(self, agent: Agent, meter: _Meter) -> None:
        self._agent, self._meter = agent, meter

    def reply(self, request: ReplyRequest) -> Completion:
        with self._meter.running():
            return self._agent.reply(request)
