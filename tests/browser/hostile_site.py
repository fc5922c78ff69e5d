"""Site that violates HTTP: each path fails in the way that its name states."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator

_LINGER = struct.pack("ii", 1, 0)  # closing resets the connection
_CHUNK_INTERVAL_SECONDS = 0.05


def _http_response(status: str, body: str, *headers: str) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    )
    return "\r\n".join((*lines, "", body)).encode()


def _html_response(body: str) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([_http_response("200 OK", f"<!doctype html><title>page</title>{body}")])


def _endless_headers() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    for number in itertools.count():
        yield b"X-%d: x\r\n" % number


def _endless_body() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<!doctype html><p>the beginning</p>"
    while True:
        yield b"<!-- -->"


def _empty_chunks() -> Iterator[bytes]:
    while True:
        yield b""


def _redirects() -> Iterator[bytes]:
    yield _http_response("302 Found", "", f"Location: /endless-redirect?{time.monotonic_ns()}")


def _server_error() -> Iterator[bytes]:
    yield _http_response("500 Internal Server Error", "<p>the shop is closed</p>")


def _incomplete_body() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\nContent-Type: text/html\r\n\r\n<p>half"


def _binary_data() -> Iterator[bytes]:
    yield b"\x00\x01\x02" * 100


RESPONSES: dict[str, Callable[[], Iterator[bytes]]] = {
    "endless-redirect": _redirects,
    "endless-headers": _endless_headers,
    "dripping-body": _endless_body,
    "silence": _empty_chunks,
    "500": _server_error,
    "half-a-body": _incomplete_body,
    "garbage": _binary_data,
    "reset": lambda: iter(()),
    "hung-script": _html_response("<p>x</p><script>while (true) {}</script>"),
    "greedy-script": _html_response(
        "<p>x</p><script>const all = [];"
        "setInterval(() => all.push(new Uint8Array(2 ** 26).fill(1)))</script>"
    ),
}


class HostileSite:
    """Server that sends RESPONSES by path, and a plain page at all other paths."""

    def __init__(self, certificate: str | None = None) -> None:
        """`certificate`: path of a file with key and certificate; enables TLS."""
        self._context = None
        if certificate:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stop = threading.Event()
        self.origin = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, path: str) -> str:
        return f"{'https' if self._context else 'http'}://{self.origin}/{path}"

    def close(self) -> None:
        self._stop.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
            request = connection.recv(65536).decode(errors="replace")
            # Chromium closes connections that it opened in advance and did not need.
            if not request:
                return
            path = request.split(" ")[1][1:].split("?")[0]
            if path == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
            for chunk in RESPONSES.get(path, _html_response("<p>home</p>"))():
                connection.sendall(chunk)
                if self._stop.wait(_CHUNK_INTERVAL_SECONDS):
                    return
