"""Paired comparison of two evaluations by task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_jax.config import ConfigError
from webagent_jax.tracking import atomic_files, statistics
from webagent_jax.tracking.statistics import Interval

Json = Mapping[str, Any]


@dataclass(frozen=True)
class EvalComparison:
    """Comparison of `after` with `before` over the `n` tasks for which both have a reward.

    Only the first attempt at each task counts: attempts at one task are correlated, and the tests
    assume independent pairs.
    """

    difference: float  # success rate of `after` minus that of `before`
    ci95: Interval  # Tango's score interval for paired proportions
    p: float  # exact two-sided McNemar p value
    n: int  # number of paired tasks
    gained: tuple[str, ...]  # ids of tasks that only `after` solved
    lost: tuple[str, ...]  # ids of tasks that only `before` solved
    only_after: int  # number of tasks with a reward in `after` only
    only_before: int  # number of tasks with a reward in `before` only

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict for JSON."""
        return dataclasses.asdict(self)


def read(path: Path) -> Json:
    """Return the content of an eval.json.

    Args:
        path: the file, or the directory that contains it.

    Raises:
        ConfigError: the file is missing or is not an eval.json.
    """
    file = path / "eval.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"{path} contains no evaluation: pass an eval.json or its directory")
    try:
        record: Json = atomic_files.read_json(file)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(record, Mapping) or not record.keys() >= {"success_rate", "tasks"}:
        raise ConfigError(f"{file} is not an eval.json: success_rate or tasks is missing")
    return record


def compare(after: Json, before: Json) -> EvalComparison:
    """Compare two evaluations, each the content of an eval.json.

    Raises:
        ConfigError: no task has a reward in both.
    """
    new, old = _rewards(after), _rewards(before)
    result = statistics.paired(new, old)
    if not result.shared:
        raise ConfigError(
            "the evaluations share no task with a reward: one has "
            f"{_example(new)}, the other {_example(old)}"
        )
    return EvalComparison(
        difference=result.difference,
        ci95=result.ci95,
        p=result.p,
        n=result.n,
        gained=tuple(task for task in result.shared if new[task] > old[task]),
        lost=tuple(task for task in result.shared if new[task] < old[task]),
        only_after=len(new) - result.n,
        only_before=len(old) - result.n,
    )


def _rewards(record: Json) -> dict[str, float]:
    """Return the reward of the first attempt by task id, without INFRA episodes."""
    return {
        result["task_id"]: result["reward"]
        for result in record["tasks"]
        if result.get("attempt", 0) == 0 and result["reward"] is not None
    }


def _example(rewards: Mapping[str, float]) -> str:
    return f"{next(iter(rewards))} and {len(rewards) - 1} more" if rewards else "none"
