"""Fixtures of browser tests: local sites that record requests, and a shared browser pool."""

from __future__ import annotations

import contextlib
import http.server
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from webagent_jax.browser import BrowserPool, Session, chromium, process_memory
from webagent_jax.config import BrowserConfig

HTML = "<!doctype html><meta charset=utf-8><title>{title}</title><body>{body}</body>"


class Site:
    """Local HTTP server. Pages, redirects and delays (seconds before a response) are by path.

    A page at a path that ends in .xhtml is served as XHTML.
    """

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.redirects: dict[str, str] = {}
        self.delays: dict[str, float] = {}
        self.requested_paths: list[str] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                site.requested_paths.append(path)
                time.sleep(site.delays.get(path, 0))
                if path in site.redirects:
                    self.send_response(302)
                    self.send_header("Location", site.redirects[path])
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body = site.pages.get(path, "").encode()
                self.send_response(200 if path in site.pages else 404)
                content_type = "application/xhtml+xml" if path.endswith(".xhtml") else "text/html"
                self.send_header("Content-Type", f"{content_type}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # the browser closed the connection
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.origin = f"127.0.0.1:{self._server.server_port}"

    def add_page(self, body: str, path: str = "/", title: str = "page") -> str:
        """Serve `body` at `path` and return its address."""
        self.pages[path] = HTML.format(title=title, body=body)
        return f"http://{self.origin}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@pytest.fixture
def site() -> Iterator[Site]:
    server = Site()
    yield server
    server.close()


@pytest.fixture
def other_site() -> Iterator[Site]:
    server = Site()
    yield server
    server.close()


def descendants(root: int) -> dict[int, str]:
    """Return the command lines of the processes below `root`, by pid."""
    return {
        pid: process_memory._read(pid, "cmdline")
        for pid in process_memory._pids()
        if root in process_memory._ancestors(pid)
    }


def browser_pids() -> set[int]:
    """Return the pids of the Chromium processes that this test process started."""
    commands = descendants(os.getpid())
    return {pid for pid, command in commands.items() if "--webagent-instance=" in command}


def wait_until_ended(pids: Iterable[int]) -> None:
    """Wait until no process with these pids runs."""
    deadline = time.monotonic() + 20
    while remaining := [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]:
        assert time.monotonic() < deadline, [
            process_memory._read(pid, "cmdline") for pid in remaining
        ]
        time.sleep(0.1)


def find_full_browser() -> str:
    """Return the path of a Chromium or Chrome other than the headless shell."""
    executable = next((path for path in chromium._candidates() if "headless" not in path), None)
    if executable is None:
        pytest.skip("there is no browser but the headless shell: apt-get install chromium")
    return executable


BOTH_BROWSERS = pytest.mark.parametrize(
    "pool",
    [
        pytest.param(chromium.find_executable, id="found"),
        pytest.param(find_full_browser, id="full", marks=pytest.mark.slow),
    ],
    indirect=True,
)
"""Mark of tests of page capabilities: run them in the default browser and in the full one."""


@pytest.fixture(scope="session")
def pool(request: pytest.FixtureRequest) -> Iterator[BrowserPool]:
    """Return a pool of the default browser, or of the one that the parameter finds."""
    config = BrowserConfig(
        viewport_width=800, viewport_height=600, call_timeout=60.0, navigation_timeout=60.0
    )
    with BrowserPool(
        config, executable=getattr(request, "param", chromium.find_executable)()
    ) as browser_pool:
        yield browser_pool


@pytest.fixture
def session(pool: BrowserPool, site: Site) -> Iterator[Session]:
    with pool.session(origins=[site.origin]) as browser_session:
        yield browser_session


@pytest.fixture
def show(site: Site, session: Session) -> Callable[[str], Session]:
    """Return a function that opens a page with the given body."""

    def open_page(body: str) -> Session:
        session.goto(site.add_page(body))
        return session

    return open_page
