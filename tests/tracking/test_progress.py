"""Tests of the progress display."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

import pytest

from webagent_jax.tracking import progress


class Clock:
    """Clock that tests advance manually."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_line_progress_prints_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress.LineProgress(stream, clock) as display:
        display.start_phase("Evaluation", 40)
        for i in range(30):
            clock.now += 1
            display.advance(success=i % 3 == 0, steps=2, tokens=50)
        display.log("half way")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Evaluation: 40 episodes"
    assert lines[1] == (
        "Evaluation: 10/40 episodes · success 40.0% of 10 · 2.0 steps/s · 50 tokens/s · 0:30 left"
    )
    assert lines[-2] == "half way"
    assert lines[-1].startswith("Evaluation: 30/40 episodes · success 33.3% of 30")
    assert len(lines) == 6


def test_start_phase_finishes_previous_phase() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress.LineProgress(stream, clock) as display:
        display.start_phase("BC", 2, "updates")
        clock.now += 65
        display.advance(2, tokens=650)
        display.start_phase("GRPO", 3, "updates")
    lines = stream.getvalue().splitlines()
    assert lines[-3] == "BC: 2/2 updates · 10 tokens/s · 1:05 taken"
    assert lines[-1].startswith("GRPO: 0/3 updates")


def test_phase_stats_count_episodes_within_update() -> None:
    stats = progress.PhaseStats("GRPO", 4, "updates", clock=Clock())
    stats.add(0, True, 3, 0)
    stats.add(0, None, 0, 0)
    stats.add(1, False, 3, 0)
    assert "GRPO: 1/4 updates · success 50.0% of 2" in stats.line()


def test_phase_stats_exclude_restored_units_from_pace() -> None:
    clock = Clock()
    stats = progress.PhaseStats("GRPO", 40, "updates", clock=clock, done=30)
    assert stats.line() == "GRPO: 30/40 updates · 0:00 taken"
    clock.now += 10
    stats.add(1, None, 0, 0)
    assert stats.line() == "GRPO: 31/40 updates · 1:30 left"


@pytest.mark.parametrize("make_progress", [progress.LineProgress, progress.TerminalProgress])
def test_progress_counts_are_thread_safe(
    make_progress: Callable[[io.StringIO], progress.Progress],
) -> None:
    stream = Terminal()
    with make_progress(stream) as display:
        display.start_phase("Rollout", 800)

        def work() -> None:
            for _ in range(100):
                display.advance(success=True)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
    assert "Rollout: 800/800 episodes · success 100.0% of 800" in stream.getvalue()


def test_open_progress_selects_display_by_stream() -> None:
    assert isinstance(progress.open_progress(Terminal()), progress.TerminalProgress)
    assert isinstance(progress.open_progress(io.StringIO()), progress.LineProgress)


def test_terminal_progress_prints_log_lines_verbatim() -> None:
    stream = Terminal()
    with progress.TerminalProgress(stream) as display:
        display.start_phase("BC", 1)
        display.log("[bold]3 of 4[/bold]")
    assert "[bold]3 of 4[/bold]" in stream.getvalue()


def test_null_progress_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.NullProgress() as display:
        display.start_phase("BC", 1)
        display.advance(success=True)
        display.log("hello")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("seconds, text", [(7, "0:07"), (750.9, "12:30"), (3723, "1:02:03")])
def test_duration_formats_seconds(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text
