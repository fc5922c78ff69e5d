"""Curves, their smoothing, and the phases that are found in them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from webagent_jax.report import change_points, plots, run_loader, training_curves
from webagent_jax.tracking import metric_writers


def test_smoothing_ignores_what_is_absent() -> None:
    smoothed = plots.smooth([1.0, np.nan, 3.0, 5.0, np.nan, np.nan, np.nan], 3)
    np.testing.assert_allclose(smoothed, [1, 2, 4, 4, 5, np.nan, np.nan])
    np.testing.assert_allclose(plots.smooth([2.0], 5), [2.0])


def test_mean_over_seeds_takes_those_that_are_there() -> None:
    values = np.array([[1.0, np.nan, 3.0], [3.0, np.nan, np.nan]])
    np.testing.assert_allclose(plots.mean_over_seeds(values), [2, np.nan, 3])


def test_drawing_takes_its_colours_from_the_page() -> None:
    line = plots.Line([1, 2, 3], [[0.1, 0.5, 0.2]])
    drawing = plots.curves([line], label="Reward & more", rate=True, phase_starts=[2])
    assert "var(--series-0)" in drawing and 'aria-label="Reward &amp; more"' in drawing
    assert not re.search(r"#0[1-6]0[1-6]0[1-6]", drawing)
    assert not re.search(r"<g id=|<style|font-family: '", drawing)


def test_metrics_without_a_value_are_skipped(tmp_path: Path) -> None:
    writer = metric_writers.JsonlWriter(tmp_path / "metrics.jsonl")
    writer.write(1, {"reward": 0.1})
    writer.write(2, {"reward": float("nan"), "kl": 1.0})
    writer.write(3, {"reward": 0.3})
    run = run_loader.load_run(tmp_path)
    assert training_curves.series(run.metrics["grpo"], "reward") == {1: 0.1, 3: 0.3}
    drawn = training_curves.curves(
        training_curves.by_config([run]),
        "grpo",
        (*training_curves.PAPER_METRICS, *training_curves.OTHER_METRICS),
    )
    assert [curve.title for curve in drawn] == ["Reward"]


# --- phases ---------------------------------------------------------------------------------------


def three_phases(n: int, seed: int) -> np.ndarray:
    """[3, 3n] reward, tokens, interactions: learning, then exploring, then settled."""
    rng = np.random.default_rng(seed)
    flat, rise = np.ones(n), np.linspace(0, 1, n)
    curves = np.stack(
        [
            np.concatenate([0.4 * rise, 0.4 + 0.1 * rise, 0.6 * flat]),
            np.concatenate([200 - 50 * rise, 150 + 110 * rise, 240 * flat]),
            np.concatenate([6 - 2 * rise, 4 + 3 * rise, 6 * flat]),
        ]
    )
    return curves + np.array([[0.05], [15], [0.4]]) * rng.normal(size=curves.shape)


@pytest.mark.parametrize(("n", "room"), [(20, 2), (300, 40)])
def test_phases_begin_where_the_trends_change(n: int, room: int) -> None:
    found = change_points.find_change_points(three_phases(n, seed=0))
    assert len(found) == 2
    assert abs(found[0] - n) <= room and abs(found[1] - 2 * n) <= room


def test_exact_lines_are_cut_exactly() -> None:
    curves = np.array([[*range(12), *range(30, 18, -1)]], float)
    assert change_points.find_change_points(curves) == [12]


@pytest.mark.parametrize("trend", [0.0, 5.0])
def test_no_phase_is_found_in_noise(trend: float) -> None:
    # In 1 of 100 runs there is one by chance: 4 or more in 60 are so once in 300 tries.
    rng = np.random.default_rng(1)
    runs = (rng.normal(size=(3, 40)) + trend * np.linspace(0, 1, 40) for _ in range(60))
    assert sum(bool(change_points.find_change_points(run)) for run in runs) < 4


@pytest.mark.parametrize("n", [0, 1, 9, 40])
def test_runs_too_short_or_constant_have_no_phases(n: int) -> None:
    assert change_points.find_change_points(np.ones((3, n))) == []


def test_phases_are_told_by_update_and_trend(tmp_path: Path) -> None:
    writer = metric_writers.JsonlWriter(tmp_path / "metrics.jsonl")
    for step, values in enumerate(three_phases(20, seed=0).T, start=1):
        keys = [metric.key for metric in training_curves.PAPER_METRICS]
        writer.write(step, dict(zip(keys, values, strict=True)))
    (group,) = training_curves.by_config([run_loader.load_run(tmp_path)])
    first, second, third = training_curves.find_phases(group)
    assert first.first == 1 and first.last + 1 == second.first and third.last == 60
    assert [len(phase.trends) for phase in (first, second, third)] == [3, 3, 3]
    assert re.fullmatch(r"-?\d+% to \d+%", first.trends[0])
