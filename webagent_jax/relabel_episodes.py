"""Demonstrations from failed episodes on the arena, by hindsight relabeling."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from webagent_jax import demos, logged_episodes, seeds
from webagent_jax.arena.task import eval_kind
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.rollout import ExpertAgent, Job
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.seeds import RandomStream
from webagent_jax.suites.arena_hindsight import Candidate, HindsightIndex, ReplaySource
from webagent_jax.tracking.progress import Progress
from webagent_jax.types import Episode


def read_failures(run: Path) -> list[Episode]:
    """Return the episodes of a run on the arena that have reward 0.

    Raises:
        ConfigError: the folder contains no episode logs, or no failure on the arena.
    """
    failures = [
        episode
        for episode in logged_episodes.read_logs(run)
        if episode.reward == 0 and episode.task.suite == "arena"
    ]
    if not failures:
        raise ConfigError(f"{run} has no episode on the arena with reward 0: nothing to relabel")
    return failures


def relabel_episodes(
    cfg: RunConfig,
    failures: Sequence[Episode],
    directory: Path,
    progress: Progress,
    tasks_per_template: int,
) -> None:
    """Write the failures as demonstrations of other tasks that they solve.

    Each candidate is replayed in a new world under its own task. Of the replays with reward 1, the
    shortest of each task is written.

    Args:
        cfg: config of the run; its suite is the arena.
        failures: episodes on the arena with reward 0.
        directory: folder of the demonstrations.
        progress: receives the phase and the counts.
        tasks_per_template: maximum number of tasks drawn from a template.

    Raises:
        ConfigError: the suite is not the arena, or no failure is a candidate.
        DemosError: no replay succeeded, or the directory contains demonstrations.
    """
    if cfg.suite.name != "arena" or cfg.suite.factory:
        raise ConfigError(
            f"only the arena has templates to relabel with, not {cfg.suite.label}: "
            "use a config with suite.name=arena"
        )
    # Before the search, which takes minutes: it reports a missing policy or browser.
    with RolloutRuntime(cfg, progress) as runtime:
        candidates = _find_candidates(cfg, failures, tasks_per_template, progress)
        progress.log(f"{len(failures)} failed episodes: {len(candidates)} possible other tasks")
        if not candidates:
            raise ConfigError(
                "no failed episode is a candidate for another task: increase --tasks_per_template"
            )
        jobs = [
            _replay_job(cfg, runtime, candidate, index)
            for index, candidate in enumerate(candidates)
        ]
        progress.start_phase("replays", len(jobs), "episodes")
        episodes = runtime.run(jobs, lambda episode: progress.advance())
    solved = list(filter(demos.ends_with_success, episodes))
    progress.log(f"{len(solved)} of {len(episodes)} replays solve their task")
    demonstrations = logged_episodes.shortest_by_task(filter(demos.has_only_actions, solved))
    kinds = Counter(eval_kind(dict(episode.task.eval)) for episode in demonstrations)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    progress.log(f"tasks by the kind of their evaluation: {counts}")
    demos.write(directory, map(demos.from_episode, demonstrations))


def _find_candidates(
    cfg: RunConfig, failures: Sequence[Episode], tasks_per_template: int, progress: Progress
) -> list[Candidate]:
    """Return the candidates of all failures without duplicates."""
    progress.start_phase("search for tasks", len(failures), "episodes")
    groups = {episode.task.id.split("/")[1] for episode in failures}
    seed = seeds.derive_seed(cfg.seed, RandomStream.HINDSIGHT)
    index = HindsightIndex(groups, tasks_per_template, seed)
    candidates: list[Candidate] = []
    for episode in failures:
        candidates += index.candidates(episode)
        progress.advance()
    by_actions = {
        (c.task.id, c.answer, tuple(step.action for step in c.steps)): c
        for c in reversed(candidates)
    }
    return list(reversed(by_actions.values()))


def _replay_job(cfg: RunConfig, runtime: RolloutRuntime, candidate: Candidate, index: int) -> Job:
    config = runtime.episode_config(len(candidate.steps) + 1)
    agent = functools.partial(
        ExpertAgent,
        ReplaySource(candidate),
        runtime.tokenizer,
        thinking=cfg.prompt.thinking,
        thoughts=cfg.bc.expert_thoughts,
    )
    return Job(candidate.task, index, config, agent)
