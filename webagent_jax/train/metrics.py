"""Metrics of an update, as written to metrics.jsonl, and guards that limit them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np

from webagent_jax import distributed, learn
from webagent_jax.browser import process_memory
from webagent_jax.config import GuardConfig, RunStoppedError
from webagent_jax.inference import EngineStats
from webagent_jax.learn import Forest
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.tracking import episode_stats
from webagent_jax.tracking.metric_writers import MetricsWriter
from webagent_jax.train.batches import Batch
from webagent_jax.train.learner import PendingMetrics
from webagent_jax.types import Episode, Group, Outcome, Turn

# Summed over processes; other metrics are averaged.
_COUNT_METRICS = (
    "browser/crashes",
    "browser/launches",
    "episodes/infra_errors",
    "episodes/total",
    "engine/prompt_tokens",
    "engine/sampled_tokens",
)

# By metric: option of GuardConfig that limits it, and the side of the limit that violates it.
_GUARDS = {
    "entropy": ("min_entropy", "below"),
    "kl": ("max_kl", "above"),
    "sampling_logp_difference": ("max_logp_difference", "above"),
    "turns/repeated_fraction": ("max_repetition", "above"),
}


def packing_metrics(forest: Forest, attention: str) -> dict[str, float]:
    """Return length and efficiency of the rows of a forest, and the attention implementation.

    Args:
        forest: rows of one process.
        attention: name of the implementation, recorded as `attention/<name>` = 1.
    """
    return {
        f"attention/{attention}": 1.0,
        "packing/row_tokens": float(forest.rows.tokens.shape[1]),
        "packing/shared_token_fraction": forest.shared_fraction,
        "packing/padding_fraction": forest.padding_fraction,
    }


def batch_metrics(batch: Batch) -> dict[str, float]:
    """Return episode counts, mean reward, lengths, and success per site of a batch.

    Without an episode with a reward, only counts and fractions of groups are returned.
    """
    scored = [e for e in batch.all_episodes if e.reward is not None]
    turns = [turn for e in scored for turn in e.turns]
    num_used = len(batch.groups)
    values = {
        "episodes/infra_errors": float(len(batch.all_episodes) - len(scored)),
        "episodes/total": float(len(batch.all_episodes)),
        "groups/kept_fraction": num_used / max(num_used + batch.num_filtered, 1),
        "groups/replayed_fraction": batch.num_replayed / max(num_used, 1),
    }
    if not scored:
        return values
    tokens = [len(turn.completion.token_ids) for turn in turns]
    by_site: dict[str, list[float]] = {}
    for episode in scored:
        by_site.setdefault(episode_stats.site(episode), []).append(episode.reward or 0.0)
    return values | {
        "reward": float(np.mean([e.reward for e in scored])),
        "episode/response_tokens": sum(tokens) / len(scored),
        "episode/num_turns": len(turns) / len(scored),
        "turn/response_tokens": float(np.mean(tokens)) if tokens else 0.0,
        "episodes/truncated_fraction": float(
            np.mean([e.outcome is Outcome.TRUNCATED for e in scored])
        ),
        "turns/repeated_fraction": _repeated_fraction(scored),
        "turns/compared_fraction": _compared_fraction(batch.groups),
        **{f"success/{site}": float(np.mean(rewards)) for site, rewards in by_site.items()},
        **{f"scored/{site}": float(len(rewards)) for site, rewards in by_site.items()},
    }


def _compared_fraction(groups: Sequence[Group]) -> float:
    """Return the fraction of turns on pages on which their group has two or more actions."""
    episodes = [[e for e in group.episodes if e.reward is not None] for group in groups]
    num_turns = sum(len(e.turns) for each in episodes for e in each)
    return sum(map(learn.num_compared_turns, episodes)) / max(num_turns, 1)


def memory_metrics() -> dict[str, float]:
    """Return memory in MiB: this process, with its browsers, and peak of its fullest device.

    The peak is missing if the devices report no memory statistics, as on CPU.
    """
    resident = {
        "memory/process_mib": process_memory.process_rss_mib(os.getpid()),
        "memory/with_browsers_mib": process_memory.tree_rss_mib(os.getpid()),
    }
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    peaks = [each["peak_bytes_in_use"] for each in stats if "peak_bytes_in_use" in each]
    return resident | ({"memory/device_peak_mib": max(peaks) / 2**20} if peaks else {})


def merge_process_metrics(processes: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return one record of the metrics of all processes.

    Counts are summed; memory and `staleness/max` are the maximum; other metrics are means weighted
    by episodes with a reward, `success/<site>` by those of the site.
    """
    names = dict.fromkeys(name for process in processes for name in process)
    return {
        name: _merge(name, [process for process in processes if name in process]) for name in names
    }


def _merge(name: str, processes: Sequence[dict[str, float]]) -> float:
    values = [process[name] for process in processes]
    if name in _COUNT_METRICS or name.startswith("scored/"):
        return float(np.sum(values))
    if name.startswith("memory/") or name == "staleness/max":
        return max(values)
    if name.startswith("success/"):
        scored = [process[name.replace("success/", "scored/", 1)] for process in processes]
    else:
        scored = [each["episodes/total"] - each["episodes/infra_errors"] for each in processes]
    # np.average needs weights above 0, even if no process has an episode with a reward.
    weights = scored if any(scored) else None
    return float(np.average(values, weights=weights))


def staleness_metrics(batch: Batch, version: int, steps: int) -> dict[str, float]:
    """Return the mean and maximum age of the sampled tokens, in updates.

    Args:
        batch: groups to train on.
        version: policy version before the update, in optimizer steps.
        steps: optimizer steps per update.
    """
    versions = [
        turn.completion.policy_version
        for group in batch.groups
        for episode in group.episodes
        for turn in episode.turns
    ]
    if not versions:
        return {}
    # [tokens of all turns]; versions count optimizer steps, ages count updates.
    age = (version - np.concatenate(versions)) / steps
    return {"staleness/mean": float(np.mean(age)), "staleness/max": float(np.max(age))}


class StepWriter:
    """Writer that reads the metrics of a step after the next step was dispatched.

    Reading them immediately would leave the device idle until the host dispatches the next step.
    """

    def __init__(self, writer: MetricsWriter) -> None:
        self._writer = writer
        self._unwritten: tuple[int, PendingMetrics, Mapping[str, float]] | None = None

    def write(self, update: int, pending: PendingMetrics, others: Mapping[str, float]) -> None:
        """Write the record of the previous call, and keep this one.

        Args:
            update: number of the update, from 1.
            pending: metrics of its optimizer step.
            others: other metrics of the update.

        Raises:
            NonFiniteStepError: loss or gradient of the previous step is not finite.
        """
        self.flush()
        self._unwritten = update, pending, others

    def flush(self) -> None:
        """Wait for the last step and write its record; raises like `write`."""
        if self._unwritten:
            # Cleared before the fetch: after an error, the next flush must not raise it again.
            update, pending, others = self._unwritten
            self._unwritten = None
            self._writer.write(update, pending.fetch() | dict(others))


class UpdateTimer:
    """Timer of an update and of the work of learner, engine and browsers. Thread-safe."""

    def __init__(self, runtime: RolloutRuntime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._browser_seconds = 0.0
        # These counters never reset; metrics are differences to the previous snapshot.
        self._engine_stats, self._pool_stats = runtime.engine.stats(), runtime.pool.stats()
        self._start_time = self._batch_ready_time = time.monotonic()

    def add(self, episode: Episode) -> None:
        """Add the browser time of a completed episode."""
        with self._lock:
            self._browser_seconds += episode_stats.browser_seconds([episode])

    def mark_batch_ready(self) -> None:
        """Wait for the batches of all processes; from then on, time counts as learner time.

        A collective call: the wait for the slowest process belongs to the rollout.
        """
        distributed.barrier("rollout")
        self._batch_ready_time = time.monotonic()

    def finish_update(self) -> dict[str, float]:
        """Return the metrics since the last call, and start the next update.

        Utilizations are fractions of the wall time. `utilization/browser` is a fraction of the wall
        time of all `rollout.max_concurrent_episodes`.
        """
        now, engine_stats = time.monotonic(), self._runtime.engine.stats()
        pool_stats, previous = self._runtime.pool.stats(), self._pool_stats
        self._pool_stats = pool_stats
        with self._lock:
            # Worker threads add to the sum at any time: read and reset it as one operation.
            browser_seconds, self._browser_seconds = self._browser_seconds, 0.0
        # The update is rollout until `_batch_ready_time`, then learner time.
        wall, learner = now - self._start_time, now - self._batch_ready_time
        delta = engine_stats.delta(self._engine_stats)
        self._start_time, self._engine_stats = now, engine_stats
        return _engine_metrics(delta) | {
            "browser/launches": float(pool_stats.launches - previous.launches),
            "browser/crashes": float(pool_stats.crashes - previous.crashes),
            "seconds/rollout": wall - learner,
            "seconds/update": learner,
            "utilization/learner": learner / wall,
            "utilization/engine": delta.busy_seconds / wall,
            "utilization/browser": browser_seconds / (wall * self._runtime.max_concurrent_episodes),
        }

    def finish_validation(self) -> dict[str, float]:
        """Return the browser counts since `finish_update`, and start the next update.

        Times and tokens since then belong to no update.
        """
        values = self.finish_update().items()
        return {name: count for name, count in values if name.startswith("browser/")}


def _engine_metrics(stats: EngineStats) -> dict[str, float]:
    return {
        "engine/prompt_tokens": float(stats.prompt_tokens),
        # The rest was in the prefix cache.
        "engine/prefill_computed_fraction": stats.prefilled_tokens / max(stats.prompt_tokens, 1),
        "engine/sampled_tokens": float(stats.sampled_tokens),
        "engine/slot_occupancy": stats.occupancy,
        "engine/acceptance_length": stats.acceptance_length,
        "engine/compiled_programs": float(stats.num_compiled_programs),
    }


def _repeated_fraction(episodes: Sequence[Episode]) -> float:
    """Return the fraction of turns with the same action and observation as the previous turn."""
    pairs = [pair for e in episodes for pair in zip(e.turns, e.turns[1:], strict=False)]
    return sum(_is_repeat(*pair) for pair in pairs) / max(len(pairs), 1)


def _is_repeat(previous: Turn, turn: Turn) -> bool:
    return previous.action == turn.action and previous.observation.text == turn.observation.text


class GuardLimitError(RunStoppedError):
    """Too many updates in a row beyond a limit; the message contains limit and update."""


class Guards:
    """Limits of the config, with the number of consecutive updates beyond each of them."""

    def __init__(self, cfg: GuardConfig) -> None:
        self._cfg = cfg
        self._num_consecutive: dict[str, int] = {}

    @property
    def all_within_limits(self) -> bool:
        """True if the last update exceeded no limit, so its params are worth a checkpoint."""
        return not any(self._num_consecutive.values())

    def check(self, update: int, metrics: Mapping[str, float]) -> list[str]:
        """Return one warning for each limit that the update exceeded.

        Args:
            update: number of the update, from 1.
            metrics: record of the update.

        Raises:
            GuardLimitError: a limit was exceeded `patience` times in a row, including this update.
        """
        warnings = []
        for name, is_exceeded, violation in self._limits(metrics):
            count = self._num_consecutive.get(name, 0) + 1 if is_exceeded else 0
            # A count of 0 is stored too: one update within the limit ends the sequence.
            self._num_consecutive[name] = count
            if is_exceeded:
                warnings.append(f"update {update}: {violation}")
            if count >= self._cfg.patience:
                raise GuardLimitError(
                    f"stopped after update {update}: {violation}, {count} updates in a row. The "
                    f"last checkpoint is from before these updates: {_describe_remedy(name)}"
                )
        return warnings

    def _limits(self, metrics: Mapping[str, float]) -> Iterator[tuple[str, bool, str]]:
        """Yield the metric of each limit, whether it exceeds the limit, and the violation."""
        cfg = self._cfg
        if metrics.get("episodes/total"):
            fraction = metrics.get("episodes/infra_errors", 0.0) / metrics["episodes/total"]
            message = f"{fraction:.0%} of the episodes are lost to browsers or sites (INFRA)"
            yield (
                "episodes/infra_errors",
                bool(cfg.max_infra_fraction) and fraction > cfg.max_infra_fraction,
                message,
            )
        for name, (option, side) in _GUARDS.items():
            # An update without a step has no such metrics; the counts of the last one remain.
            if name not in metrics:
                continue
            value, limit = metrics[name], getattr(cfg, option)
            is_beyond = value < limit if side == "below" else value > limit
            yield name, bool(limit) and is_beyond, f"{name} {value:.3g} is {side} {limit:g}"


def _describe_remedy(name: str) -> str:
    """Return the instructions for continuing after a guard stopped the run."""
    if name == "episodes/infra_errors":
        return (
            "check the sites (webagent doctor) and run the same command again to resume from it, "
            "or set guard.max_infra_fraction=0 to disable this guard"
        )
    return (
        "export it with webagent export, and start another run from that policy with a "
        f"lower learning rate, or with another guard.{_GUARDS[name][0]}"
    )
