from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from webagent_jax.report import statistics


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


def test_refuses_unpaired_and_unjudged_outcomes() -> None:
    with pytest.raises(ValueError, match="not paired"):
        statistics.paired_difference([1, 0], [1])
    with pytest.raises(ValueError, match="0 or 1"):
        statistics.mcnemar_p([0.5], [1])
