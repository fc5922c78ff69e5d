"""Plots as SVG with colors as CSS variables and an inherited font.

The page defines `--ink`, `--faint` and `--series-0` to `--series-3`, so one plot serves the light
and the dark theme.
"""

from __future__ import annotations

import html
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
_POINTS_PER_INCH = 72  # unit of the coordinates of an <svg> of matplotlib


@dataclass(frozen=True)
class Line:
    """Metric of a run, or of several runs that differ only in the seed."""

    steps: Sequence[float]  # updates
    values: Sequence[Sequence[float]]  # one row per seed, at `steps`; NaN for a missing value
    series: int = 0  # index of color and dashes
    name: str = ""  # name of the runs; empty if the plot has no other line


@dataclass(frozen=True)
class Points:
    """Success rates in [0, 1] by limit, with their intervals."""

    limits: Sequence[float]  # limits
    rates: Sequence[float]  # success rate at each limit
    lows: Sequence[float]  # lower ends of the 95 % intervals
    highs: Sequence[float]  # upper ends of the 95 % intervals
    series: int  # index of color and dashes


def style(series: int) -> tuple[str, Any]:
    """Return color and dashes of a series; the first 16 series all differ."""
    return COLORS[series % SERIES], _DASHES[(series + series // SERIES) % SERIES]


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
    lines: Sequence[Line],
    *,
    label: str,
    axis: str,
    rate: bool,
    phase_starts: Sequence[float] = (),
) -> str:
    """Plot training curves as running means, with raw points or the range over seeds.

    The values are in the attribute `data-curve`, from which a script of the page shows those under
    the pointer.

    Args:
        lines: one or more lines with at least one step each.
        label: description for screen readers.
        axis: name of the vertical axis; the horizontal axis is the update.
        rate: whether values are fractions in [0, 1], shown in percent with an axis from 0.
        phase_starts: updates at which a new phase begins; each has a vertical line.

    Returns:
        An <svg> element that scales with its container.
    """
    figure = Figure(figsize=(4.0, 2.3), layout="constrained")
    axes = figure.add_subplot()
    for start in phase_starts:
        axes.axvline(start, color=INK, linewidth=0.8, alpha=0.45, linestyle=(0, (2, 2)))
    scale = 100.0 if rate else 1.0
    for line in lines:
        _draw(axes, line, scale, is_single=len(lines) == 1)
    axes.margins(x=0.02, y=0.12)
    format_axes(axes, rate)
    _name_axes(axes, "update", axis)
    drawing = svg(figure, label)
    # The layout of the axes is known only after drawing.
    data = json.dumps(_curve_data(figure, axes, lines, rate), separators=(",", ":"))
    return drawing.replace("<svg ", f'<svg data-curve="{html.escape(data)}" ', 1)


def scaling(curves: Sequence[Points], *, label: str, axis: str) -> str:
    """Plot success rates by limit with bands of their intervals.

    Args:
        curves: one curve per stage.
        label: description for screen readers.
        axis: name of the horizontal axis.

    Returns:
        An <svg> element that scales with its container.
    """
    figure = Figure(figsize=(4.0, 2.3), layout="constrained")
    axes = figure.add_subplot()
    for points in curves:
        color, dashes = style(points.series)
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
            linestyle=dashes,
            linewidth=2.0,
        )
    axes.margins(x=0.04, y=0.12)
    format_axes(axes, rate=True)
    _name_axes(axes, axis, "success")
    return svg(figure, label)


def _draw(axes: Axes, line: Line, scale: float, *, is_single: bool) -> None:
    color, dashes = style(line.series)
    smooth_lines = smooth_line(line) * scale
    # One seed: raw points. Several: the range of their running means.
    if len(line.values) == 1:
        points = np.asarray(line.values[0], float) * scale
        point_color = INK if is_single else color
        axes.plot(
            line.steps,
            points,
            "o",
            color=point_color,
            markersize=3.2,
            alpha=0.45,
            markeredgewidth=0,
        )
    else:
        is_finite = np.isfinite(smooth_lines)
        # min and max ignore the infinities; a step without values has low > high and is not filled.
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


def _name_axes(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=9, color=INK, labelpad=3)
    axes.set_ylabel(y, fontsize=9, color=INK, labelpad=4)


def _curve_data(figure: Figure, axes: Axes, lines: Sequence[Line], rate: bool) -> dict[str, Any]:
    """Return the values of a drawn plot, and the map from values to coordinates of its <svg>.

    Coordinates are `offset + slope * value` with `x: [offset, slope]`, and `y` likewise.
    """
    width, height = (_POINTS_PER_INCH * inches for inches in figure.get_size_inches())
    box = axes.get_position()
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    x_slope = box.width * width / (right - left)
    y_slope = -box.height * height / (top - bottom)
    return {
        "x": [_round(box.x0 * width - x_slope * left), _round(x_slope)],
        "y": [_round((1 - box.y0) * height - y_slope * bottom), _round(y_slope)],
        "rate": rate,
        "lines": [_line_data(line, 100.0 if rate else 1.0) for line in lines],
    }


def _line_data(line: Line, scale: float) -> dict[str, Any]:
    mean = mean_over_seeds(smooth_line(line)) * scale
    # The values of several seeds at one update are not listed.
    values = [scale * value for value in line.values[0]] if len(line.values) == 1 else []
    return {
        "name": line.name,
        "series": line.series % SERIES,
        "steps": [_round(step) for step in line.steps],
        "mean": [_round(value) for value in mean],
        "values": [_round(value) for value in values],
    }


def _round(value: float) -> float | None:
    """Return six significant digits; None for a missing value."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


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
