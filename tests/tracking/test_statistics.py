"""Tests of intervals and significance tests."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from webagent_jax.tracking import statistics


@pytest.mark.parametrize("successes, n", [(0, 10), (1, 10), (5, 10), (74, 165), (150, 150), (1, 1)])
def test_wilson_matches_scipy(successes: int, n: int) -> None:
    expected = stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    assert statistics.wilson(successes, n) == pytest.approx(tuple(expected), abs=1e-12)


def test_wilson_without_trials_is_unit_interval() -> None:
    assert statistics.wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("successes, n", [(-1, 3), (4, 3)])
def test_wilson_rejects_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="successes"):
        statistics.wilson(successes, n)


# Newcombe 1998, Statistics in Medicine 17, table I, method 3.
@pytest.mark.parametrize(
    "successes, n, low, high",
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)],
)
def test_wilson_matches_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert statistics.wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_at_k_matches_enumeration(n: int) -> None:
    for successes in range(n + 1):
        attempts = [1] * successes + [0] * (n - successes)
        for k in range(1, n + 1):
            samples = [max(sample) for sample in itertools.combinations(attempts, k)]
            assert statistics.pass_at_k(successes, n, k) == pytest.approx(np.mean(samples))


def test_pass_at_k_matches_product_formula() -> None:
    n, successes = 200, 13
    for k in (1, 10, 100, 187, 188, 200):
        factors = np.arange(n - successes + 1, n + 1)
        product = 1.0 - np.prod(1.0 - k / factors) if n - successes >= k else 1.0
        assert statistics.pass_at_k(successes, n, k) == pytest.approx(float(product))


def test_pass_at_k_is_unbiased() -> None:
    success_rate, n, k = 0.3, 5, 3
    expected = sum(
        stats.binom.pmf(successes, n, success_rate) * statistics.pass_at_k(successes, n, k)
        for successes in range(n + 1)
    )
    assert expected == pytest.approx(1 - (1 - success_rate) ** k)


@pytest.mark.parametrize("successes, n, k", [(1, 4, 5), (1, 4, 0), (5, 4, 1), (-1, 4, 1)])
def test_pass_at_k_rejects_invalid_arguments(successes: int, n: int, k: int) -> None:
    with pytest.raises(ValueError, match="cannot estimate"):
        statistics.pass_at_k(successes, n, k)


@pytest.mark.parametrize("tasks", [40, 165])
def test_bootstrap_matches_scipy(tasks: int) -> None:
    values = np.random.default_rng(tasks).choice(
        [0.0, 0.25, 0.5, 1.0], tasks, p=[0.4, 0.3, 0.1, 0.2]
    )
    expected = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert statistics.bootstrap(values.tolist()) == pytest.approx(tuple(expected), abs=0.006)


def test_bootstrap_of_binary_outcomes_matches_binomial() -> None:
    """Resampled 0/1 outcomes are binomial, so the quantiles of their mean are known exactly."""
    n, successes = 165, 74
    expected = stats.binom.ppf([0.025, 0.975], n, successes / n) / n
    actual = statistics.bootstrap([1.0] * successes + [0.0] * (n - successes), samples=200_000)
    assert actual == pytest.approx(tuple(expected), abs=1e-9)


def test_bootstrap_is_deterministic_per_seed() -> None:
    values = np.random.default_rng(0).random(50).tolist()
    assert statistics.bootstrap(values) == statistics.bootstrap(values)
    assert statistics.bootstrap(values) != statistics.bootstrap(values, seed=1)


@pytest.mark.parametrize("value, successes", [(0.0, 0), (0.5, 6), (0.25, 3), (1.0, 12)])
def test_bootstrap_of_equal_values_equals_wilson(value: float, successes: int) -> None:
    assert statistics.bootstrap([value] * 12) == statistics.wilson(successes, 12)


def test_bootstrap_without_tasks_is_unit_interval() -> None:
    assert statistics.bootstrap([]) == (0.0, 1.0)


def test_summary_stats_match_expected_values() -> None:
    summary = statistics.summary_stats([1, 2, 3, 10])
    assert (summary.mean, summary.p50, summary.max) == (4.0, 2.5, 10.0)
    assert summary.p90 == pytest.approx(7.9)
    assert statistics.summary_stats([]).max == 0.0


def make_outcomes(both: int, wins: int, losses: int, neither: int) -> tuple[list[int], list[int]]:
    a = [1] * both + [1] * wins + [0] * losses + [0] * neither
    b = [1] * both + [0] * wins + [1] * losses + [0] * neither
    return a, b


def restricted_score(wins: int, losses: int, n: int, delta: float) -> float:
    """Compute Tango's statistic with a numerical maximum likelihood instead of the formula."""

    def minus_log_likelihood(q: float) -> float:
        p_win, p_tie = q + delta, 1 - 2 * q - delta
        counts = np.array([wins, losses, n - wins - losses])
        probabilities = np.clip([p_win, q, p_tie], 1e-300, 1)
        return -float(np.sum(counts * np.log(probabilities)))

    low, high = max(0.0, -delta), (1 - delta) / 2
    q = optimize.minimize_scalar(
        minus_log_likelihood, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    ).x
    return (wins - losses - n * delta) / np.sqrt(n * (2 * q + delta * (1 - delta)))


@pytest.mark.parametrize(
    "counts", [(60, 25, 10, 70), (5, 9, 1, 5), (3, 0, 6, 1), (40, 30, 30, 40), (0, 2, 2, 0)]
)
def test_paired_interval_ends_invert_score_test(
    counts: tuple[int, int, int, int],
) -> None:
    a, b = make_outcomes(*counts)
    difference, (low, high) = statistics.paired_difference(a, b)
    assert difference == pytest.approx(np.mean(a) - np.mean(b))
    assert -1 <= low < difference < high <= 1
    _, wins, losses, _ = counts
    for end, z in ((low, 1.959964), (high, -1.959964)):
        assert restricted_score(wins, losses, len(a), end) == pytest.approx(z, abs=1e-3)


def test_paired_interval_without_discordance_is_closed_form() -> None:
    n, z2 = 50, statistics.Z95**2
    _, interval = statistics.paired_difference(*make_outcomes(20, 0, 0, 30))
    assert interval == pytest.approx((-z2 / (n + z2), z2 / (n + z2)), abs=1e-9)


def test_paired_difference_is_antisymmetric() -> None:
    a, b = make_outcomes(11, 8, 3, 9)
    difference, (low, high) = statistics.paired_difference(a, b)
    swapped_difference, (swapped_low, swapped_high) = statistics.paired_difference(b, a)
    assert (swapped_difference, swapped_low, swapped_high) == pytest.approx(
        (-difference, -high, -low)
    )


def test_paired_interval_for_all_wins_is_closed_form() -> None:
    n, z2 = 10, statistics.Z95**2
    difference, interval = statistics.paired_difference(*make_outcomes(0, n, 0, 0))
    assert difference == 1
    assert interval == pytest.approx(((n - z2) / (n + z2), 1.0), abs=1e-9)


def test_paired_statistics_without_tasks_are_uninformative() -> None:
    assert statistics.paired_difference([], []) == (0.0, (-1.0, 1.0))
    assert statistics.mcnemar_p([], []) == 1.0


@pytest.mark.parametrize("wins, losses", [(0, 0), (5, 5), (1, 9), (25, 10), (0, 7), (700, 600)])
def test_mcnemar_matches_scipy_binomial_test(wins: int, losses: int) -> None:
    a, b = make_outcomes(4, wins, losses, 6)
    num_discordant = wins + losses
    expected = stats.binomtest(wins, num_discordant).pvalue if num_discordant else 1.0
    assert statistics.mcnemar_p(a, b) == pytest.approx(expected)


def test_mcnemar_matches_textbook_table() -> None:
    """Agresti, Categorical Data Analysis, approval of a prime minister: 150 and 86 discordant."""
    a, b = make_outcomes(794, 150, 86, 570)
    assert statistics.mcnemar_p(a, b) == pytest.approx(3.716e-5, rel=1e-3)
    tail = sum(math.comb(236, k) for k in range(87)) / 2**235
    assert statistics.mcnemar_p(a, b) == pytest.approx(tail)
    difference, (low, high) = statistics.paired_difference(a, b)
    assert difference == pytest.approx(0.04)
    assert (low, high) == pytest.approx((0.02, 0.06), abs=2e-3)  # as published


def test_paired_uses_shared_tasks_in_any_order() -> None:
    result = statistics.compare_paired(
        {"a": 1, "b": 0, "c": 1, "d": 0}, {"d": 0, "x": 1, "c": 0, "a": 1}
    )
    assert (result.common_keys, result.n) == (["a", "c", "d"], 3)
    pairs = [1, 1, 0], [1, 0, 0]
    assert (result.difference, result.ci95) == statistics.paired_difference(*pairs)
    assert result.p == statistics.mcnemar_p(*pairs)


def test_paired_without_shared_tasks_is_uninformative() -> None:
    result = statistics.compare_paired({"a": 1}, {"b": 1})
    assert (result.n, result.difference, result.ci95, result.p) == (0, 0.0, (-1.0, 1.0), 1.0)


def test_paired_statistics_reject_invalid_outcomes() -> None:
    with pytest.raises(ValueError, match="not paired"):
        statistics.paired_difference([1, 0], [1])
    with pytest.raises(ValueError, match="0 or 1"):
        statistics.mcnemar_p([0.5], [1])
