"""Evaluation side by side: the arena's tasks one at a time and 16 at once, sites far away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from webagent_jax import seeds
from webagent_jax.config import EngineConfig, PolicyConfig, RolloutConfig, RunConfig, SuiteConfig
from webagent_jax.policy.loading import initial_policy
from webagent_jax.rollout import Job
from webagent_jax.rollout.runtime import Stage
from webagent_jax.seeds import Stream
from webagent_jax.tracking import episode_stats
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.types import Episode

_CONTEXTS = (1, 16)
_LATENCY = 100.0  # ms of every answer
_TURNS = 8


def run(repeats: int, policy: str) -> Iterator[dict[str, Any]]:
    """A result per number of contexts, the best of `repeats` runs, and how many times as fast.

    Args:
        policy: its name or directory, as of `PolicyConfig.path`.
    """
    best: dict[int, float] = {}
    for contexts in _CONTEXTS:
        cfg = _config(contexts, policy)
        with Stage(cfg, NullProgress(), *initial_policy(cfg)) as stage:
            stage.play(_jobs(stage)[:contexts])  # so that all is compiled, and all browsers there
            runs = [_timed(stage, contexts) for _ in range(repeats)]
        told = min(runs, key=lambda run: run["seconds"])
        best[contexts] = told["seconds"]
        yield {"name": f"evaluation, {contexts} at once"} | told
    first, last = _CONTEXTS[0], _CONTEXTS[-1]
    yield {"name": f"{last} contexts against {first}", "times as fast": best[first] / best[last]}


def _config(contexts: int, policy: str) -> RunConfig:
    return RunConfig(
        policy=PolicyConfig(path=policy),
        suite=SuiteConfig(name="arena", latency_ms=_LATENCY),
        engine=EngineConfig(slots=contexts, max_tokens=1_024),
        rollout=RolloutConfig(contexts=contexts, max_new_tokens=96, episode_timeout=600.0),
    )


def _timed(stage: Stage, contexts: int) -> dict[str, Any]:
    jobs = _jobs(stage)
    begun = time.perf_counter()
    episodes = stage.play(jobs)
    seconds = time.perf_counter() - begun
    scored = [episode for episode in episodes if episode.reward is not None]
    if len(scored) < len(jobs):
        raise RuntimeError(f"{len(jobs) - len(scored)} episodes got no reward: not the same work")
    whole = seconds * contexts
    return {
        "seconds": seconds,
        "episodes": len(episodes),
        "turns": sum(len(episode.turns) for episode in episodes),
        "success": episode_stats.rate(episodes).success_rate,
        "contexts waiting for the browser": episode_stats.browser_seconds(episodes) / whole,
        "contexts waiting for a reply": _model_seconds(episodes) / whole,
    }


def _jobs(stage: Stage) -> list[Job]:
    """Sampled, with seeds of their own: however many are played at once, they are the same."""
    return [
        Job(
            stage.suite.task(name, "test", 0),
            seeds.derive(0, Stream.EVALUATION, number),
            stage.rules(_TURNS),
            stage.policy_agent,
        )
        for number, name in enumerate(stage.suite.names("test"))
    ]


def _model_seconds(episodes: list[Episode]) -> float:
    return sum(turn.seconds.get("model", 0.0) for e in episodes for turn in e.turns)
