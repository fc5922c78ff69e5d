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
from webagent_jax.stage import Stage, opening_policy
from webagent_jax.types import Agent, Episode, Outcome, ParseError

By = Literal["expert", "policy"]

_EXPERT_TURNS = 30  # no expert needs more


def collect_demos(cfg: RunConfig, directory: Path, progress: Progress, by: By = "expert") -> None:
    """Training tasks are played live; the episodes that earned their reward are kept.

    Plays `bc.demos_per_task` worlds of each task: by the scripted experts of the suite, or by the
    policy of the config, weights or endpoint, at the temperature of its rollouts.

    Raises:
        ConfigError: there are fewer worlds than demonstrations of a task.
        KeyError: a task has no expert.
        DemosError: no episode earned its reward, or there are demonstrations already.
    """
    worlds, wanted = cfg.suite.train_seeds, cfg.bc.demos_per_task
    if wanted > worlds:
        raise ConfigError(f"bc.demos_per_task={wanted} is more than suite.train_seeds={worlds}")
    model, snapshot = opening_policy(cfg) if by == "policy" else (None, None)
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
        if by == "policy" and stage.usage is not None:
            progress.log(str(stage.usage))
    earned = [episode for episode in episodes if episode.outcome is Outcome.SUCCESS]
    good = [episode for episode in earned if _readable(episode)]
    if len(earned) < len(episodes):
        progress.log(f"{len(episodes) - len(earned)} demonstrations earned no reward: left out")
    if len(good) < len(earned):
        progress.log(f"{len(earned) - len(good)} hold a reply without an action: left out")
    demos.write(directory, map(demos.from_episode, good))


def _readable(episode: Episode) -> bool:
    """Policies and endpoints stumble, and earn the reward nevertheless."""
    return not any(isinstance(turn.action, ParseError) for turn in episode.turns)


def _agent(cfg: RunConfig, stage: Stage, by: By) -> Callable[[], Agent]:
    if by == "expert":
        return stage.expert_agent
    return lambda: stage.policy_agent(cfg.rollout.temperature)
