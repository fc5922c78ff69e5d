"""Local site of the browser benchmark: pages of fixed size, and pages with delayed changes."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlsplit

import numpy as np

WORDS = "amber birch cedar delta ember flint grove heron inlet juniper".split()
KINDS = ("navigation", "redirects", "fetch", "timer")
_DONE = '<p id="done">done</p>'

# Each click on the button adds 1 to the reward.
COUNTER = """
<h1>Counter</h1><p>Clicks: <output>0</output></p><button id="go">Count</button>
<label>Note <input></label><a href="#top">Top</a>
<script>
  window.reward = 0;
  document.getElementById("go").onclick = () => {
    document.querySelector("output").textContent = ++window.reward;
  };
</script>
"""

_CHANGES = {
    "navigation": "location = `/done?ms=${ms}`",
    "redirects": "location = `/hop?ms=${ms}`",
    "fetch": "fetch(`/done?ms=${ms}`).then((it) => it.text()).then(show)",
    "timer": "setTimeout(() => show(DONE), ms)",
}


def small() -> str:
    """Return a form with ten fields."""
    fields = "".join(f"<p><label>{word} <input value='{word}'></label></p>" for word in WORDS)
    return f"<h1>Form</h1><form>{fields}<button>Send</button></form>"


def large(elements: int) -> str:
    """Return a page of `elements` elements, a third of them links, in sections of twelve."""
    rng = np.random.default_rng(0)
    groups = [
        f"<div><a href='#{k}'>{_words(rng, 2)}</a><span>{_words(rng, 3)}</span></div>"
        for k in range(elements // 3)
    ]
    sections = ["".join(groups[k : k + 4]) for k in range(0, len(groups), 4)]
    return "".join(f"<section>{section}</section>" for section in sections)


def table(rows: int) -> str:
    """Return a table with six columns: a checkbox, a link, three of words, a button."""
    rng = np.random.default_rng(1)
    lines = "".join(
        f"<tr><td><input type=checkbox></td><td><a href='#{k}'>{1000 + k}</a></td>"
        + "".join(f"<td>{_words(rng, 2)}</td>" for _ in range(3))
        + "<td><button>Edit</button></td></tr>"
        for k in range(rows)
    )
    return f"<table>{lines}</table>"


def changing_page(kind: str, ms: int) -> str:
    """Return a page that changes after a click on its button, with `ms` of delay per step."""
    return f"""
    <button id="go">Go</button><div id="here"></div>
    <script>
      const DONE = {_DONE!r}, ms = {ms};
      const show = (text) => (document.getElementById("here").innerHTML = text);
      document.getElementById("go").onclick = () => {{ {_CHANGES[kind]}; }};
    </script>
    """


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16  # one packet for header and body; a second one waits for an acknowledgment
    pages: dict[str, str]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        delay_ms = int(query.get("ms", 0))
        match parts.path:
            case "/done":
                time.sleep(delay_ms / 1000)
                self._respond(200, _DONE)
            case "/hop":
                time.sleep(delay_ms / 1000)
                self._respond(302, "", location=f"/done?ms={delay_ms}")
            case "/changing":
                self._respond(200, changing_page(query["kind"], delay_ms))
            case path:
                page = self.pages.get(path[1:])
                self._respond(200 if page else 404, page or "")

    def _respond(self, status: int, text: str, location: str = "") -> None:
        body = f"<!doctype html><meta charset=utf-8><title>page</title>{text}".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve_pages(pages: dict[str, str]) -> Iterator[str]:
    """Serve `pages` by name, and the pages that change; yield "host:port" of the server."""
    handler = type("Handler", (_Handler,), {"pages": pages})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="benchmark-site", daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _words(rng: np.random.Generator, count: int) -> str:
    return " ".join(rng.choice(WORDS, count))
