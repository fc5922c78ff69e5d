"""What a run says while it runs: a live bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as RichBar
from rich.progress import Task as RichTask
from rich.text import Text

SECONDS_BETWEEN_LINES = 10.0

Clock = Callable[[], float]


class Progress(Protocol):
    """Progress of a run that goes through named phases. Safe to call from any thread.

    A context manager: leaving it ends the last phase and gives the terminal back.
    """

    def phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        """Ends the phase before it.

        Args:
          name: what is done.
          total: units of the new phase.
          unit: what they are, in the plural.
          done: units done in an earlier start of the run, so that they do not flatter the pace.
        """
        ...

    def advance(
        self, n: int = 1, *, success: bool | None = None, steps: int = 0, tokens: int = 0
    ) -> None:
        """Adds to the phase.

        Args:
          n: units done; 0 to add the rest alone (an episode within an update).
          success: outcome of one finished episode; None when there is none, or no reward.
          steps: environment steps.
          tokens: tokens sampled or trained on.
        """
        ...

    def log(self, line: str) -> None:
        """Says one line of its own."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_progress(stream: TextIO | None = None) -> Progress:
    """A live display when `stream` (standard output unless told otherwise) is a terminal."""
    stream = stream or sys.stdout
    return TerminalProgress(stream) if stream.isatty() else LineProgress(stream)


class Tally:
    """Counts of one phase, and the figures that follow from them. Not thread-safe."""

    def __init__(
        self, name: str, total: int, unit: str, *, clock: Clock = time.monotonic, done: int = 0
    ) -> None:
        self.name = name
        self.total = total
        self.unit = unit
        self.done = done
        self._done_before = done
        self._clock = clock
        self._start = clock()
        self._episodes = 0
        self._successes = 0
        self._steps = 0
        self._tokens = 0

    def add(self, n: int, success: bool | None, steps: int, tokens: int) -> None:
        self.done += n
        self._episodes += success is not None
        self._successes += bool(success)
        self._steps += steps
        self._tokens += tokens

    def figures(self) -> str:
        """`success 41.7% of 24 · 12.3 steps/s · 310 tokens/s`, less what was never counted."""
        seconds = max(self._clock() - self._start, 1e-9)
        parts = []
        if self._episodes:
            parts.append(f"success {self._successes / self._episodes:.1%} of {self._episodes}")
        if self._steps:
            parts.append(f"{self._steps / seconds:.1f} steps/s")
        if self._tokens:
            parts.append(f"{self._tokens / seconds:,.0f} tokens/s")
        return " · ".join(parts)

    def left(self) -> str:
        """`1:05 left`, from the mean pace of the phase; empty while nothing is known."""
        done_here = self.done - self._done_before
        if not done_here or self.done >= self.total:
            return ""
        seconds = (self._clock() - self._start) / done_here * (self.total - self.done)
        return f"{duration(seconds)} left"

    def line(self) -> str:
        took = f"{duration(self._clock() - self._start)} taken"
        parts = (f"{self.done}/{self.total} {self.unit}", self.figures(), self.left() or took)
        return f"{self.name}: " + " · ".join(part for part in parts if part)


def duration(seconds: float) -> str:
    """`0:07`, `12:30`, `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


class NullProgress:
    """Says nothing."""

    def phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        del name, total, unit, done

    def advance(
        self, n: int = 1, *, success: bool | None = None, steps: int = 0, tokens: int = 0
    ) -> None:
        del n, success, steps, tokens

    def log(self, line: str) -> None:
        del line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LineProgress:
    """One line where a phase starts and ends, and at most one every ten seconds between."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._tally: Tally | None = None
        self._said_at = 0.0

    def phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        with self._lock:
            self._end_phase()
            self._tally = Tally(name, total, unit, clock=self._clock, done=done)
            self._say(f"{name}: {total} {unit}")

    def advance(
        self, n: int = 1, *, success: bool | None = None, steps: int = 0, tokens: int = 0
    ) -> None:
        with self._lock:
            if self._tally is None:
                return
            self._tally.add(n, success, steps, tokens)
            if self._clock() - self._said_at >= SECONDS_BETWEEN_LINES:
                self._say(self._tally.line())

    def log(self, line: str) -> None:
        with self._lock:
            self._say(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._end_phase()

    def _end_phase(self) -> None:
        if self._tally is not None:
            self._say(self._tally.line())
        self._tally = None

    def _say(self, line: str) -> None:
        self._said_at = self._clock()
        self._stream.write(line + "\n")
        self._stream.flush()


class TerminalProgress:
    """A live bar for the phase under way; finished phases stay above it as lines.

    The bar's own thread takes the bar's lock, then ours, to draw the figures. So nothing here
    calls the bar while it holds ours.
    """

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tally: Tally | None = None
        self._console = Console(file=stream, highlight=False, markup=False)
        self._bar = RichBar(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            _Figures(self._figures),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", visible=False)

    def phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        self._end_phase()
        self._bar.reset(self._task, description=name, total=total, completed=done, visible=True)
        with self._lock:
            self._tally = Tally(name, total, unit, clock=self._clock, done=done)

    def advance(
        self, n: int = 1, *, success: bool | None = None, steps: int = 0, tokens: int = 0
    ) -> None:
        with self._lock:
            if self._tally is None:
                return
            self._tally.add(n, success, steps, tokens)
            done = self._tally.done
        self._bar.update(self._task, completed=done)

    def log(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_phase()
        self._bar.stop()

    def _end_phase(self) -> None:
        with self._lock:
            line = self._tally.line() if self._tally else ""
            self._tally = None
        if line:
            self._bar.update(self._task, visible=False)
            self.log(line)

    def _figures(self) -> str:
        with self._lock:
            tally = self._tally
            if tally is None:
                return ""
            return " · ".join(part for part in (tally.unit, tally.figures(), tally.left()) if part)


class _Figures(ProgressColumn):
    """Rates are computed when drawn, so that they stay true while nothing advances."""

    def __init__(self, figures: Callable[[], str]) -> None:
        super().__init__()
        self._text = figures

    def render(self, task: RichTask) -> Text:
        del task
        return Text(self._text())
