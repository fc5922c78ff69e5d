"""Process ids, memory and termination of Chromium processes. No effect outside Linux."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_CHROMIUM_ARGUMENT = "--webagent-instance="
_DRIVER_ARGUMENT = "run-driver"
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


def find_process(mark: str) -> int | None:
    """Return the id of the process with the argument `mark`; None without /proc.

    Some systems wrap Chromium in a start script, which has the argument too. The result is its
    child process.
    """
    lines = {pid: line for pid in _pids() if mark in (line := _read(pid, "cmdline")).split("\0")}
    # A child that Chromium has forked has the arguments of its parent until it calls exec.
    pids = {pid for pid, line in lines.items() if lines.get(_parent(pid)) != line}
    return next(iter(pids - {_parent(pid) for pid in pids}), None)


def find_driver(chromium_pid: int) -> int | None:
    """Return the id of the Playwright driver that started a Chromium; None without /proc."""
    ancestors = _ancestors(chromium_pid)
    return next((pid for pid in ancestors if _DRIVER_ARGUMENT in _read(pid, "cmdline")), None)


def tree_rss_mib(root_pid: int) -> float:
    """Return the RSS of `root_pid` and its descendants in MiB.

    Shared memory pages count for `root_pid` only.
    """
    parents = {pid: _parent(pid) for pid in _pids()}
    family = {root_pid}
    has_new = True
    while has_new:
        # Each pass adds one generation of child processes.
        children = {pid for pid, parent in parents.items() if parent in family} - family
        family |= children
        has_new = bool(children)
    return sum(_rss_mib(pid, include_shared=pid == root_pid) for pid in family)


def process_rss_mib(pid: int) -> float:
    """Return the RSS of one process in MiB, without child processes."""
    return _rss_mib(pid, include_shared=True)


def kill_renderers_above(limit_mib: float, root_pid: int) -> None:
    """Kill the renderers of the Chromium `root_pid` with more unshared memory than `limit_mib`.

    Pages of a killed renderer crash; the others continue.
    """
    for pid in _pids():
        # For most processes this is the only file read.
        if _rss_mib(pid, include_shared=False) <= limit_mib:
            continue
        if "--type=renderer" in _read(pid, "cmdline") and root_pid in _ancestors(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def kill(pid: int) -> None:
    """Kill a Chromium or a driver if it still runs; child processes of a Chromium end with it."""
    # The system may have given the id to another process; the argument identifies our processes.
    command = _read(pid, "cmdline")
    if _CHROMIUM_ARGUMENT in command or _DRIVER_ARGUMENT in command:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _ancestors(pid: int) -> Iterator[int]:
    while pid := _parent(pid):
        yield pid


def _rss_mib(pid: int, *, include_shared: bool) -> float:
    """Return the RSS of one process in MiB, with or without shared memory pages."""
    fields = _read(pid, "statm").split()
    if len(fields) < 3:
        return 0.0
    # statm counts memory pages: size, resident, shared.
    return (int(fields[1]) - (0 if include_shared else int(fields[2]))) * _PAGE_MIB


def _pids() -> Iterator[int]:
    if _PROC.is_dir():
        yield from (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())


def _read(pid: int, name: str) -> str:
    """Return the content of a file in /proc; empty for a process that has ended."""
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / name).read_text(errors="replace")
    return ""


def _parent(pid: int) -> int:
    # The name in parentheses may contain spaces, so the fields start after the last parenthesis.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0
