"""Evaluation of a policy, endpoint or expert on the tasks of a suite."""

from __future__ import annotations

import dataclasses
import json
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
from webagent_jax.policy import prompt_record, weights
from webagent_jax.policy.loading import initial_policy
from webagent_jax.report import html
from webagent_jax.rollout import Job
from webagent_jax.rollout.runtime import RolloutRuntime, long_prompt_note
from webagent_jax.seeds import RandomStream
from webagent_jax.suites.registry import require_task_names
from webagent_jax.tracking import atomic_files, episode_log, episode_stats, run_metadata
from webagent_jax.tracking.episode_log import EpisodeJournal
from webagent_jax.tracking.progress import NullProgress, Progress
from webagent_jax.types import (
    Agent,
    AgentRequest,
    Completion,
    Episode,
    EvalReport,
    Task,
)

_Key = tuple[str, int]
"""Task id and attempt of an episode."""


def evaluate(
    cfg: RunConfig, workdir: Path, progress: Progress | None = None, *, name: str = "evaluation"
) -> EvalReport:
    """Run the evaluation and write eval.json, episodes/ and report.html.

    Runs `eval.attempts` episodes for each of `eval.seeds_per_task` seeds of every task name of
    `eval.split`. The tasks do not depend on the seed of the run. The random draws of an episode do
    not depend on the other tasks of the evaluation.

    An interrupted evaluation resumes: episodes/episodes.jsonl is its journal, and only episodes
    without a reward run again. After an infrastructure fault the collector retries the episode, and
    the evaluation runs it once more after all others. If it fails again, the report counts it as
    INFRA, and the next call retries it.

    Args:
        cfg: config of the run.
        workdir: folder of the evaluation.
        progress: receives phases and log messages; None discards them.
        name: name of the phase in `progress`.

    Raises:
        ConfigError: the workdir contains a run with another config, of other weights or of other
            versions of the tasks; the split has no tasks, a task has fewer than
            `eval.seeds_per_task` seeds, or the first prompts of all tasks are too long.
    """
    progress = progress or NullProgress()
    cfg = prompt_record.with_template(cfg)
    if note := prompt_record.untrained_template_note(cfg):
        progress.log(note)
    run_metadata.init_workdir(workdir, cfg, "evaluate")
    state = _State(workdir / "episodes")
    _check_policy(cfg, workdir, is_new=not state.episodes)
    keys = _completed_keys(workdir / "eval.json", state)
    # Complete: build the report again, without browsers and policy.
    if keys:
        report = _report(cfg, state, keys)
    else:
        with RolloutRuntime(cfg, progress, *initial_policy(cfg)) as runtime:
            jobs = _jobs(cfg, runtime, state.wait_timer)
            _check_tasks(cfg, workdir, jobs, state)
            progress.start_phase(name, len(jobs), "episodes", done=len(state.episodes))
            for episode in state.episodes.values():
                # The success rate covers the episodes of earlier calls too.
                progress.advance(0, success=bool(episode.reward))
            _run_jobs(jobs, runtime, state, progress)
        report = _report(cfg, state, [_key(job) for job in jobs])
        atomic_files.write_json(
            workdir / "eval.json", episode_log.eval_json(report, cfg, run_metadata.commit())
        )
    html.write_report(workdir)
    if note := long_prompt_note(cfg, report.episodes):
        # Only a prompt that is too long ends an episode with a reward before its first turn.
        if not report.turns.max:
            raise ConfigError(f"{note}, and choose another --workdir")
        progress.log(note)
    return report


def _check_policy(cfg: RunConfig, workdir: Path, *, is_new: bool) -> None:
    """Check that the files of the policy have not changed since the evaluation began.

    Another training run may have written other weights to the same path.

    Args:
        cfg: config of the run.
        workdir: folder of the evaluation.
        is_new: whether the evaluation has no episodes yet, so it may begin with other files.
    """
    if cfg.policy.kind != "weights":
        return
    checksum = weights.checksum(cfg.policy.path)
    path = workdir / "policy.json"
    if is_new or not path.exists():
        atomic_files.write_json(path, {"path": cfg.policy.path, "sha256": checksum})
    elif atomic_files.read_json(path)["sha256"] != checksum:
        raise ConfigError(
            f"{workdir} contains episodes of other weights: {cfg.policy.path} has changed since\n"
            "this evaluation began; choose another --workdir"
        )


def _completed_keys(path: Path, state: _State) -> list[_Key]:
    """Return the keys of all episodes of a complete evaluation; empty if one has no reward."""
    if not path.exists():
        return []
    keys = [(task["task_id"], task["attempt"]) for task in atomic_files.read_json(path)["tasks"]]
    return keys if all(key in state.episodes for key in keys) else []


def _report(cfg: RunConfig, state: _State, keys: Sequence[_Key]) -> EvalReport:
    episodes = [state.episodes[key] for key in keys]
    seconds = state.totals["seconds"]
    utilization = {
        "browser": episode_stats.browser_seconds(episodes)
        / max(seconds * cfg.rollout.max_concurrent_episodes, 1e-9),
        "engine": state.totals["engine"] / max(seconds, 1e-9),
    }
    return episode_stats.summarize(
        episodes,
        seconds,
        max_turns=cfg.eval.max_turns,
        utilization=utilization,
        usage=state.totals.get("usage"),
    )


# --- jobs ----------------------------------------------------------------------------------------


def _jobs(cfg: RunConfig, runtime: RolloutRuntime, wait_timer: _WaitTimer) -> list[Job]:
    """Return the jobs of the evaluation, with the same tasks for every policy and run seed.

    The first attempts of the first seeds of each name keep screenshots. Attempts of a task are
    adjacent, so that the prefix cache of the engine contains their prompts.
    """
    jobs = []
    names = require_task_names(runtime.suite, cfg.eval.split)
    for index in range(_seeds_per_task(cfg)):
        default = runtime.episode_config(max(cfg.eval.max_turns), evaluation=True)
        with_screenshots = dataclasses.replace(
            default, keep_screenshots=index < cfg.eval.screenshots_per_task
        )
        for name in names:
            task = _task(runtime, cfg, name, index)
            jobs += [
                Job(
                    task,
                    seeds.derive_seed(
                        cfg.seed, RandomStream.EVALUATION, _task_number(task.id), attempt
                    ),
                    default if attempt else with_screenshots,
                    lambda: _TimedAgent(runtime.policy_agent(evaluation=True), wait_timer),
                    attempt=attempt,
                )
                for attempt in range(cfg.eval.attempts)
            ]
    return jobs


def _seeds_per_task(cfg: RunConfig) -> int:
    return 1 if cfg.suite.has_single_tasks else cfg.eval.seeds_per_task


def _task(runtime: RolloutRuntime, cfg: RunConfig, name: str, index: int) -> Task:
    try:
        return runtime.suite.task(name, cfg.eval.split, index)
    except IndexError as error:
        raise ConfigError(
            f"eval.seeds_per_task={_seeds_per_task(cfg)} must be at most {index}, the number of "
            f"seeds of {name} in the {cfg.eval.split} split"
        ) from error


def _task_number(task_id: str) -> int:
    """Return a number that depends only on the task id, not on the other tasks."""
    # Unlike hash(), equal in every process.
    return zlib.crc32(task_id.encode())


def _check_tasks(cfg: RunConfig, workdir: Path, jobs: Sequence[Job], state: _State) -> None:
    """Check that the tasks have not changed since the evaluation began.

    Raises:
        ConfigError: a completed episode had another instruction or evaluator.
    """
    # Verifiers of WebArena-Infinity are paths of this machine, and the evaluators of a user's suite
    # may contain addresses that each start draws.
    has_stable_eval = not cfg.suite.factory and cfg.suite.name != "infinity"
    for job in jobs:
        episode = state.episodes.get(_key(job))
        if episode is None:
            continue
        # Some intents are known only after a reset.
        is_same = not job.task.intent or job.task.intent == episode.task.intent
        if has_stable_eval:
            # Compared as JSON, because the journal has lists instead of tuples.
            is_same = is_same and _to_json(job.task.eval) == _to_json(episode.task.eval)
        if not is_same:
            raise ConfigError(
                f"{workdir} contains an episode of {job.task.id} with another intent or eval: the "
                "task has changed\nsince this evaluation began; choose another --workdir"
            )


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def _key(job: Job) -> _Key:
    return job.task.id, job.attempt


def _run_jobs(
    jobs: Sequence[Job], runtime: RolloutRuntime, state: _State, progress: Progress
) -> None:
    """Run the jobs that the journal does not contain; run those without a reward once more."""
    # 1. Run the jobs that the journal does not contain.
    pending = [job for job in jobs if _key(job) not in state.episodes]
    with state.record_time(lambda: runtime.usage):
        episodes = runtime.run(
            pending, lambda episode: _record(episode, state, progress, is_last_run=False)
        )
        # 2. Run the episodes without a reward again, after all others.
        pending = [job for job, e in zip(pending, episodes, strict=True) if e.reward is None]
        if pending:
            progress.log(f"{len(pending)} episodes have no reward: running them once more")
            runtime.run(
                pending, lambda episode: _record(episode, state, progress, is_last_run=True)
            )


def _record(episode: Episode, state: _State, progress: Progress, *, is_last_run: bool) -> None:
    # An episode that runs again is recorded after its last run only.
    if is_last_run or episode.reward is not None:
        state.add(episode)
        progress.advance()


# --- completed episodes and costs ----------------------------------------------------------------


class _State:
    """Completed episodes and costs of an evaluation, on disk for resuming.

    `spent.json` contains sums over all calls: run time in seconds, seconds in which at least one
    agent waits for a response, and the usage of an endpoint.
    """

    def __init__(self, folder: Path) -> None:
        self._journal = EpisodeJournal(folder, key=lambda e: (e.task.id, e.attempt))
        self.episodes: dict[_Key, Episode] = self._journal.load()
        self._totals_file = file = folder / "spent.json"
        content = atomic_files.read_json(file) if file.exists() else {}
        # Costs of earlier calls; `_write_totals` adds those of this call.
        self._previous_totals: dict[str, Any] = {"seconds": 0.0, "engine": 0.0} | content
        self.totals = self._previous_totals
        self.wait_timer = _WaitTimer()
        self._start = 0.0
        self._usage: Callable[[], Usage | None] = lambda: None

    @contextmanager
    def record_time(self, usage: Callable[[], Usage | None]) -> Iterator[None]:
        """Add the time inside the context to the totals; `usage` returns the usage of this call."""
        self._start, self._usage = time.monotonic(), usage
        try:
            yield
        finally:
            # The usage since the last episode counts too, after Ctrl-C as well.
            self._write_totals()

    def add(self, episode: Episode) -> None:
        """Add a completed episode."""
        self._journal.add(episode)
        # `RolloutRuntime.run` calls this on the thread of its caller, so no lock is needed.
        self.episodes[episode.task.id, episode.attempt] = episode
        self._write_totals()

    def _write_totals(self) -> None:
        seconds = time.monotonic() - self._start
        current = {"seconds": seconds, "engine": self.wait_timer.seconds()}
        self.totals = _add(self._previous_totals, current)
        usage = self._usage()
        if usage is not None:
            previous_usage = self._previous_totals.get("usage", {})
            self.totals["usage"] = _add(previous_usage, dataclasses.asdict(usage))
        # A start that failed before its first response has no results: the workdir stays free.
        if self.episodes or (usage is not None and usage.responses):
            atomic_files.write_json(self._totals_file, self.totals)


def _add(previous: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sums by name; None if one of the values is unknown (None)."""
    return {
        name: None if None in (value, previous.get(name, 0)) else previous.get(name, 0) + value
        for name, value in current.items()
    }


class _WaitTimer:
    """Thread-safe timer of the seconds in which at least one agent waits for a response."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_waiting, self._last_change, self._total = 0, 0.0, 0.0

    @contextmanager
    def measure_wait(self) -> Iterator[None]:
        self._change_waiting(+1)
        try:
            yield
        finally:
            self._change_waiting(-1)

    def seconds(self) -> float:
        # Adds the time since the last change to the total.
        self._change_waiting(0)
        return self._total

    def _change_waiting(self, change: int) -> None:
        with self._lock:
            now = time.monotonic()
            # An interval counts once, however many agents wait in it.
            self._total += now - self._last_change if self._num_waiting else 0.0
            self._last_change = now
            self._num_waiting += change


class _TimedAgent:
    """Agent that reports its waiting time to a timer."""

    def __init__(self, agent: Agent, wait_timer: _WaitTimer) -> None:
        self._agent, self._wait_timer = agent, wait_timer

    def respond(self, request: AgentRequest) -> Completion:
        with self._wait_timer.measure_wait():
            return self._agent.respond(request)
