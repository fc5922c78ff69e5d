"""The rows of docs/security.md: whatever a page tries, nothing but the origins of its task hears.

Each attempt runs on a page of an allowed site and aims at a listener that counts connections and
datagrams, of whatever protocol.
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

from tests.browser.conftest import IN_BOTH_BROWSERS
from webagent_jax.browser import BrowserPool, Session
from webagent_jax.types import Action, ActionKind

pytestmark = [pytest.mark.browser, IN_BOTH_BROWSERS]

Show = Callable[[str], Session]

_PATIENCE = 2.0  # seconds a forbidden connection is waited for; an allowed one takes hundredths


class Listener:
    """A port of this machine, TCP and UDP, that notes whoever comes and answers nobody."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        self.heard: list[str] = []
        self._stop = False
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.tcp, selectors.EVENT_READ)
            waiting.register(self.udp, selectors.EVENT_READ)
            while not self._stop:
                for key, _ in waiting.select(timeout=0.05):
                    if key.fileobj is self.tcp:
                        self.tcp.accept()[0].close()
                        self.heard.append("TCP")
                    else:
                        self.udp.recv(2048)
                        self.heard.append("UDP")

    def close(self) -> None:
        self._stop = True
        self._thread.join(5)
        self.tcp.close()
        self.udp.close()


def click(session: Session, element_id: str) -> None:
    assert element_id in session.observe().elements
    assert session.act(Action(ActionKind.CLICK, element_id)) is None


Listen = Callable[[], Listener]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Opens one more listener."""
    with ExitStack() as opened:

        def one() -> Listener:
            listener = Listener()
            opened.callback(listener.close)
            return listener

        yield one


# {at}: host and port of the listener. A page that is done with its attempt changes nothing else.
ATTEMPTS = {
    "picture": "<img src='http://{at}/x.png'>",
    "script": "<script src='http://{at}/x.js'></script>",
    "stylesheet": "<link rel=stylesheet href='http://{at}/x.css'>",
    "style sheet's url": "<style>body {{ background: url(http://{at}/x.png) }}</style>",
    "font": "<style>@font-face {{ font-family: F; src: url(http://{at}/f.woff) }}"
    " p {{ font-family: F }}</style><p>text</p>",
    "film": "<video src='http://{at}/x.mp4' autoplay muted></video>",
    "object": "<object data='http://{at}/x.svg'></object><embed src='http://{at}/y.svg'>",
    "frame": "<iframe src='http://{at}/'></iframe>",
    "frame of a frame": "<iframe srcdoc=\"<img src='http://{at}/x.png'>\"></iframe>",
    "preload": "<link rel=preload as=script href='http://{at}/x.js'>",
    "prefetch": "<link rel=prefetch href='http://{at}/x.html'>",
    "preconnect": "<link rel=preconnect href='http://{at}/'><link rel=dns-prefetch href='//{at}'>",
    "prerender": '<script type=speculationrules>{{"prerender": [{{"source": "list", "urls": '
    '["http://{at}/"]}}], "prefetch": [{{"source": "list", "urls": ["http://{at}/y"]}}]}}</script>',
    "fetch": "<script>fetch('http://{at}/', {{mode: 'no-cors'}})</script>",
    "XMLHttpRequest": "<script>const x = new XMLHttpRequest(); x.open('POST', 'http://{at}/');"
    " x.send('a')</script>",
    "beacon": "<script>navigator.sendBeacon('http://{at}/', 'a')</script>",
    "event stream": "<script>new EventSource('http://{at}/')</script>",
    "WebSocket": "<script>new WebSocket('ws://{at}/')</script>",
    "WebTransport": "<script>new WebTransport('https://{at}/')</script>",
    "WebRTC, STUN": "<script>const c = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{at}'"
    "}}]}}); c.createDataChannel('a'); c.createOffer().then((o) => c.setLocalDescription(o))"
    "</script>",
    "WebRTC, TURN over TCP": "<script>const c = new RTCPeerConnection({{iceServers: [{{urls: "
    "'turn:{at}?transport=tcp', username: 'u', credential: 'p'}}]}}); c.createDataChannel('a');"
    " c.createOffer().then((o) => c.setLocalDescription(o))</script>",
    "worker": "<script>new Worker(URL.createObjectURL(new Blob([`fetch('http://{at}/', "
    "{{mode: 'no-cors'}})`])))</script>",
    "shared worker": "<script>new SharedWorker(URL.createObjectURL(new Blob([`fetch("
    "'http://{at}/', {{mode: 'no-cors'}})`])))</script>",
    "script of a worker": "<script>new Worker(URL.createObjectURL(new Blob(["
    "`importScripts('http://{at}/x.js')`])))</script>",
    "another name of this machine": "<img src='http://localhost:{port}/x.png'>"
    "<img src='http://w1.localhost:{port}/x.png'><img src='http://127.0.0.2:{port}/x.png'>",
    "https": "<img src='https://{at}/x.png'>",
    "ftp": "<iframe src='ftp://{at}/'></iframe>",
}

# These take the page away, so each has a page of its own.
DEPARTURES = {
    "form": "<form action='http://{at}/' method=post id=f></form><script>f.submit()</script>",
    "navigation": "<script>location = 'http://{at}/'</script>",
    "refresh": "<meta http-equiv=refresh content='0; url=http://{at}/'>",
    "popup": "<script>window.open('http://{at}/')</script>",
}


def page_of(attempts: Mapping[str, str], listeners: Mapping[str, Listener]) -> str:
    return "\n".join(
        body.format(at=f"127.0.0.1:{listeners[name].port}", port=listeners[name].port)
        for name, body in attempts.items()
    )


def test_nothing_else_is_reached(session: Session, site: Any, listen: Listen) -> None:
    listeners = {name: listen() for name in ATTEMPTS}
    session.goto(site.page(page_of(ATTEMPTS, listeners)))
    time.sleep(_PATIENCE)
    assert {name: one.heard for name, one in listeners.items() if one.heard} == {}


@pytest.mark.parametrize("departure", DEPARTURES)
def test_no_page_leaves_for_elsewhere(
    departure: str, session: Session, site: Any, listen: Listen
) -> None:
    listeners = {departure: listen()}
    session.goto(site.page(page_of({departure: DEPARTURES[departure]}, listeners)))
    time.sleep(_PATIENCE)
    assert listeners[departure].heard == []


def test_the_listeners_would_have_heard(pool: BrowserPool, site: Any, listen: Listen) -> None:
    names = ("picture", "frame", "fetch", "beacon", "WebSocket", "worker", "event stream")
    listeners = {name: listen() for name in names}
    origins = [f"127.0.0.1:{one.port}" for one in listeners.values()]
    with pool.session(origins=[site.origin, *origins]) as session:
        session.goto(site.page(page_of({name: ATTEMPTS[name] for name in names}, listeners)))
        deadline = time.monotonic() + 10 * _PATIENCE
        while not all(one.heard for one in listeners.values()) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert [name for name, one in listeners.items() if not one.heard] == []


@pytest.mark.parametrize("key", ["Enter", "Control+Enter", "Shift+Enter", "Alt+Enter"])
def test_no_key_opens_elsewhere(key: str, session: Session, site: Any, listen: Listen) -> None:
    listener = listen()
    session.goto(site.page(f"<a href='http://127.0.0.1:{listener.port}/'>Go</a>"))
    session.observe()
    session.act(Action(ActionKind.PRESS, "1", key))
    time.sleep(_PATIENCE)
    assert listener.heard == []


def test_no_key_reaches_the_browser_around_the_page(show: Show) -> None:
    """Such as its address bar, where file: could be typed."""
    session = show("<p>still here</p><input aria-label=A>")
    session.observe()
    for key in ("Control+l", "Alt+d", "F6", "Control+o", "Control+t", "Control+n", "Control+w"):
        session.act(Action(ActionKind.PRESS, None, key))
        session.act(Action(ActionKind.SEARCH, "1", "file:///etc/passwd"))
        seen = session.observe()
        assert seen.text.startswith("still here") and seen.url.startswith("http://127.0.0.1:"), key


@pytest.mark.parametrize(
    "away",
    ["file:///etc/hosts", "data:text/html,<p>other", "chrome://version", "view-source:/"],
)
def test_a_page_cannot_leave_http(away: str, show: Show, site: Any) -> None:
    session = show(
        f"<p>still here</p><a href='{away}'>Go</a><button onclick=\"window.open('{away}')\">Open"
        f"</button><button onclick=\"location = '{away}'\">Leave</button>"
    )
    for element_id in ("1", "3"):
        click(session, element_id)
        assert "still here" in session.observe().text


def test_a_javascript_address_runs_in_its_own_page_alone(show: Show, site: Any) -> None:
    session = show("<a href=\"javascript:document.title = 'mine'; void 0\">Go</a>")
    click(session, "1")
    seen = session.observe()
    assert (seen.title, seen.url) == ("mine", f"http://{site.origin}/")


def test_nothing_is_downloaded(show: Show, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    session = show("<p>still here</p><a href=/file download=evil.sh>Get</a>")
    click(session, "1")
    assert "still here" in session.observe().text
    assert not list(tmp_path.iterdir())
    assert not (Path.home() / "Downloads" / "evil.sh").exists()


def test_no_service_worker_and_no_permission(show: Show) -> None:
    session = show("x")
    worker = session.evaluate(
        "async () => { if (!navigator.serviceWorker) return 'none'; try { return Boolean(await "
        "Promise.race([navigator.serviceWorker.register('/sw.js'), new Promise((done) => "
        "setTimeout(() => done(null), 1000))])) } catch { return 'refused' } }"
    )
    assert worker in ("none", "refused", False)
    granted = session.evaluate(
        "async () => { const found = []; for (const name of ['geolocation', 'notifications', "
        "'camera', 'microphone', 'clipboard-read', 'midi']) { const answer = await "
        "navigator.permissions.query({name}); if (answer.state === 'granted') found.push(name); }"
        " return found; }"
    )
    assert granted == []


def test_nothing_is_pasted_from_another_episode(pool: BrowserPool, site: Any) -> None:
    url = site.page("<input aria-label=A onkeydown='document.title = event.key'>")
    with pool.session(origins=[site.origin]) as one, pool.session(origins=[site.origin]) as two:
        for session in (one, two):
            session.goto(url)
            session.observe()
        one.act(Action(ActionKind.TYPE, "1", "secret"))
        for key in ("Control+a", "Control+c"):
            assert one.act(Action(ActionKind.PRESS, "1", key)) is None
        for key in ("Control+v", "Control+Shift+V", "Shift+Insert"):
            two.act(Action(ActionKind.PRESS, "1", key))
        assert one.observe().title == "c"
        assert two.observe().text == "textbox A [1]"


def test_what_one_episode_keeps_the_next_does_not_find(pool: BrowserPool, site: Any) -> None:
    url = site.page("x")
    keep = """async () => {
        document.cookie = 'a=1; max-age=999';
        localStorage.a = sessionStorage.a = 1;
        await new Promise((done) => { indexedDB.open('a').onsuccess = done; });
        await caches?.open?.('a');
    }"""
    find = """async () => [document.cookie, localStorage.length, sessionStorage.length,
        (await indexedDB.databases()).length, window.caches ? (await caches.keys()).length : 0]"""
    with pool.session(origins=[site.origin]) as one:
        one.goto(url)
        one.evaluate(keep)
        assert one.evaluate(find)[0] == "a=1"
    with pool.session(origins=[site.origin]) as two:
        two.goto(url)
        assert two.evaluate(find) == ["", 0, 0, 0, 0]
