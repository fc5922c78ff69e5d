"""The local site of the browser benchmark: pages of known size, and pages that change late."""

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

# One button, whose click is worth 1.
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
    """A form of ten fields."""
    fields = "".join(f"<p><label>{word} <input value='{word}'></label></p>" for word in WORDS)
    return f"<h1>Form</h1><form>{fields}<button>Send</button></form>"


def large(elements: int) -> str:
    """So many elements, a third of them links, in sections of twelve."""
    rng = np.random.default_rng(0)
    groups = [
        f"<div><a href='#{k}'>{_words(rng, 2)}</a><span>{_words(rng, 3)}</span></div>"
        for k in range(elements // 3)
    ]
    sections = ["".join(groups[k : k + 4]) for k in range(0, len(groups), 4)]
    return "".join(f"<section>{section}</section>" for section in sections)


def table(rows: int) -> str:
    """Six columns: a box to tick, a link, three of words, a button."""
    rng = np.random.default_rng(1)
    lines = "".join(
        f"<tr><td><input type=checkbox></td><td><a href='#{k}'>{1000 + k}</a></td>"
        + "".join(f"<td>{_words(rng, 2)}</td>" for _ in range(3))
        + "<td><button>Edit</button></td></tr>"
        for k in range(rows)
    )
    return f"<table>{lines}</table>"


def changing(kind: str, ms: int) -> str:
    """A button, and a change of this kind after its click, with `ms` of latency at every step."""
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
    wbufsize = 2**16  # header and body in one packet: two wait for one another's receipt
    pages: dict[str, str]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = dict(parse_qsl(parts.query))
        wait = int(asked.get("ms", 0))
        match parts.path:
            case "/done":
                time.sleep(wait / 1000)
                self._answer(200, _DONE)
            case "/hop":
                time.sleep(wait / 1000)
                self._answer(302, "", location=f"/done?ms={wait}")
            case "/changing":
                self._answer(200, changing(asked["kind"], wait))
            case path:
                page = self.pages.get(path[1:])
                self._answer(200 if page else 404, page or "")

    def _answer(self, status: int, text: str, location: str = "") -> None:
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
def served(pages: dict[str, str]) -> Iterator[str]:
    """The "host:port" under which `pages` stand by their names, beside those that change."""
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
