"""Thousands of episodes, and browsers killed among them: nothing lost, left over or grown."""

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
WARM = 300  # after so many the sizes are taken that the last ones are held against
KILL_EVERY = 200
THREADS = 16
PROCESSES = 2  # of Chromium
TRIES = 5  # of one episode, before it counts as lost
PYTHON_ALLOWANCE = 60.0  # MiB that this process may have grown by
TREE_ALLOWANCE = 250.0  # MiB that it may have grown by with its drivers and browsers

PAGE = "<button onclick=\"out.textContent = 'pressed'\">Press</button><p id=out></p>"


class Run:
    """Episodes in threads; a browser is killed whenever KILL_EVERY of them have ended."""

    def __init__(self, pool: BrowserPool, site: Site) -> None:
        self._pool, self._origin, self._url = pool, site.origin, site.page(PAGE)
        self._lock = threading.Lock()
        self.ended = self.interrupted = self.killed = 0
        self.browsers: set[int] = set()  # ids of the process sessions of all that were met

    def episodes(self, count: int) -> int:
        """How many of `count` had a result."""
        with ThreadPoolExecutor(THREADS) as threads:
            return sum(threads.map(lambda _: self._episode(), range(count)))

    def _episode(self) -> bool:
        for _ in range(TRIES):
            try:
                seen = self._play()
            except InfraError:
                with self._lock:
                    self.interrupted += 1
                continue
            self._count()
            return seen == "button Press [1]\npressed"
        return False

    def _play(self) -> str:
        with self._pool.session(origins=[self._origin]) as session:
            with self._lock:
                self.browsers.add(session_of(session._chromium.pid or 0))
            session.goto(self._url)
            session.observe()
            session.observe(session.act(Action(ActionKind.CLICK, "1")))
            return session.observe(session.act(Action(ActionKind.CLICK, "1"))).text

    def _count(self) -> None:
        with self._lock:
            self.ended += 1
            if self.ended % KILL_EVERY:
                return
            workers = self._pool._workers
            host = workers[self.killed % len(workers)]._current
            self.killed += 1
        if host and host.pid:
            os.kill(host.pid, signal.SIGKILL)


def left_of(browsers: set[int]) -> list[int]:
    """Processes of these browsers that are still there; each browser is a session of its own."""
    known = browsers - {0}  # 0 is what a process that has just ended has, and the kernel's own
    return [pid for pid in process_memory._pids() if session_of(pid) in known]


def session_of(pid: int) -> int:
    fields = process_memory._read(pid, "stat").rpartition(")")[2].split()
    return int(fields[3]) if len(fields) > 3 else 0


def comes_true(condition: Callable[[], bool]) -> None:
    """Waits for it: what was killed is missed, and cleared by the system, a while later."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)


def sizes() -> tuple[float, float]:
    """MiB of this process alone, and with all below it."""
    own = process_memory.process_rss_mib(os.getpid())
    return own, process_memory.tree_rss_mib(os.getpid())


@pytest.fixture
def own_site() -> Iterator[Site]:
    one = Site()
    yield one
    one.close()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(3_600)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_thousands_of_episodes_with_browsers_killed(own_site: Site) -> None:
    threads = set(threading.enumerate())
    config = BrowserConfig(num_processes=PROCESSES, call_timeout=30.0)
    with BrowserPool(config) as pool:
        run = Run(pool, own_site)
        told = run.episodes(WARM)
        before = sizes()
        told += run.episodes(EPISODES - WARM)
        after = sizes()
        comes_true(lambda: pool.stats().crashes == run.killed)
        stats = pool.stats()
        assert left_of(run.browsers)  # so that none can be missed below
    sys.stdout.write(
        f"\n{run.ended} episodes, {run.interrupted} interrupted, {run.killed} browsers killed\n"
        f"{stats}\nMiB of this process, of all: {before} then {after}\n"
    )
    assert told == run.ended == EPISODES
    assert run.killed == EPISODES // KILL_EVERY and stats.crashes == run.killed
    assert stats.contexts_live == 0
    assert after[0] - before[0] < PYTHON_ALLOWANCE
    assert after[1] - before[1] < TREE_ALLOWANCE
    comes_true(lambda: not left_of(run.browsers))
    assert left_of(run.browsers) == []
    assert {t for t in threading.enumerate() if t.name.startswith("browser-")} <= threads
