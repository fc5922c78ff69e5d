"""What a work directory says about its run, as far as it has got.

Read are, each where it is there: `summary.json`, else `eval/<stage>/eval.json`; `eval.json`;
`episodes/episodes.jsonl` or `episodes.jsonl`, in `eval/<stage>/` and in the directory itself;
`bc/metrics.jsonl`, and `grpo/metrics.jsonl` or `metrics.jsonl`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_jax import types
from webagent_jax.report import files, metrics, statistics, store
from webagent_jax.report.statistics import Interval

STAGES = {"base": "Base", "bc": "BC", "grpo": "GRPO", "eval": "Policy"}  # in the order of a run


@dataclass(frozen=True)
class SiteRate:
    """Success on one site; rates in [0, 1]."""

    rate: float
    n: int
    ci95: Interval


@dataclass(frozen=True)
class Evaluation:
    """What `eval.json` says of one stage; rates in [0, 1]."""

    stage: str
    rate: float
    n: int
    ci95: Interval
    by_site: Mapping[str, SiteRate]
    outcomes: Mapping[str, int]
    rewards: Mapping[tuple[str, int], float]  # by task id and count of its repetition
    facts: Mapping[str, Any]  # the file's other entries

    @property
    def name(self) -> str:
        return STAGES[self.stage]


@dataclass(frozen=True)
class Comparison:
    """Success rate of `after` minus that of `before`, over the `n` episodes that both have."""

    before: Evaluation
    after: Evaluation
    difference: float
    ci95: Interval
    p: float
    n: int


@dataclass(frozen=True)
class Run:
    """Everything the report shows. Whatever is missing is empty."""

    evaluations: Mapping[str, Evaluation]  # by stage
    seconds: Mapping[str, float]  # by phase
    hardware: Mapping[str, Any]
    metrics: Mapping[str, Sequence[Mapping[str, float]]]  # by training phase, one entry a step
    episodes: Mapping[str, Sequence[types.Episode]]  # by stage

    @property
    def comparison(self) -> Comparison | None:
        """The last stage against the one before it."""
        last_two = list(self.evaluations.values())[-2:]
        return compare(*last_two) if len(last_two) == 2 else None


def load(workdir: Path) -> Run:
    """Raises FileNotFoundError when there is no such directory, ValueError for broken files."""
    if not workdir.is_dir():
        raise FileNotFoundError(f"{workdir} is no directory; give the --workdir of a run")
    summary = _read_optional(workdir / "summary.json")
    return Run(
        evaluations=_evaluations(workdir, summary),
        seconds=summary.get("seconds") or {},
        hardware=_hardware(summary.get("hardware")),
        metrics={
            "grpo": _metrics(workdir / "grpo", workdir),
            "bc": _metrics(workdir / "bc"),
        },
        episodes={stage: _episodes(_folder(workdir, stage)) for stage in STAGES},
    )


def compare(before: Evaluation, after: Evaluation) -> Comparison | None:
    """None when the two share no episode with a reward."""
    shared = [key for key in after.rewards if key in before.rewards]
    if not shared:
        return None
    outcomes_after = [after.rewards[key] for key in shared]
    outcomes_before = [before.rewards[key] for key in shared]
    difference, ci95 = statistics.paired_difference(outcomes_after, outcomes_before)
    p = statistics.mcnemar_p(outcomes_after, outcomes_before)
    return Comparison(before, after, difference, ci95, p, len(shared))


def _evaluations(workdir: Path, summary: Mapping[str, Any]) -> dict[str, Evaluation]:
    found = {}
    for stage in STAGES:
        record = summary.get(stage) or _read_optional(_folder(workdir, stage) / "eval.json")
        if record:
            found[stage] = _evaluation(stage, record)
    return found


def _evaluation(stage: str, record: Mapping[str, Any]) -> Evaluation:
    rate, n = record["success_rate"], record["n"]
    return Evaluation(
        stage=stage,
        rate=rate,
        n=n,
        ci95=tuple(record.get("ci95") or statistics.wilson(round(rate * n), n)),
        by_site={site: _site_rate(entry) for site, entry in record.get("by_site", {}).items()},
        outcomes=record.get("by_outcome", {}),
        rewards=_rewards(record.get("tasks", [])),
        facts={k: v for k, v in record.items() if isinstance(v, int | float | str)},
    )


def _site_rate(entry: Mapping[str, Any]) -> SiteRate:
    rate, n = entry["success_rate"], entry["n"]
    return SiteRate(rate, n, statistics.wilson(round(rate * n), n))


def _rewards(tasks: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """A task evaluated several times is paired first with first, second with second."""
    seen: Counter[str] = Counter()
    rewards = {}
    for task in tasks:
        key = task["task_id"], seen[task["task_id"]]
        seen[task["task_id"]] += 1
        if task["reward"] is not None:
            rewards[key] = task["reward"]
    return rewards


def _metrics(*folders: Path) -> list[dict[str, float]]:
    """The log of the first folder that has one."""
    for folder in folders:
        if (folder / "metrics.jsonl").exists():
            return metrics.read_metrics(folder / "metrics.jsonl")
    return []


def _episodes(folder: Path) -> Sequence[types.Episode]:
    in_own_folder = store.load_episodes(folder / "episodes" / "episodes.jsonl")
    return in_own_folder or store.load_episodes(folder / "episodes.jsonl")


def _folder(workdir: Path, stage: str) -> Path:
    """Where the evaluation of a stage keeps its files: `eval` is that of the directory itself."""
    return workdir if stage == "eval" else workdir / "eval" / stage


def _hardware(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {"machine": value} if value else {}


def _read_optional(path: Path) -> dict[str, Any]:
    return files.read_json(path) if path.exists() else {}


def series(records: Sequence[Mapping[str, float]], key: str) -> tuple[list[float], list[float]]:
    """Steps and values of one metric, where it was written and is finite."""
    points = [
        (record["step"], record[key])
        for record in records
        if math.isfinite(record.get(key, math.nan))
    ]
    return [step for step, _ in points], [value for _, value in points]
