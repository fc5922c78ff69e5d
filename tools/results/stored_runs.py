"""Runs and evaluations stored in docs/results/."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "docs" / "results"
STAGES = ("base", "bc", "grpo")

_EVAL_FIELDS = ("commit", "by_outcome", "mean_turns", "parse_error_rate", "invalid_action_rate")

Json = dict[str, Any]
Evals = dict[str, list[list[Json]]]
"""Evaluations by decoding, "sampled" or "greedy": for each stage, one per seed."""


class Run:
    """Stored files of one run.

    Args:
        folder: folder of the run in docs/results/.
    """

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = folder.name, folder
        self.config: Json = json.loads((folder / "config.json").read_text())
        self.metrics = read_jsonl(folder / "metrics.jsonl")
        self.evals: dict[str, Json] = {
            path.stem.removeprefix("eval_"): json.loads(path.read_text())
            for path in sorted(folder.glob("eval_*.json"))
        }
        summary = folder / "summary.json"
        self.summary: Json = json.loads(summary.read_text()) if summary.exists() else {}

    @property
    def commit(self) -> str:
        """Short hash of the commit of the run."""
        return str(self.config.get("commit", "unknown"))[:7]

    def series(self, metric: str) -> tuple[list[int], list[float]]:
        """Return the steps with a value of the metric, and the values."""
        pairs = [(line["update"], line[metric]) for line in self.metrics if metric in line]
        return [step for step, _ in pairs], [value for _, value in pairs]


def read_jsonl(path: Path) -> list[Json]:
    """Return the records of a JSONL file; none if it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def load_runs(table: str) -> list[Run]:
    """Return the runs of a table, sorted by name."""
    return [Run(folder) for folder in sorted((RUNS / table).iterdir()) if folder.is_dir()]


def store(workdir: Path, folder: Path) -> None:
    """Copy the small files of a training run or a quickstart to a folder.

    An evaluation becomes one file, the name of `folder` followed by .json.
    """
    if (workdir / "eval.json").exists():
        evaluation = json.loads((workdir / "eval.json").read_text())
        stored = {name: evaluation[name] for name in _EVAL_FIELDS} | small_evaluation(evaluation)
        if "by_max_turns" in evaluation:
            stored["by_max_turns"] = evaluation["by_max_turns"]
        stored["turns"] = {task["task_id"]: task["turns"] for task in evaluation["tasks"]}
        folder.with_name(f"{folder.name}.json").write_text(json.dumps(stored, indent=1) + "\n")
        return
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((workdir / "config.json").read_text())
    # The folder of the run means nothing elsewhere.
    config.pop("workdir", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    names = {
        "metrics.jsonl": "metrics.jsonl",
        "bc/metrics.jsonl": "bc_metrics.jsonl",
        "grpo/metrics.jsonl": "grpo_metrics.jsonl",
    }
    for source, target in names.items():
        if (workdir / source).exists():
            shutil.copyfile(workdir / source, folder / target)
    if not (workdir / "summary.json").exists():
        return
    summary = json.loads((workdir / "summary.json").read_text())
    for stage in STAGES:
        summary[stage] = small_evaluation(summary[stage])
    (folder / "summary.json").write_text(json.dumps(summary, separators=(",", ":")) + "\n")


def small_evaluation(evaluation: Json) -> Json:
    """Return the rates of an evaluation and the reward of each task.

    Exits if the tables cannot show the evaluation.
    """
    if any(task["attempt"] or task["reward"] is None for task in evaluation["tasks"]):
        sys.exit("store an evaluation with one attempt of each task and without INFRA episodes")
    return {name: evaluation[name] for name in ("success_rate", "ci95", "n")} | {
        "by_site": {site: v["success_rate"] for site, v in evaluation["by_site"].items()},
        "rewards": {task["task_id"]: task["reward"] for task in evaluation["tasks"]},
    }
