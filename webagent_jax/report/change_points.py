"""Phases of a training run: where the trend of its curves changes.

The rule. Each curve is divided by the size of its noise, which its differences from update to
update tell. A phase is a stretch over which every curve is a straight line of its own. Of all ways
to cut the updates into phases the best for each number of them is found exactly, by dynamic
programming (as Bellman 1961 and Bai & Perron 2003 do), and the number is the one with the least

    sum of squared residuals / noise variance  +  parameters · log(points)      (BIC),

a phase having two parameters for each curve, and one for where it begins. In three curves of white
noise, flat or rising, over 12 to 300 updates, phases are found in at most 1 run of 100.
"""

from __future__ import annotations

import numpy as np

LONGEST = 400  # points; a longer run is averaged down to so many
SHORTEST_PHASE = 5  # points, or a twelfth of the run
MOST_PHASES = 6


def begin_at(curves: np.ndarray) -> list[int]:
    """Where the second and every later phase begin, as indices of points; empty when there is one.

    Args:
      curves: [M, n] finite values of M curves at the same n updates.
    """
    n = curves.shape[1]
    if n < 2 * SHORTEST_PHASE:
        return []
    stride = -(-n // LONGEST)
    starts = np.arange(0, n, stride)
    points = np.add.reduceat(curves, starts, axis=1) / np.diff([*starts, n])
    cuts = _cuts(_in_units_of_noise(points), max(SHORTEST_PHASE, points.shape[1] // 12))
    return [int(starts[cut]) for cut in cuts]


def _in_units_of_noise(curves: np.ndarray) -> np.ndarray:
    """A curve that never changes stays as it is."""
    variance = np.mean(np.diff(curves, axis=1) ** 2, axis=1, keepdims=True) / 2
    centred = curves - curves.mean(axis=1, keepdims=True)
    return centred / np.sqrt(np.where(variance > 0, variance, 1.0))


def _cuts(curves: np.ndarray, shortest: int) -> list[int]:
    m, n = curves.shape
    residual = _residuals(curves)
    length = np.arange(n + 1)[None, :] - np.arange(n)[:, None]
    residual[length < shortest] = np.inf
    cheapest = np.full(n + 1, np.inf)  # cost of the points before each index, in so many phases
    cheapest[0] = 0.0
    begins, scores = [], []
    for phases in range(1, MOST_PHASES + 1):
        total = cheapest[:n, None] + residual
        begins.append(total.argmin(axis=0))
        cheapest = total.min(axis=0)
        parameters = 2 * m * phases + phases - 1
        scores.append(cheapest[n] + parameters * np.log(m * n))
    cuts, end = [], n
    for begin in reversed(begins[: int(np.argmin(scores)) + 1]):
        end = int(begin[end])
        cuts.append(end)
    return cuts[-2::-1]  # in order, less the 0 of the first phase


def _residuals(curves: np.ndarray) -> np.ndarray:
    """[n, n + 1] squared residuals of the best lines through the points i to j - 1, all curves."""
    n = curves.shape[1]
    x = np.arange(n, dtype=float)
    count = np.maximum(np.arange(n + 1)[None, :] - np.arange(n)[:, None], 1)
    sum_x, sum_xx = _between(x), _between(x * x)
    spread = sum_xx - sum_x**2 / count
    total = np.zeros((n, n + 1))
    for y in curves:
        sum_y = _between(y)
        along = _between(x * y) - sum_x * sum_y / count
        explained = np.divide(along**2, spread, out=np.zeros_like(along), where=spread > 1e-9)
        total += np.maximum(_between(y * y) - sum_y**2 / count - explained, 0.0)
    return total


def _between(values: np.ndarray) -> np.ndarray:
    """[n, n + 1] sums of the values i to j - 1."""
    before = np.concatenate([[0.0], np.cumsum(values)])
    return before[None, :] - before[:-1, None]
