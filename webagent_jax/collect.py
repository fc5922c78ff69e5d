"""Demonstrations for behaviour cloning: who solves training tasks, and what of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from webagent_jax import demos, seeds
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.report.progress import Progress
from webagent_jax.rollout import Job
from webagent_jax.seeds import Stream
from webagent_jax.stage import Stage, load_policy
from webagent_jax.types import Agent, Outcome, PolicySnapshot

By = Literal["expert", "policy"]

_EXPERT_TURNS = 30  # no expert needs more


def collect_demos(cfg: RunConfig, directory: Path, progress: Progress, by: By = "expert") -> None:
    """Training tasks are played live; the episodes that earned their reward are kept.

    Plays `bc.demos_per_task` worlds of each task: by the scripted experts of the suite, or by the
    policy of the config at the temperature of its rollouts.

    Raises:
        ConfigError: there are fewer worlds than demonstrations of a task.
        KeyError: a task has no expert.
        DemosError: no episode earned its reward, or there are demonstrations already.
    """
    worlds, wanted = cfg.suite.train_seeds, cfg.bc.demos_per_task
    if wanted > worlds:
        raise ConfigError(f"bc.demos_per_task={wanted} is more than suite.train_seeds={worlds}")
    model, snapshot = None, None
    if by == "policy":
        model, params = load_policy(cfg)
        snapshot = PolicySnapshot(0, params)
    with Stage(cfg, progress, model, snapshot) as stage:
        turns = _EXPERT_TURNS if by == "expert" else cfg.rollout.max_turns
        agent = _agent(cfg, stage, by)
        jobs = []
        for number, name in enumerate(stage.suite.names("train")):
            draw = seeds.generator(cfg.seed, Stream.DEMONSTRATIONS, number)
            for index in draw.choice(worlds, wanted, replace=False):
                task = stage.suite.task(name, "train", int(index))
                seed = seeds.derive(cfg.seed, Stream.DEMONSTRATIONS, number, int(index))
                jobs.append(Job(task, seed, stage.rules(turns), agent))
        progress.phase("demonstrations", len(jobs), "episodes")
        episodes = stage.play(jobs, lambda episode: progress.advance())
    good = [episode for episode in episodes if episode.outcome is Outcome.SUCCESS]
    if len(good) < len(episodes):
        progress.log(f"{len(episodes) - len(good)} demonstrations earned no reward: left out")
    demos.write(directory, map(demos.from_episode, good))


def _agent(cfg: RunConfig, stage: Stage, by: By) -> Callable[[], Agent]:
    if by == "expert":
        return stage.expert_agent
    return lambda: stage.policy_agent(cfg.rollout.temperature)
