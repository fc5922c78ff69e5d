"""Progress display of a run: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as RichBar
from rich.progress import Task as RichTask
from rich.text import Text

SECONDS_BETWEEN_LINES = 10.0
MAX_COLUMNS = 80

Clock = Callable[[], float]


class Progress(Protocol):
    """Progress of a run with named phases. Thread-safe.

    A context manager: its exit ends the last phase and restores the terminal.
    """

    def plan(self, work: Mapping[str, float]) -> None:
        """Set the phases of the run, for the phase counter and the remaining time of the whole run.

        Only the first call has an effect, because a phase of a pipeline may plan its own parts.

        Args:
            work: expected duration of each phase in any unit, by name, in order.
        """
        ...

    def start_phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        """End the current phase and start a new one.

        Args:
            name: name of the phase.
            total: number of units of the phase.
            unit: name of the units, in the plural.
            done: units completed before this start of the run; excluded from the pace.
        """
        ...

    def advance(self, n: int = 1, *, success: bool | None = None, tokens: int = 0) -> None:
        """Add to the counts of the phase.

        Args:
            n: completed units; 0 for an episode within an update.
            success: outcome of one finished episode; None without an episode or reward.
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


class RunStats:
    """Phase counter, counts and remaining time of a run. Not thread-safe."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._work: Mapping[str, float] = {}
        # Sums over the phases that this process has finished.
        self._finished_seconds = 0.0
        self._finished_work = 0.0
        self.phase: PhaseStats | None = None

    def plan(self, work: Mapping[str, float]) -> None:
        """Set the phases of the run; see `Progress.plan`."""
        self._work = self._work or dict(work)

    def start_phase(self, name: str, total: int, unit: str, done: int) -> None:
        """Start a phase; see `Progress.start_phase`."""
        self.phase = PhaseStats(name, total, unit, clock=self._clock, done=done)

    def end_phase(self) -> str:
        """End the phase and return its line; empty without one."""
        phase, self.phase = self.phase, None
        if phase is None:
            return ""
        # The duration of a resumed phase does not measure its work.
        if phase.is_complete and not phase.is_resumed and phase.name in self._work:
            self._finished_seconds += phase.seconds()
            self._finished_work += self._work[phase.name]
        return self._line(phase, f"{duration(phase.seconds())} taken")

    def title(self) -> str:
        """Return the name of the phase, such as `[2/5] behavior cloning`."""
        return self._title(self.phase.name) if self.phase else ""

    def line(self) -> str:
        """Return the line of the current phase."""
        return self._line(self.phase, self.eta()) if self.phase else ""

    def eta(self) -> str:
        """Return the remaining time of the run, `1:05 left`; empty before there is an estimate."""
        seconds = self._seconds_left()
        return "" if seconds is None else f"{duration(seconds)} left"

    def _title(self, name: str) -> str:
        names = list(self._work)
        return f"[{names.index(name) + 1}/{len(names)}] {name}" if name in names else name

    def _line(self, phase: PhaseStats, time_text: str) -> str:
        count = f"{self._title(phase.name)}: {phase.done}/{phase.total} {phase.unit}"
        parts = [count, phase.success(), phase.rate(), time_text]
        line = " · ".join(part for part in parts if part)
        if len(line) <= MAX_COLUMNS:
            return line
        return " · ".join(part for part in (count, phase.success(), time_text) if part)

    def _seconds_left(self) -> float | None:
        phase = self.phase
        if phase is None:
            return None
        remaining = phase.seconds_left()
        work = self._work.get(phase.name)
        if work is None:
            return remaining
        # 1. Seconds per unit of work, from the finished phases and the estimate of this one.
        seconds, total_work = self._finished_seconds, self._finished_work
        if remaining is not None:
            seconds += phase.seconds_of_all(remaining)
            total_work += work
        if not total_work:
            return None
        pace = seconds / total_work
        # 2. The rest of this phase, then the phases after it.
        if remaining is None:
            remaining = max(work * pace - phase.seconds(), 0.0)
        names = list(self._work)
        later = names[names.index(phase.name) + 1 :]
        return remaining + pace * sum(self._work[name] for name in later)


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
        self._start = self._last_advance = clock()
        self._episodes = 0
        self._successes = 0
        self._tokens = 0
        # The pace excludes the first units: they include compilations, a step is counted when it is
        # dispatched, and episodes that run at the same time end in a burst.
        self._warmup_units = 1 if unit == "updates" else max(1, total // 20)
        self._warmup_end: tuple[int, float] | None = None  # units done and time

    @property
    def is_complete(self) -> bool:
        """True if all units are done."""
        return self.done >= self.total

    @property
    def is_resumed(self) -> bool:
        """True if an earlier process has done some units."""
        return self._initial_done > 0

    def add(self, n: int, success: bool | None, tokens: int) -> None:
        """Add to the counts; see `Progress.advance`."""
        self.done += n
        self._episodes += success is not None
        self._successes += bool(success)
        self._tokens += tokens
        if n:
            self._last_advance = self._clock()
            if self._warmup_end is None and self._done_now() >= self._warmup_units:
                self._warmup_end = self.done, self._last_advance

    def success(self) -> str:
        """Return `41.7% success`; empty without episodes."""
        return f"{self._successes / self._episodes:.1%} success" if self._episodes else ""

    def rate(self) -> str:
        """Return `310 tokens/s`; empty without tokens."""
        # The lower bound avoids a division by 0.
        return f"{self._tokens / max(self.seconds(), 1e-9):,.0f} tokens/s" if self._tokens else ""

    def seconds(self) -> float:
        """Return the seconds since the start of the phase in this process."""
        return self._clock() - self._start

    def seconds_left(self) -> float | None:
        """Return the estimated seconds until the end; None before there is a pace."""
        if self.is_complete:
            return 0.0
        if self._warmup_end is None or self._done_now() < 2 * self._warmup_units:
            return None
        units, start = self._warmup_end
        pace = (self._last_advance - start) / (self.done - units)
        # Counts down between two units, so that the estimate changes only when one ends.
        since_advance = min(self._clock() - self._last_advance, pace)
        return pace * (self.total - self.done) - since_advance

    def seconds_of_all(self, remaining: float) -> float:
        """Return the estimated seconds of all units, those of earlier processes included."""
        done_now = max(self._done_now(), 1)
        return self.seconds() * self.done / done_now + remaining

    def _done_now(self) -> int:
        # Units of an earlier process have no time in this one.
        return self.done - self._initial_done


def duration(seconds: float) -> str:
    """Format seconds as `0:07`, `12:30` or `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


class NullProgress:
    """Progress without any output."""

    def plan(self, work: Mapping[str, float]) -> None:
        """Do nothing."""
        del work

    def start_phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        """Do nothing."""
        del name, total, unit, done

    def advance(self, n: int = 1, *, success: bool | None = None, tokens: int = 0) -> None:
        """Do nothing."""
        del n, success, tokens

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
        self._stats = RunStats(clock)
        self._last_print_time = 0.0

    def plan(self, work: Mapping[str, float]) -> None:
        """Set the phases of the run."""
        with self._lock:
            self._stats.plan(work)

    def start_phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        """End the current phase and print the first line of the new one."""
        with self._lock:
            self._end_phase()
            self._stats.start_phase(name, total, unit, done)
            self._print(self._stats.line())

    def advance(self, n: int = 1, *, success: bool | None = None, tokens: int = 0) -> None:
        """Add to the counts; print them if the last line is older than ten seconds."""
        with self._lock:
            if self._stats.phase is None:
                return
            self._stats.phase.add(n, success, tokens)
            if self._clock() - self._last_print_time >= SECONDS_BETWEEN_LINES:
                self._print(self._stats.line())

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
        if line := self._stats.end_phase():
            self._print(line)

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

    def __init__(self, stream: TextIO) -> None:
        self._lock = threading.Lock()
        self._stats = RunStats()
        self._console = Console(file=stream, highlight=False, markup=False)
        self._bar = RichBar(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            _RatesColumn(self._rates),
            console=self._console,
            # The bar disappears at the end; the lines of the phases remain.
            transient=True,
        )
        self._task = self._bar.add_task("", visible=False)

    def plan(self, work: Mapping[str, float]) -> None:
        """Set the phases of the run."""
        with self._lock:
            self._stats.plan(work)

    def start_phase(self, name: str, total: int, unit: str = "episodes", *, done: int = 0) -> None:
        """End the current phase and reset the bar."""
        self._end_phase()
        with self._lock:
            self._stats.start_phase(name, total, unit, done)
            title = self._stats.title()
        self._bar.reset(self._task, description=title, total=total, completed=done, visible=True)

    def advance(self, n: int = 1, *, success: bool | None = None, tokens: int = 0) -> None:
        """Add to the counts and move the bar."""
        with self._lock:
            if self._stats.phase is None:
                return
            self._stats.phase.add(n, success, tokens)
            done = self._stats.phase.done
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
            line = self._stats.end_phase()
        # Without `_lock`, as above.
        if line:
            self._bar.update(self._task, visible=False)
            self.log(line)

    def _rates(self) -> str:
        with self._lock:
            phase = self._stats.phase
            if phase is None:
                return ""
            return " · ".join(filter(None, (phase.success(), self._stats.eta())))


class _RatesColumn(ProgressColumn):
    """Column of rates, computed at render time so that they stay correct between updates."""

    def __init__(self, format_rates: Callable[[], str]) -> None:
        super().__init__()
        self._format = format_rates

    def render(self, task: RichTask) -> Text:
        del task
        return Text(self._format())
