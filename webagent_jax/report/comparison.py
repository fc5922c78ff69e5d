"""Paired comparison of two evaluations by task."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_jax.config import ConfigError
from webagent_jax.tracking import statistics
from webagent_jax.tracking.statistics import Interval

Json = Mapping[str, Any]


@dataclass(frozen=True)
class EvalComparison:
    """Comparison of `candidate` with `baseline` over the `n` tasks for which both have a reward.

    Only the first attempt at each task counts: attempts at one task are correlated, and the tests
    assume independent pairs.
    """

    difference: float  # success rate of `candidate` minus that of `baseline`
    ci95: Interval  # Tango's score interval for paired proportions
    p: float  # exact two-sided McNemar p value
    n: int  # number of paired tasks
    gained: tuple[str, ...]  # ids of tasks that only `candidate` solved
    lost: tuple[str, ...]  # ids of tasks that only `baseline` solved
    only_candidate: int  # number of tasks with a reward in `candidate` only
    only_baseline: int  # number of tasks with a reward in `baseline` only

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
        record: Json = json.loads(file.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{file} is not an eval.json: {error}") from error
    if not isinstance(record, Mapping) or not record.keys() >= {"success_rate", "tasks"}:
        raise ConfigError(f"{file} is not an eval.json: success_rate or tasks is missing")
    return record


def compare(candidate: Json, baseline: Json) -> EvalComparison:
    """Compare two evaluations, each the content of an eval.json.

    Raises:
        ConfigError: no task has a reward in both.
    """
    candidate_rewards, baseline_rewards = first_rewards(candidate), first_rewards(baseline)
    result = statistics.compare_paired(candidate_rewards, baseline_rewards)
    if not result.common_keys:
        raise ConfigError(
            "the evaluations share no task with a reward: one has "
            f"{_example(candidate_rewards)}, the other {_example(baseline_rewards)}"
        )
    return EvalComparison(
        difference=result.difference,
        ci95=result.ci95,
        p=result.p,
        n=result.n,
        gained=tuple(
            task for task in result.common_keys if candidate_rewards[task] > baseline_rewards[task]
        ),
        lost=tuple(
            task for task in result.common_keys if candidate_rewards[task] < baseline_rewards[task]
        ),
        # Tasks with a reward in both are exactly the pairs.
        only_candidate=len(candidate_rewards) - result.n,
        only_baseline=len(baseline_rewards) - result.n,
    )


def first_rewards(record: Json) -> dict[str, float]:
    """Return the reward of the first attempt by task id, without INFRA episodes."""
    return {
        result["task_id"]: result["reward"]
        for result in record["tasks"]
        if result["attempt"] == 0 and result["reward"] is not None
    }


def _example(rewards: Mapping[str, float]) -> str:
    return f"{next(iter(rewards))} and {len(rewards) - 1} more" if rewards else "none"
