"""Tests of browser workers in processes: the interface of sessions, faults, cleanup."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.browser.conftest import browser_pids, descendants, wait_until_ended
from tests.suites.scripted_episodes import run_script
from webagent_jax.browser import BrowserPool, Session, worker_process, worker_server
from webagent_jax.browser.worker_process import WorkerProcess
from webagent_jax.config import BrowserConfig, ConfigError
from webagent_jax.suites.miniwob import MiniWob
from webagent_jax.types import Action, ActionKind, InfraError, Outcome

ENDLESS_SCRIPT = "new Promise(() => 0)"
PAGE = """<h1>Shop</h1><a href=/second>Second</a><input aria-label=Name>
<button onclick="document.title = 'clicked'">Buy</button>"""


def new_pool(**options: Any) -> BrowserPool:
    defaults = {"call_timeout": 60.0, "navigation_timeout": 60.0, "worker_type": "process"}
    return BrowserPool(BrowserConfig(**{**defaults, **options}))


@pytest.fixture(scope="module")
def process_pool() -> Iterator[BrowserPool]:
    """Return a pool with the viewport of the fixture `pool`."""
    with new_pool(viewport_width=800, viewport_height=600) as browser_pool:
        yield browser_pool


@pytest.fixture
def private_pool() -> Iterator[BrowserPool]:
    """Return a pool for tests that break it."""
    with new_pool() as browser_pool:
        yield browser_pool


def workers(pool: BrowserPool) -> list[WorkerProcess]:
    return [worker for worker in pool._workers if isinstance(worker, WorkerProcess)]


def worker_processes(pool: BrowserPool) -> list[subprocess.Popen[bytes]]:
    return [worker._process for worker in workers(pool) if worker._process is not None]


def assert_works(pool: BrowserPool, site: Any) -> None:
    with pool.session(origins=[site.origin]) as session:
        session.goto(site.add_page("<p>fine</p>"))
        assert session.observe().text == "fine"


def visit(session: Session, url: str) -> list[Any]:
    """Call the methods of a session; return the results."""
    session.goto(url)
    first = session.observe("an earlier error")
    ids = {element.name: element_id for element_id, element in first.elements.items()}
    results: list[Any] = [first, session.screenshot(), set(session.take_timings())]
    for action in (
        Action(ActionKind.TYPE, ids["Name"], "Ada"),
        Action(ActionKind.CLICK, ids["Buy"]),
        Action(ActionKind.CLICK, "no such element"),
    ):
        results += [session.act(action), session.observe()]
    session.settle()
    results += [session.evaluate("(a) => [a, document.title]", {"b": [1, None]}), session.url]
    session.open_tab(url + "second")
    results += [session.observe(), session.url]
    session.switch_tab(0)
    results += [session.url, set(session.take_timings()), session.storage_state()]
    log = [
        (entry["request"]["url"], entry["response"]["status"]) for entry in session.network_log()
    ]
    return [*results, log]


@pytest.mark.browser
def test_remote_session_returns_results_of_session(
    pool: BrowserPool, process_pool: BrowserPool, site: Any
) -> None:
    site.add_page("<p>second</p>", "/second")
    url = site.add_page(PAGE)
    with (
        pool.session(origins=[site.origin], log_network=True) as session,
        process_pool.session(origins=[site.origin], log_network=True) as remote_session,
    ):
        assert browser_pids() and len(worker_processes(process_pool)) == 1
        expected = visit(session, url)
        assert visit(remote_session, url) == expected
        assert remote_session.evaluate("document.title") == "clicked"


@pytest.mark.browser
@pytest.mark.parametrize(
    ("call", "error_class"),
    [
        (lambda session: session.goto("http://example.com/"), ValueError),
        (lambda session: session.switch_tab(7), ValueError),
        (lambda session: session.evaluate("missing.name"), InfraError),
    ],
)
def test_remote_session_raises_errors_of_session(
    call: Callable[[Session], object],
    error_class: type[Exception],
    pool: BrowserPool,
    process_pool: BrowserPool,
    site: Any,
) -> None:
    messages = []
    for either_pool in (pool, process_pool):
        with either_pool.session(origins=[site.origin]) as session:
            session.goto(site.add_page("<p>fine</p>"))
            with pytest.raises(error_class) as raised:
                call(session)
            assert type(raised.value) is error_class
            messages.append(str(raised.value))
            assert session.observe().text == "fine"
    assert messages[0] == messages[1]


@pytest.mark.browser
def test_with_page_raises_config_error(process_pool: BrowserPool, site: Any) -> None:
    async def title(page: Any) -> str:
        return str(await page.title())

    with (
        process_pool.session(origins=[site.origin]) as session,
        pytest.raises(ConfigError, match=r"--config\.browser\.worker_type=thread"),
    ):
        session.with_page(title)


class UnrestorableError(Exception):
    """Exception whose arguments are not those of its class."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")


@pytest.mark.parametrize(
    ("error", "result"), [(UnrestorableError(7, "broken"), None), (None, lambda: 0)]
)
def test_response_that_cannot_be_pickled_becomes_infra_error(
    error: Exception | None, result: object
) -> None:
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        worker_server._respond(theirs, error, result)
        response, value = ours.recv()
    assert type(response) is InfraError and value is None
    assert error is None or "7: broken" in str(response)


def test_interrupted_call_closes_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call must not receive the response of the interrupted one."""

    def interrupt(timeout: float) -> bool:
        raise KeyboardInterrupt

    ours, theirs = multiprocessing.Pipe()
    with theirs:
        theirs.send((None, "response of the interrupted call"))
        monkeypatch.setattr(ours, "poll", interrupt)
        with pytest.raises(KeyboardInterrupt):
            worker_process._request(ours, "request", 1.0)
        monkeypatch.undo()
        with pytest.raises(InfraError, match="has ended"):
            worker_process._request(ours, "request", 1.0)


@pytest.mark.browser
@pytest.mark.timeout(120)  # the end of the process ends the call long before its timeout
def test_killed_worker_process_is_replaced(site: Any) -> None:
    with new_pool(call_timeout=3600.0) as pool:
        session = pool.session(origins=[site.origin])
        session.goto(site.add_page("<p>fine</p>"))
        (process,) = worker_processes(pool)
        old_pids = descendants(process.pid)
        assert any("run-driver" in command for command in old_pids.values())
        assert pool.stats().launches == 1
        timer = threading.Timer(0.5, process.kill)
        timer.start()
        with pytest.raises(InfraError, match="the browser process has ended"):
            session.evaluate(ENDLESS_SCRIPT)
        timer.join()
        calls: list[Callable[[], object]] = [
            session.observe,
            session.take_timings,
            lambda: session.url,
        ]
        for call in calls:
            with pytest.raises(InfraError):
                call()
        session.close()
        process.wait(20)
        assert pool.stats().crashes == 1 and not worker_processes(pool)  # it starts no process
        assert_works(pool, site)
        stats = pool.stats()
        assert worker_processes(pool)[0].pid != process.pid
        # The counts of the ended process remain.
        assert (stats.crashes, stats.launches, stats.contexts_opened) == (1, 2, 2)
        assert stats.contexts_live == 0
        wait_until_ended(old_pids)


@pytest.mark.browser
def test_session_opens_if_process_ends_unnoticed(
    private_pool: BrowserPool, site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_pool.session(origins=[site.origin]).close()
    (process,) = worker_processes(private_pool)
    process.kill()
    process.wait(20)
    results = iter([None])  # the first `poll` is too early
    monkeypatch.setattr(process, "poll", lambda: next(results, process.returncode))
    assert_works(private_pool, site)
    assert private_pool.stats().crashes == 1


def test_process_that_does_not_start_leaves_no_descriptor_open(
    private_pool: BrowserPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("out of memory")

    monkeypatch.setattr(worker_process.python_process, "start", fail)
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(InfraError, match="the browser process does not start: out of memory"):
        private_pool.session(origins=[])
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)


@pytest.mark.browser
def test_frozen_worker_process_is_replaced(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_SLACK_SECONDS", 1.0)
    options = {"call_timeout": 5.0, "navigation_timeout": 5.0, "settle_timeout": 0.2}
    with new_pool(**options) as pool:
        session = pool.session(origins=[site.origin])
        other_session = pool.session(origins=[site.origin])
        (process,) = worker_processes(pool)
        old_pids = descendants(process.pid)
        process.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        with pytest.raises(InfraError, match=r"no response in 11\.6 s"):
            session.observe()
        assert time.monotonic() - start > 10
        with pytest.raises(InfraError, match="has ended"):
            other_session.observe()
        with pool.session(origins=[site.origin]) as new_session:
            (new_process,) = worker_processes(pool)
            assert isinstance(other_session, worker_process.RemoteSession)
            other_session._on_timeout()  # a late timeout does not end the new process
            assert new_session.evaluate("1 + 1") == 2 and new_process.poll() is None
        assert new_process.pid != process.pid and pool.stats().crashes == 1
        session.close()
        other_session.close()
        wait_until_ended([process.pid, *old_pids])


@pytest.mark.browser
def test_close_ends_worker_processes(site: Any) -> None:
    pool = new_pool(num_processes=2, call_timeout=3600.0)
    sessions = [pool.session(origins=[site.origin]) for _ in range(2)]
    processes = worker_processes(pool)
    pids = {pid for process in processes for pid in (process.pid, *descendants(process.pid))}
    assert len(processes) == 2 and len(pids & browser_pids()) >= 2
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(sessions[0].evaluate, ENDLESS_SCRIPT)
        time.sleep(0.5)
        pool.close()
        with pytest.raises(InfraError):
            future.result(60)
    pool.close()
    assert all(process.returncode == 0 for process in processes)
    wait_until_ended(pids)
    for session in sessions:
        with pytest.raises(InfraError):
            session.observe()
        session.close()
        session.close()
        with pytest.raises(InfraError, match="the session is closed"):
            session.observe()
    with pytest.raises(InfraError, match="pool is closed"):
        pool.session(origins=[site.origin])
    # A session that was counted before the pool closed starts no process.
    with pytest.raises(InfraError, match="pool is closed"):
        workers(pool)[0]._connect()
    assert pool.stats().crashes == 0 and pool.stats().contexts_live == 0


@pytest.mark.browser
def test_signals_do_not_end_worker_process(private_pool: BrowserPool, site: Any) -> None:
    with private_pool.session(origins=[site.origin]) as session:
        (process,) = worker_processes(private_pool)
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
            time.sleep(0.2)
            assert session.evaluate("1 + 1") == 2
        assert_works(private_pool, site)
        assert worker_processes(private_pool) == [process] and process.poll() is None


@pytest.mark.browser
def test_contexts_are_reused(process_pool: BrowserPool, site: Any) -> None:
    num_reused = process_pool.stats().contexts_reused
    # A context may return to the worker after the next session opens.
    for _ in range(20):
        with process_pool.session(origins=[site.origin], reuse=True) as session:
            session.goto(site.add_page("<p>fine</p>"))
            assert session.evaluate("[document.cookie, document.cookie = 'a=1'][0]") == ""
        if process_pool.stats().contexts_reused > num_reused:
            break
    else:
        pytest.fail("no context was reused")


@pytest.mark.browser
@pytest.mark.skipif(sys.platform != "linux", reason="thread priorities need Linux")
def test_chromium_has_priority_of_worker_threads(process_pool: BrowserPool) -> None:
    with process_pool.session(origins=["127.0.0.1:1"]):
        (process,) = worker_processes(process_pool)
        commands = descendants(process.pid)
        (driver,) = [pid for pid, command in commands.items() if "run-driver" in command]
        niceness = os.getpriority(os.PRIO_PROCESS, os.getpid())
        assert os.getpriority(os.PRIO_PROCESS, driver) == min(niceness + 5, 19)


@pytest.mark.browser
def test_episode_runs_in_worker_process(process_pool: BrowserPool) -> None:
    suite = MiniWob(process_pool)
    try:
        episode = run_script(suite, suite.task("click-test", "train", 0), ("Click", "Click Me!"))
    finally:
        suite.close()
    assert episode.outcome is Outcome.SUCCESS and episode.reward == 1, episode.infra_error
    assert "browser/observe" in episode.turns[0].seconds
