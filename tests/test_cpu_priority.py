"""Tests of the CPU priority of rollout threads and browsers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from webagent_jax import cpu_priority
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="thread priorities need Linux")

_RAISE_PRIORITY = "import os\nos.setpriority(os.PRIO_PROCESS, 0, -8)"


def niceness(thread: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread)


def test_lower_priority_affects_only_thread_and_children() -> None:
    initial_niceness = niceness(threading.get_native_id())
    lower_niceness = min(initial_niceness + 5, 19)
    with ThreadPoolExecutor(1, initializer=cpu_priority.lower_priority) as executor:
        thread_niceness = executor.submit(lambda: niceness(threading.get_native_id())).result()
        assert thread_niceness == lower_niceness
        read_command = [
            sys.executable,
            "-c",
            "import os; print(os.getpriority(os.PRIO_PROCESS, 0))",
        ]
        read_result = executor.submit(
            subprocess.run, read_command, capture_output=True, text=True
        ).result()
        assert int(read_result.stdout) == lower_niceness
        raise_command = [sys.executable, "-c", _RAISE_PRIORITY]
        raise_result = executor.submit(
            subprocess.run, raise_command, capture_output=True, text=True
        ).result()
        assert "PermissionError" in raise_result.stderr
    assert niceness(threading.get_native_id()) == initial_niceness


@pytest.mark.browser
def test_browser_threads_have_lower_priority() -> None:
    with BrowserPool(BrowserConfig()) as pool, pool.session(origins=["127.0.0.1:1"]):
        (chromium,) = pool._workers[0]._browsers
        assert chromium.pid is not None
        threads = [int(thread) for thread in os.listdir(f"/proc/{chromium.pid}/task")]
        assert min(map(niceness, threads)) >= 5
