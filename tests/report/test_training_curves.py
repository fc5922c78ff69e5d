"""Tests of training curves: smoothing, plots, phases."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from webagent_jax.report import change_points, plots, run_loader, training_curves
from webagent_jax.tracking import atomic_files, metric_writers


def test_smoothing_ignores_missing_values() -> None:
    smoothed = plots.smooth([1.0, np.nan, 3.0, 5.0, np.nan, np.nan, np.nan], 3)
    np.testing.assert_allclose(smoothed, [1, 2, 4, 4, 5, np.nan, np.nan])
    np.testing.assert_allclose(plots.smooth([2.0], 5), [2.0])


def test_mean_over_seeds_ignores_missing_values() -> None:
    values = np.array([[1.0, np.nan, 3.0], [3.0, np.nan, np.nan]])
    np.testing.assert_allclose(plots.mean_over_seeds(values), [2, np.nan, 3])


def test_plot_uses_css_variables_for_colors() -> None:
    line = plots.Line([1, 2, 3], [[0.1, 0.5, 0.2]])
    svg = plots.curves([line], label="Reward & more", axis="reward", rate=True, phase_starts=[2])
    assert "var(--series-0)" in svg and 'aria-label="Reward &amp; more"' in svg
    assert not re.search(r"#0[1-6]0[1-6]0[1-6]", svg)
    assert not re.search(r"<g id=|<style|font-family: '", svg)


def test_missing_metric_values_are_skipped(tmp_path: Path) -> None:
    writer = metric_writers.JsonlWriter(tmp_path / "metrics.jsonl")
    writer.write(1, {"reward": 0.1})
    writer.write(2, {"reward": float("nan"), "kl": 1.0})
    writer.write(3, {"reward": 0.3})
    run = run_loader.load_run(tmp_path)
    assert training_curves.series(run.metrics["grpo"], "reward") == {1: 0.1, 3: 0.3}
    curves = training_curves.curves(
        training_curves.group_by_config([run]),
        "grpo",
        (*training_curves.PAPER_METRICS, *training_curves.OTHER_METRICS),
    )
    assert [curve.title for curve in curves] == ["Reward"]


# --- phases ---------------------------------------------------------------------------------------


def make_three_phases(n: int, seed: int) -> np.ndarray:
    """Return rewards, tokens and interactions [3, 3n] that learn, then explore, then converge."""
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


@pytest.mark.parametrize(("n", "tolerance"), [(20, 2), (300, 40)])
def test_change_points_match_trend_changes(n: int, tolerance: int) -> None:
    points = change_points.find_change_points(make_three_phases(n, seed=0))
    assert len(points) == 2
    assert abs(points[0] - n) <= tolerance and abs(points[1] - 2 * n) <= tolerance


def test_change_point_of_exact_lines_is_exact() -> None:
    curves = np.array([[*range(12), *range(30, 18, -1)]], float)
    assert change_points.find_change_points(curves) == [12]


@pytest.mark.parametrize("trend", [0.0, 5.0])
def test_noise_has_no_change_points(trend: float) -> None:
    # By chance 1 of 100 runs has a change point; 4 or more of 60 have one in 1 of 300 trials.
    rng = np.random.default_rng(1)
    runs = (rng.normal(size=(3, 40)) + trend * np.linspace(0, 1, 40) for _ in range(60))
    assert sum(bool(change_points.find_change_points(run)) for run in runs) < 4


@pytest.mark.parametrize("n", [0, 1, 9, 40])
def test_short_or_constant_runs_have_no_change_points(n: int) -> None:
    assert change_points.find_change_points(np.ones((3, n))) == []


def test_runs_of_other_commands_are_no_seeds(tmp_path: Path) -> None:
    runs = []
    for name, command in (("bc", "train bc"), ("zero", "train grpo"), ("more", "train grpo")):
        workdir = tmp_path / name
        metric_writers.JsonlWriter(workdir / "metrics.jsonl").write(1, {"loss": 0.5})
        record = {"command": command, "config": {"seed": len(runs), "x": 1}}
        atomic_files.write_json(workdir / "config.json", record)
        runs.append(run_loader.load_run(workdir))
    assert [group.name for group in training_curves.group_by_config(runs)] == ["bc", "zero, more"]


def test_find_phases_reports_updates_and_trends(tmp_path: Path) -> None:
    writer = metric_writers.JsonlWriter(tmp_path / "metrics.jsonl")
    for step, values in enumerate(make_three_phases(20, seed=0).T, start=1):
        keys = [metric.key for metric in training_curves.PAPER_METRICS]
        writer.write(step, dict(zip(keys, values, strict=True)))
    (group,) = training_curves.group_by_config([run_loader.load_run(tmp_path)])
    first, second, third = training_curves.find_phases(group)
    assert first.first == 1 and first.last + 1 == second.first and third.last == 60
    assert [len(phase.trends) for phase in (first, second, third)] == [3, 3, 3]
    assert re.fullmatch(r"-?\d+% to \d+%", first.trends[0])
