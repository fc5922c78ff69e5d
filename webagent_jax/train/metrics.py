"""Metrics of an update, as written to metrics.jsonl, and guards over them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np

from webagent_jax.browser import process_memory
from webagent_jax.config import GuardConfig
from webagent_jax.inference import EngineStats
from webagent_jax.learn import Forest
from webagent_jax.rollout.runtime import Stage
from webagent_jax.tracking import episode_stats
from webagent_jax.train.batches import Batch
from webagent_jax.types import Episode, Outcome, Turn

_COUNTS = ("infra", "episodes", "engine/prompt_tokens", "engine/sampled_tokens")


def of_rows(forest: Forest, attention: str) -> dict[str, float]:
    return {
        f"attention/{attention}": 1.0,  # which of them ran
        "forest/shared_fraction": forest.shared_fraction,
        "forest/padding": forest.padding_fraction,
    }


def of_batch(batch: Batch) -> dict[str, float]:
    scored = [e for e in batch.played if e.reward is not None]
    turns = [turn for e in scored for turn in e.turns]
    kept = len(batch.groups)
    values = {
        "infra": float(len(batch.played) - len(scored)),
        "episodes": float(len(batch.played)),
        "groups_with_signal": kept / max(kept + batch.flat, 1),
    }
    if not scored:
        return values
    tokens = [len(turn.completion.token_ids) for turn in turns]
    by_site: dict[str, list[float]] = {}
    for episode in scored:
        by_site.setdefault(episode_stats.site(episode), []).append(episode.reward or 0.0)
    return values | {
        "reward": float(np.mean([e.reward for e in scored])),
        "trajectory_tokens": sum(tokens) / len(scored),
        "interactions": len(turns) / len(scored),
        "response_tokens": float(np.mean(tokens)) if tokens else 0.0,
        "truncated": float(np.mean([e.outcome is Outcome.TRUNCATED for e in scored])),
        "repetition": _repetition(scored),
        **{f"success/{site}": float(np.mean(rewards)) for site, rewards in by_site.items()},
    }


def of_memory() -> dict[str, float]:
    """MiB held by this process, by it and its browsers, and by its fullest device at most so far,
    where the device tells (a CPU does not)."""
    told = {
        "memory/process_mib": process_memory.own_mb(os.getpid()),
        "memory/with_browsers_mib": process_memory.resident_mb(os.getpid()),
    }
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    peaks = [each["peak_bytes_in_use"] for each in stats if "peak_bytes_in_use" in each]
    return told | ({"memory/device_peak_mib": max(peaks) / 2**20} if peaks else {})


def merged(hosts: Sequence[dict[str, float]]) -> dict[str, float]:
    """One record of all hosts': counts are added, of memory the most is told, all else is the mean
    over the episodes."""
    names = dict.fromkeys(name for host in hosts for name in host)
    return {name: _merged(name, [host for host in hosts if name in host]) for name in names}


def _merged(name: str, hosts: Sequence[dict[str, float]]) -> float:
    values = [host[name] for host in hosts]
    if name in _COUNTS:
        return float(np.sum(values))
    if name.startswith("memory/"):
        return max(values)
    return float(np.average(values, weights=[max(host["episodes"], 1.0) for host in hosts]))


def of_staleness(batch: Batch, version: int, steps: int) -> dict[str, float]:
    """How many updates the sampled tokens are older than the policy that learns from them.

    Args:
        version: optimizer steps done.
        steps: of them, in one update.
    """
    versions = [
        turn.completion.policy_version
        for group in batch.groups
        for episode in group.episodes
        for turn in episode.turns
    ]
    if not versions:
        return {}
    age = (version - np.concatenate(versions)) / steps
    return {"staleness/mean": float(np.mean(age)), "staleness/max": float(np.max(age))}


class Clock:
    """Where the time of an update went, and what engine and browsers did with it. Thread-safe."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._lock = threading.Lock()
        self._browser = 0.0
        self._engine = stage.engine.stats()
        self._begun = self._played = time.monotonic()

    def add(self, episode: Episode) -> None:
        """An episode has ended."""
        with self._lock:
            self._browser += episode_stats.browser_seconds([episode])

    def batch_is_there(self) -> None:
        """The learner has all it waited for."""
        self._played = time.monotonic()

    def lap(self) -> dict[str, float]:
        """Since the last lap; shares are of the wall time, `busy/browser` of all contexts'."""
        now, engine = time.monotonic(), self._stage.engine.stats()
        with self._lock:
            browser, self._browser = self._browser, 0.0
        wall, learner = now - self._begun, now - self._played
        worked = engine.since(self._engine)
        self._begun, self._engine = now, engine
        return _of_engine(worked) | {
            "seconds/rollout": wall - learner,
            "seconds/update": learner,
            "busy/learner": learner / wall,
            "busy/engine": worked.busy_seconds / wall,
            "busy/browser": browser / (wall * self._stage.contexts),
        }


def _of_engine(stats: EngineStats) -> dict[str, float]:
    return {
        "engine/prompt_tokens": float(stats.prompt_tokens),
        # The rest was in the cache.
        "engine/prefill_computed": stats.prefilled_tokens / max(stats.prompt_tokens, 1),
        "engine/sampled_tokens": float(stats.sampled_tokens),
        "engine/occupancy": stats.occupancy,
        "engine/compiled": float(stats.compiled),
    }


def _repetition(episodes: Sequence[Episode]) -> float:
    """Share of the turns that do again what the turn before did, on the same page."""
    pairs = [pair for e in episodes for pair in zip(e.turns, e.turns[1:], strict=False)]
    return sum(_repeats(*pair) for pair in pairs) / max(len(pairs), 1)


def _repeats(before: Turn, after: Turn) -> bool:
    return before.action == after.action and before.observation.text == after.observation.text


class GuardTripped(RuntimeError):
    """A limit was crossed too often in a row. The message names limit and updates."""


class Guards:
    """Counts the updates in a row beyond each limit of the config."""

    def __init__(self, cfg: GuardConfig) -> None:
        self._cfg = cfg
        self._in_a_row: dict[str, int] = {}

    @property
    def quiet(self) -> bool:
        """Whether the last update kept all limits: only then its checkpoint is a good one."""
        return not any(self._in_a_row.values())

    def check(self, update: int, metrics: Mapping[str, float]) -> list[str]:
        """What to warn of, a line each.

        Raises:
            GuardTripped: a limit was crossed `patience` times in a row, this one included.
        """
        warnings = []
        for name, crossed, told in self._limits(metrics):
            self._in_a_row[name] = self._in_a_row.get(name, 0) + 1 if crossed else 0
            if crossed:
                warnings.append(f"update {update}: {told}")
            if self._in_a_row[name] >= self._cfg.patience:
                raise GuardTripped(
                    f"stopped after update {update}: {told}, {self._in_a_row[name]} updates in a "
                    f"row. The last checkpoint is from before the first of them: {_remedy(name)}"
                )
        return warnings

    def _limits(self, metrics: Mapping[str, float]) -> Iterator[tuple[str, bool, str]]:
        """Name of the limit, whether it was crossed, and how to say it."""
        cfg = self._cfg
        below = {"entropy": cfg.entropy}
        above = {"kl": cfg.kl, "sampler_gap": cfg.sampler_gap, "repetition": cfg.repetition}
        if metrics.get("episodes"):
            lost = metrics.get("infra", 0.0) / metrics["episodes"]
            message = f"{lost:.0%} of the episodes are lost to browsers or sites (INFRA)"
            yield "infra", bool(cfg.infra) and lost > cfg.infra, message
        for name, limit in below.items():
            value = metrics.get(name, math.inf)
            yield name, bool(limit) and value < limit, f"{name} {value:.3g} is below {limit:g}"
        for name, limit in above.items():
            value = metrics.get(name, 0.0)
            yield name, bool(limit) and value > limit, f"{name} {value:.3g} is above {limit:g}"


def _remedy(name: str) -> str:
    """Return how to go on after a guard has stopped the run."""
    if name == "infra":
        return (
            "check the sites (launch/doctor.py) and run the same command again, which resumes "
            "there; guard.infra=0 turns this guard off"
        )
    return (
        "make a policy of it with launch/export_weights.py, and begin another run from that with a "
        f"lower learning rate, or with another guard.{name}"
    )
