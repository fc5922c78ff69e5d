"""Two evaluations of the same tasks, task by task."""

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
class Comparison:
    """`after` against `before` over the `n` tasks for which both have a reward.

    Where tasks were attempted several times it is their first attempts that are compared: the
    tests know nothing of attempts that are alike because their task is.
    """

    difference: float  # success rate of `after` minus that of `before`
    ci95: Interval  # Tango's score interval for paired proportions
    p: float  # exact McNemar, two-sided
    n: int
    gained: tuple[str, ...]  # ids of tasks that `after` alone solved
    lost: tuple[str, ...]  # ... and `before` alone
    only_after: int  # tasks that have a reward on one side alone
    only_before: int

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def read(path: Path) -> Json:
    """An eval.json, told by itself or by its folder. Raises ConfigError when it is none."""
    file = path / "eval.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"{path} holds no evaluation: give an eval.json, or the folder of one")
    try:
        record: Json = atomic_files.read_json(file)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(record, Mapping) or not record.keys() >= {"success_rate", "tasks"}:
        raise ConfigError(f"{file} is no eval.json: it tells no success_rate or no tasks")
    return record


def compare(after: Json, before: Json) -> Comparison:
    """Both as `eval.json` holds them. Raises ConfigError when they share no task with a reward."""
    ours, theirs = _rewards(after), _rewards(before)
    found = statistics.paired(ours, theirs)
    if not found.shared:
        raise ConfigError(
            "the evaluations share no task with a reward: one has "
            f"{_example(ours)}, the other {_example(theirs)}"
        )
    return Comparison(
        difference=found.difference,
        ci95=found.ci95,
        p=found.p,
        n=found.n,
        gained=tuple(task for task in found.shared if ours[task] > theirs[task]),
        lost=tuple(task for task in found.shared if ours[task] < theirs[task]),
        only_after=len(ours) - found.n,
        only_before=len(theirs) - found.n,
    )


def _rewards(record: Json) -> dict[str, float]:
    """Of the first attempt at each task, where it has one."""
    return {
        result["task_id"]: result["reward"]
        for result in record["tasks"]
        if result.get("attempt", 0) == 0 and result["reward"] is not None
    }


def _example(rewards: Mapping[str, float]) -> str:
    return f"{next(iter(rewards))} and {len(rewards) - 1} more" if rewards else "none"
