"""A real local site that counts what it is asked for, and one browser pool for all tests."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from webagent_jax.browser import BrowserPool, Session, chromium
from webagent_jax.config import BrowserConfig

HTML = "<!doctype html><meta charset=utf-8><title>{title}</title><body>{body}</body>"


class Site:
    """Pages by path, told to it by a test. `delays` are seconds before a path is answered."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.redirects: dict[str, str] = {}
        self.delays: dict[str, float] = {}
        self.asked: list[str] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                site.asked.append(path)
                time.sleep(site.delays.get(path, 0))
                if path in site.redirects:
                    self.send_response(302)
                    self.send_header("Location", site.redirects[path])
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body = site.pages.get(path, "").encode()
                self.send_response(200 if path in site.pages else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # the browser went away
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.origin = f"127.0.0.1:{self._server.server_port}"

    def page(self, body: str, path: str = "/", title: str = "page") -> str:
        """Serves `body` at `path`; the address of it."""
        self.pages[path] = HTML.format(title=title, body=body)
        return f"http://{self.origin}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@pytest.fixture
def site() -> Iterator[Site]:
    one = Site()
    yield one
    one.close()


@pytest.fixture
def other_site() -> Iterator[Site]:
    one = Site()
    yield one
    one.close()


def full_browser() -> str:
    """Path of a Chromium or Chrome that is more than the headless shell."""
    found = next((path for path in chromium._candidates() if "headless" not in path), None)
    if found is None:
        pytest.skip("there is no browser but the headless shell: apt-get install chromium")
    return found


IN_BOTH_BROWSERS = pytest.mark.parametrize(
    "pool",
    [
        pytest.param(chromium.find_executable, id="found"),
        pytest.param(full_browser, id="full", marks=pytest.mark.slow),
    ],
    indirect=True,
)
"""For tests of what a page can do: once in the browser that a run uses, once in the full one."""


@pytest.fixture(scope="session")
def pool(request: pytest.FixtureRequest) -> Iterator[BrowserPool]:
    """Of the browser that `chromium.find` prefers, or that the parameter names."""
    config = BrowserConfig(
        viewport_width=800, viewport_height=600, call_timeout=60.0, navigation_timeout=60.0
    )
    with BrowserPool(
        config, executable=getattr(request, "param", chromium.find_executable)()
    ) as one:
        yield one


@pytest.fixture
def session(pool: BrowserPool, site: Site) -> Iterator[Session]:
    with pool.session(origins=[site.origin]) as one:
        yield one


@pytest.fixture
def show(site: Site, session: Session) -> Callable[[str], Session]:
    """Opens a page with this body."""

    def open_page(body: str) -> Session:
        session.goto(site.page(body))
        return session

    return open_page
