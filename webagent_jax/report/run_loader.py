"""What a work directory says about its run, as far as it has got.

Read are, each where it is there: `config.json`; `summary.json`, else `eval/<stage>/eval.json`;
`eval.json`; `bc/metrics.jsonl`, and `grpo/metrics.jsonl` or `metrics.jsonl`; and where episodes
are: `episodes/episodes.jsonl` in `eval/<stage>/` and in the directory itself, `update-*.jsonl` in
`grpo/episodes/` or `episodes/`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webagent_jax.report.episode_pages import Log
from webagent_jax.tracking import atomic_files, metric_writers, statistics
from webagent_jax.tracking.statistics import Interval

STAGES = {"base": "Base", "bc": "BC", "grpo": "GRPO", "eval": "Policy"}  # in the order of a run


@dataclass(frozen=True)
class SiteRate:
    """Success on one site; rates in [0, 1]."""

    rate: float
    n: int
    ci95: Interval


@dataclass(frozen=True)
class Point:
    """Success at one limit of turns, or within k attempts; rates in [0, 1]."""

    at: int
    rate: float
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
    by_max_turns: Sequence[Point] = ()
    pass_at_k: Sequence[Point] = ()
    infra: Sequence[Mapping[str, str]] = ()  # tasks left without a reward, and why
    record: Mapping[str, Any] = field(default_factory=dict)  # the whole file

    @property
    def name(self) -> str:
        return STAGES[self.stage]


@dataclass(frozen=True)
class Comparison:
    """Success rate of `after` minus that of `before`, over the `n` episodes that both have.

    What became of them is counted by (before, after): (False, True) were learned.
    """

    before: Evaluation
    after: Evaluation
    difference: float
    ci95: Interval
    p: float
    n: int
    changes: Mapping[tuple[bool, bool], int]


@dataclass(frozen=True)
class Run:
    """Everything the report shows, but for the episodes. Whatever is missing is empty."""

    name: str
    config: Mapping[str, Any]
    evaluations: Mapping[str, Evaluation]  # by stage
    seconds: Mapping[str, float]  # by phase
    hardware: Mapping[str, Any]
    metrics: Mapping[str, Sequence[Mapping[str, float]]]  # by training phase, one entry a step
    logs: Sequence[Log]  # of episodes, in the order of the run

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
        name=workdir.resolve().name,
        config=_config(workdir),
        evaluations=_evaluations(workdir, summary),
        seconds=summary.get("seconds") or {},
        hardware=_hardware(summary.get("hardware")),
        metrics={
            "grpo": _metrics(workdir / "grpo", workdir),
            "bc": _metrics(workdir / "bc"),
        },
        logs=_logs(workdir),
    )


def compare(before: Evaluation, after: Evaluation) -> Comparison | None:
    """None when the two share no episode with a reward."""
    found = statistics.paired(after.rewards, before.rewards)
    if not found.shared:
        return None
    changes = Counter((before.rewards[key] > 0, after.rewards[key] > 0) for key in found.shared)
    return Comparison(before, after, found.difference, found.ci95, found.p, found.n, changes)


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
        by_max_turns=[
            _point(entry["max_turns"], entry) for entry in record.get("by_max_turns", [])
        ],
        pass_at_k=[_point(int(k), entry) for k, entry in record.get("pass_at_k", {}).items()],
        infra=record.get("infra", []),
        record=record,
    )


def _point(at: int, entry: Mapping[str, Any]) -> Point:
    """Both curves call it a rate in their own way."""
    rate = entry["success_rate"] if "success_rate" in entry else entry["rate"]
    low, high = entry["ci95"]
    return Point(at, rate, (low, high))


def _site_rate(entry: Mapping[str, Any]) -> SiteRate:
    rate, n = entry["success_rate"], entry["n"]
    return SiteRate(rate, n, tuple(entry.get("ci95") or statistics.wilson(round(rate * n), n)))


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
            return metric_writers.read_metrics(folder / "metrics.jsonl")
    return []


def _logs(workdir: Path) -> list[Log]:
    """Evaluations as they follow one another, each training before the evaluation of its policy."""
    trained = [
        Log(f"update-{number}", f"Update {number}", number, path)
        for folder in ("grpo/episodes", "episodes")
        for path in sorted((workdir / folder).glob("update-*.jsonl"))
        if (number := _update(path)) is not None
    ]
    evaluated = [
        Log(stage, name, None, _folder(workdir, stage) / "episodes" / "episodes.jsonl")
        for stage, name in STAGES.items()
    ]
    there = [log for log in evaluated if log.path.exists()]
    after = [log for log in there if log.id in ("grpo", "eval")]
    return [*(log for log in there if log not in after), *trained, *after]


def _update(path: Path) -> int | None:
    number = path.stem.removeprefix("update-")
    return int(number) if number.isdecimal() else None


def _config(workdir: Path) -> dict[str, Any]:
    return _read_optional(workdir / "config.json").get("config") or {}


def _folder(workdir: Path, stage: str) -> Path:
    """Where the evaluation of a stage keeps its files: `eval` is that of the directory itself."""
    return workdir if stage == "eval" else workdir / "eval" / stage


def _hardware(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {"machine": value} if value else {}


def _read_optional(path: Path) -> dict[str, Any]:
    return atomic_files.read_json(path) if path.exists() else {}
