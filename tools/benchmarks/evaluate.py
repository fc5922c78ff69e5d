"""Benchmark of evaluations: arena tasks with 1 and 16 concurrent episodes, sites with latency."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from tools.benchmarks import timing
from webagent_jax import seeds
from webagent_jax.config import EngineConfig, PolicyConfig, RolloutConfig, RunConfig, SuiteConfig
from webagent_jax.policy.loading import initial_policy
from webagent_jax.rollout import Job
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.seeds import RandomStream
from webagent_jax.tracking import episode_stats
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.types import Episode

_CONTEXTS = (1, 16)
_LATENCY_MS = 100.0  # delay of every response
_MAX_TURNS = 8


def run(repeats: int, policy: str) -> Iterator[dict[str, Any]]:
    """Yield the medians of the runs for each number of contexts, and the speedup.

    Args:
        repeats: number of runs for each number of contexts.
        policy: name or directory, as in `PolicyConfig.path`.
    """
    seconds: dict[int, float] = {}
    for contexts in _CONTEXTS:
        cfg = _config(contexts, policy)
        with RolloutRuntime(cfg, NullProgress(), *initial_policy(cfg)) as runtime:
            runtime.run(_jobs(runtime)[:contexts])  # warmup: compile programs and start browsers
            runs = [_measure(runtime, contexts) for _ in range(repeats)]
        result = timing.medians(runs)
        seconds[contexts] = result["seconds"]
        yield {"name": f"evaluation, {contexts} at once"} | result
    first, last = _CONTEXTS[0], _CONTEXTS[-1]
    speedup = seconds[first] / seconds[last]
    yield {"name": f"{last} contexts against {first}", "times as fast": speedup}


def _config(contexts: int, policy: str) -> RunConfig:
    return RunConfig(
        policy=PolicyConfig(path=policy),
        suite=SuiteConfig(name="arena", response_delay_ms=_LATENCY_MS),
        engine=EngineConfig(slots=contexts, max_model_len=1_024),
        rollout=RolloutConfig(
            max_concurrent_episodes=contexts, max_new_tokens=96, episode_timeout=600.0
        ),
    )


def _measure(runtime: RolloutRuntime, contexts: int) -> dict[str, float]:
    jobs = _jobs(runtime)
    start = time.perf_counter()
    episodes = runtime.run(jobs)
    seconds = time.perf_counter() - start
    num_infra = sum(episode.reward is None for episode in episodes)
    if num_infra:
        raise RuntimeError(f"{num_infra} episodes have no reward: run the benchmark again")
    context_seconds = seconds * contexts
    return {
        "seconds": seconds,
        "episodes": len(episodes),
        "turns": sum(len(episode.turns) for episode in episodes),
        "success": episode_stats.rate(episodes).success_rate,
        "contexts waiting for the browser": episode_stats.browser_seconds(episodes)
        / context_seconds,
        "contexts waiting for a response": _model_seconds(episodes) / context_seconds,
    }


def _jobs(runtime: RolloutRuntime) -> list[Job]:
    """Return jobs with fixed seeds: the episodes do not depend on the number of contexts."""
    return [
        Job(
            runtime.suite.task(name, "test", 0),
            seeds.derive_seed(0, RandomStream.EVALUATION, number),
            runtime.episode_config(_MAX_TURNS),
            runtime.policy_agent,
        )
        for number, name in enumerate(runtime.suite.task_names("test"))
    ]


def _model_seconds(episodes: list[Episode]) -> float:
    return sum(turn.seconds.get("model", 0.0) for e in episodes for turn in e.turns)
