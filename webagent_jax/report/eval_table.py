"""Several evaluations side by side, as the paper shows its ablations: one table and one figure."""

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

_WIDTH = 0.8  # of a group of bars; the rest of 1 is space

# What the page around a drawing says elsewhere, for a file that stands alone.
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
class Entry:
    """One evaluation of an ablation: a bar of its series over its group."""

    group: str  # "R1-Zero"
    series: str  # "after RL"; empty where there is one bar to a group
    record: Mapping[str, Any]  # its eval.json

    @property
    def name(self) -> str:
        return f"{self.group}, {self.series}" if self.series else self.group


def read(told: Sequence[str]) -> list[Entry]:
    """Evaluations told as `R1=DIR`, or with a series as `R1/after RL=DIR`; DIR may be a file.

    Raises ConfigError for one that is told otherwise, twice or is not there.
    """
    entries: list[Entry] = []
    for argument in told:
        name, equals, path = argument.partition("=")
        group, _, series = name.partition("/")
        if not group or not equals or not path:
            raise ConfigError(f"{argument!r} must read NAME=DIR or NAME/SERIES=DIR")
        if (group, series) in [(entry.group, entry.series) for entry in entries]:
            raise ConfigError(f"{name} is told twice: give each evaluation a name of its own")
        entries.append(Entry(group, series, comparison.read(Path(path))))
    if not entries:
        raise ConfigError("no evaluation is told: give some as NAME=DIR")
    return entries


def table(entries: Sequence[Entry]) -> list[list[str]]:
    """A row for each, its difference to the first over the tasks that both have. First the head."""
    first = entries[0].record
    head = ["", "success, %", "95 % interval", "episodes", "turns", "tokens of a reply"]
    rows = [[*head, f"against {entries[0].name}"]]
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


def warnings(entries: Sequence[Entry]) -> list[str]:
    """Why the rows may not be comparable, in sentences."""
    told = []
    tasks = [{result["task_id"] for result in entry.record["tasks"]} for entry in entries]
    for entry, own in zip(entries, tasks, strict=True):
        if own != tasks[0]:
            told.append(f"{entry.name} was evaluated on other tasks than {entries[0].name}.")
        unscored = sum(result["reward"] is None for result in entry.record["tasks"])
        if unscored:
            told.append(f"{entry.name} leaves out {unscored} episodes without a reward (INFRA).")
    return told


def figure(entries: Sequence[Entry]) -> str:
    """Bars of success with their intervals, side by side in each group, as an SVG file."""
    groups = list(dict.fromkeys(entry.group for entry in entries))
    series = list(dict.fromkeys(entry.series for entry in entries))
    drawing = Figure(figsize=(1.6 + 1.1 * len(groups) * len(series) ** 0.5, 3.0))
    drawing.set_layout_engine("constrained")
    axes = drawing.add_subplot()
    for place, group in enumerate(groups):
        of_group = [entry for entry in entries if entry.group == group]
        for number, entry in enumerate(of_group):
            at = place + (number - (len(of_group) - 1) / 2) * _WIDTH / len(series)
            _bar(axes, at, 0.9 * _WIDTH / len(series), entry, series.index(entry.series))
    axes.margins(y=0.12)
    plots.dress(axes, rate=True)
    axes.set_xticks(range(len(groups)), groups)
    if len(series) > 1:
        swatches = [Patch(color=_colour(i), label=name) for i, name in enumerate(series)]
        drawing.legend(
            handles=swatches,
            loc="outside upper center",
            ncols=len(series),
            frameon=False,
            fontsize=9,
            labelcolor=plots.INK,
        )
    return _alone(plots.svg(drawing, _label(entries)))


def _bar(axes: Axes, at: float, width: float, entry: Entry, series: int) -> None:
    rate = entry.record["success_rate"]
    low, high = entry.record["ci95"]
    axes.bar(at, 100 * rate, width, color=_colour(series))
    reach = [[100 * max(rate - low, 0.0)], [100 * max(high - rate, 0.0)]]
    axes.errorbar(
        at, 100 * rate, reach, fmt="none", ecolor=plots.INK, elinewidth=1, capsize=3, alpha=0.8
    )
    axes.annotate(
        tables.percent(rate),
        (at, 100 * max(rate, high)),
        (0, 3),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        color=plots.INK,
    )


def _colour(series: int) -> str:
    return plots.COLOURS[series % plots.SERIES]


def _label(entries: Sequence[Entry]) -> str:
    told = (f"{e.name} {tables.percent(e.record['success_rate'])} %" for e in entries)
    return "Success rate: " + "; ".join(told)


def _difference(record: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    try:
        compared = comparison.compare(record, first)
    except ConfigError:
        return "no task in common"
    low, high = (f"{100 * end:+.1f}" for end in compared.ci95)
    return f"{100 * compared.difference:+.1f} ({low} to {high}), p = {compared.p:.2g}"


def _alone(drawing: str) -> str:
    """A drawing for a page as a file of its own."""
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    head, body = drawing.split(">", 1)
    return f"{head} {spaces}>{_STYLE}{body.removeprefix(chr(10))}"
