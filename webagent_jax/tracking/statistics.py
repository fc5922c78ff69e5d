"""How sure a success rate is: intervals and tests for 0/1 outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from webagent_jax.types import Spread

K = TypeVar("K")

Interval = tuple[float, float]

Z95 = 1.959963984540054  # 97.5 % quantile of the standard normal


def wilson(successes: int, n: int) -> Interval:
    """95 % score interval of a success rate (Wilson 1927).

    Unlike the normal approximation it stays inside [0, 1] and says something at 0 and n successes.
    Without trials nothing is known: (0, 1). Raises ValueError unless 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must be in [0, n], not {successes} of {n}")
    if n == 0:
        return 0.0, 1.0
    rate, z2 = successes / n, Z95**2
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


def pass_at_k(successes: int, n: int, k: int) -> float:
    """Chance that at least one of k attempts succeeds, estimated without bias from n of them.

    1 - C(n - c, k) / C(n, k) with c successes (Chen et al. 2021, arXiv 2107.03374, equation 1).
    Raises ValueError unless 0 <= successes <= n and 1 <= k <= n.
    """
    if not 0 <= successes <= n or not 1 <= k <= n:
        raise ValueError(f"cannot estimate pass@{k} from {successes} successes of {n} attempts")
    return 1.0 - math.comb(n - successes, k) / math.comb(n, k)


def bootstrap(values: Sequence[float], seed: int = 0, samples: int = 10_000) -> Interval:
    """95 % interval of a mean of rates, one per task, that sees what tasks happen to be there.

    Percentile bootstrap over tasks (Efron 1979): attempts at one task are alike, so tasks are drawn
    and never attempts. Resampling sees no spread where all tasks failed or all succeeded: the score
    interval stands in there. Without tasks nothing is known: (0, 1).

    Args:
      values: in [0, 1].
      seed: of the drawing.
      samples: how many times as many tasks as there are are drawn with replacement.
    """
    n = len(values)
    if n == 0 or set(values) in ({0.0}, {1.0}):
        return wilson(round(sum(values)), n)
    levels, counts = np.unique(np.asarray(values, float), return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(n, counts / n, size=samples)
    low, high = np.quantile(drawn @ levels / n, [0.025, 0.975])
    return float(low), float(high)


def spread(values: Sequence[float]) -> Spread:
    """Zeros without values."""
    if not values:
        return Spread()
    p50, p90 = np.quantile(values, [0.5, 0.9])
    return Spread(float(np.mean(values)), float(p50), float(p90), float(max(values)))


@dataclass(frozen=True, slots=True)
class Paired(Generic[K]):
    """One side held against the other, over what both have an outcome of."""

    shared: Sequence[K]  # keys of both, in the order of the first
    difference: float  # success rate of the first side minus that of the second
    ci95: Interval
    p: float

    @property
    def n(self) -> int:
        return len(self.shared)


def paired(a: Mapping[K, float], b: Mapping[K, float]) -> Paired[K]:
    """Compares 0/1 outcomes by what they are the outcomes of: as `paired_difference`, `mcnemar_p`.

    Where nothing is shared nothing is known, which the interval says: (-1, 1).
    """
    shared = [key for key in a if key in b]
    outcomes = [a[key] for key in shared], [b[key] for key in shared]
    difference, ci95 = paired_difference(*outcomes)
    return Paired(shared, difference, ci95, mcnemar_p(*outcomes))


def paired_difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, Interval]:
    """Success rate of `a` minus that of `b` over the same tasks, and its 95 % interval.

    The interval is the score interval for paired proportions (Tango 1998): the differences D
    that |score(D)| <= z does not reject. It uses the discordant tasks only, so tasks that both
    solve, or neither, do not widen it as they would in an unpaired comparison.

    Args:
      a: 0/1 outcomes, one per task.
      b: 0/1 outcomes of the same tasks in the same order.

    Raises ValueError when the lengths differ, and for outcomes other than 0 and 1.
    """
    gained, lost = _discordant(a, b)
    n = len(a)
    if n == 0:
        return 0.0, (-1.0, 1.0)
    difference = (gained - lost) / n

    def score(delta: float) -> float:
        return _tango_score(gained, lost, n, delta)

    low = _falling_root(lambda delta: score(delta) - Z95, -1.0, difference)
    high = _falling_root(lambda delta: score(delta) + Z95, difference, 1.0)
    return difference, (low, high)


def mcnemar_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Exact two-sided p value of the hypothesis that `a` and `b` succeed equally often.

    McNemar's test as a binomial test: of the tasks that exactly one side solved, each side is
    expected to have solved half. 1 when there are none. Raises ValueError as paired_difference.
    """
    gained, lost = _discordant(a, b)
    n = gained + lost
    tail = sum(math.comb(n, k) for k in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / (1 << n))


def _discordant(a: Sequence[float], b: Sequence[float]) -> tuple[int, int]:
    """How many tasks `a` alone solved, and `b` alone."""
    if len(a) != len(b):
        raise ValueError(f"outcomes are not paired: {len(a)} of one side, {len(b)} of the other")
    if any(outcome not in (0, 1) for outcome in (*a, *b)):
        raise ValueError("outcomes must be 0 or 1; leave out tasks without a reward")
    pairs = list(zip(a, b, strict=True))
    return pairs.count((1, 0)), pairs.count((0, 1))


def _tango_score(gained: int, lost: int, n: int, delta: float) -> float:
    """Standardised distance of the observed difference from `delta`; falls with `delta`.

    The variance is taken at the maximum-likelihood probability q of a loss given `delta`
    (Tango 1998, equations 8 to 11).
    """
    distance = gained - lost - n * delta
    linear = -gained - lost + (2 * n - gained + lost) * delta
    constant = -lost * delta * (1 - delta)
    root = math.sqrt(max(linear**2 - 8 * n * constant, 0.0))
    q = (root - linear) / (4 * n)
    variance = n * (2 * q + delta * (1 - delta))
    if variance <= 0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)


def _falling_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses zero in [low, high]; the nearer end when it does not."""
    for _ in range(60):
        middle = (low + high) / 2
        if function(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
