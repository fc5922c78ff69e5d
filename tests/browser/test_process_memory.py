"""Tests of finding Chromium among the processes of the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from webagent_jax.browser import process_memory

# One write per process: two calls of print may interleave, as print writes the newline separately.
PRINT_PID = r'os.write(1, b"%d\n" % os.getpid())'
FORK_SCRIPT = f"import os, time; os.fork(); {PRINT_PID}; time.sleep(60)"
SLEEP_SCRIPT = f"import os, time; {PRINT_PID}; time.sleep(60)"
# Memory counts as resident only after a write, so the bytes are not 0.
ALLOCATE_SCRIPT = (
    f"import os, time; data = bytearray(b'x') * (80 << 20); {PRINT_PID}; time.sleep(60)"
)
START_SCRIPT = ("sh", "-c", '"$0" "$@"; true', sys.executable, "-c")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@contextmanager
def run_processes(*command: str, count: int) -> Iterator[list[int]]:
    """Run a command whose `count` processes print their ids; yield the ids."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    try:
        yield [int(process.stdout.readline()) for _ in range(count)]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_find_process_ignores_forked_child() -> None:
    mark = f"--webagent-instance={uuid.uuid4().hex}"
    with run_processes(sys.executable, "-c", FORK_SCRIPT, mark, count=2) as pids:
        (parent,) = [pid for pid in pids if process_memory._parent(pid) == os.getpid()]
        assert process_memory.find_process(mark) == parent


def test_find_process_returns_child_of_start_script() -> None:
    mark = f"--webagent-instance={uuid.uuid4().hex}"
    with run_processes(*START_SCRIPT, SLEEP_SCRIPT, mark, count=1) as (child,):
        assert process_memory._parent(child) != os.getpid()
        assert process_memory.find_process(mark) == child


def test_find_process_returns_none_without_process() -> None:
    assert process_memory.find_process(f"--webagent-instance={uuid.uuid4().hex}") is None


def test_tree_rss_includes_all_descendants() -> None:
    """The process with the memory is a child of a child."""
    initial_rss_mib = process_memory.tree_rss_mib(os.getpid())
    with run_processes(*START_SCRIPT, ALLOCATE_SCRIPT, count=1) as (descendant,):
        assert process_memory._parent(process_memory._parent(descendant)) == os.getpid()
        assert process_memory.tree_rss_mib(os.getpid()) - initial_rss_mib > 70
