"""Summary of a run for the terminal: success rates, comparison and training curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from webagent_jax.report import plots, tables, training_curves
from webagent_jax.report.run_loader import STAGES, Evaluation, Run, StageComparison
from webagent_jax.report.training_curves import Metric

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40  # maximum characters of a sparkline
_KEYS = (
    "loss",
    "kl",
    "entropy",
    "utilization/browser",
    "utilization/engine",
    "utilization/learner",
)
_CURVES = (
    *training_curves.PAPER_METRICS,
    *(metric for metric in training_curves.OTHER_METRICS if metric.key in _KEYS),
)


def print_summary(run: Run) -> None:
    """Print the summary of a run, complete or in progress."""
    Console(highlight=False, markup=False, soft_wrap=True).print(summary(run))


def summary(run: Run) -> RenderableType:
    """Return the summary of a run, complete or in progress."""
    return Group(*_parts(run))


def _parts(run: Run) -> Iterator[RenderableType]:
    stages = list(run.evaluations.values())
    if stages:
        yield _success(stages)
    elif run.policy:
        yield Text(
            f"Training finished: {run.num_updates} updates. Evaluate its policy with\n"
            f"webagent evaluate --config.policy.path={run.policy}"
        )
    else:
        yield Text("No evaluation has finished yet.")
    if run.comparison:
        yield Text(_comparison_text(run.comparison))
    for stage in stages:
        if num_infra := stage.outcomes.get("INFRA", len(stage.infra)):
            yield Text(
                f"{stage.name}: {num_infra} without a reward (INFRA), omitted from the rates"
            )
        yield from (Text(line) for line in _limits(stage))
    for phase in ("bc", "grpo"):
        if table := _curves(run, phase):
            yield table
    if run.seconds:
        yield Text(f"{sum(run.seconds.values()) / 60:.1f} minutes in total")


def _success(stages: Sequence[Evaluation]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("success, %")
    for stage in stages:
        table.add_column(stage.name, justify="right")
    for site in sorted({site for stage in stages for site in stage.by_site}):
        rates = (stage.by_site.get(site) for stage in stages)
        table.add_row(site, *(f"{100 * rate.rate:.0f}" if rate else "" for rate in rates))
    table.add_section()
    table.add_row("all", *(tables.percent(stage.rate) for stage in stages), style="bold")
    table.add_row("95 % interval", *(tables.interval(stage.ci95) for stage in stages))
    table.add_row("episodes", *(f"{stage.n:,}" for stage in stages))
    return table


def _comparison_text(comparison: StageComparison) -> str:
    low, high = comparison.ci95
    num_learned = comparison.changes.get((False, True), 0)
    num_forgotten = comparison.changes.get((True, False), 0)
    return (
        f"{comparison.candidate.name} - {comparison.baseline.name}: "
        f"{100 * comparison.difference:+.1f} "
        f"points ({100 * low:+.1f} to {100 * high:+.1f}, p = {comparison.p:.2g}) over "
        f"{comparison.n} paired tasks: {num_learned} learned, {num_forgotten} forgotten"
    )


def _limits(stage: Evaluation) -> Iterator[str]:
    for name, points in (("turns", stage.by_max_turns), ("attempts", stage.pass_at_k)):
        if points:
            rates = ", ".join(f"{100 * point.rate:.1f} % at {point.limit}" for point in points)
            yield f"{stage.name} by {name}: {rates}"


def _curves(run: Run, phase: str) -> Table | None:
    series = [
        (metric, values)
        for metric in _CURVES
        if len(values := list(training_curves.series(run.metrics[phase], metric.key).values())) > 1
    ]
    if not series:
        return None
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(f"{STAGES[phase]}, {len(run.metrics[phase])} updates")
    table.add_column("first to last")
    table.add_column("last", justify="right")
    for metric, values in series:
        table.add_row(metric.title, _sparkline(values), _format_last(metric, values))
    return table


def _format_last(metric: Metric, values: Sequence[float]) -> str:
    return metric.value_format.format(plots.smooth(values, plots.smoothing_window(len(values)))[-1])


def _sparkline(values: Sequence[float]) -> str:
    """Return bars of block means, scaled from the lowest to the highest mean."""
    parts = np.array_split(np.asarray(values, float), min(_WIDTH, len(values)))
    # A constant curve has spread 0 and is drawn at the lowest level.
    means = np.asarray([part.mean() for part in parts])
    spread = np.ptp(means) or 1.0
    return "".join(_BARS[int(level)] for level in (means - means.min()) / spread * (len(_BARS) - 1))
