"""The numbers of an update, by the names they have in metrics.jsonl."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

import jax
import numpy as np

from webagent_jax.browser import memory
from webagent_jax.generate import EngineStats
from webagent_jax.learn import Forest
from webagent_jax.report import figures
from webagent_jax.stage import Stage
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
        by_site.setdefault(figures.site(episode), []).append(episode.reward or 0.0)
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
        "memory/process_mib": memory.own_mb(os.getpid()),
        "memory/with_browsers_mib": memory.resident_mb(os.getpid()),
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
            self._browser += figures.browser_seconds([episode])

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
