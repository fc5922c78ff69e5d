"""Training curves and phases of one or several runs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from webagent_jax.report import change_points, plots
from webagent_jax.report.run_loader import STAGES, Run


@dataclass(frozen=True)
class Metric:
    """Metric that the report plots."""

    key: str  # key in metrics.jsonl
    title: str  # display name
    value_format: str  # format string of a value
    axis: str  # quantity or unit on the vertical axis
    rate: bool = False  # whether values are fractions in [0, 1]


# The three curves of figure 3 of the paper (arXiv 2505.16421).
PAPER_METRICS = (
    Metric("reward", "Reward", "{:.0%}", "reward", rate=True),
    Metric("episode/response_tokens", "Response tokens per episode", "{:,.0f}", "tokens"),
    Metric("episode/num_turns", "Turns per episode", "{:.1f}", "turns"),
)
OTHER_METRICS = (
    Metric("validation/success", "Success on validation tasks", "{:.0%}", "success", rate=True),
    Metric("decisions/train", "Correct decisions, trained on", "{:.0%}", "decisions", rate=True),
    Metric("decisions/held_out", "Correct decisions, held out", "{:.0%}", "decisions", rate=True),
    Metric("turn/response_tokens", "Response tokens per turn", "{:.1f}", "tokens"),
    Metric(
        "episodes/truncated_fraction",
        "Episodes truncated by a limit",
        "{:.1%}",
        "episodes",
        rate=True,
    ),
    Metric("groups/kept_fraction", "Groups with a policy gradient", "{:.0%}", "groups", rate=True),
    Metric("loss", "Loss", "{:.3g}", "loss"),
    Metric("kl", "KL to the reference", "{:.3g}", "nats"),
    Metric("entropy", "Entropy", "{:.3g}", "nats"),
    Metric("clip_fraction", "Clipped fraction of tokens", "{:.1%}", "tokens", rate=True),
    Metric("grad_norm", "Gradient norm", "{:.3g}", "norm"),
    Metric("logp_difference", "Log-probability difference, sampler to learner", "{:.3g}", "nats"),
    Metric("staleness/mean", "Staleness, updates", "{:.2f}", "updates"),
    Metric("importance_weight", "Importance weight", "{:.3f}", "weight"),
    Metric("utilization/browser", "Browser utilization", "{:.0%}", "time", rate=True),
    Metric("utilization/engine", "Engine utilization", "{:.0%}", "time", rate=True),
    Metric("utilization/learner", "Learner utilization", "{:.0%}", "time", rate=True),
    Metric("engine/slot_occupancy", "Engine slots in use", "{:.0%}", "slots", rate=True),
    Metric(
        "packing/shared_token_fraction",
        "Tokens saved by sharing prefixes",
        "{:.0%}",
        "tokens",
        rate=True,
    ),
    Metric("episodes/infra_errors", "Episodes lost to infrastructure", "{:.0f}", "episodes"),
    Metric("seconds/rollout", "Rollout time per update, s", "{:.1f}", "seconds"),
    Metric("seconds/update", "Training time per update, s", "{:.1f}", "seconds"),
    Metric("memory/process_mib", "Memory of the process, MiB", "{:,.0f}", "MiB"),
    Metric("memory/device_peak_mib", "Peak memory of the fullest device, MiB", "{:,.0f}", "MiB"),
)


@dataclass(frozen=True)
class Curve:
    """Plot of one metric."""

    title: str  # title of the plot
    drawing: Markup  # <svg> element
    last_value: str  # last smoothed value of the first group, for the caption


@dataclass(frozen=True)
class Phase:
    """Range of updates over which each paper metric is a straight line."""

    first: int  # first update
    last: int  # last update
    trends: Sequence[str]  # trend of each paper metric: "31% to 45%"


@dataclass(frozen=True)
class SeedGroup:
    """Runs of the same phases that differ at most in the seed."""

    name: str  # names of the runs
    runs: Sequence[Run]  # mostly one run per seed


def group_by_config(runs: Sequence[Run]) -> list[SeedGroup]:
    """Group runs by config without the seed, and phases, in the order of first occurrence."""
    groups: dict[str, list[Run]] = {}
    for number, run in enumerate(runs):
        config = {k: v for k, v in run.config.items() if k != "seed"}
        # BC and M-GRPO may have one config. JSON has a fixed order of names here.
        phases = [phase for phase, records in run.metrics.items() if records]
        key = json.dumps([phases, config], sort_keys=True)
        # A run without a config forms its own group.
        groups.setdefault(key if config else str(number), []).append(run)
    return [SeedGroup(", ".join(run.name for run in group), group) for group in groups.values()]


def curves(
    groups: Sequence[SeedGroup],
    phase: str,
    metrics: Sequence[Metric],
    phase_starts: Sequence[int] = (),
    *,
    first_required: bool = True,
) -> list[Curve]:
    """Return plots of the metrics that have at least two points.

    Args:
        groups: groups of `group_by_config`.
        phase: "bc" or "grpo".
        metrics: metrics to plot.
        phase_starts: updates at which phases begin.
        first_required: whether to omit metrics that the first group lacks: in a report it contains
            the run to report, and the others are shown for comparison only.
    """
    result = []
    for metric in metrics:
        lines = [line for group in enumerate(groups) if (line := _line(*group, phase, metric.key))]
        if len(groups) == 1:
            lines = [dataclasses.replace(line, name="") for line in lines]
        if not lines or (first_required and lines[0].series != 0):
            continue
        last = metric.value_format.format(
            _last_value(plots.mean_over_seeds(plots.smooth_line(lines[0])))
        )
        title = f"BC · {metric.title}" if phase == "bc" else metric.title
        label = (
            f"{STAGES[phase]}: {metric.title} over {len(lines[0].steps)} updates, {last} at the end"
        )
        drawing = plots.curves(
            lines, label=label, axis=metric.axis, rate=metric.rate, phase_starts=phase_starts
        )
        result.append(Curve(title, Markup(drawing), last))
    return result


def find_phases(group: SeedGroup) -> list[Phase]:
    """Return the phases of M-GRPO by the paper metrics, mean over seeds; empty for one phase."""
    lines = [_line(0, group, "grpo", metric.key) for metric in PAPER_METRICS]
    if any(line is None for line in lines):
        return []
    means = [dict(zip(line.steps, _raw_mean(line), strict=True)) for line in lines if line]
    # 1. Keep the updates at which every metric has a value.
    steps = sorted(
        step for step in means[0] if all(math.isfinite(m.get(step, math.nan)) for m in means)
    )
    values = np.asarray([[mean[step] for step in steps] for mean in means])
    # 2. Find the change points of all metrics together; values have the shape [metrics, updates].
    cuts = change_points.find_change_points(values)
    # 3. Describe each phase by the line through its points. A single phase is not shown.
    edges = [0, *cuts, len(steps)] if cuts else []
    return [
        Phase(
            int(steps[start]),
            int(steps[end - 1]),
            [
                _trend(steps[start:end], row[start:end], m)
                for row, m in zip(values, PAPER_METRICS, strict=True)
            ],
        )
        for start, end in itertools.pairwise(edges)
    ]


def series(records: Sequence[Mapping[str, Any]], key: str) -> dict[float, float]:
    """Return the finite values of a metric by update."""
    return {
        record["update"]: record[key]
        for record in records
        if math.isfinite(record.get(key, math.nan))
    }


def _line(number: int, group: SeedGroup, phase: str, key: str) -> plots.Line | None:
    series_by_run = [
        values for run in group.runs if len(values := series(run.metrics[phase], key)) > 1
    ]
    # Seeds may have different numbers of updates; missing values are NaN.
    steps = sorted(set().union(*series_by_run))
    if not steps:
        return None
    rows = [[values.get(step, math.nan) for step in steps] for values in series_by_run]
    return plots.Line(steps, rows, series=number, name=group.name)


def _raw_mean(line: plots.Line) -> np.ndarray:
    return plots.mean_over_seeds(np.asarray(line.values, float))


def _last_value(values: np.ndarray) -> float:
    return float(values[np.isfinite(values)][-1])


def _trend(steps: Sequence[float], values: np.ndarray, metric: Metric) -> str:
    slope, level = np.polyfit(steps, values, 1)
    start, end = (
        metric.value_format.format(slope * step + level) for step in (steps[0], steps[-1])
    )
    return f"{start} to {end}"
