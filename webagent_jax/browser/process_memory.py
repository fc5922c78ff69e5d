"""What the system knows of a Chromium: its process, its size, its end. Linux only; else nothing."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


def find_process(mark: str) -> int | None:
    """The process with the argument `mark`; None where there is no /proc.

    Below the start script that some systems wrap around Chromium, which has the argument too.
    """
    found = {pid for pid in _pids() if mark in _read(pid, "cmdline").split("\0")}
    return next(iter(found - {_parent(pid) for pid in found}), None)


def resident_mb(root: int) -> float:
    """MiB held by `root` and all processes below it; pages they share count once, with `root`."""
    parents = {pid: _parent(pid) for pid in _pids()}
    family = {root}
    grew = True
    while grew:
        below = {pid for pid, parent in parents.items() if parent in family} - family
        family |= below
        grew = bool(below)
    return sum(_resident_mb(pid, shared=pid == root) for pid in family)


def own_mb(pid: int) -> float:
    """MiB held by one process, without those below it."""
    return _resident_mb(pid, shared=True)


def end_pages_above(limit_mb: float, root: int) -> None:
    """Ends each renderer below `root` that holds more: its pages crash, the others go on."""
    for pid in _pids():
        if _resident_mb(pid, shared=False) <= limit_mb:  # the one look that most of them get
            continue
        if "--type=renderer" in _read(pid, "cmdline") and root in _ancestors(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def kill(pid: int) -> None:
    """Ends a Chromium that is still there. Its children end with it."""
    if "--webagent-instance=" in _read(pid, "cmdline"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _ancestors(pid: int) -> Iterator[int]:
    while pid := _parent(pid):
        yield pid


def _resident_mb(pid: int, *, shared: bool) -> float:
    """MiB held by one process, with or without the pages that it shares with others."""
    fields = _read(pid, "statm").split()
    if len(fields) < 3:
        return 0.0
    return (int(fields[1]) - (0 if shared else int(fields[2]))) * _PAGE_MB


def _pids() -> Iterator[int]:
    if _PROC.is_dir():
        yield from (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())


def _read(pid: int, name: str) -> str:
    """Empty for a process that has ended."""
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / name).read_text(errors="replace")
    return ""


def _parent(pid: int) -> int:
    # The name in brackets may hold spaces: count from the last bracket.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0
