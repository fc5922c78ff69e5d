"""Browsers and engine give way to the learner, and nobody else does."""

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

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads")

_RAISE = "import os\nos.setpriority(os.PRIO_PROCESS, 0, -8)"


def niceness(thread: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread)


def test_a_thread_and_what_it_starts_give_way_and_nobody_else() -> None:
    here = niceness(threading.get_native_id())
    with ThreadPoolExecutor(1, initializer=cpu_priority.lower_priority) as one:
        assert one.submit(lambda: niceness(threading.get_native_id())).result() == here + 5
        read = [sys.executable, "-c", "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"]
        child = one.submit(subprocess.run, read, capture_output=True, text=True).result()
        assert int(child.stdout) == here + 5
        pushing = [sys.executable, "-c", _RAISE]
        pushed = one.submit(subprocess.run, pushing, capture_output=True, text=True).result()
        assert "PermissionError" in pushed.stderr
    assert niceness(threading.get_native_id()) == here


@pytest.mark.browser
def test_no_thread_of_a_browser_goes_before_others() -> None:
    with BrowserPool(BrowserConfig()) as pool, pool.session(origins=["127.0.0.1:1"]):
        (chromium,) = pool._workers[0]._browsers
        assert chromium.pid is not None
        threads = [int(thread) for thread in os.listdir(f"/proc/{chromium.pid}/task")]
        assert min(map(niceness, threads)) >= 5
