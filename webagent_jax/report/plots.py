"""Curves as SVG that a page can restyle: colours and the typeface are CSS variables.

The page sets `--ink`, `--faint` and `--series-0` to `--series-3`: one drawing for light and dark.
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

# matplotlib has to be told some colour; each stands for a variable and is replaced by it.
INK, _FAINT = "#010101", "#020202"
COLOURS = ("#030303", "#040404", "#050505", "#060606")
_DASHES = (
    "-",
    (0, (4, 1.5)),
    (0, (1.5, 1.2)),
    (0, (5, 1.5, 1, 1.5)),
)  # colour is not the only sign
_VARIABLES = {INK: "--ink", _FAINT: "--faint"} | {
    colour: f"--series-{i}" for i, colour in enumerate(COLOURS)
}
SERIES = len(COLOURS)


@dataclass(frozen=True)
class Line:
    """One curve, or several of the same thing with different seeds.

    `values` holds one row for each seed, all at the same `steps`; NaN where a seed has no value.
    """

    steps: Sequence[float]
    values: Sequence[Sequence[float]]
    series: int = 0  # its colour and dashes


@dataclass(frozen=True)
class Points:
    """Rates in [0, 1] at some limit, with their intervals."""

    at: Sequence[float]
    rates: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    series: int = 0


def smoothing_window(n: int) -> int:
    """Points under the running mean of a curve of `n` points."""
    return max(3, n // 6)


def smooth(values: npt.ArrayLike, window: int) -> np.ndarray:
    """Centred running mean over `window` points, fewer at the ends; NaN counts as absent.

    Returns an array of the same length; NaN where a whole window is absent.
    """
    array = np.asarray(values, float)
    known = np.isfinite(array)
    box = np.ones(window | 1)
    half = len(box) // 2

    def windowed_sum(x: np.ndarray) -> np.ndarray:
        return np.convolve(np.pad(x, half), box, mode="valid")

    count = windowed_sum(known.astype(float))
    total = windowed_sum(np.where(known, array, 0.0))
    return np.divide(total, count, out=np.full(len(array), math.nan), where=count > 0)


def smoothed(line: Line) -> np.ndarray:
    """[seeds, steps] running means."""
    window = smoothing_window(len(line.steps))
    return np.stack([smooth(values, window) for values in line.values])


def mean_over_seeds(values: np.ndarray) -> np.ndarray:
    """[steps] mean of those that have a value; NaN where none has."""
    known = np.isfinite(values)
    total, count = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    return np.divide(total, count, out=np.full(values.shape[1], math.nan), where=count > 0)


def curves(lines: Sequence[Line], *, label: str, rate: bool, phases: Sequence[float] = ()) -> str:
    """Training curves: the running mean of each line over its raw points, or over its seeds' range.

    Args:
      lines: at least one, with at least one step each.
      label: what they show, for people who cannot see them.
      rate: the values are shares in [0, 1], shown in percent from 0 up.
      phases: updates at which a new phase begins; each gets an upright line.

    Returns an <svg> element that scales with its container.
    """
    figure = Figure(figsize=(4.0, 2.3), layout="constrained")
    axes = figure.add_subplot()
    for begin in phases:
        axes.axvline(begin, color=INK, linewidth=0.8, alpha=0.45, linestyle=(0, (2, 2)))
    for line in lines:
        _draw(axes, line, 100.0 if rate else 1.0)
    axes.margins(x=0.02, y=0.12)
    dress(axes, rate)
    return svg(figure, label)


def scaling(curves: Sequence[Points], *, label: str) -> str:
    """Success against a limit, each with the band of its intervals. Returns an <svg> element."""
    figure = Figure(figsize=(4.0, 2.3), layout="constrained")
    axes = figure.add_subplot()
    for points in curves:
        colour = COLOURS[points.series % SERIES]
        lows, rates, highs = (
            100 * np.asarray(v) for v in (points.lows, points.rates, points.highs)
        )
        axes.fill_between(points.at, lows, highs, color=colour, alpha=0.14, linewidth=0)
        axes.plot(
            points.at,
            rates,
            marker="o",
            markersize=4,
            color=colour,
            linestyle=_DASHES[points.series % SERIES],
            linewidth=2.0,
        )
    axes.margins(x=0.04, y=0.12)
    dress(axes, rate=True)
    return svg(figure, label)


def _draw(axes: Axes, line: Line, scale: float) -> None:
    colour, dashes = COLOURS[line.series % SERIES], _DASHES[line.series % SERIES]
    smooth_lines = smoothed(line) * scale
    if len(line.values) == 1:
        points = np.asarray(line.values[0], float) * scale
        axes.plot(line.steps, points, "o", color=INK, markersize=3.2, alpha=0.45, markeredgewidth=0)
    else:
        known = np.isfinite(smooth_lines)
        low = np.where(known, smooth_lines, np.inf).min(axis=0)
        high = np.where(known, smooth_lines, -np.inf).max(axis=0)
        axes.fill_between(
            line.steps, low, high, where=low <= high, color=colour, alpha=0.16, linewidth=0
        )
    axes.plot(
        line.steps, mean_over_seeds(smooth_lines), color=colour, linestyle=dashes, linewidth=2.0
    )


def dress(axes: Axes, rate: bool) -> None:
    if rate:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.yaxis.set_major_formatter(lambda tick, _: f"{tick:g}%")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)


def svg(figure: Figure, label: str) -> str:
    buffer = io.StringIO()
    # The salt makes ids unique over the drawings of a page, and the same from build to build.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    # Of matplotlib's ids and styles only those that the drawing itself refers to may stay: they
    # would be the whole page's.
    drawing = re.sub(r"<(metadata|style).*?</\1>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'<g id="[^"]*"', "<g", drawing)
    drawing = re.sub(r"font-family: [^;]*;", "font-family: inherit;", drawing)
    for colour, variable in _VARIABLES.items():
        drawing = drawing.replace(colour, f"var({variable})")
    head, body = drawing.split(">", 1)
    view_box = re.search(r'viewBox="[^"]*"', head)
    assert view_box is not None, "matplotlib wrote an <svg> without a viewBox"
    return f'<svg {view_box[0]} role="img" aria-label="{html.escape(label)}">{body}'
