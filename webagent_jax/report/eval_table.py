"""Table and figure of several evaluations, as in the ablations of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from webagent_jax.config import ConfigError
from webagent_jax.report import comparison, plots, tables

_WIDTH = 0.8  # width of a group of bars; the groups have a distance of 1

# CSS variables of a standalone SVG file; in a report the page defines them.
_STYLE = """
<style>
svg { --ink: #1d1c1a; --faint: #e4e1da; background: #ffffff; font-family: system-ui, sans-serif;
  --series-0: #b8440d; --series-1: #1f6f8b; --series-2: #6b7d1e; --series-3: #7a4a8c; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #f0eeea; --faint: #35322e; background: #141312;
    --series-0: #ff9a5c; --series-1: #6cc3e0; --series-2: #b9cc5e; --series-3: #c79bd9; }
}
</style>
"""


@dataclass(frozen=True)
class EvalEntry:
    """Evaluation of an ablation: the bar of one series in one group."""

    group: str  # "R1-Zero"
    series: str  # "after RL"; empty for one bar per group
    record: Mapping[str, Any]  # content of eval.json

    @property
    def name(self) -> str:
        """Display name: group and series."""
        return f"{self.group}, {self.series}" if self.series else self.group


def read(arguments: Sequence[str]) -> list[EvalEntry]:
    """Read evaluations from arguments.

    Args:
        arguments: arguments of the form `R1=DIR`, or `R1/after RL=DIR` with a series. DIR may be
            a file; without a name, it is the name.

    Raises:
        ConfigError: an argument has another form, a name occurs twice, an evaluation is missing,
            or there are no arguments.
    """
    entries: list[EvalEntry] = []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        group, _, series = name.partition("/")
        if not equals:
            group, series, path = argument, "", argument
        if not group or not path:
            raise ConfigError(f"{argument!r} must have the form NAME=DIR or NAME/SERIES=DIR")
        if (group, series) in [(entry.group, entry.series) for entry in entries]:
            raise ConfigError(f"{name} occurs twice: use a different name for each evaluation")
        entries.append(EvalEntry(group, series, comparison.read(Path(path))))
    if not entries:
        raise ConfigError("no evaluations: pass one or more as DIR or NAME=DIR")
    return entries


def table(entries: Sequence[EvalEntry]) -> list[list[str]]:
    """Return a header and one row per evaluation, with its paired difference from the first."""
    first = entries[0].record
    columns = ["", "success, %", "95 % interval", "episodes", "turns", "tokens per response"]
    rows = [[*columns, f"against {entries[0].name}"]]
    for entry in entries:
        record = entry.record
        rows.append(
            [
                entry.name,
                tables.percent(record["success_rate"]),
                tables.interval(record["ci95"]),
                str(record["n"]),
                f"{record['mean_turns']:.1f}",
                f"{record['mean_response_tokens']:.1f}",
                "" if record is first else _difference(record, first),
            ]
        )
    return rows


def warnings(entries: Sequence[EvalEntry]) -> list[str]:
    """Return sentences that explain why rows may not be comparable."""
    messages = []
    tasks = [{result["task_id"] for result in entry.record["tasks"]} for entry in entries]
    if len(entries) > 1 and any(
        result["attempt"] for entry in entries for result in entry.record["tasks"]
    ):
        messages.append("Paired differences use the first attempt at each task.")
    for entry, task_ids in zip(entries, tasks, strict=True):
        if task_ids != tasks[0]:
            messages.append(f"{entry.name} was evaluated on other tasks than {entries[0].name}.")
        unscored = sum(result["reward"] is None for result in entry.record["tasks"])
        if unscored:
            messages.append(f"{entry.name} omits {unscored} episodes without a reward (INFRA).")
    return messages


def figure(entries: Sequence[EvalEntry]) -> str:
    """Return an SVG file with one bar per evaluation and its interval, by group."""
    groups = list(dict.fromkeys(entry.group for entry in entries))
    series = list(dict.fromkeys(entry.series for entry in entries))
    drawing = Figure(figsize=(1.6 + 1.1 * len(groups) * len(series) ** 0.5, 3.0))
    drawing.set_layout_engine("constrained")
    axes = drawing.add_subplot()
    for group_index, group in enumerate(groups):
        group_entries = [entry for entry in entries if entry.group == group]
        for number, entry in enumerate(group_entries):
            # The bars of a group are centered at its integer position.
            x = group_index + (number - (len(group_entries) - 1) / 2) * _WIDTH / len(series)
            _bar(axes, x, 0.9 * _WIDTH / len(series), entry, series.index(entry.series))
    axes.margins(y=0.12)
    plots.format_axes(axes, rate=True)
    axes.set_xticks(range(len(groups)), groups)
    if len(series) > 1:
        swatches = [Patch(color=_color(i), label=name) for i, name in enumerate(series)]
        drawing.legend(
            handles=swatches,
            loc="outside upper center",
            ncols=len(series),
            frameon=False,
            fontsize=9,
            labelcolor=plots.INK,
        )
    return _to_svg_file(plots.svg(drawing, _label(entries)))


def _bar(axes: Axes, x: float, width: float, entry: EvalEntry, series: int) -> None:
    rate = entry.record["success_rate"]
    if rate is None:
        return
    low, high = entry.record["ci95"]
    axes.bar(x, 100 * rate, width, color=_color(series))
    # Rounding can put the rate outside of its interval; matplotlib rejects negative errors.
    errors = [[100 * max(rate - low, 0.0)], [100 * max(high - rate, 0.0)]]
    axes.errorbar(
        x, 100 * rate, errors, fmt="none", ecolor=plots.INK, elinewidth=1, capsize=3, alpha=0.8
    )
    axes.annotate(
        tables.percent(rate),
        (x, 100 * max(rate, high)),
        (0, 3),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        color=plots.INK,
    )


def _color(series: int) -> str:
    return plots.COLORS[series % plots.SERIES]


def _label(entries: Sequence[EvalEntry]) -> str:
    parts = (f"{e.name} {tables.percent(e.record['success_rate'])} %" for e in entries)
    return "Success rate: " + "; ".join(parts)


def _difference(record: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    try:
        result = comparison.compare(record, first)
    except ConfigError:
        return "no common task"
    low, high = (f"{100 * end:+.1f}" for end in result.ci95)
    return f"{100 * result.difference:+.1f} ({low} to {high}), p = {result.p:.2g}"


def _to_svg_file(drawing: str) -> str:
    """Return an <svg> element as a standalone file with namespaces and styles."""
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    # The first ">" ends the opening <svg> tag.
    head, body = drawing.split(">", 1)
    return f"{head} {namespaces}>{_STYLE}{body.removeprefix(chr(10))}"
