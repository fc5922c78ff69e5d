from __future__ import annotations

import io
import threading
from collections.abc import Callable

import pytest

from webagent_jax.tracking import progress


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_at_the_start_the_end_and_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress.LineProgress(stream, clock) as shown:
        shown.start_phase("Evaluation", 40)
        for i in range(30):
            clock.now += 1
            shown.advance(success=i % 3 == 0, steps=2, tokens=50)
        shown.log("half way")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Evaluation: 40 episodes"
    assert lines[1] == (
        "Evaluation: 10/40 episodes · success 40.0% of 10 · 2.0 steps/s · 50 tokens/s · 0:30 left"
    )
    assert lines[-2] == "half way"
    assert lines[-1].startswith("Evaluation: 30/40 episodes · success 33.3% of 30")
    assert len(lines) == 6


def test_a_new_phase_ends_the_old_one_and_counts_anew() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress.LineProgress(stream, clock) as shown:
        shown.start_phase("BC", 2, "updates")
        clock.now += 65
        shown.advance(2, tokens=650)
        shown.start_phase("GRPO", 3, "updates")
    said = stream.getvalue().splitlines()
    assert said[-3] == "BC: 2/2 updates · 10 tokens/s · 1:05 taken"
    assert said[-1].startswith("GRPO: 0/3 updates")


def test_episodes_within_an_update_count_without_advancing_it() -> None:
    tally = progress.PhaseStats("GRPO", 4, "updates", clock=Clock())
    tally.add(0, True, 3, 0)
    tally.add(0, None, 0, 0)
    tally.add(1, False, 3, 0)
    assert "GRPO: 1/4 updates · success 50.0% of 2" in tally.line()


def test_units_of_an_earlier_start_do_not_flatter_the_pace() -> None:
    clock = Clock()
    tally = progress.PhaseStats("GRPO", 40, "updates", clock=clock, done=30)
    assert tally.line() == "GRPO: 30/40 updates · 0:00 taken"
    clock.now += 10
    tally.add(1, None, 0, 0)
    assert tally.line() == "GRPO: 31/40 updates · 1:30 left"


@pytest.mark.parametrize("make", [progress.LineProgress, progress.TerminalProgress])
def test_threads_lose_no_counts(make: Callable[[io.StringIO], progress.Progress]) -> None:
    stream = Terminal()
    with make(stream) as shown:
        shown.start_phase("Rollout", 800)

        def work() -> None:
            for _ in range(100):
                shown.advance(success=True)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
    assert "Rollout: 800/800 episodes · success 100.0% of 800" in stream.getvalue()


def test_a_terminal_gets_a_live_display_and_a_file_lines() -> None:
    assert isinstance(progress.open_progress(Terminal()), progress.TerminalProgress)
    assert isinstance(progress.open_progress(io.StringIO()), progress.LineProgress)


def test_terminal_says_log_lines_as_they_are() -> None:
    stream = Terminal()
    with progress.TerminalProgress(stream) as shown:
        shown.start_phase("BC", 1)
        shown.log("[bold]3 of 4[/bold]")
    assert "[bold]3 of 4[/bold]" in stream.getvalue()


def test_null_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.NullProgress() as shown:
        shown.start_phase("BC", 1)
        shown.advance(success=True)
        shown.log("hello")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("seconds, text", [(7, "0:07"), (750.9, "12:30"), (3723, "1:02:03")])
def test_duration(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text
