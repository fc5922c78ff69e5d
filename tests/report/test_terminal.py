"""Tests of the terminal summary."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

from rich.console import Console

from webagent_jax.report import run_loader, terminal
from webagent_jax.tracking import atomic_files, metric_writers


def render_summary(path: Path) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100, highlight=False).print(
        terminal.summary(run_loader.load_run(path))
    )
    return stream.getvalue()


def test_summary_shows_results_and_curves(workdir: Path) -> None:
    output = render_summary(workdir)
    assert "search-engine" in output and "95 % interval" in output
    assert "M-GRPO - BC: +" in output and "learned" in output
    assert "M-GRPO, 40 updates" in output and "▁" in output and "█" in output


def test_summary_of_empty_workdir_reports_no_evaluation(tmp_path: Path) -> None:
    assert render_summary(tmp_path).strip() == "No evaluation has finished yet."


def test_metrics_of_workdir_belong_to_its_command(tmp_path: Path) -> None:
    writer = metric_writers.JsonlWriter(tmp_path / "metrics.jsonl")
    for update in (1, 2, 3):
        writer.write(update, {"loss": 1 / update})
    for command, phase in (("train bc", "bc"), ("train grpo", "grpo")):
        atomic_files.write_json(tmp_path / "config.json", {"command": command, "config": {}})
        metrics = run_loader.load_run(tmp_path).metrics
        assert {name for name, records in metrics.items() if records} == {phase}
        assert f"{phase.upper()}, 3 updates" in render_summary(tmp_path)


def test_run_has_logs_of_all_processes(workdir: Path, tmp_path: Path) -> None:
    source = workdir / "grpo" / "episodes" / "update-00001.jsonl"
    (tmp_path / "episodes").mkdir()
    for name in ("update-00007", "update-00007-process-1", "update-00008", "other"):
        shutil.copy(source, tmp_path / "episodes" / f"{name}.jsonl")
    logs = run_loader.load_run(tmp_path).logs
    assert {(log.id, log.name, log.update) for log in logs} == {
        ("update-7", "Update 7", 7),
        ("update-7-process-1", "Update 7, process 1", 7),
        ("update-8", "Update 8", 8),
    }


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


def test_summary_shows_no_rate_without_scored_episode(unscored_workdir: Path) -> None:
    output = render_summary(unscored_workdir)
    assert re.search(r"^ *all +- *$", output, re.MULTILINE)
    assert "Policy: 3 without a reward" in output
    assert "by turns" not in output


def test_summary_of_finished_training_names_next_command(tmp_path: Path) -> None:
    for update in (1, 2, 3):
        metric_writers.JsonlWriter(tmp_path / "metrics.jsonl").write(update, {"loss": 1.0})
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    output = " ".join(render_summary(tmp_path).split())
    assert "Training finished: 3 updates. Evaluate its policy with webagent evaluate" in output
    assert "--config.policy.path=" in output
