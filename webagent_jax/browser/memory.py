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
    total = 0
    for pid in family:
        fields = _read(pid, "statm").split()
        if len(fields) >= 3:
            total += int(fields[1]) - (0 if pid == root else int(fields[2]))
    return total * _PAGE_MB


def kill(pid: int) -> None:
    """Ends a Chromium that is still there. Its children end with it."""
    if "--webagent-instance=" in _read(pid, "cmdline"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


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
