"""Tests of the terminal summary."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from webagent_jax.report import run_loader, terminal
from webagent_jax.tracking import atomic_files


def render_summary(path: Path) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100, highlight=False).print(
        terminal.summary(run_loader.load_run(path))
    )
    return stream.getvalue()


def test_summary_shows_results_and_curves(workdir: Path) -> None:
    output = render_summary(workdir)
    assert "search-engine" in output and "95 % interval" in output
    assert "GRPO - BC: +" in output and "learned" in output
    assert "GRPO, 40 updates" in output and "▁" in output and "█" in output


def test_summary_of_empty_workdir_reports_no_evaluation(tmp_path: Path) -> None:
    assert render_summary(tmp_path).strip() == "No evaluation has finished yet."


def test_summary_shows_turn_limits_and_unscored_episodes(tmp_path: Path) -> None:
    point = {"success_rate": 0.5, "n": 2, "ci95": [0.1, 0.9]}
    record = {
        "success_rate": 0.5,
        "n": 2,
        "ci95": [0.1, 0.9],
        "by_outcome": {"SUCCESS": 1, "FAILURE": 1, "INFRA": 3},
        "by_max_turns": [{"max_turns": 5} | point, {"max_turns": 10} | point],
        "tasks": [],
    }
    atomic_files.write_json(tmp_path / "eval.json", record)
    output = render_summary(tmp_path)
    assert "Policy: 3 without a reward" in output
    assert "Policy by turns: 50.0 % at 5, 50.0 % at 10" in output
