"""Runs below a directory, with their results, progress and config differences."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from webagent_jax.report import plots, run_loader, training_curves
from webagent_jax.report.run_loader import Run
from webagent_jax.report.training_curves import Metric
from webagent_jax.tracking import atomic_files

# Not bc/metrics.jsonl: a folder of runs may contain one named bc. A quickstart has a config.json.
_RESULT_FILES = ("summary.json", "eval.json", "metrics.jsonl")
# Folders of a workdir without other runs. Those of its phases belong to the run.
_RUN_FOLDERS = {
    *("bc", "grpo", "eval", "phases"),
    *("checkpoints", "best", "policy", "adapter", "report", "tensorboard", "wandb"),
    *("episodes", "demos", "demo_episodes"),
}
# The first of these metrics with two values is the sparkline of a run.
_SPARKLINES = (("grpo", "reward"), ("bc", "validation/success"), ("bc", "loss"))
_METRICS = {
    metric.key: metric
    for metric in (*training_curves.PAPER_METRICS, *training_curves.OTHER_METRICS)
}
SPARKLINE_SIZE = (120, 30)  # width and height of a sparkline in pixels
_MAX_VALUE_CHARS = 60  # maximum characters of an option value in the list


@dataclass(frozen=True)
class Sparkline:
    """Running mean of one metric as the path of an <svg> of `SPARKLINE_SIZE`."""

    path: str  # value of the attribute `d`
    label: str  # "M-GRPO reward, 31% to 45%"


@dataclass(frozen=True)
class ListedRun:
    """Run of the list. A run that cannot be read has an error and no results."""

    name: str  # path of the workdir below the directory of the list
    workdir: Path
    version: str  # version of the files of the run, see `run_loader.source_version`
    modified_time: float  # Unix time of the last change of a file
    run: Run | None = None  # results; None with an error
    error: str = ""  # reason why the run cannot be read

    @property
    def progress(self) -> str:
        """Number of finished updates of the last training: `M-GRPO update 3 of 16`."""
        if self.run is None:
            return ""
        for phase in ("grpo", "bc"):
            if records := self.run.metrics[phase]:
                total = self.run.config.get("grpo", {}).get("updates") if phase == "grpo" else None
                limit = f" of {total}" if total else ""
                return f"{run_loader.STAGES[phase]} update {records[-1]['update']:g}{limit}"
        return ""

    @property
    def sparkline(self) -> Sparkline | None:
        """Sparkline of the training; None without two values of a metric."""
        if self.run is None:
            return None
        for phase, key in _SPARKLINES:
            values = list(training_curves.series(self.run.metrics[phase], key).values())
            if len(values) > 1:
                return _sparkline(values, phase, _METRICS[key])
        return None


def find_workdirs(root: Path) -> list[Path]:
    """Return the workdirs of the runs in a directory, without those of the phases of a run."""
    workdirs = []
    visited: set[str] = set()  # a link may lead to another folder of the walk, or above it
    for name, children, _ in os.walk(root, followlinks=True):
        real_path = os.path.realpath(name)
        if real_path in visited:
            children.clear()
            continue
        visited.add(real_path)
        ignored: set[str] = set()
        if is_workdir(Path(name)):
            workdirs.append(Path(name))
            ignored = _RUN_FOLDERS
        # os.walk descends into the remaining children; links last, so that a run that is also
        # linked has the name of its folder.
        order = sorted((os.path.islink(os.path.join(name, child)), child) for child in children)
        children[:] = [
            child for _, child in order if not child.startswith(".") and child not in ignored
        ]
    return workdirs


def read_run(workdir: Path, root: Path, previous: ListedRun | None = None) -> ListedRun:
    """Return a run of the list; `previous` if its files have not changed since."""
    files = run_loader.source_files(workdir)
    version = run_loader.source_version(files)
    if previous is not None and previous.version == version:
        return previous
    name = workdir.relative_to(root).as_posix() if workdir != root else root.resolve().name
    modified_time = max((path.stat().st_mtime for path in files), default=0.0)
    try:
        return ListedRun(name, workdir, version, modified_time, run_loader.load_run(workdir))
    except (OSError, ValueError) as error:
        return ListedRun(name, workdir, version, modified_time, error=str(error))


def config_differences(runs: Sequence[ListedRun]) -> dict[str, dict[str, str]]:
    """Return the options of each run that differ from most other runs, by the name of the run.

    An option that several values share equally often differs in the runs whose value occurs later
    in the list. Runs without the option are ignored.
    """
    options_by_run = {
        listed.name: dict(_flatten(listed.run.config)) for listed in runs if listed.run
    }
    usual = {}
    for option in {name: None for options in options_by_run.values() for name in options}:
        values = [options[option] for options in options_by_run.values() if option in options]
        usual[option] = Counter(values).most_common(1)[0][0]
    return {
        name: {
            option: _shorten(value) for option, value in options.items() if value != usual[option]
        }
        for name, options in options_by_run.items()
    }


def is_workdir(folder: Path) -> bool:
    """Return whether a folder is the workdir of a run."""
    if any((folder / name).is_file() for name in _RESULT_FILES):
        return True
    # A run that has just started; the config.json of a policy has another form.
    path = folder / "config.json"
    if not path.is_file():
        return False
    try:
        record = atomic_files.read_json(path)
    except (OSError, ValueError):  # deleted meanwhile, for example
        return False
    return isinstance(record, dict) and record.keys() >= {"config", "commit"}


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the options `grpo.updates` of a config with their values as text."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else repr(value)


def _shorten(value: str) -> str:
    return value if len(value) <= _MAX_VALUE_CHARS else f"{value[: _MAX_VALUE_CHARS - 1]}…"


def _sparkline(values: Sequence[float], phase: str, metric: Metric) -> Sparkline:
    means = plots.smooth(values, plots.smoothing_window(len(values)))
    # Rates have the same scale in all runs, so that the heights can be compared.
    low, high = (0.0, 1.0) if metric.rate else (float(means.min()), float(means.max()))
    width, height = SPARKLINE_SIZE
    margin = 2  # pixels, at least half the line width
    x = np.linspace(margin, width - margin, len(means))
    y = height - margin - (means - low) / ((high - low) or 1.0) * (height - 2 * margin)
    points = " ".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    first, last = (metric.value_format.format(means[i]) for i in (0, -1))
    return Sparkline(
        f"M{points}", f"{run_loader.STAGES[phase]} {metric.title.lower()}, {first} to {last}"
    )
