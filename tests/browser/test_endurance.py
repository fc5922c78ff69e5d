"""Endurance test of the browser pool: episodes complete without leaks while browsers are killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.browser.conftest import Site
from webagent_jax.browser import BrowserPool, process_memory
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError

EPISODES = 3_000
WARMUP_EPISODES = 300  # the final memory is compared with that after these
KILL_INTERVAL = 200  # episodes
THREADS = 16
PROCESSES = 2  # Chromium processes
MAX_ATTEMPTS = 5  # per episode, before it counts as lost
MAX_PYTHON_GROWTH_MIB = 60.0
MAX_TREE_GROWTH_MIB = 250.0  # includes drivers and browsers

PAGE = "<button onclick=\"out.textContent = 'pressed'\">Press</button><p id=out></p>"


class EpisodeRunner:
    """Runs episodes in threads and kills a browser after every KILL_INTERVAL episodes."""

    def __init__(self, pool: BrowserPool, site: Site) -> None:
        self._pool, self._origin, self._url = pool, site.origin, site.add_page(PAGE)
        self._lock = threading.Lock()
        self.num_ended = self.num_interrupted = self.num_killed = 0
        self.browsers: set[int] = set()  # process session ids of all browsers

    def run(self, count: int) -> int:
        """Return how many of `count` episodes have the expected result."""
        with ThreadPoolExecutor(THREADS) as threads:
            return sum(threads.map(lambda _: self._run_episode(), range(count)))

    def _run_episode(self) -> bool:
        for _ in range(MAX_ATTEMPTS):
            try:
                text = self._run_attempt()
            except InfraError:
                with self._lock:
                    self.num_interrupted += 1
                continue
            self._count_episode()
            return text == "button Press [1]\npressed"
        return False

    def _run_attempt(self) -> str:
        with self._pool.session(origins=[self._origin]) as session:
            with self._lock:
                self.browsers.add(session_id(session._chromium.pid or 0))
            session.goto(self._url)
            session.observe()
            session.observe(session.act(Action(ActionKind.CLICK, "1")))
            return session.observe(session.act(Action(ActionKind.CLICK, "1"))).text

    def _count_episode(self) -> None:
        with self._lock:
            self.num_ended += 1
            if self.num_ended % KILL_INTERVAL:
                return
            workers = self._pool._workers
            process = workers[self.num_killed % len(workers)]._current
            self.num_killed += 1
        if process and process.pid:
            os.kill(process.pid, signal.SIGKILL)


def find_processes(browsers: set[int]) -> list[int]:
    """Return the running processes of these browsers; each browser has its own process session."""
    sessions = browsers - {0}  # 0: processes that have just ended, kernel threads
    return [pid for pid in process_memory._pids() if session_id(pid) in sessions]


def session_id(pid: int) -> int:
    fields = process_memory._read(pid, "stat").rpartition(")")[2].split()
    return int(fields[3]) if len(fields) > 3 else 0


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait up to 20 s until `condition` is true: killed processes are noticed and reaped later."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)


def memory_mib() -> tuple[float, float]:
    """Return the resident MiB of this process, alone and with its descendants."""
    process_rss = process_memory.process_rss_mib(os.getpid())
    return process_rss, process_memory.tree_rss_mib(os.getpid())


@pytest.fixture
def local_site() -> Iterator[Site]:
    server = Site()
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(3_600)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_pool_survives_killed_browsers_without_leaks(local_site: Site) -> None:
    threads = set(threading.enumerate())
    config = BrowserConfig(num_processes=PROCESSES, call_timeout=30.0)
    with BrowserPool(config) as pool:
        runner = EpisodeRunner(pool, local_site)
        num_correct = runner.run(WARMUP_EPISODES)
        initial_mib = memory_mib()
        num_correct += runner.run(EPISODES - WARMUP_EPISODES)
        final_mib = memory_mib()
        wait_until(lambda: pool.stats().crashes == runner.num_killed)
        stats = pool.stats()
        assert find_processes(runner.browsers)  # the search finds running ones
    sys.stdout.write(
        f"\n{runner.num_ended} episodes, {runner.num_interrupted} interrupted, "
        f"{runner.num_killed} browsers killed\n"
        f"{stats}\nMiB of this process, of all: {initial_mib} then {final_mib}\n"
    )
    assert num_correct == runner.num_ended == EPISODES
    assert runner.num_killed == EPISODES // KILL_INTERVAL and stats.crashes == runner.num_killed
    assert stats.contexts_live == 0
    assert final_mib[0] - initial_mib[0] < MAX_PYTHON_GROWTH_MIB
    assert final_mib[1] - initial_mib[1] < MAX_TREE_GROWTH_MIB
    wait_until(lambda: not find_processes(runner.browsers))
    assert find_processes(runner.browsers) == []
    assert {t for t in threading.enumerate() if t.name.startswith("browser-")} <= threads
