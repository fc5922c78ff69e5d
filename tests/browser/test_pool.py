"""Sessions are apart from one another, a dead browser is told at once, nothing is left behind."""

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

from webagent_jax.browser import BrowserPool, ChromiumMissing, Session, chromium, process_memory
from webagent_jax.browser.context import EpisodeContext
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError

Show = Callable[[str], Session]


def browsers() -> set[int]:
    """Chromium's own processes that this test process has started."""
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal()
        and "--webagent-instance=" in process_memory._read(int(entry.name), "cmdline")
        and descends(int(entry.name))
    }


def descends(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = process_memory._parent(pid)
    return False


@pytest.fixture
def own_pool() -> Iterator[BrowserPool]:
    """For tests that break it."""
    with BrowserPool(BrowserConfig(call_timeout=30.0)) as one:
        yield one


PLAYS = """
import threading
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig

pool = BrowserPool(BrowserConfig(num_processes=2, call_timeout=300.0))
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
def test_a_killed_run_leaves_neither_driver_nor_browser() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", PLAYS], stdout=subprocess.PIPE, text=True) as run,
        ExitStack() as killed,
    ):
        killed.callback(run.kill)
        assert run.stdout and run.stdout.readline() == "busy\n"
        family = {
            pid for pid in process_memory._pids() if run.pid in process_memory._ancestors(pid)
        }
        commands = [process_memory._read(pid, "cmdline") for pid in family]
        assert sum("run-driver" in command for command in commands) == 2
        assert sum("--type=renderer" in command for command in commands) >= 4
    deadline = time.monotonic() + 20
    while left := [pid for pid in family if Path(f"/proc/{pid}/exe").exists()]:
        assert time.monotonic() < deadline, [process_memory._read(pid, "cmdline") for pid in left]
        time.sleep(0.1)


@pytest.mark.browser
def test_only_the_listed_origins_are_reached(show: Show, site: Any, other_site: Any) -> None:
    other = other_site.page("<p>secret</p>")
    site.redirects["/away"] = other
    session = show(
        f"<a href='{other}'>Direct</a> <a href=/away>Redirect</a> <img src='{other}'><script>"
        f"fetch('{other}', {{mode: 'no-cors'}}).catch(() => 0); new WebSocket('ws://{other[7:]}')"
        "</script>"
    )
    for element_id in ("1", "2"):
        session.goto(f"http://{site.origin}/")
        assert element_id in session.observe().elements
        session.act(Action(ActionKind.CLICK, element_id))
        assert "secret" not in session.observe().text
    assert "/away" in site.asked and other_site.asked == []


@pytest.mark.browser
def test_goto_takes_listed_http_addresses_only(session: Session, other_site: Any) -> None:
    for url in (other_site.page("x"), "file:///etc/hosts", "about:blank", "no address"):
        with pytest.raises(ValueError, match="not an http address on the origins allowed here"):
            session.goto(url)
    assert other_site.asked == []


@pytest.mark.browser
def test_worlds_by_host_name(pool: BrowserPool, site: Any) -> None:
    site.page("<p>shop</p>")
    port = site.origin.split(":")[1]
    with pool.session(origins=[f".w17.localhost:{port}"]) as session:
        session.goto(f"http://shop.w17.localhost:{port}/")
        assert session.observe().text == "shop"
        with pytest.raises(ValueError, match="allowed here"):
            session.goto(f"http://shop.w18.localhost:{port}/")
        before = len(site.asked)
        session.evaluate(f"fetch('http://shop.w18.localhost:{port}/').catch(() => 0)")
        assert len(site.asked) == before


@pytest.mark.browser
def test_sessions_share_no_cookies(pool: BrowserPool, site: Any) -> None:
    url = site.page("x")
    with pool.session(origins=[site.origin]) as one, pool.session(origins=[site.origin]) as two:
        one.goto(url)
        two.goto(url)
        one.evaluate("() => { document.cookie = 'a=1'; localStorage.b = 2; }")
        assert two.evaluate("[document.cookie, localStorage.b ?? null]") == ["", None]


@pytest.mark.browser
def test_init_script_viewport_and_picture(pool: BrowserPool, site: Any) -> None:
    url = site.page("<script>document.title = window.told</script>")
    with pool.session(
        origins=[site.origin], init_script="window.told = 'early'", viewport=(300, 200)
    ) as session:
        session.goto(url)
        assert session.observe().title == "early"
        assert session.evaluate("(a) => [innerWidth, innerHeight, a]", 5) == [300, 200, 5]
        assert session.screenshot().startswith(b"\xff\xd8")


@pytest.mark.browser
def test_a_script_that_fails_is_an_infra_error(show: Show) -> None:
    session = show("x")
    with pytest.raises(InfraError, match="missing"):
        session.evaluate("missing.name")
    assert session.observe().text == "x"


@pytest.mark.browser
def test_killed_in_the_middle_of_a_call(own_pool: BrowserPool, site: Any) -> None:
    url = site.page("<p>fine</p>")
    session = own_pool.session(origins=[site.origin])
    session.goto(url)
    before = browsers()
    timer = threading.Timer(0.5, lambda: [os.kill(pid, signal.SIGKILL) for pid in own(own_pool)])
    timer.start()
    started = time.monotonic()
    with pytest.raises(InfraError, match="crashed or was killed"):
        session.evaluate("new Promise(() => 0)")
    assert time.monotonic() - started < 15
    timer.join()
    with pytest.raises(InfraError):
        session.observe()
    session.close()
    with own_pool.session(origins=[site.origin]) as again:
        again.goto(url)
        assert again.observe().text == "fine"
    stats = own_pool.stats()
    assert (stats.crashes, stats.launches, stats.contexts_opened) == (1, 2, 2)
    assert stats.contexts_live == 0 and len(browsers()) == len(before)


def own(pool: BrowserPool) -> list[int]:
    return [host.pid for worker in pool._workers for host in worker._browsers if host.pid]


@pytest.mark.browser
def test_a_hung_page_times_out_and_the_others_go_on(site: Any) -> None:
    config = BrowserConfig(call_timeout=3.0)
    with BrowserPool(config) as pool, pool.session(origins=[site.origin]) as hung:
        hung.goto(site.page("<p>x</p>"))
        with pytest.raises(InfraError, match="no answer in 3 s"):
            hung.evaluate("() => { for (;;); }")
        with pool.session(origins=[site.origin]) as other:
            other.goto(site.page("<p>x</p>"))
            assert other.evaluate("1 + 1") == 2


@pytest.mark.browser
def test_a_browser_is_replaced_after_its_share(site: Any) -> None:
    url = site.page("<p>x</p>")
    with BrowserPool(BrowserConfig(max_episodes_per_process=2, call_timeout=30.0)) as pool:
        first = pool.session(origins=[site.origin])
        first.goto(url)
        pool.session(origins=[site.origin]).close()
        third = pool.session(origins=[site.origin])  # in a new process, the old one drains
        assert pool.stats().launches == 2 and pool.stats().recycles == 1
        assert first.observe().text == "x"
        first.close()
        deadline = time.monotonic() + 20
        while len(own(pool)) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(own(pool)) == 1 and pool.stats().crashes == 0
        third.goto(url)


@pytest.mark.browser
def test_a_browser_is_not_ended_under_a_context_that_is_being_opened(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BrowserConfig(num_processes=1, max_episodes_per_process=2)
    opening, retired = threading.Event(), threading.Event()
    new_context = EpisodeContext.open

    async def slow(browser: Any, *args: Any) -> EpisodeContext:
        opening.set()
        while not retired.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)  # time enough to end an idle Chromium
        assert browser.is_connected()
        return await new_context(browser, *args)

    with BrowserPool(config) as own, ThreadPoolExecutor(1) as other:
        first = own.session(origins=[site.origin])
        monkeypatch.setattr(EpisodeContext, "open", slow)
        second = other.submit(own.session, origins=[site.origin])
        assert opening.wait(30)
        monkeypatch.setattr(EpisodeContext, "open", new_context)
        first.close()
        with own.session(origins=[site.origin]):  # the first Chromium is worn out: it is retired
            retired.set()
            with second.result(30) as session:
                session.goto(f"http://{site.origin}/")
        assert own.stats().recycles == 1


@pytest.mark.browser
def test_close_leaves_no_process_and_no_thread(site: Any) -> None:
    threads, processes = set(threading.enumerate()), browsers()
    pool = BrowserPool(BrowserConfig(num_processes=2, call_timeout=30.0))
    sessions = [pool.session(origins=[site.origin]) for _ in range(2)]
    assert len(browsers() - processes) >= 2
    pool.close()
    pool.close()
    assert browsers() == processes
    assert not {t for t in threading.enumerate() if t.name.startswith("browser-")} - threads
    with pytest.raises(InfraError):
        sessions[0].observe()
    with pytest.raises(InfraError, match="pool is closed"):
        pool.session(origins=[site.origin])
    for session in sessions:
        session.close()


@pytest.mark.browser
def test_a_program_that_is_no_browser(tmp_path: Path) -> None:
    with (
        BrowserPool(BrowserConfig(), executable="/bin/false") as pool,
        pytest.raises(InfraError, match="Chromium does not start"),
    ):
        pool.session(origins=["127.0.0.1:1"])


def test_origins_are_checked_before_anything_is_opened() -> None:
    with BrowserPool(BrowserConfig(), executable="/bin/false") as pool:
        for origin in ("http://a:1", "a", "a:x", "a:1,b:2"):
            with pytest.raises(ValueError, match="must read host:port"):
                pool.session(origins=[origin])


def test_find_prefers_what_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shell = tmp_path / "chromium-headless-shell"
    shell.write_text("")
    shell.chmod(0o755)
    (tmp_path / "google-chrome").write_text("")
    (tmp_path / "google-chrome").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PLAYWRIGHT_BROWSERS_PATH", raising=False)
    monkeypatch.delenv("WEBAGENT_CHROMIUM", raising=False)
    assert chromium.find_executable() == str(shell)
    monkeypatch.setenv("WEBAGENT_CHROMIUM", str(tmp_path / "google-chrome"))
    assert chromium.find_executable() == str(tmp_path / "google-chrome")
    monkeypatch.setenv("WEBAGENT_CHROMIUM", "/no/such")
    with pytest.raises(ChromiumMissing, match="unset WEBAGENT_CHROMIUM"):
        chromium.find_executable()


def test_missing_chromium_names_one_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in (("PATH", str(tmp_path)), ("HOME", str(tmp_path))):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WEBAGENT_CHROMIUM", raising=False)
    monkeypatch.setattr(chromium, "_MAC_APPS", ())
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with pytest.raises(ChromiumMissing, match="playwright install"):
        chromium.ensure_installed()


def test_memory_of_this_very_process() -> None:
    assert 1 < process_memory.tree_rss_mib(os.getpid()) < 100_000
    assert process_memory.find_process("--no-process-has-this") is None
    process_memory.kill(os.getpid())  # not a Chromium of ours: left alone


@pytest.fixture
def playwright_server() -> Iterator[Callable[..., str]]:
    """Starts Playwright servers as another machine would run them; their addresses."""
    with ExitStack() as started:

        def start(*arguments: str) -> str:
            command = [sys.executable, "-m", "playwright", *arguments]
            server = started.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
            )
            started.callback(end, server)
            assert server.stdout
            return server.stdout.readline().split()[-1]

        yield start


def end(server: subprocess.Popen[str]) -> None:
    """Python only starts the driver, which is told as well, and waited for: it holds the output."""
    os.killpg(server.pid, signal.SIGTERM)
    server.communicate(timeout=30)


@pytest.mark.browser
def test_a_browser_of_another_machine(
    playwright_server: Callable[..., str], site: Any, other_site: Any
) -> None:
    other = other_site.page("x")
    url = site.page(f"<p>far away</p><img src='{other}'>")
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
    assert other_site.asked == []


@pytest.mark.browser
def test_a_server_that_drops_the_switches_is_refused(
    playwright_server: Callable[..., str], site: Any, tmp_path: Path
) -> None:
    settings = tmp_path / "server.json"
    settings.write_text(json.dumps({"executablePath": chromium.find_executable()}))
    endpoint = playwright_server("launch-server", "--browser=chromium", f"--config={settings}")
    with (
        BrowserPool(BrowserConfig(ws_endpoints=(endpoint,))) as pool,
        pytest.raises(InfraError, match="without our switches"),
    ):
        pool.session(origins=[site.origin])


@pytest.mark.browser
def test_a_dead_server_is_told(site: Any) -> None:
    with (
        BrowserPool(BrowserConfig(ws_endpoints=("ws://127.0.0.1:1/s",))) as pool,
        pytest.raises(InfraError, match="ECONNREFUSED"),
    ):
        pool.session(origins=[site.origin])
