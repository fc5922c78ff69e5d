"""Tests of docs/security.md: a page can connect only to the origins of its task.

Each attempt runs on a page of an allowed site and targets a listener that counts connections and
datagrams of any protocol.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Download, Page
from playwright.sync_api import sync_playwright

from tests.browser.conftest import BOTH_BROWSERS
from webagent_jax.browser import BrowserPool, Session, chromium
from webagent_jax.types import Action, ActionKind

pytestmark = [pytest.mark.browser, BOTH_BROWSERS]

Show = Callable[[str], Session]

_WAIT_SECONDS = 2.0  # an allowed connection takes hundredths of a second


class Listener:
    """TCP and UDP port of this host that records connections and datagrams, and never responds."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        self.events: list[str] = []
        self._stop = False
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.tcp, selectors.EVENT_READ)
            selector.register(self.udp, selectors.EVENT_READ)
            while not self._stop:
                for key, _ in selector.select(timeout=0.05):
                    if key.fileobj is self.tcp:
                        self.tcp.accept()[0].close()
                        self.events.append("TCP")
                    else:
                        self.udp.recv(2048)
                        self.events.append("UDP")

    def close(self) -> None:
        self._stop = True
        self._thread.join(5)
        self.tcp.close()
        self.udp.close()


def click(session: Session, element_id: str) -> None:
    assert element_id in session.observe().elements
    assert session.act(Action(ActionKind.CLICK, element_id)) is None


def _is_page_of(site: Any, tab: str) -> bool:
    """Return whether the address and content of a tab are those of the site or of a blank page."""
    blank = "about:blank <html><head></head><body></body></html>"
    return tab == blank or tab.startswith(f"http://{site.origin}/ ")


ListenerFactory = Callable[[], Listener]


@pytest.fixture
def make_listener() -> Iterator[ListenerFactory]:
    """Return a function that opens a listener."""
    with ExitStack() as stack:

        def make() -> Listener:
            listener = Listener()
            stack.callback(listener.close)
            return listener

        yield make


# {at}: host and port of the listener. After its attempt, a page changes nothing.
# Constants are in blocks, because all scripts of a page share the outermost scope.
ATTEMPTS = {
    "picture": "<img src='http://{at}/x.png'>",
    "script": "<script src='http://{at}/x.js'></script>",
    "stylesheet": "<link rel=stylesheet href='http://{at}/x.css'>",
    "style sheet's url": "<style>body {{ background: url(http://{at}/x.png) }}</style>",
    "font": "<style>@font-face {{ font-family: F; src: url(http://{at}/f.woff) }}"
    " p {{ font-family: F }}</style><p>text</p>",
    "film": "<video src='http://{at}/x.mp4' autoplay muted></video>",
    "object": "<object data='http://{at}/x.svg'></object>",
    "embed": "<embed src='http://{at}/x.svg'>",
    "frame": "<iframe src='http://{at}/'></iframe>",
    "frame of a frame": "<iframe srcdoc=\"<img src='http://{at}/x.png'>\"></iframe>",
    "preload": "<link rel=preload as=script href='http://{at}/x.js'>",
    "prefetch": "<link rel=prefetch href='http://{at}/x.html'>",
    "prerender rule": '<script type=speculationrules>{{"prerender": [{{"source": "list", "urls": '
    '["http://{at}/"]}}]}}</script>',
    "prefetch rule": '<script type=speculationrules>{{"prefetch": [{{"source": "list", "urls": '
    '["http://{at}/"]}}]}}</script>',
    "fetch": "<script>fetch('http://{at}/', {{mode: 'no-cors'}})</script>",
    "XMLHttpRequest": "<script>{{ const x = new XMLHttpRequest(); x.open('POST', 'http://{at}/');"
    " x.send('a'); }}</script>",
    "beacon": "<script>navigator.sendBeacon('http://{at}/', 'a')</script>",
    "event stream": "<script>new EventSource('http://{at}/')</script>",
    "WebSocket": "<script>new WebSocket('ws://{at}/')</script>",
    "WebTransport": "<script>new WebTransport('https://{at}/')</script>",
    "WebRTC, STUN": "<script>{{ const c = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{at}'"
    "}}]}}); c.createDataChannel('a'); c.createOffer().then((o) => c.setLocalDescription(o)); }}"
    "</script>",
    "WebRTC, TURN over TCP": "<script>{{ const c = new RTCPeerConnection({{iceServers: [{{urls: "
    "'turn:{at}?transport=tcp', username: 'u', credential: 'p'}}]}}); c.createDataChannel('a');"
    " c.createOffer().then((o) => c.setLocalDescription(o)); }}</script>",
    "worker": "<script>new Worker(URL.createObjectURL(new Blob([`fetch('http://{at}/', "
    "{{mode: 'no-cors'}})`])))</script>",
    "shared worker": "<script>new SharedWorker(URL.createObjectURL(new Blob([`fetch("
    "'http://{at}/', {{mode: 'no-cors'}})`])))</script>",
    "script of a worker": "<script>new Worker(URL.createObjectURL(new Blob(["
    "`importScripts('http://{at}/x.js')`])))</script>",
    "name of this machine": "<img src='http://localhost:{port}/x.png'>",
    "hostname of a world": "<img src='http://w1.localhost:{port}/x.png'>",
    "another address of this machine": "<img src='http://0.0.0.0:{port}/x.png'>",
    "https": "<img src='https://{at}/x.png'>",
}

# These navigate away, so each runs on its own page.
NAVIGATION_ATTEMPTS = {
    "form": "<form action='http://{at}/' method=post id=f></form><script>f.submit()</script>",
    "navigation": "<script>location = 'http://{at}/'</script>",
    "refresh": "<meta http-equiv=refresh content='0; url=http://{at}/'>",
    "popup": "<script>window.open('http://{at}/')</script>",
}


def render_attempts(attempts: Mapping[str, str], listeners: Mapping[str, Listener]) -> str:
    return "\n".join(
        body.format(at=f"127.0.0.1:{listeners[name].port}", port=listeners[name].port)
        for name, body in attempts.items()
    )


def test_page_cannot_connect_to_other_origins(
    session: Session, site: Any, make_listener: ListenerFactory
) -> None:
    listeners = {name: make_listener() for name in ATTEMPTS}
    session.goto(site.add_page(render_attempts(ATTEMPTS, listeners)))
    time.sleep(_WAIT_SECONDS)
    assert {name: listener.events for name, listener in listeners.items() if listener.events} == {}


@pytest.mark.parametrize("attempt", NAVIGATION_ATTEMPTS)
def test_page_cannot_navigate_to_other_origins(
    attempt: str, session: Session, site: Any, make_listener: ListenerFactory
) -> None:
    listeners = {attempt: make_listener()}
    session.goto(site.add_page(render_attempts({attempt: NAVIGATION_ATTEMPTS[attempt]}, listeners)))
    time.sleep(_WAIT_SECONDS)
    assert listeners[attempt].events == []


def test_attempts_connect_without_isolation(
    pool: BrowserPool, site: Any, make_listener: ListenerFactory
) -> None:
    """Check that every attempt can fail the tests above: a plain Chromium makes each connection."""
    listeners = {name: make_listener() for name in (*ATTEMPTS, *NAVIGATION_ATTEMPTS)}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=pool._workers[0]._launcher._executable,
            args=[switch for switch in chromium.LAUNCH_ARGS if "webrtc" not in switch],
        )
        navigations = ({name: body} for name, body in NAVIGATION_ATTEMPTS.items())
        for index, attempts in enumerate((ATTEMPTS, *navigations)):
            url = site.add_page(render_attempts(attempts, listeners), f"/{index}")
            page = browser.new_page()
            page.goto(url, wait_until="commit")
        deadline = time.monotonic() + 10 * _WAIT_SECONDS
        while (
            silent := [name for name, listener in listeners.items() if not listener.events]
        ) and time.monotonic() < deadline:
            page.wait_for_timeout(20)
        browser.close()
    assert silent == []


def test_listeners_record_allowed_connections(
    pool: BrowserPool, site: Any, make_listener: ListenerFactory
) -> None:
    names = ("picture", "frame", "fetch", "beacon", "WebSocket", "worker", "event stream")
    listeners = {name: make_listener() for name in (*names, "datagram")}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", listeners["datagram"].port))
    origins = [f"127.0.0.1:{listener.port}" for listener in listeners.values()]
    with pool.session(origins=[site.origin, *origins]) as session:
        session.goto(
            site.add_page(render_attempts({name: ATTEMPTS[name] for name in names}, listeners))
        )
        deadline = time.monotonic() + 10 * _WAIT_SECONDS
        while (
            not all(listener.events for listener in listeners.values())
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)
    assert [name for name, listener in listeners.items() if not listener.events] == []


@pytest.mark.parametrize("key", ["Enter", "Control+Enter", "Shift+Enter", "Alt+Enter"])
def test_keys_cannot_open_other_origins(
    key: str, session: Session, site: Any, make_listener: ListenerFactory
) -> None:
    listener = make_listener()
    session.goto(site.add_page(f"<a href='http://127.0.0.1:{listener.port}/'>Go</a>"))
    session.observe()
    session.act(Action(ActionKind.PRESS, "1", key))
    time.sleep(_WAIT_SECONDS)
    assert listener.events == []


def test_keys_do_not_reach_browser_controls(show: Show) -> None:
    """An example is the address bar, where file: could be typed."""
    session = show("<p>still here</p><input aria-label=A>")
    session.observe()
    for key in ("Control+l", "Alt+d", "F6", "Control+o", "Control+t", "Control+n", "Control+w"):
        session.act(Action(ActionKind.PRESS, None, key))
        session.act(Action(ActionKind.SEARCH, "1", "file:///etc/passwd"))
        observation = session.observe()
        assert observation.text.startswith("still here") and observation.url.startswith(
            "http://127.0.0.1:"
        ), key


@pytest.mark.parametrize(
    "address",
    ["file:///etc/hosts", "data:text/html,<p>other", "chrome://version", "view-source:/"],
)
def test_page_cannot_open_non_http_addresses(address: str, show: Show, site: Any) -> None:
    session = show(
        f"<p>still here</p><a href='{address}'>Go</a><button onclick=\"window.open('{address}')\">"
        f"Open</button><button onclick=\"location = '{address}'\">Leave</button>"
    )
    for element_id in ("1", "3"):
        click(session, element_id)
        assert "still here" in session.observe().text
    click(session, "2")

    async def tab_contents(page: Page) -> list[str]:
        return [f"{tab.url} {await tab.content()}" for tab in page.context.pages]

    assert not [tab for tab in session.with_page(tab_contents) if not _is_page_of(site, tab)]


def test_javascript_link_runs_in_its_page(show: Show, site: Any) -> None:
    session = show("<a href=\"javascript:document.title = 'mine'; void 0\">Go</a>")
    click(session, "1")
    observation = session.observe()
    assert (observation.title, observation.url) == ("mine", f"http://{site.origin}/")


def test_download_is_refused(show: Show, site: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    site.add_page("rm -rf", "/file")
    session = show("<p>still here</p><a href=/file download=evil.sh>Get</a>")
    downloads: list[Download] = []

    def record(download: Download) -> None:  # Playwright needs a function with attributes
        downloads.append(download)

    async def record_downloads(page: Page) -> None:
        page.on("download", record)

    async def failures(page: Page) -> list[str | None]:
        return [await download.failure() for download in downloads]

    session.with_page(record_downloads)
    click(session, "1")
    assert "still here" in session.observe().text
    (failure,) = session.with_page(failures)
    assert failure is not None
    assert not list(tmp_path.iterdir())
    assert not (Path.home() / "Downloads" / "evil.sh").exists()


def test_service_workers_and_permissions_are_denied(show: Show, site: Any) -> None:
    session = show("x")
    registration = session.evaluate(
        "async () => { if (!navigator.serviceWorker) return 'none'; try { return Boolean(await "
        "Promise.race([navigator.serviceWorker.register('/sw.js'), new Promise((done) => "
        "setTimeout(() => done(null), 1000))])) } catch { return 'refused' } }"
    )
    assert registration in ("none", "refused", False)
    # The site has no such script, so an allowed registration would fail too, but after a request.
    assert "/sw.js" not in site.requested_paths
    permissions = session.evaluate(
        "async () => { const found = []; for (const name of ['geolocation', 'notifications', "
        "'camera', 'microphone', 'clipboard-read', 'midi']) { const answer = await "
        "navigator.permissions.query({name}); if (answer.state === 'granted') found.push(name); }"
        " return found; }"
    )
    assert permissions == []


def test_clipboard_is_not_shared_between_sessions(pool: BrowserPool, site: Any) -> None:
    url = site.add_page("<input aria-label=A onkeydown='document.title = event.key'>")
    with (
        pool.session(origins=[site.origin]) as first,
        pool.session(origins=[site.origin]) as second,
    ):
        for session in (first, second):
            session.goto(url)
            session.observe()
        first.act(Action(ActionKind.TYPE, "1", "secret"))
        for key in ("Control+a", "Control+c"):
            assert first.act(Action(ActionKind.PRESS, "1", key)) is None
        for key in ("Control+v", "Control+Shift+V", "Shift+Insert"):
            second.act(Action(ActionKind.PRESS, "1", key))
        assert first.observe().title == "c"
        assert second.observe().text == "textbox A [1]"


def test_storage_is_not_shared_between_sessions(pool: BrowserPool, site: Any) -> None:
    url = site.add_page("x")
    store_script = """async () => {
        document.cookie = 'a=1; max-age=999';
        localStorage.a = sessionStorage.a = 1;
        await new Promise((done) => { indexedDB.open('a').onsuccess = done; });
        await caches?.open?.('a');
    }"""
    read_script = """async () => [document.cookie, localStorage.length, sessionStorage.length,
        (await indexedDB.databases()).length, window.caches ? (await caches.keys()).length : 0]"""
    with pool.session(origins=[site.origin]) as first:
        first.goto(url)
        first.evaluate(store_script)
        assert first.evaluate(read_script)[0] == "a=1"
    with pool.session(origins=[site.origin]) as second:
        second.goto(url)
        assert second.evaluate(read_script) == ["", 0, 0, 0, 0]
