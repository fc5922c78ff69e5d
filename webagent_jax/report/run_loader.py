"""Loader of the results in a workdir, complete or of a run in progress.

The loader reads these files if they exist:

- `config.json`
- `summary.json`, else `eval/<stage>/eval.json`, and `eval.json`
- `bc/metrics.jsonl` and `grpo/metrics.jsonl`; `metrics.jsonl` belongs to the command in config.json
- `policy/config.json`, which exists once a training has finished
- episodes: `eval/<stage>/episodes/episodes.jsonl`, `episodes/episodes.jsonl`, and `update-*.jsonl`
  in `grpo/episodes/` or `episodes/`
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webagent_jax.report import comparison
from webagent_jax.report.episode_pages import EpisodeLogFile
from webagent_jax.tracking import atomic_files, metric_writers, statistics
from webagent_jax.tracking.statistics import Interval

_SOURCES = (
    "config.json",
    "summary.json",
    "eval.json",
    "eval/*/eval.json",
    "metrics.jsonl",
    "bc/metrics.jsonl",
    "grpo/metrics.jsonl",
    "policy/config.json",
    "episodes/*.jsonl",
    "grpo/episodes/*.jsonl",
    "eval/*/episodes/*.jsonl",
)
"""Patterns of the files that `load_run` reads and of the episode logs."""

STAGES = {"base": "Base", "bc": "BC", "grpo": "M-GRPO", "eval": "Policy"}
"""Display names of the stages, in the order of a run."""


@dataclass(frozen=True)
class SiteRate:
    """Success rate on one site, in [0, 1]."""

    rate: float  # success rate
    n: int  # number of episodes with a reward
    ci95: Interval  # 95 % interval of `rate`


@dataclass(frozen=True)
class LimitPoint:
    """Success rate at one turn limit, or within k attempts, in [0, 1]."""

    limit: int  # turn limit, or k
    rate: float  # success rate
    ci95: Interval  # 95 % interval of `rate`


@dataclass(frozen=True)
class Evaluation:
    """Evaluation of one stage from `eval.json`; rates are in [0, 1]."""

    stage: str  # key of `STAGES`
    rate: float | None  # success rate; None without an episode with a reward
    n: int  # number of episodes with a reward
    ci95: Interval  # 95 % interval of `rate`
    by_site: Mapping[str, SiteRate]  # success rate by site
    outcomes: Mapping[str, int]  # number of episodes by outcome
    rewards: Mapping[str, float]  # reward of the first attempt by task id
    by_max_turns: Sequence[LimitPoint] = ()  # success rate by turn limit
    pass_at_k: Sequence[LimitPoint] = ()  # success rate within k attempts
    infra: Sequence[Mapping[str, str]] = ()  # task_id and infra_error of episodes without a reward
    record: Mapping[str, Any] = field(default_factory=dict)  # content of eval.json

    @property
    def name(self) -> str:
        """Display name of the stage."""
        return STAGES[self.stage]


@dataclass(frozen=True)
class StageComparison:
    """Paired comparison of two stages over the first attempts at their common tasks."""

    baseline: Evaluation  # earlier stage
    candidate: Evaluation  # later stage
    difference: float  # success rate of `candidate` minus that of `baseline`
    ci95: Interval  # Tango's score interval of `difference`
    p: float  # exact two-sided McNemar p value
    n: int  # number of common tasks with a reward
    changes: Mapping[tuple[bool, bool], int]  # tasks by success in (baseline, candidate)


@dataclass(frozen=True)
class Run:
    """Results of a run, without the episodes; missing parts are empty."""

    name: str  # name of the workdir
    config: Mapping[str, Any]  # content of config.json
    evaluations: Mapping[str, Evaluation]  # evaluation by stage, in the order of `STAGES`
    seconds: Mapping[str, float]  # wall-clock time by phase
    hardware: Mapping[str, Any]  # see `run_metadata.hardware`
    metrics: Mapping[str, Sequence[Mapping[str, float]]]  # records per update, by "grpo" and "bc"
    logs: Sequence[EpisodeLogFile]  # episode logs in the order of the run
    policy: Path | None = None  # exported policy of a finished training

    @property
    def comparison(self) -> StageComparison | None:
        """Comparison of the last stage with the previous one; None for fewer than two stages."""
        last_two = list(self.evaluations.values())[-2:]
        return compare(*last_two) if len(last_two) == 2 else None

    @property
    def num_updates(self) -> int:
        """Number of updates of the training in the workdir."""
        return max(map(len, self.metrics.values()))


def load_run(workdir: Path) -> Run:
    """Load the results in a workdir.

    Raises:
        FileNotFoundError: the directory does not exist.
        ValueError: a file is not valid, or another version of the package wrote it; the message
            names it.
    """
    if not workdir.is_dir():
        raise FileNotFoundError(
            f"{workdir} is not a directory: set --workdir to the workdir of a run"
        )
    try:
        return _load(workdir)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"the results in {workdir} do not have the format of webagent_jax ({error!r}): another "
            "version or another program wrote them"
        ) from error


def source_files(workdir: Path) -> list[Path]:
    """Return the existing files of a run that the report is built from."""
    return sorted(path for pattern in _SOURCES for path in workdir.glob(pattern))


def source_version(files: Sequence[Path]) -> str:
    """Return a hash of names, sizes and times of the files, which changes with their content."""
    status = [(str(path), *_size_and_time(path)) for path in files]
    return hashlib.sha256(repr(status).encode()).hexdigest()[:16]


def _size_and_time(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _load(workdir: Path) -> Run:
    summary = _read_optional(workdir / "summary.json")
    content = _read_optional(workdir / "config.json")
    is_bc = content.get("command") == "train bc"
    return Run(
        name=workdir.resolve().name,
        config=content.get("config") or {},
        evaluations=_evaluations(workdir, summary),
        seconds=summary.get("seconds") or {},
        hardware=summary.get("hardware") or {},
        metrics={
            "grpo": _metrics(workdir / "grpo", *([] if is_bc else [workdir])),
            "bc": _metrics(workdir / "bc", *([workdir] if is_bc else [])),
        },
        logs=_logs(workdir),
        policy=workdir / "policy" if (workdir / "policy" / "config.json").exists() else None,
    )


def compare(baseline: Evaluation, candidate: Evaluation) -> StageComparison | None:
    """Compare two stages; return None if they share no task with a reward."""
    result = statistics.compare_paired(candidate.rewards, baseline.rewards)
    if not result.common_keys:
        return None
    changes = Counter(
        (baseline.rewards[key] > 0, candidate.rewards[key] > 0) for key in result.common_keys
    )
    return StageComparison(
        baseline, candidate, result.difference, result.ci95, result.p, result.n, changes
    )


def _evaluations(workdir: Path, summary: Mapping[str, Any]) -> dict[str, Evaluation]:
    evaluations = {}
    for stage in STAGES:
        # A finished run has a summary; a run in progress only the files of its finished stages.
        record = summary.get(stage) or _read_optional(_eval_dir(workdir, stage) / "eval.json")
        if record:
            evaluations[stage] = _evaluation(stage, record)
    return evaluations


def _evaluation(stage: str, record: Mapping[str, Any]) -> Evaluation:
    low, high = record["ci95"]
    return Evaluation(
        stage=stage,
        rate=record["success_rate"],
        n=record["n"],
        ci95=(low, high),
        by_site={site: _site_rate(entry) for site, entry in record.get("by_site", {}).items()},
        outcomes=record.get("by_outcome", {}),
        rewards=comparison.first_rewards(record),
        by_max_turns=_points(
            (entry["max_turns"], entry) for entry in record.get("by_max_turns", [])
        ),
        pass_at_k=_points((int(k), entry) for k, entry in record.get("pass_at_k", {}).items()),
        infra=record.get("infra", []),
        record=record,
    )


def _points(entries: Iterable[tuple[int, Mapping[str, Any]]]) -> list[LimitPoint]:
    """Return the points of the limits with a rate; without a scored episode there is none."""
    points = []
    for limit, entry in entries:
        # The key is success_rate in by_max_turns and rate in pass_at_k.
        rate = entry["success_rate"] if "success_rate" in entry else entry["rate"]
        if rate is not None:
            low, high = entry["ci95"]
            points.append(LimitPoint(limit, rate, (low, high)))
    return points


def _site_rate(entry: Mapping[str, Any]) -> SiteRate:
    low, high = entry["ci95"]
    return SiteRate(entry["success_rate"], entry["n"], (low, high))


def _metrics(*folders: Path) -> list[dict[str, float]]:
    """Return the records of the first directory that contains a metrics.jsonl."""
    for folder in folders:
        if (folder / "metrics.jsonl").exists():
            records = metric_writers.read_metrics(folder / "metrics.jsonl")
            return sorted(records, key=lambda record: record["update"])
    return []


def _logs(workdir: Path) -> list[EpisodeLogFile]:
    """Return the logs in order; training precedes the evaluation of its policy."""
    training_logs = [
        log
        for folder in ("grpo/episodes", "episodes")
        for path in sorted((workdir / folder).glob("update-*.jsonl"))
        if (log := _training_log(path)) is not None
    ]
    eval_logs = [
        EpisodeLogFile(stage, name, None, _eval_dir(workdir, stage) / "episodes" / "episodes.jsonl")
        for stage, name in STAGES.items()
    ]
    eval_logs = [log for log in eval_logs if log.path.exists()]
    # The policy of these evaluations exists only after training.
    final_logs = [log for log in eval_logs if log.id in ("grpo", "eval")]
    return [*(log for log in eval_logs if log not in final_logs), *training_logs, *final_logs]


def _training_log(path: Path) -> EpisodeLogFile | None:
    """Return the log of one update of one process; None for another file."""
    match = re.fullmatch(r"update-(\d+)(?:-process-(\d+))?", path.stem)
    if match is None:
        return None
    update, process = int(match[1]), match[2]
    log_id, name = f"update-{update}", f"Update {update}"
    if process is not None:
        log_id, name = f"{log_id}-process-{process}", f"{name}, process {process}"
    return EpisodeLogFile(log_id, name, update, path)


def _eval_dir(workdir: Path, stage: str) -> Path:
    """Return the directory of an evaluation; the workdir itself for stage `eval`."""
    return workdir if stage == "eval" else workdir / "eval" / stage


def _read_optional(path: Path) -> dict[str, Any]:
    return atomic_files.read_json(path) if path.exists() else {}
