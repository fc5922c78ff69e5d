"""Tests of the network log of a context, in Chromium on a local site with forms and JSON."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind

pytestmark = pytest.mark.browser

_PAGE = """<!doctype html><title>t</title><img src=/logo.png>
<form action=/save method=post><input name=text aria-label=Text value="a b&ü"><button>Save</button>
</form><a href="/next?x=1#part">Next</a><button onclick="fetch('/data')">Load</button>
<form action=/save method=post enctype=multipart/form-data>
<input name=file value=one><button>Upload</button></form>"""


@pytest.fixture
def origin() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/data":
                return self._send(b'{"count": 3}', "application/json; charset=utf-8")
            if self.path == "/logo.png":
                return self._send(b"", "image/png")
            if self.path == "/malformed":
                return self._send(b"x", "text/html", location="http://[")
            return self._send(_PAGE.encode(), "text/html; charset=utf-8")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(302)
            self.send_header("Location", "/saved")
            self.send_header("Set-Cookie", "session=secret-1; HttpOnly; Path=/")
            self.send_header("Set-Cookie", "messages=%5Bsaved%5D; Path=/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _send(self, body: bytes, content_type: str, location: str = "") -> None:
            self.send_response(200)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def pool() -> Iterator[BrowserPool]:
    with BrowserPool(BrowserConfig(call_timeout=30.0)) as browser_pool:
        yield browser_pool


def click(session: Any, name: str) -> None:
    elements = session.observe().elements
    target = next(i for i, element in elements.items() if element.name == name)
    assert session.act(Action(ActionKind.CLICK, target)) is None


def header(entry: Any, name: str) -> str | None:
    headers = entry["request"]["headers"]
    return next((h["value"] for h in headers if h["name"].lower() == name), None)


def test_log_contains_documents_and_data_in_order(pool: BrowserPool, origin: str) -> None:
    with pool.session(origins=[origin], log_network=True) as session:
        session.goto(f"http://{origin}/")
        click(session, "Load")
        click(session, "Next")
        entries = session.network_log()
    assert [(e["request"]["method"], e["request"]["url"]) for e in entries] == [
        ("GET", f"http://{origin}/"),
        ("GET", f"http://{origin}/data"),
        ("GET", f"http://{origin}/next?x=1"),
    ]
    start, data, following = entries
    assert json.loads(data["response"]["content"]["text"]) == {"count": 3}
    assert "text" not in start["response"]["content"]  # only JSON is kept
    # The headers by which a page load differs from a request of a script.
    for document in (start, following):
        assert header(document, "sec-fetch-dest") == "document"
        assert (header(document, "accept") or "").startswith("text/html")
    assert header(data, "sec-fetch-dest") == "empty"
    assert header(following, "referer") == f"http://{origin}/"
    assert {e["response"]["status"] for e in entries} == {200}


def test_log_contains_form_data_redirects_and_readable_cookies(
    pool: BrowserPool, origin: str, tmp_path: Path
) -> None:
    cookies = [
        {"name": "login", "value": "secret-0", "httpOnly": True},
        {"name": "mode", "value": "bicycle", "httpOnly": False},
    ]
    common = {"domain": "127.0.0.1", "path": "/", "expires": -1, "secure": False, "sameSite": "Lax"}
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"cookies": [c | common for c in cookies], "origins": []}))
    with pool.session(origins=[origin], log_network=True, storage_state=str(state)) as session:
        session.goto(f"http://{origin}/")
        click(session, "Save")
        click(session, "Upload")
        entries = session.network_log()
    _, save, saved, upload, _ = entries
    assert (save["response"]["status"], save["response"]["redirectURL"]) == (
        302,
        f"http://{origin}/saved",
    )
    assert save["request"]["postData"]["mimeType"] == "application/x-www-form-urlencoded"
    assert save["request"]["postData"]["text"] == "text=a+b%26%C3%BC"
    assert "boundary=" in upload["request"]["postData"]["mimeType"]
    assert 'name="file"\r\n\r\none' in upload["request"]["postData"]["text"]
    assert [c["name"] for c in save["response"]["cookies"]] == ["messages"]
    # Session cookies are secrets; those that scripts can read are part of what happened.
    assert header(entries[0], "cookie") == "mode=bicycle"
    assert header(saved, "cookie") == "mode=bicycle; messages=%5Bsaved%5D"
    assert "secret" not in json.dumps(entries)


def test_log_contains_requests_without_response(pool: BrowserPool, origin: str) -> None:
    with pool.session(origins=[origin], log_network=True) as session:
        session.goto(f"http://{origin}/")
        session.evaluate("() => fetch('http://elsewhere.invalid/x').catch(() => null)")
        entry = session.network_log()[-1]
    assert entry["request"]["url"] == "http://elsewhere.invalid/x"
    assert entry["response"]["status"] == -1


def test_log_contains_malformed_location(pool: BrowserPool, origin: str) -> None:
    with pool.session(origins=[origin], log_network=True) as session:
        session.goto(f"http://{origin}/malformed")
        (entry,) = session.network_log()
    assert entry["response"]["redirectURL"] == "http://["


def test_log_is_empty_by_default(pool: BrowserPool, origin: str) -> None:
    with pool.session(origins=[origin]) as session:
        session.goto(f"http://{origin}/")
        assert session.network_log() == []


def test_reused_context_has_log_of_its_own(pool: BrowserPool, origin: str) -> None:
    lengths = []
    for _ in range(2):
        with pool.session(origins=[origin], log_network=True, reuse=True) as session:
            session.goto(f"http://{origin}/")
            lengths.append(len(session.network_log()))
    assert lengths == [1, 1]
    assert pool.stats().contexts_reused == 1
