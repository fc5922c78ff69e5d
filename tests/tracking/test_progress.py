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
            display.advance(success=i % 3 == 0, tokens=50)
        display.log("half way")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Evaluation: 0/40 episodes"
    assert lines[1] == "Evaluation: 10/40 episodes · 40.0% success · 50 tokens/s · 0:30 left"
    assert lines[-2] == "half way"
    assert lines[-1] == "Evaluation: 30/40 episodes · 33.3% success · 50 tokens/s · 0:30 taken"
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
    assert lines[-2] == "GRPO: 0/3 updates"


def test_success_counts_episodes_within_update() -> None:
    stats = progress.RunStats(Clock())
    stats.start_phase("GRPO", 4, "updates", done=0)
    stats.phase.add(0, True, 0)
    stats.phase.add(0, None, 0)
    stats.phase.add(1, False, 0)
    assert stats.line() == "GRPO: 1/4 updates · 50.0% success"


def test_lines_fit_terminal() -> None:
    clock = Clock()
    stats = progress.RunStats(clock)
    stats.plan({"behavior cloning": 1.0, "other": 1.0})
    stats.start_phase("behavior cloning", 2470, "updates", done=0)
    for _ in range(3):
        clock.now += 100
        stats.phase.add(1, True, 10_000_000)
    line = stats.line()
    assert "tokens/s" not in line and len(line) <= 80
    assert line.startswith("[1/2] behavior cloning: 3/2470 updates · 100.0% success · ")


# --- time left ------------------------------------------------------------------------------------


def seconds_left(stats: progress.RunStats) -> float | None:
    """Return the time left in a line, in seconds."""
    if not stats.eta():
        return None
    seconds = 0
    for number in stats.eta().removesuffix(" left").split(":"):
        seconds = 60 * seconds + int(number)
    return seconds


def test_time_left_of_resumed_run_excludes_earlier_updates() -> None:
    clock = Clock()
    stats = progress.RunStats(clock)
    stats.start_phase("behavior cloning", 470, "updates", done=50)
    assert stats.line() == "behavior cloning: 50/470 updates"
    clock.now += 11
    # A step is counted when it is dispatched: the first takes no time.
    stats.phase.add(1, None, 0)
    assert stats.line() == "behavior cloning: 51/470 updates"
    for _ in range(3):
        clock.now += 43
        stats.phase.add(1, None, 0)
    assert seconds_left(stats) == 43 * (470 - 54)


def test_time_left_counts_down_between_updates() -> None:
    clock = Clock()
    stats = progress.RunStats(clock)
    stats.start_phase("M-GRPO", 16, "updates", done=0)
    for _ in range(2):
        clock.now += 60
        stats.phase.add(1, None, 0)
    assert seconds_left(stats) == 14 * 60
    clock.now += 45
    assert seconds_left(stats) == 14 * 60 - 45
    clock.now += 100  # a long update: the estimate waits
    assert seconds_left(stats) == 13 * 60


def test_time_left_ignores_first_burst_of_episodes() -> None:
    clock = Clock()
    stats = progress.RunStats(clock)
    stats.start_phase("evaluate base", 400, "episodes", done=0)
    clock.now += 60  # compilation
    for _ in range(20):  # the episodes that run at the same time
        stats.phase.add(1, True, 0)
    assert stats.eta() == ""
    for _ in range(20):
        clock.now += 0.5
        stats.phase.add(1, True, 0)
    assert seconds_left(stats) == 180


def test_time_left_covers_later_phases() -> None:
    clock = Clock()
    stats = progress.RunStats(clock)
    stats.plan({"evaluate base": 100.0, "M-GRPO": 300.0, "evaluate grpo": 100.0})
    stats.plan({"M-GRPO": 1.0})  # the plan of a part has no effect
    stats.start_phase("evaluate base", 100, "episodes", done=0)
    assert stats.title() == "[1/3] evaluate base" and stats.eta() == ""
    for _ in range(50):
        clock.now += 1
        stats.phase.add(1, True, 0)
    assert seconds_left(stats) == 50 + 300 + 100
    for _ in range(50):
        clock.now += 1
        stats.phase.add(1, True, 0)
    assert (
        stats.end_phase() == "[1/3] evaluate base: 100/100 episodes · 100.0% success · 1:40 taken"
    )
    stats.start_phase("M-GRPO", 3, "updates", done=0)
    clock.now += 10
    # Nothing is measured: the work of the plan at the pace of the finished phase.
    assert seconds_left(stats) == 290 + 100


def test_resumed_phase_does_not_measure_later_phases() -> None:
    clock = Clock()
    stats = progress.RunStats(clock)
    stats.plan({"BC": 10.0, "evaluate bc": 10.0})
    stats.start_phase("BC", 10, "updates", done=9)
    clock.now += 1
    stats.phase.add(1, None, 0)
    stats.end_phase()
    stats.start_phase("evaluate bc", 10, "episodes", done=0)
    assert stats.eta() == ""


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
    assert "Rollout: 800/800 episodes · 100.0% success" in stream.getvalue()


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
