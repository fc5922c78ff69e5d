"""Plots as SVG with colors as CSS variables and an inherited font.

The page defines `--ink`, `--faint` and `--series-0` to `--series-3`, so one plot serves the light
and the dark theme.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Placeholder colors for matplotlib; `svg` replaces each by its CSS variable.
INK, _FAINT = "#010101", "#020202"
COLORS = ("#030303", "#040404", "#050505", "#060606")
# Dashes distinguish the series without color.
_DASHES = (
    "-",
    (0, (4, 1.5)),
    (0, (1.5, 1.2)),
    (0, (5, 1.5, 1, 1.5)),
)
_VARIABLES = {INK: "--ink", _FAINT: "--faint"} | {
    color: f"--series-{i}" for i, color in enumerate(COLORS)
}
SERIES = len(COLORS)


@dataclass(frozen=True)
class Line:
    """Metric of a run, or of several runs that differ in the seed only."""

    steps: Sequence[float]  # updates
    values: Sequence[Sequence[float]]  # one row per seed, at `steps`; NaN for a missing value
    series: int = 0  # index of color and dashes


@dataclass(frozen=True)
class Points:
    """Success rates in [0, 1] by limit, with their intervals."""

    limits: Sequence[float]  # limits
    rates: Sequence[float]  # success rate at each limit
    lows: Sequence[float]  # lower ends of the 95 % intervals
    highs: Sequence[float]  # upper ends of the 95 % intervals
    series: int = 0  # index of color and dashes


def smoothing_window(n: int) -> int:
    """Return the window of the running mean for a curve of `n` points."""
    return max(3, n // 6)


def smooth(values: npt.ArrayLike, window: int) -> np.ndarray:
    """Return the centered running mean over `window` points, fewer at the ends.

    NaN is a missing value. The result has the same length, with NaN if the window has no value.
    """
    array = np.asarray(values, float)
    is_finite = np.isfinite(array)
    # An odd window is centered on its point.
    box = np.ones(window | 1)
    half = len(box) // 2

    def windowed_sum(x: np.ndarray) -> np.ndarray:
        return np.convolve(np.pad(x, half), box, mode="valid")

    # Sum and count of the finite values; their quotient ignores NaN and the padding.
    count = windowed_sum(is_finite.astype(float))
    total = windowed_sum(np.where(is_finite, array, 0.0))
    return np.divide(total, count, out=np.full(len(array), math.nan), where=count > 0)


def smooth_line(line: Line) -> np.ndarray:
    """Return the running means [seeds, steps]."""
    window = smoothing_window(len(line.steps))
    return np.stack([smooth(values, window) for values in line.values])


def mean_over_seeds(values: np.ndarray) -> np.ndarray:
    """Return the mean [steps] over the seeds that have a value; NaN if no seed has one."""
    is_finite = np.isfinite(values)
    total, count = np.where(is_finite, values, 0.0).sum(axis=0), is_finite.sum(axis=0)
    return np.divide(total, count, out=np.full(values.shape[1], math.nan), where=count > 0)


def curves(
    lines: Sequence[Line], *, label: str, rate: bool, phase_starts: Sequence[float] = ()
) -> str:
    """Plot training curves as running means, with raw points or the range over seeds.

    Args:
        lines: one or more lines with at least one step each.
        label: description for screen readers.
        rate: whether values are fractions in [0, 1], shown in percent with an axis from 0.
        phase_starts: updates at which a new phase begins; each has a vertical line.

    Returns:
        An <svg> element that scales with its container.
    """
    figure = Figure(figsize=(4.0, 2.3), layout="constrained")
    axes = figure.add_subplot()
    for start in phase_starts:
        axes.axvline(start, color=INK, linewidth=0.8, alpha=0.45, linestyle=(0, (2, 2)))
    for line in lines:
        _draw(axes, line, 100.0 if rate else 1.0)
    axes.margins(x=0.02, y=0.12)
    format_axes(axes, rate)
    return svg(figure, label)


def scaling(curves: Sequence[Points], *, label: str) -> str:
    """Plot success rates by limit with bands of their intervals.

    Args:
        curves: one curve per stage.
        label: description for screen readers.

    Returns:
        An <svg> element that scales with its container.
    """
    figure = Figure(figsize=(4.0, 2.3), layout="constrained")
    axes = figure.add_subplot()
    for points in curves:
        color = COLORS[points.series % SERIES]
        lows, rates, highs = (
            100 * np.asarray(v) for v in (points.lows, points.rates, points.highs)
        )
        axes.fill_between(points.limits, lows, highs, color=color, alpha=0.14, linewidth=0)
        axes.plot(
            points.limits,
            rates,
            marker="o",
            markersize=4,
            color=color,
            linestyle=_DASHES[points.series % SERIES],
            linewidth=2.0,
        )
    axes.margins(x=0.04, y=0.12)
    format_axes(axes, rate=True)
    return svg(figure, label)


def _draw(axes: Axes, line: Line, scale: float) -> None:
    color, dashes = COLORS[line.series % SERIES], _DASHES[line.series % SERIES]
    smooth_lines = smooth_line(line) * scale
    # One seed: raw points. Several: the range of their running means.
    if len(line.values) == 1:
        points = np.asarray(line.values[0], float) * scale
        axes.plot(line.steps, points, "o", color=INK, markersize=3.2, alpha=0.45, markeredgewidth=0)
    else:
        is_finite = np.isfinite(smooth_lines)
        # The infinities never win, and a step without values has low > high and is not filled.
        low = np.where(is_finite, smooth_lines, np.inf).min(axis=0)
        high = np.where(is_finite, smooth_lines, -np.inf).max(axis=0)
        axes.fill_between(
            line.steps, low, high, where=low <= high, color=color, alpha=0.16, linewidth=0
        )
    axes.plot(
        line.steps, mean_over_seeds(smooth_lines), color=color, linestyle=dashes, linewidth=2.0
    )


def format_axes(axes: Axes, rate: bool) -> None:
    """Format ticks, grid and spines; `rate` selects a percent axis that includes 0."""
    if rate:
        # Rates share the baseline 0, so that the heights of plots are comparable.
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.yaxis.set_major_formatter(lambda tick, _: f"{tick:g}%")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)


def svg(figure: Figure, label: str) -> str:
    """Return a figure as an <svg> element without global ids, styles and fixed colors."""
    buffer = io.StringIO()
    # The salt makes ids unique within a page and reproducible across builds.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    drawing = buffer.getvalue()
    # An element within HTML has no XML declaration and doctype.
    drawing = drawing[drawing.index("<svg") :]
    # Ids and styles apply to the entire page: keep only the ids that the plot itself references.
    drawing = re.sub(r"<(metadata|style).*?</\1>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'<g id="[^"]*"', "<g", drawing)
    drawing = re.sub(r"font-family: [^;]*;", "font-family: inherit;", drawing)
    for color, variable in _VARIABLES.items():
        drawing = drawing.replace(color, f"var({variable})")
    head, body = drawing.split(">", 1)
    view_box = re.search(r'viewBox="[^"]*"', head)
    assert view_box is not None, "matplotlib wrote an <svg> without a viewBox"
    return f'<svg {view_box[0]} role="img" aria-label="{html.escape(label)}">{body}'
