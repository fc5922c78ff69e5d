"""Training dynamics: what the metrics of one or several runs say over their updates."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from webagent_jax.report import change_points, plots
from webagent_jax.report.run_loader import Run


@dataclass(frozen=True)
class Metric:
    key: str
    title: str
    form: str  # of one value
    rate: bool = False  # a share in [0, 1]


# The three curves the paper shows of a training run (arXiv 2505.16421, figure 3), then the rest.
PANELS = (
    Metric("reward", "Reward", "{:.0%}", rate=True),
    Metric("trajectory_tokens", "Tokens per trajectory", "{:,.0f}"),
    Metric("interactions", "Interactions per trajectory", "{:.1f}"),
)
MORE = (
    Metric("success", "Success", "{:.0%}", rate=True),
    Metric("response_tokens", "Response tokens per turn", "{:.1f}"),
    Metric("truncated", "Episodes cut off by a limit", "{:.1%}", rate=True),
    Metric("groups_with_signal", "Groups with a policy gradient", "{:.0%}", rate=True),
    Metric("loss", "Loss", "{:.3g}"),
    Metric("kl", "KL to the reference", "{:.3g}"),
    Metric("entropy", "Entropy", "{:.3g}"),
    Metric("clip_fraction", "Clipped share of tokens", "{:.1%}", rate=True),
    Metric("grad_norm", "Gradient norm", "{:.3g}"),
    Metric("accuracy", "Token accuracy", "{:.1%}", rate=True),
    Metric("logp_gap", "Log-probability gap, sampler to learner", "{:.3g}"),
    Metric("staleness/mean", "Staleness, updates", "{:.2f}"),
    Metric("importance", "Importance weight", "{:.3f}"),
    Metric("busy/browser", "Browsers busy", "{:.0%}", rate=True),
    Metric("busy/engine", "Engine busy", "{:.0%}", rate=True),
    Metric("busy/learner", "Learner busy", "{:.0%}", rate=True),
    Metric("engine/occupancy", "Engine slots in use", "{:.0%}", rate=True),
    Metric("forest/shared_fraction", "Tokens saved by sharing prefixes", "{:.0%}", rate=True),
    Metric("infra", "Episodes lost to infrastructure", "{:.0f}"),
    Metric("seconds/rollout", "Seconds of rollouts", "{:.1f}"),
    Metric("seconds/update", "Seconds of updating", "{:.1f}"),
    Metric("memory/process_mib", "Memory of the process, MiB", "{:,.0f}"),
    Metric("memory/device_peak_mib", "Memory of the fullest device, at most, MiB", "{:,.0f}"),
)


@dataclass(frozen=True)
class Curve:
    title: str
    drawing: Markup  # an <svg>
    now: str  # the smoothed value at the end of the first run, for the caption


@dataclass(frozen=True)
class Phase:
    """A stretch of updates over which each panel is a straight line."""

    first: int
    last: int
    trends: Sequence[str]  # of each panel: "31% to 45%"


@dataclass(frozen=True)
class Seeds:
    """Runs that differ in nothing but the seed."""

    name: str
    runs: Sequence[Run]


def by_config(runs: Sequence[Run]) -> list[Seeds]:
    """Runs of one config stand together; the first run's comes first."""
    groups: dict[str, list[Run]] = {}
    for number, run in enumerate(runs):
        config = {k: v for k, v in run.config.items() if k != "seed"}
        # A run that does not tell its config is compared with nothing.
        groups.setdefault(json.dumps(config, sort_keys=True) if config else str(number), []).append(
            run
        )
    return [Seeds(", ".join(run.name for run in group), group) for group in groups.values()]


def curves(
    groups: Sequence[Seeds], phase: str, wanted: Sequence[Metric], begins: Sequence[int] = ()
) -> list[Curve]:
    """The wanted metrics that have at least two points in the first run.

    Args:
      groups: from `by_config`, the runs that are reported first.
      phase: of the training, "bc" or "grpo".
      begins: updates at which phases begin.
    """
    found = []
    for metric in wanted:
        lines = [line for group in enumerate(groups) if (line := _line(*group, phase, metric.key))]
        if not lines or lines[0].series != 0:
            continue
        now = metric.form.format(_last(plots.mean_over_seeds(plots.smoothed(lines[0]))))
        title = f"BC · {metric.title}" if phase == "bc" else metric.title
        label = (
            f"{phase.upper()}: {metric.title} over {len(lines[0].steps)} updates, {now} at the end"
        )
        drawing = plots.curves(lines, label=label, rate=metric.rate, phases=begins)
        found.append(Curve(title, Markup(drawing), now))
    return found


def find_phases(group: Seeds) -> list[Phase]:
    """The phases of M-GRPO by its three panels, mean over seeds; empty when there is only one."""
    lines = [_line(0, group, "grpo", metric.key) for metric in PANELS]
    if any(line is None for line in lines):
        return []
    means = [dict(zip(line.steps, _raw_mean(line), strict=True)) for line in lines if line]
    steps = sorted(
        step for step in means[0] if all(math.isfinite(m.get(step, math.nan)) for m in means)
    )
    values = np.asarray([[mean[step] for step in steps] for mean in means])
    cuts = change_points.begin_at(values)
    edges = [0, *cuts, len(steps)] if cuts else []
    return [
        Phase(
            int(steps[begin]),
            int(steps[end - 1]),
            [
                _trend(steps[begin:end], row[begin:end], m)
                for row, m in zip(values, PANELS, strict=True)
            ],
        )
        for begin, end in itertools.pairwise(edges)
    ]


def series(records: Sequence[Mapping[str, Any]], key: str) -> dict[float, float]:
    """A metric by step, where it was written and is finite."""
    return {
        record["step"]: record[key]
        for record in records
        if math.isfinite(record.get(key, math.nan))
    }


def _line(number: int, group: Seeds, phase: str, key: str) -> plots.Line | None:
    found = [values for run in group.runs if len(values := series(run.metrics[phase], key)) > 1]
    steps = sorted(set().union(*found))
    if not steps:
        return None
    rows = [[values.get(step, math.nan) for step in steps] for values in found]
    return plots.Line(steps, rows, series=number)


def _raw_mean(line: plots.Line) -> np.ndarray:
    return plots.mean_over_seeds(np.asarray(line.values, float))


def _last(values: np.ndarray) -> float:
    return float(values[np.isfinite(values)][-1])


def _trend(steps: Sequence[float], values: np.ndarray, metric: Metric) -> str:
    slope, level = np.polyfit(steps, values, 1)
    begin, end = (metric.form.format(slope * step + level) for step in (steps[0], steps[-1]))
    return f"{begin} to {end}"
