from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from webagent_jax.report import run_loader, terminal
from webagent_jax.tracking import atomic_files


def told(path: Path) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100, highlight=False).print(
        terminal.summary(run_loader.load_run(path))
    )
    return stream.getvalue()


def test_whole_run(workdir: Path) -> None:
    said = told(workdir)
    assert "search-engine" in said and "95 % interval" in said
    assert "GRPO - BC: +" in said and "learned" in said
    assert "GRPO, 40 updates" in said and "▁" in said and "█" in said


def test_run_that_has_just_begun(tmp_path: Path) -> None:
    assert told(tmp_path).strip() == "No evaluation has finished yet."


def test_limits_attempts_and_what_was_lost(tmp_path: Path) -> None:
    point = {"success_rate": 0.5, "n": 2, "ci95": [0.1, 0.9]}
    record = {
        "success_rate": 0.5,
        "n": 2,
        "ci95": [0.1, 0.9],
        "by_outcome": {"SUCCESS": 1, "FAILURE": 1, "INFRA": 3},
        "by_max_turns": [{"max_turns": 5} | point, {"max_turns": 10} | point],
    }
    atomic_files.write_json(tmp_path / "eval.json", record)
    said = told(tmp_path)
    assert "Policy: 3 without a reward" in said
    assert "Policy by turns: 50.0 % at 5, 50.0 % at 10" in said
