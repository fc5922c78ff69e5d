"""Confidence intervals and tests for 0/1 outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from webagent_jax.types import SummaryStats

K = TypeVar("K")

Interval = tuple[float, float]

Z95 = 1.959963984540054  # 97.5 % quantile of the standard normal


def wilson(successes: float, n: int) -> Interval:
    """Return the 95 % score interval of a success rate (Wilson 1927); (0, 1) without trials.

    Unlike the normal approximation it stays inside [0, 1] and has a width at 0 and n successes.

    Args:
        successes: number of successes, or the sum of n rates in [0, 1]. Rates vary less than 0/1
            outcomes, so their interval is conservative.
        n: number of trials.

    Raises:
        ValueError: `successes` is not in [0, n].
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must be in [0, n], not {successes} of {n}")
    if n == 0:
        return 0.0, 1.0
    rate, z2 = successes / n, Z95**2
    # The rates p with |rate - p| <= z sqrt(p (1 - p) / n) are center ± half.
    center = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    # Exact at the bounds, where rounding leaves a difference.
    low = 0.0 if successes == 0 else center - half
    high = 1.0 if successes == n else center + half
    return low, high


def pass_at_k(successes: int, n: int, k: int) -> float:
    """Return the unbiased estimate of pass@k from n attempts: at least one of k succeeds.

    1 - C(n - c, k) / C(n, k) with c successes (Chen et al. 2021, arXiv 2107.03374, equation 1).

    Raises:
        ValueError: 0 <= successes <= n and 1 <= k <= n does not hold.
    """
    if not 0 <= successes <= n or not 1 <= k <= n:
        raise ValueError(f"cannot estimate pass@{k} from {successes} successes of {n} attempts")
    return 1.0 - math.comb(n - successes, k) / math.comb(n, k)


def bootstrap(values: Sequence[float], seed: int = 0, samples: int = 10_000) -> Interval:
    """Return the 95 % bootstrap interval of the mean of one rate per task; (0, 1) without tasks.

    Percentile bootstrap over tasks (Efron 1979): attempts at one task are correlated, so tasks are
    resampled, not attempts. Resampling has no spread if all rates are equal; the score interval
    replaces it then.

    Args:
        values: rates in [0, 1].
        seed: random seed of the resampling.
        samples: number of bootstrap samples.
    """
    n = len(values)
    if len(set(values)) <= 1:
        return wilson(n * values[0] if values else 0, n)
    # There are few distinct rates: one multinomial draw per sample replaces n indices.
    levels, counts = np.unique(np.asarray(values, float), return_counts=True)
    resampled = np.random.default_rng(seed).multinomial(n, counts / n, size=samples)
    # [samples, levels] @ [levels] / n is the mean of each sample.
    low, high = np.quantile(resampled @ levels / n, [0.025, 0.975])
    return float(low), float(high)


def summary_stats(values: Sequence[float]) -> SummaryStats:
    """Return mean, median, 90 % quantile and maximum; zeros without values."""
    if not values:
        return SummaryStats()
    p50, p90 = np.quantile(values, [0.5, 0.9])
    return SummaryStats(float(np.mean(values)), float(p50), float(p90), float(max(values)))


@dataclass(frozen=True, slots=True)
class PairedResult(Generic[K]):
    """Paired comparison of two sets of 0/1 outcomes over their common keys."""

    common_keys: Sequence[K]  # common keys, in the order of the first side
    difference: float  # success rate of the first side minus that of the second
    ci95: Interval  # Tango's score interval of the difference
    p: float  # exact two-sided McNemar p value

    @property
    def n(self) -> int:
        """Number of common keys."""
        return len(self.common_keys)


def compare_paired(a: Mapping[K, float], b: Mapping[K, float]) -> PairedResult[K]:
    """Compare 0/1 outcomes by key with `paired_difference` and `mcnemar_p`.

    Without common keys the interval is (-1, 1).
    """
    shared = [key for key in a if key in b]
    outcomes = [a[key] for key in shared], [b[key] for key in shared]
    difference, ci95 = paired_difference(*outcomes)
    return PairedResult(shared, difference, ci95, mcnemar_p(*outcomes))


def paired_difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, Interval]:
    """Return the success rate of `a` minus that of `b`, and its 95 % interval.

    The score interval for paired proportions (Tango 1998): the differences D with |score(D)| <= z.
    It uses the discordant tasks only. Unlike in an unpaired comparison, tasks that both sides solve
    or fail do not widen it.

    Args:
        a: 0/1 outcomes, one per task.
        b: 0/1 outcomes of the same tasks in the same order.

    Raises:
        ValueError: the lengths differ, or an outcome is neither 0 nor 1.
    """
    num_gained, num_lost = _discordant(a, b)
    n = len(a)
    if n == 0:
        return 0.0, (-1.0, 1.0)
    difference = (num_gained - num_lost) / n

    def score(delta: float) -> float:
        return _tango_score(num_gained, num_lost, n, delta)

    # The score decreases in delta: it is +z at the lower bound and -z at the upper bound.
    low = _decreasing_root(lambda delta: score(delta) - Z95, -1.0, difference)
    high = _decreasing_root(lambda delta: score(delta) + Z95, difference, 1.0)
    return difference, (low, high)


def mcnemar_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the exact two-sided p value of equal success rates of `a` and `b`.

    McNemar's test as a binomial test: under the hypothesis each side solves half of the tasks that
    exactly one side solved. The p value is 1 without such tasks.

    Raises:
        ValueError: the lengths differ, or an outcome is neither 0 nor 1.
    """
    num_gained, num_lost = _discordant(a, b)
    n = num_gained + num_lost
    tail = sum(math.comb(n, k) for k in range(min(num_gained, num_lost) + 1))
    # Integers of any size: 0.5 ** n is 0 for large n.
    return min(1.0, 2 * tail / (1 << n))


def _discordant(a: Sequence[float], b: Sequence[float]) -> tuple[int, int]:
    """Return the number of tasks that only `a` solved, and that only `b` solved."""
    if len(a) != len(b):
        raise ValueError(f"outcomes are not paired: {len(a)} of one side, {len(b)} of the other")
    if any(outcome not in (0, 1) for outcome in (*a, *b)):
        raise ValueError("outcomes must be 0 or 1: omit tasks without a reward")
    pairs = list(zip(a, b, strict=True))
    return pairs.count((1, 0)), pairs.count((0, 1))


def _tango_score(num_gained: int, num_lost: int, n: int, delta: float) -> float:
    """Return the standardized distance of the difference from `delta`; decreasing in `delta`.

    The variance uses the maximum-likelihood probability q of a loss given `delta`
    (Tango 1998, equations 8 to 11).
    """
    distance = num_gained - num_lost - n * delta
    linear = -num_gained - num_lost + (2 * n - num_gained + num_lost) * delta
    constant = -num_lost * delta * (1 - delta)
    # q is the larger root of 2 n q² + linear q + constant = 0; max removes rounding errors below 0.
    root = math.sqrt(max(linear**2 - 8 * n * constant, 0.0))
    q = (root - linear) / (4 * n)
    variance = n * (2 * q + delta * (1 - delta))
    # The limit of the score as the variance approaches 0.
    if variance <= 0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)


def _decreasing_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a decreasing function in [low, high]; the nearer end without a root."""
    # An interval of length 2 halves to less than the resolution of float64 at 1.
    for _ in range(60):
        middle = (low + high) / 2
        if function(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
