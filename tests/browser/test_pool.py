"""Tests of the browser pool: session isolation, crash detection and cleanup."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import browser_pids, descendants, wait_until_ended
from webagent_jax.browser import (
    BrowserPool,
    ChromiumMissingError,
    Session,
    chromium,
    process_memory,
    worker,
)
from webagent_jax.browser.context import EpisodeContext
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError

Show = Callable[[str], Session]


@pytest.fixture
def private_pool(request: pytest.FixtureRequest) -> Iterator[BrowserPool]:
    """Return a pool for tests that break it; the parameter is its call timeout in seconds."""
    call_timeout = getattr(request, "param", 30.0)
    with BrowserPool(BrowserConfig(call_timeout=call_timeout)) as browser_pool:
        yield browser_pool


BUSY_SESSIONS_SCRIPT = """
import sys
import threading
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig

config = BrowserConfig(num_processes=2, call_timeout=300.0, worker_type=sys.argv[1])
pool = BrowserPool(config)
sessions = [pool.session(origins=["a:1"]) for _ in range(4)]
for session in sessions:
    session.evaluate("1")
for session in sessions:
    threading.Thread(target=session.evaluate, args=("for (;;);",), daemon=True).start()
print("busy", flush=True)
threading.Event().wait(300)
"""


@pytest.mark.browser
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
@pytest.mark.parametrize(("worker_type", "num_workers"), [("thread", 0), ("process", 2)])
def test_killed_process_leaves_no_driver_or_browser(worker_type: str, num_workers: int) -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-c", BUSY_SESSIONS_SCRIPT, worker_type],
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert process.stdout and process.stdout.readline() == "busy\n"
        commands = descendants(process.pid)
        assert sum("run-driver" in command for command in commands.values()) == 2
        assert sum("--type=renderer" in command for command in commands.values()) >= 4
        assert sum("worker_server" in command for command in commands.values()) == num_workers
    wait_until_ended(commands)


@pytest.mark.browser
def test_session_reaches_allowed_origins_only(show: Show, site: Any, other_site: Any) -> None:
    link = other_site.add_page("<p>secret</p>")
    site.redirects["/away"] = link
    session = show(
        f"<a href='{link}'>Direct</a> <a href=/away>Redirect</a> <img src='{link}'><script>"
        f"fetch('{link}', {{mode: 'no-cors'}}).catch(() => 0); new WebSocket('ws://{link[7:]}')"
        "</script>"
    )
    for element_id in ("1", "2"):
        session.goto(f"http://{site.origin}/")
        assert element_id in session.observe().elements
        session.act(Action(ActionKind.CLICK, element_id))
        assert "secret" not in session.observe().text
    assert "/away" in site.requested_paths and other_site.requested_paths == []


@pytest.mark.browser
def test_goto_rejects_other_addresses(session: Session, other_site: Any) -> None:
    for url in (other_site.add_page("x"), "file:///etc/hosts", "about:blank", "no address"):
        with pytest.raises(ValueError, match="not an http address on the origins allowed here"):
            session.goto(url)
    assert other_site.requested_paths == []


@pytest.mark.browser
def test_session_reaches_one_world_by_host_name(pool: BrowserPool, site: Any) -> None:
    site.add_page("<p>shop</p>")
    port = site.origin.split(":")[1]
    with pool.session(origins=[f".w17.localhost:{port}"]) as session:
        session.goto(f"http://shop.w17.localhost:{port}/")
        assert session.observe().text == "shop"
        with pytest.raises(ValueError, match="allowed here"):
            session.goto(f"http://shop.w18.localhost:{port}/")
        num_requests = len(site.requested_paths)
        session.evaluate(f"fetch('http://shop.w18.localhost:{port}/').catch(() => 0)")
        assert len(site.requested_paths) == num_requests


@pytest.mark.browser
def test_sessions_share_no_cookies(pool: BrowserPool, site: Any) -> None:
    url = site.add_page("x")
    with (
        pool.session(origins=[site.origin]) as first,
        pool.session(origins=[site.origin]) as second,
    ):
        first.goto(url)
        second.goto(url)
        first.evaluate("() => { document.cookie = 'a=1'; localStorage.b = 2; }")
        assert second.evaluate("[document.cookie, localStorage.b ?? null]") == ["", None]


@pytest.mark.browser
def test_session_supports_init_script_viewport_and_screenshot(pool: BrowserPool, site: Any) -> None:
    url = site.add_page("<script>document.title = window.told</script>")
    with pool.session(
        origins=[site.origin], init_script="window.told = 'early'", viewport=(300, 200)
    ) as session:
        session.goto(url)
        assert session.observe().title == "early"
        assert session.evaluate("(a) => [innerWidth, innerHeight, a]", 5) == [300, 200, 5]
        assert session.screenshot().startswith(b"\xff\xd8")


@pytest.mark.browser
def test_failing_script_raises_infra_error(show: Show) -> None:
    session = show("x")
    with pytest.raises(InfraError, match="missing"):
        session.evaluate("missing.name")
    assert session.observe().text == "x"


@pytest.mark.browser
@pytest.mark.timeout(120)  # a crash ends the call long before its timeout
@pytest.mark.parametrize("private_pool", [3600.0], indirect=True)
def test_browser_crash_during_call_raises_infra_error(private_pool: BrowserPool, site: Any) -> None:
    url = site.add_page("<p>fine</p>")
    session = private_pool.session(origins=[site.origin])
    session.goto(url)
    old_pids = browser_pids()
    timer = threading.Timer(
        0.5, lambda: [os.kill(pid, signal.SIGKILL) for pid in chromium_pids(private_pool)]
    )
    timer.start()
    with pytest.raises(InfraError, match="crashed or was killed"):
        session.evaluate("new Promise(() => 0)")
    timer.join()
    with pytest.raises(InfraError):
        session.observe()
    session.close()
    with private_pool.session(origins=[site.origin]) as new_session:
        new_session.goto(url)
        assert new_session.observe().text == "fine"
    stats = private_pool.stats()
    assert (stats.crashes, stats.launches, stats.contexts_opened) == (1, 2, 2)
    assert stats.contexts_live == 0 and len(browser_pids()) == len(old_pids)


@pytest.mark.browser
def test_killed_driver_is_replaced(private_pool: BrowserPool, site: Any) -> None:
    url = site.add_page("<p>fine</p>")
    session = private_pool.session(origins=[site.origin])
    session.goto(url)
    old_pids = chromium_pids(private_pool)
    os.kill(driver_pid(private_pool), signal.SIGKILL)
    with pytest.raises(InfraError):
        session.observe()
    session.close()
    for _ in range(2):
        with private_pool.session(origins=[site.origin]) as new_session:
            new_session.goto(url)
            assert new_session.observe().text == "fine"
    stats = private_pool.stats()
    assert (stats.crashes, stats.launches, stats.contexts_live) == (1, 2, 0)
    assert not {*old_pids} & {*chromium_pids(private_pool)}


@pytest.mark.browser
@pytest.mark.parametrize("is_driver", [False, True])
def test_frozen_process_is_replaced(
    is_driver: bool, private_pool: BrowserPool, site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = site.add_page("<p>fine</p>")
    private_pool.session(origins=[site.origin]).close()
    deadline = time.monotonic() + 20
    # Without a context to close, only the next one finds the frozen process.
    while has_contexts(private_pool) and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = (driver_pid if is_driver else chromium_pid)(private_pool)
    monkeypatch.setattr(worker, "_LAUNCH_TIMEOUT", 8.0)
    monkeypatch.setattr(worker, "_CLOSE_TIMEOUT", 2.0)
    os.kill(pid, signal.SIGSTOP)
    for _ in range(2):
        with private_pool.session(origins=[site.origin]) as new_session:
            new_session.goto(url)
            assert new_session.observe().text == "fine"
    assert (private_pool.stats().crashes, private_pool.stats().launches) == (1, 2)
    private_pool.close()
    assert process_memory._read(pid, "cmdline") == ""  # it has ended


def has_contexts(pool: BrowserPool) -> bool:
    return any(process.contexts for worker in pool._workers for process in worker._browsers)


def chromium_pid(pool: BrowserPool) -> int:
    (pid,) = chromium_pids(pool)
    return pid


def driver_pid(pool: BrowserPool) -> int:
    """Return the process of Playwright's driver."""
    driver = process_memory.find_driver(chromium_pid(pool))
    assert driver is not None
    return driver


def chromium_pids(pool: BrowserPool) -> list[int]:
    return [process.pid for worker in pool._workers for process in worker._browsers if process.pid]


@pytest.mark.browser
def test_call_timeout_does_not_affect_other_sessions(site: Any) -> None:
    config = BrowserConfig(call_timeout=3.0)
    with BrowserPool(config) as pool, pool.session(origins=[site.origin]) as hung_session:
        hung_session.goto(site.add_page("<p>x</p>"))
        with pytest.raises(InfraError, match="no response in 3 s"):
            hung_session.evaluate("() => { for (;;); }")
        with pool.session(origins=[site.origin]) as other_session:
            other_session.goto(site.add_page("<p>x</p>"))
            assert other_session.evaluate("1 + 1") == 2


@pytest.mark.browser
def test_browser_is_replaced_after_max_episodes(site: Any) -> None:
    url = site.add_page("<p>x</p>")
    with BrowserPool(BrowserConfig(max_episodes_per_process=2, call_timeout=30.0)) as pool:
        first_session = pool.session(origins=[site.origin])
        first_session.goto(url)
        pool.session(origins=[site.origin]).close()
        third_session = pool.session(origins=[site.origin])  # in a new process
        assert pool.stats().launches == 2 and pool.stats().recycles == 1
        assert first_session.observe().text == "x"
        first_session.close()
        deadline = time.monotonic() + 20
        while len(chromium_pids(pool)) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(chromium_pids(pool)) == 1 and pool.stats().crashes == 0
        third_session.goto(url)


@pytest.mark.browser
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
@pytest.mark.parametrize(("rss_mib", "launches", "recycles"), [(4000.0, 1, 0), (4001.0, 2, 1)])
def test_browser_is_replaced_above_memory_limit(
    rss_mib: float, launches: int, recycles: int, site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_pids = []

    def measure(pid: int) -> float:
        measured_pids.append(pid)
        return rss_mib

    monkeypatch.setattr(worker, "_CONTEXTS_PER_RSS_CHECK", 2)
    monkeypatch.setattr(process_memory, "tree_rss_mib", measure)
    with BrowserPool(BrowserConfig(max_rss_mib=4000)) as pool:
        pool.session(origins=[site.origin]).close()
        pids = chromium_pids(pool)
        pool.session(origins=[site.origin]).close()
        stats = pool.stats()
    assert (stats.launches, stats.recycles, stats.crashes) == (launches, recycles, 0)
    assert measured_pids == pids


@pytest.mark.browser
def test_recycle_waits_for_opening_context(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = BrowserConfig(num_processes=1, max_episodes_per_process=2)
    open_event, recycle_event = threading.Event(), threading.Event()
    new_context = EpisodeContext.open

    async def open_slowly(browser: Any, *args: Any) -> EpisodeContext:
        open_event.set()
        while not recycle_event.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)  # long enough to end an idle Chromium
        assert browser.is_connected()
        return await new_context(browser, *args)

    with BrowserPool(config) as pool, ThreadPoolExecutor(1) as executor:
        first_session = pool.session(origins=[site.origin])
        monkeypatch.setattr(EpisodeContext, "open", open_slowly)
        future = executor.submit(pool.session, origins=[site.origin])
        assert open_event.wait(30)
        monkeypatch.setattr(EpisodeContext, "open", new_context)
        first_session.close()
        with pool.session(origins=[site.origin]):  # the first Chromium is at its limit
            recycle_event.set()
            with future.result(30) as session:
                session.goto(f"http://{site.origin}/")
        assert pool.stats().recycles == 1


@pytest.mark.browser
def test_close_ends_all_processes_and_threads(site: Any) -> None:
    threads, processes = set(threading.enumerate()), browser_pids()
    pool = BrowserPool(BrowserConfig(num_processes=2, call_timeout=30.0))
    sessions = [pool.session(origins=[site.origin]) for _ in range(2)]
    assert len(browser_pids() - processes) >= 2
    pool.close()
    pool.close()
    assert browser_pids() == processes
    assert not {t for t in threading.enumerate() if t.name.startswith("browser-")} - threads
    with pytest.raises(InfraError):
        sessions[0].observe()
    with pytest.raises(InfraError, match="pool is closed"):
        pool.session(origins=[site.origin])
    for session in sessions:
        session.close()


@pytest.mark.browser
def test_invalid_executable_raises_infra_error(tmp_path: Path) -> None:
    with (
        BrowserPool(BrowserConfig(), executable="/bin/false") as pool,
        pytest.raises(InfraError, match="Chromium does not start"),
    ):
        pool.session(origins=["127.0.0.1:1"])


def test_session_rejects_invalid_origins_before_launch() -> None:
    with BrowserPool(BrowserConfig(), executable="/bin/false") as pool:
        for origin in ("http://a:1", "a", "a:x", "a:1,b:2"):
            with pytest.raises(ValueError, match="must have the form host:port"):
                pool.session(origins=[origin])


WORKING, BROKEN = "#!/bin/sh\n", "#!/bin/sh\nexit 1\n"


def add_program(path: Path, script: str = WORKING) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the only folder with programs, which has none; Playwright has downloaded nothing."""
    for name in ("PATH", "HOME", "PLAYWRIGHT_BROWSERS_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("WEBAGENT_CHROMIUM", raising=False)
    monkeypatch.setattr(chromium, "_MAC_APPS", ())
    return tmp_path


def test_find_executable_prefers_setting_then_environment_variable(
    monkeypatch: pytest.MonkeyPatch, empty_machine: Path
) -> None:
    shell = add_program(empty_machine / "chromium-headless-shell")
    chrome = add_program(empty_machine / "google-chrome")
    other = add_program(empty_machine / "other")
    assert chromium.find_executable() == shell
    assert chromium.find_executable(headless=False) == chrome
    # A name becomes a path, which Playwright needs.
    for value in (chrome, "google-chrome"):
        monkeypatch.setenv("WEBAGENT_CHROMIUM", value)
        assert chromium.find_executable() == chrome
        assert chromium.find_executable("other") == chromium.find_executable(other) == other
    monkeypatch.setenv("WEBAGENT_CHROMIUM", "/no/such")
    with pytest.raises(ChromiumMissingError, match="unset WEBAGENT_CHROMIUM"):
        chromium.find_executable()


def test_wrong_executable_path_raises_error_at_start() -> None:
    with pytest.raises(
        ChromiumMissingError, match="executable_path=/no/such is not a program; set"
    ):
        BrowserPool(BrowserConfig(executable_path="/no/such"))


def test_remote_browser_accepts_path_of_other_machine() -> None:
    config = BrowserConfig(executable_path="/no/such", ws_endpoints=("ws://127.0.0.1:1/s",))
    BrowserPool(config).close()


def test_chromium_that_does_not_start_is_skipped(
    monkeypatch: pytest.MonkeyPatch, empty_machine: Path
) -> None:
    stub = add_program(empty_machine / "chromium-browser", BROKEN)
    commands = []
    downloaded = empty_machine / "chromium_headless_shell-1" / "linux" / "headless_shell"

    def install(command: list[str]) -> bool:
        commands.append(command)
        add_program(downloaded)
        return True

    monkeypatch.setattr(chromium, "_run", install)
    # Without an alternative, the launch reports why it does not start.
    assert chromium.find_executable() == stub
    assert chromium.ensure_installed() == str(downloaded)
    assert chromium.find_executable() == str(downloaded)
    assert chromium.ensure_installed() == str(downloaded) and len(commands) == 1
    downloaded.write_text(BROKEN)
    assert chromium.find_executable() == stub


def test_single_chromium_is_not_started_to_find_it(empty_machine: Path) -> None:
    script = f"#!/bin/sh\necho started > {empty_machine}/log\n"
    path = add_program(empty_machine / "chromium", script)
    assert chromium.find_executable() == path
    assert not (empty_machine / "log").exists()
    assert chromium.ensure_installed() == path
    assert (empty_machine / "log").exists()


def test_find_executable_finds_download_of_playwright_on_macos(empty_machine: Path) -> None:
    app = empty_machine / "chromium-1" / "chrome-mac-arm64" / "Google Chrome for Testing.app"
    path = add_program(app / "Contents" / "MacOS" / "Google Chrome for Testing")
    assert chromium.find_executable(headless=False) == path


def test_missing_chromium_error_names_install_command(
    monkeypatch: pytest.MonkeyPatch, empty_machine: Path
) -> None:
    commands = []
    monkeypatch.setattr(chromium, "_run", commands.append)  # each command fails
    with pytest.raises(ChromiumMissingError, match="playwright install --only-shell chromium\n"):
        chromium.ensure_installed()
    install = [sys.executable, "-m", "playwright", "install"]
    assert commands == [[*install, "--only-shell", "chromium"]]
    # As root on a distribution without Debian's package.
    commands.clear()
    monkeypatch.setattr(chromium, "_apt_get", lambda: ["apt-get"])
    with pytest.raises(ChromiumMissingError):
        chromium.ensure_installed()
    assert commands == [
        ["apt-get", "update"],
        [*install, "--with-deps", "--only-shell", "chromium"],
    ]


def test_failed_install_command_returns_false() -> None:
    assert chromium._run([sys.executable, "-c", ""])
    assert not chromium._run([sys.executable, "-c", "raise SystemExit(1)"])


def test_process_memory_functions_handle_own_process() -> None:
    assert 1 < process_memory.tree_rss_mib(os.getpid()) < 100_000
    assert process_memory.find_process("--no-process-has-this") is None
    process_memory.kill(os.getpid())  # not one of our Chromium processes: ignored


@pytest.fixture
def playwright_server() -> Iterator[Callable[..., str]]:
    """Return a function that starts a Playwright server and returns its address."""
    with ExitStack() as stack:

        def start(*arguments: str) -> str:
            command = [sys.executable, "-m", "playwright", *arguments]
            server = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
            )
            stack.callback(stop, server)
            assert server.stdout
            return server.stdout.readline().split()[-1]

        yield start


def stop(server: subprocess.Popen[str]) -> None:
    """Stop the process group: Python only starts the driver, which holds the output open."""
    os.killpg(server.pid, signal.SIGTERM)
    server.communicate(timeout=30)


@pytest.mark.browser
def test_pool_connects_to_remote_browser(
    playwright_server: Callable[..., str], site: Any, other_site: Any
) -> None:
    other_url = other_site.add_page("x")
    url = site.add_page(f"<p>far away</p><img src='{other_url}'>")
    config = BrowserConfig(
        ws_endpoints=(playwright_server("run-server", "--unsafe", "--path=/s"),),
        max_episodes_per_process=2,
    )
    with BrowserPool(config, executable=chromium.find_executable()) as pool:
        for _ in range(3):
            with pool.session(origins=[site.origin]) as session:
                session.goto(url)
                assert session.observe().text == "far away"
        assert pool.stats().launches == 2
    assert other_site.requested_paths == []


@pytest.mark.browser
def test_server_without_launch_args_is_rejected(
    playwright_server: Callable[..., str], site: Any, tmp_path: Path
) -> None:
    settings = tmp_path / "server.json"
    settings.write_text(json.dumps({"executablePath": chromium.find_executable()}))
    endpoint = playwright_server("launch-server", "--browser=chromium", f"--config={settings}")
    with (
        BrowserPool(BrowserConfig(ws_endpoints=(endpoint,))) as pool,
        pytest.raises(InfraError, match="without the launch"),
    ):
        pool.session(origins=[site.origin])


@pytest.mark.browser
def test_unreachable_server_raises_infra_error(site: Any) -> None:
    with (
        BrowserPool(BrowserConfig(ws_endpoints=("ws://127.0.0.1:1/s",))) as pool,
        pytest.raises(InfraError, match="ECONNREFUSED"),
    ):
        pool.session(origins=[site.origin])
