"""Demonstrations for behaviour cloning: who solves training tasks, and what of it is kept."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

from webagent_jax import demos, seeds
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.policy.loading import initial_policy
from webagent_jax.rollout import Job
from webagent_jax.rollout.runtime import Stage
from webagent_jax.seeds import Stream
from webagent_jax.tracking.progress import Progress
from webagent_jax.types import Episode, Outcome, ParseError

By = Literal["expert", "policy"]

_EXPERT_TURNS = 30  # no expert needs more


def collect_demos(cfg: RunConfig, directory: Path, progress: Progress, by: By = "expert") -> None:
    """Training tasks are played live; the episodes that earned their reward are kept.

    Plays `bc.demos_per_task` worlds of each task: by the scripted experts of the suite, or by the
    policy of the config, weights or endpoint, sampled as in rollouts. Demonstrations with a prompt
    that `engine.max_tokens` does not hold are left out; the log names the limit that holds all.

    Raises:
        ConfigError: there are fewer worlds than demonstrations of a task, or `engine.max_tokens`
            holds none.
        KeyError: a task has no expert.
        DemosError: no episode earned its reward, or there are demonstrations already.
    """
    worlds, wanted = cfg.suite.train_seeds, cfg.bc.demos_per_task
    if wanted > worlds:
        raise ConfigError(f"bc.demos_per_task={wanted} is more than suite.train_seeds={worlds}")
    model, snapshot = initial_policy(cfg) if by == "policy" else (None, None)
    with Stage(cfg, progress, model, snapshot) as stage:
        rules = stage.rules(_EXPERT_TURNS if by == "expert" else cfg.rollout.max_turns)
        longest_allowed = rules.max_prompt_tokens
        if by == "expert":  # they read no prompts, so the limit that holds all can be measured
            rules = replace(rules, max_prompt_tokens=sys.maxsize)
        agent = stage.expert_agent if by == "expert" else stage.policy_agent
        jobs = []
        for number, name in enumerate(stage.suite.names("train")):
            draw = seeds.generator(cfg.seed, Stream.DEMONSTRATIONS, number)
            for index in draw.choice(worlds, wanted, replace=False):
                task = stage.suite.task(name, "train", int(index))
                seed = seeds.derive(cfg.seed, Stream.DEMONSTRATIONS, number, int(index))
                jobs.append(Job(task, seed, rules, agent))
        progress.phase("demonstrations", len(jobs), "episodes")
        episodes = stage.play(jobs, lambda episode: progress.advance())
        if by == "policy" and stage.usage is not None:
            progress.log(str(stage.usage))
    earned = [episode for episode in episodes if episode.outcome is Outcome.SUCCESS]
    fitting = [episode for episode in earned if _longest_prompt(episode) <= longest_allowed]
    good = [episode for episode in fitting if _readable(episode)]
    if len(earned) < len(episodes):
        progress.log(f"{len(episodes) - len(earned)} demonstrations earned no reward: left out")
    cut = sum(e.truncated and len(e.turns) < rules.max_turns for e in episodes)
    if cut:
        progress.log(
            f"{cut} of {len(episodes)} episodes ended at a prompt that was too long: raise "
            f"engine.max_tokens={cfg.engine.max_tokens}"
        )
    if len(fitting) < len(earned):
        enough = max(map(_longest_prompt, earned)) + cfg.rollout.max_new_tokens
        too_long = (
            f"{len(earned) - len(fitting)} of {len(episodes)} demonstrations have prompts too long "
            f"for engine.max_tokens={cfg.engine.max_tokens}: left out; "
            f"engine.max_tokens={enough} holds all"
        )
        if not fitting:
            raise ConfigError(too_long)
        progress.log(too_long)
    if len(good) < len(fitting):
        progress.log(f"{len(fitting) - len(good)} hold a reply without an action: left out")
    demos.write(directory, map(demos.from_episode, good))


def _longest_prompt(episode: Episode) -> int:
    """Return the number of tokens of the longest prompt of the episode."""
    return max((len(turn.prompt_ids) for turn in episode.turns), default=0)


def _readable(episode: Episode) -> bool:
    """Policies and endpoints stumble, and earn the reward nevertheless."""
    return not any(isinstance(turn.action, ParseError) for turn in episode.turns)
