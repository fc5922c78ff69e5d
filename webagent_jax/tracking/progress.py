"""Progress display of a run: a progress bar on a terminal, plain lines elsewhere."""

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
    """Progress of a run with named phases. Thread-safe.

    A context manager: its exit ends the last phase and restores the terminal.
    """

    def start_phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        """End the current phase and start a new one.

        Args:
            name: name of the phase.
            total: number of units of the phase.
            unit: name of the units, in the plural.
            done: units completed before this start of the run; excluded from the pace.
        """
        ...

    def advance(
        self, n: int = 1, *, success: bool | None = None, steps: int = 0, tokens: int = 0
    ) -> None:
        """Add to the counts of the phase.

        Args:
            n: completed units; 0 for an episode within an update.
            success: outcome of one finished episode; None without an episode or reward.
            steps: environment steps.
            tokens: sampled tokens, or tokens trained on.
        """
        ...

    def log(self, line: str) -> None:
        """Print one line."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_progress(stream: TextIO | None = None) -> Progress:
    """Return a progress bar if `stream` (default: stdout) is a terminal, else plain lines."""
    stream = stream or sys.stdout
    return TerminalProgress(stream) if stream.isatty() else LineProgress(stream)


class PhaseStats:
    """Counts and rates of one phase. Not thread-safe."""

    def __init__(
        self, name: str, total: int, unit: str, *, clock: Clock = time.monotonic, done: int = 0
    ) -> None:
        self.name = name
        self.total = total
        self.unit = unit
        self.done = done
        self._initial_done = done
        self._clock = clock
        self._start = clock()
        self._episodes = 0
        self._successes = 0
        self._steps = 0
        self._tokens = 0

    def add(self, n: int, success: bool | None, steps: int, tokens: int) -> None:
        """Add to the counts; see `Progress.advance`."""
        self.done += n
        self._episodes += success is not None
        self._successes += bool(success)
        self._steps += steps
        self._tokens += tokens

    def figures(self) -> str:
        """Return `success 41.7% of 24 · 12.3 steps/s · 310 tokens/s` without the parts at zero."""
        # The lower bound avoids a division by 0.
        seconds = max(self._clock() - self._start, 1e-9)
        parts = []
        if self._episodes:
            parts.append(f"success {self._successes / self._episodes:.1%} of {self._episodes}")
        if self._steps:
            parts.append(f"{self._steps / seconds:.1f} steps/s")
        if self._tokens:
            parts.append(f"{self._tokens / seconds:,.0f} tokens/s")
        return " · ".join(parts)

    def eta(self) -> str:
        """Return `1:05 left`, from the mean pace of the phase; empty before the first unit."""
        # Units of an earlier start have no time in this one, so they do not count in the pace.
        done_now = self.done - self._initial_done
        if not done_now or self.done >= self.total:
            return ""
        seconds = (self._clock() - self._start) / done_now * (self.total - self.done)
        return f"{duration(seconds)} left"

    def line(self) -> str:
        """Return the summary line of the phase."""
        elapsed = f"{duration(self._clock() - self._start)} taken"
        parts = (f"{self.done}/{self.total} {self.unit}", self.figures(), self.eta() or elapsed)
        return f"{self.name}: " + " · ".join(part for part in parts if part)


def duration(seconds: float) -> str:
    """Format seconds as `0:07`, `12:30` or `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


class NullProgress:
    """Progress without any output."""

    def start_phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        """Do nothing."""
        del name, total, unit, done

    def advance(
        self, n: int = 1, *, success: bool | None = None, steps: int = 0, tokens: int = 0
    ) -> None:
        """Do nothing."""
        del n, success, steps, tokens

    def log(self, line: str) -> None:
        """Do nothing."""
        del line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LineProgress:
    """Progress as lines: at the start and end of a phase, and at most one every ten seconds."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._phase: PhaseStats | None = None
        self._last_print_time = 0.0

    def start_phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        """End the current phase and print the first line of the new one."""
        with self._lock:
            self._end_phase()
            self._phase = PhaseStats(name, total, unit, clock=self._clock, done=done)
            self._print(f"{name}: {total} {unit}")

    def advance(
        self, n: int = 1, *, success: bool | None = None, steps: int = 0, tokens: int = 0
    ) -> None:
        """Add to the counts; print them if the last line is older than ten seconds."""
        with self._lock:
            if self._phase is None:
                return
            self._phase.add(n, success, steps, tokens)
            if self._clock() - self._last_print_time >= SECONDS_BETWEEN_LINES:
                self._print(self._phase.line())

    def log(self, line: str) -> None:
        """Print one line."""
        with self._lock:
            self._print(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._end_phase()

    def _end_phase(self) -> None:
        if self._phase is not None:
            self._print(self._phase.line())
        self._phase = None

    def _print(self, line: str) -> None:
        self._last_print_time = self._clock()
        self._stream.write(line + "\n")
        # The stream may be a pipe or a file, which would hold back lines.
        self._stream.flush()


class TerminalProgress:
    """Progress bar of the current phase, below one line per finished phase.

    The thread of the bar acquires the lock of the bar, then `_lock`, to render the rates. To avoid
    a deadlock, no method calls the bar while it holds `_lock`.
    """

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._phase: PhaseStats | None = None
        self._console = Console(file=stream, highlight=False, markup=False)
        self._bar = RichBar(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            _RatesColumn(self._rates),
            console=self._console,
            # The bar disappears at the end; the lines of the phases remain.
            transient=True,
        )
        self._task = self._bar.add_task("", visible=False)

    def start_phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        """End the current phase and reset the bar."""
        self._end_phase()
        self._bar.reset(self._task, description=name, total=total, completed=done, visible=True)
        with self._lock:
            self._phase = PhaseStats(name, total, unit, clock=self._clock, done=done)

    def advance(
        self, n: int = 1, *, success: bool | None = None, steps: int = 0, tokens: int = 0
    ) -> None:
        """Add to the counts and move the bar."""
        with self._lock:
            if self._phase is None:
                return
            self._phase.add(n, success, steps, tokens)
            done = self._phase.done
        # Without `_lock`: see the lock order in the docstring of the class.
        self._bar.update(self._task, completed=done)

    def log(self, line: str) -> None:
        """Print one line above the bar."""
        self._console.print(Text(line), soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_phase()
        self._bar.stop()

    def _end_phase(self) -> None:
        with self._lock:
            line = self._phase.line() if self._phase else ""
            self._phase = None
        # Without `_lock`, as above.
        if line:
            self._bar.update(self._task, visible=False)
            self.log(line)

    def _rates(self) -> str:
        with self._lock:
            phase = self._phase
            if phase is None:
                return ""
            return " · ".join(part for part in (phase.unit, phase.figures(), phase.eta()) if part)


class _RatesColumn(ProgressColumn):
    """Column of rates, computed at render time so that they stay correct between updates."""

    def __init__(self, format_rates: Callable[[], str]) -> None:
        super().__init__()
        self._format = format_rates

    def render(self, task: RichTask) -> Text:
        del task
        return Text(self._format())
