"""Curves as SVG that a page can restyle: colours and the typeface are CSS variables.

The page sets `--ink`, `--faint` and `--accent`; so one drawing serves light and dark.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Sequence

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# matplotlib has to be told some colour; each stands for a variable and is replaced by it.
_VARIABLES = {"#010101": "--ink", "#020202": "--faint", "#030303": "--accent"}
_INK, _FAINT, _ACCENT = _VARIABLES


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


def curve(steps: Sequence[float], values: Sequence[float], *, label: str, rate: bool) -> str:
    """One training curve: raw points faint, a smoothed line over them.

    Args:
      steps: optimizer updates.
      values: one value per step; points that are not finite are left out.
      label: what it shows, for people who cannot see it.
      rate: the values are shares in [0, 1], shown in percent from 0 up.

    There must be at least one step. Returns an <svg> element that scales with its container.
    """
    figure = Figure(figsize=(4.0, 2.3), layout="constrained")
    axes = figure.add_subplot()
    scale = 100.0 if rate else 1.0
    points = np.asarray(values, float) * scale
    line = smooth(points, smoothing_window(len(points)))
    axes.plot(steps, points, "o", color=_INK, markersize=2.6, alpha=0.3, markeredgewidth=0)
    axes.plot(steps, line, color=_ACCENT, linewidth=2.0, solid_capstyle="round")
    axes.margins(x=0.02, y=0.12)
    if rate:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.yaxis.set_major_formatter(lambda tick, _: f"{tick:g}%")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=9, labelcolor=_INK)
    return _svg(figure, label)


def _svg(figure: Figure, label: str) -> str:
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
