"""Change-point detection: phases of a training run by the trend of its curves.

Each curve is divided by its noise level, estimated from the differences between updates. A phase is
a range of updates over which every curve is a straight line. Dynamic programming finds the optimal
segmentation for each number of phases (Bellman 1961; Bai & Perron 2003). The number of phases
minimizes the BIC

    sum of squared residuals / noise variance  +  parameters · log(points).

A phase has two parameters per curve, and one for its start. In three curves of white noise, flat or
rising, over 12 to 300 updates, at most 1 run of 100 has more than one phase.
"""

from __future__ import annotations

import numpy as np

MAX_POINTS = 400  # maximum points; longer runs are averaged to at most this number
MIN_PHASE_POINTS = 5  # minimum points of a phase; one twelfth of the run if that is more
MAX_PHASES = 6  # maximum number of phases


def find_change_points(curves: np.ndarray) -> list[int]:
    """Return the point indices at which the phases after the first begin; empty for one phase.

    Args:
        curves: finite values [M, n] of M curves at the same n updates.
    """
    n = curves.shape[1]
    if n < 2 * MIN_PHASE_POINTS:
        return []
    # Ceiling division; the costs of segmentation grow with the square of the number of points.
    stride = -(-n // MAX_POINTS)
    starts = np.arange(0, n, stride)
    # Block means [M, ceil(n / stride)]; the last block may be shorter.
    points = np.add.reduceat(curves, starts, axis=1) / np.diff([*starts, n])
    cuts = _segment(_normalize_noise(points), max(MIN_PHASE_POINTS, points.shape[1] // 12))
    return [int(starts[cut]) for cut in cuts]


def _normalize_noise(curves: np.ndarray) -> np.ndarray:
    """Return centered curves divided by their noise level; constant curves are only centered."""
    # Differences of independent points have twice their variance; a slow trend hardly matters.
    variance = np.mean(np.diff(curves, axis=1) ** 2, axis=1, keepdims=True) / 2
    centered = curves - curves.mean(axis=1, keepdims=True)
    return centered / np.sqrt(np.where(variance > 0, variance, 1.0))


def _segment(curves: np.ndarray, min_length: int) -> list[int]:
    m, n = curves.shape
    # Entry [i, j] is the cost of one phase over the points i to j - 1.
    residual = _residuals(curves)
    length = np.arange(n + 1)[None, :] - np.arange(n)[:, None]
    # Also excludes the empty and negative ranges below the diagonal.
    residual[length < min_length] = np.inf
    # Minimum cost of the points before each index, for the current number of phases.
    min_cost = np.full(n + 1, np.inf)
    min_cost[0] = 0.0
    starts, scores = [], []
    for phases in range(1, MAX_PHASES + 1):
        # Bellman's recursion: the best start i of the last phase, for each end j.
        total = min_cost[:n, None] + residual
        starts.append(total.argmin(axis=0))
        min_cost = total.min(axis=0)
        # BIC: two parameters per curve and phase, and one per change point.
        parameters = 2 * m * phases + phases - 1
        scores.append(min_cost[n] + parameters * np.log(m * n))
    cuts, end = [], n
    # Backtrack from the end: each phase begins where the previous one ends.
    for best_starts in reversed(starts[: int(np.argmin(scores)) + 1]):
        end = int(best_starts[end])
        cuts.append(end)
    # The last cut is 0, the start of the first phase.
    return cuts[-2::-1]


def _residuals(curves: np.ndarray) -> np.ndarray:
    """Return squared residuals [n, n + 1] of line fits to points i to j - 1, summed over curves."""
    n = curves.shape[1]
    x = np.arange(n, dtype=float)
    count = np.maximum(np.arange(n + 1)[None, :] - np.arange(n)[:, None], 1)
    sum_x, sum_xx = _range_sums(x), _range_sums(x * x)
    spread = sum_xx - sum_x**2 / count
    total = np.zeros((n, n + 1))
    for y in curves:
        sum_y = _range_sums(y)
        covariance = _range_sums(x * y) - sum_x * sum_y / count
        # Part of the variance that the line explains; none for a range of one point.
        explained = np.divide(
            covariance**2, spread, out=np.zeros_like(covariance), where=spread > 1e-9
        )
        # Rounding can make the residual of an exact fit negative.
        total += np.maximum(_range_sums(y * y) - sum_y**2 / count - explained, 0.0)
    return total


def _range_sums(values: np.ndarray) -> np.ndarray:
    """Return the sums [n, n + 1] of the values i to j - 1."""
    cumulative = np.concatenate([[0.0], np.cumsum(values)])
    return cumulative[None, :] - cumulative[:-1, None]
