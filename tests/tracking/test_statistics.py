from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from webagent_jax.tracking import statistics


@pytest.mark.parametrize("successes, n", [(0, 10), (1, 10), (5, 10), (74, 165), (150, 150), (1, 1)])
def test_wilson_is_scipys(successes: int, n: int) -> None:
    expected = stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    assert statistics.wilson(successes, n) == pytest.approx(tuple(expected), abs=1e-12)


def test_wilson_knows_nothing_without_trials() -> None:
    assert statistics.wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("successes, n", [(-1, 3), (4, 3)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="successes"):
        statistics.wilson(successes, n)


# Newcombe 1998, Statistics in Medicine 17, table I, method 3.
@pytest.mark.parametrize(
    "successes, n, low, high",
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)],
)
def test_wilson_is_as_published(successes: int, n: int, low: float, high: float) -> None:
    assert statistics.wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_at_k_is_the_share_of_choices_with_a_success(n: int) -> None:
    for successes in range(n + 1):
        attempts = [1] * successes + [0] * (n - successes)
        for k in range(1, n + 1):
            chosen = [max(some) for some in itertools.combinations(attempts, k)]
            assert statistics.pass_at_k(successes, n, k) == pytest.approx(np.mean(chosen))


def test_pass_at_k_is_the_product_that_its_paper_computes() -> None:
    n, successes = 200, 13
    for k in (1, 10, 100, 187, 188, 200):
        left = np.arange(n - successes + 1, n + 1)
        product = 1.0 - np.prod(1.0 - k / left) if n - successes >= k else 1.0
        assert statistics.pass_at_k(successes, n, k) == pytest.approx(float(product))


def test_pass_at_k_does_not_lean_to_either_side() -> None:
    chance, n, k = 0.3, 5, 3
    expected = sum(
        stats.binom.pmf(successes, n, chance) * statistics.pass_at_k(successes, n, k)
        for successes in range(n + 1)
    )
    assert expected == pytest.approx(1 - (1 - chance) ** k)


@pytest.mark.parametrize("successes, n, k", [(1, 4, 5), (1, 4, 0), (5, 4, 1), (-1, 4, 1)])
def test_pass_at_k_refuses_what_cannot_be_estimated(successes: int, n: int, k: int) -> None:
    with pytest.raises(ValueError, match="cannot estimate"):
        statistics.pass_at_k(successes, n, k)


@pytest.mark.parametrize("tasks", [40, 165])
def test_bootstrap_is_scipys(tasks: int) -> None:
    values = np.random.default_rng(tasks).choice(
        [0.0, 0.25, 0.5, 1.0], tasks, p=[0.4, 0.3, 0.1, 0.2]
    )
    expected = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert statistics.bootstrap(values.tolist()) == pytest.approx(tuple(expected), abs=0.006)


def test_bootstrap_of_single_attempts_is_the_binomials() -> None:
    """Resampled 0/1 outcomes are binomial, so the quantiles of their mean are known exactly."""
    n, successes = 165, 74
    expected = stats.binom.ppf([0.025, 0.975], n, successes / n) / n
    found = statistics.bootstrap([1.0] * successes + [0.0] * (n - successes), samples=200_000)
    assert found == pytest.approx(tuple(expected), abs=1e-9)


def test_bootstrap_says_the_same_twice_and_follows_its_seed() -> None:
    values = np.random.default_rng(0).random(50).tolist()
    assert statistics.bootstrap(values) == statistics.bootstrap(values)
    assert statistics.bootstrap(values) != statistics.bootstrap(values, seed=1)


@pytest.mark.parametrize("value, successes", [(0.0, 0), (1.0, 12)])
def test_where_all_tasks_agree_the_score_interval_stands_in(value: float, successes: int) -> None:
    assert statistics.bootstrap([value] * 12) == statistics.wilson(successes, 12)


def test_bootstrap_knows_nothing_without_tasks() -> None:
    assert statistics.bootstrap([]) == (0.0, 1.0)


def test_spread() -> None:
    spread = statistics.summary_stats([1, 2, 3, 10])
    assert (spread.mean, spread.p50, spread.max) == (4.0, 2.5, 10.0)
    assert spread.p90 == pytest.approx(7.9)
    assert statistics.summary_stats([]).max == 0.0


def outcomes(both: int, gained: int, lost: int, neither: int) -> tuple[list[int], list[int]]:
    a = [1] * both + [1] * gained + [0] * lost + [0] * neither
    b = [1] * both + [0] * gained + [1] * lost + [0] * neither
    return a, b


def restricted_score(gained: int, lost: int, n: int, delta: float) -> float:
    """Tango's statistic with its maximum likelihood found by search instead of by formula."""

    def minus_log_likelihood(q: float) -> float:
        p_gained, p_same = q + delta, 1 - 2 * q - delta
        counts = np.array([gained, lost, n - gained - lost])
        chances = np.clip([p_gained, q, p_same], 1e-300, 1)
        return -float(np.sum(counts * np.log(chances)))

    low, high = max(0.0, -delta), (1 - delta) / 2
    q = optimize.minimize_scalar(
        minus_log_likelihood, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    ).x
    return (gained - lost - n * delta) / np.sqrt(n * (2 * q + delta * (1 - delta)))


@pytest.mark.parametrize(
    "counts", [(60, 25, 10, 70), (5, 9, 1, 5), (3, 0, 6, 1), (40, 30, 30, 40), (0, 2, 2, 0)]
)
def test_ends_of_the_interval_are_where_the_score_test_turns(
    counts: tuple[int, int, int, int],
) -> None:
    a, b = outcomes(*counts)
    difference, (low, high) = statistics.paired_difference(a, b)
    assert difference == pytest.approx(np.mean(a) - np.mean(b))
    assert -1 <= low < difference < high <= 1
    _, gained, lost, _ = counts
    for end, z in ((low, 1.959964), (high, -1.959964)):
        assert restricted_score(gained, lost, len(a), end) == pytest.approx(z, abs=1e-3)


def test_interval_without_discordant_tasks_has_its_closed_form() -> None:
    n, z2 = 50, statistics.Z95**2
    _, interval = statistics.paired_difference(*outcomes(20, 0, 0, 30))
    assert interval == pytest.approx((-z2 / (n + z2), z2 / (n + z2)), abs=1e-9)


def test_swapping_the_sides_mirrors_the_interval() -> None:
    a, b = outcomes(11, 8, 3, 9)
    difference, (low, high) = statistics.paired_difference(a, b)
    swapped, (mirrored_low, mirrored_high) = statistics.paired_difference(b, a)
    assert (swapped, mirrored_low, mirrored_high) == pytest.approx((-difference, -high, -low))


def test_interval_when_one_side_alone_solves_every_task_has_its_closed_form() -> None:
    n, z2 = 10, statistics.Z95**2
    difference, interval = statistics.paired_difference(*outcomes(0, n, 0, 0))
    assert difference == 1
    assert interval == pytest.approx(((n - z2) / (n + z2), 1.0), abs=1e-9)


def test_nothing_is_known_without_tasks() -> None:
    assert statistics.paired_difference([], []) == (0.0, (-1.0, 1.0))
    assert statistics.mcnemar_p([], []) == 1.0


@pytest.mark.parametrize("gained, lost", [(0, 0), (5, 5), (1, 9), (25, 10), (0, 7), (700, 600)])
def test_mcnemar_is_scipys_binomial_test(gained: int, lost: int) -> None:
    a, b = outcomes(4, gained, lost, 6)
    discordant = gained + lost
    expected = stats.binomtest(gained, discordant).pvalue if discordant else 1.0
    assert statistics.mcnemar_p(a, b) == pytest.approx(expected)


def test_mcnemar_of_a_textbook_table() -> None:
    """Agresti, Categorical Data Analysis, approval of a prime minister: 150 and 86 discordant."""
    a, b = outcomes(794, 150, 86, 570)
    assert statistics.mcnemar_p(a, b) == pytest.approx(3.716e-5, rel=1e-3)
    tail = sum(math.comb(236, k) for k in range(87)) / 2**235
    assert statistics.mcnemar_p(a, b) == pytest.approx(tail)
    difference, (low, high) = statistics.paired_difference(a, b)
    assert difference == pytest.approx(0.04)
    assert (low, high) == pytest.approx((0.02, 0.06), abs=2e-3)  # as the book has it


def test_what_both_sides_have_is_paired_whatever_its_order() -> None:
    found = statistics.compare_paired(
        {"a": 1, "b": 0, "c": 1, "d": 0}, {"d": 0, "x": 1, "c": 0, "a": 1}
    )
    assert (found.common_keys, found.n) == (["a", "c", "d"], 3)
    pairs = [1, 1, 0], [1, 0, 0]
    assert (found.difference, found.ci95) == statistics.paired_difference(*pairs)
    assert found.p == statistics.mcnemar_p(*pairs)


def test_nothing_is_known_where_nothing_is_shared() -> None:
    found = statistics.compare_paired({"a": 1}, {"b": 1})
    assert (found.n, found.difference, found.ci95, found.p) == (0, 0.0, (-1.0, 1.0), 1.0)


def test_refuses_unpaired_and_unjudged_outcomes() -> None:
    with pytest.raises(ValueError, match="not paired"):
        statistics.paired_difference([1, 0], [1])
    with pytest.raises(ValueError, match="0 or 1"):
        statistics.mcnemar_p([0.5], [1])
