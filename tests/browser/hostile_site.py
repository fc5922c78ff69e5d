"""A site that breaks HTTP: each path fails in its own way, and says which in its name."""

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
_DRIP = 0.05  # seconds between two drops


def _answer(status: str, body: str, *headers: str) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    )
    return "\r\n".join((*lines, "", body)).encode()


def _pages(body: str) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([_answer("200 OK", f"<!doctype html><title>page</title>{body}")])


def _endless_headers() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    for number in itertools.count():
        yield b"X-%d: x\r\n" % number


def _dripping_body() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<!doctype html><p>the beginning</p>"
    while True:
        yield b"<!-- -->"


def _silence() -> Iterator[bytes]:
    while True:
        yield b""


def _redirects() -> Iterator[bytes]:
    yield _answer("302 Found", "", f"Location: /endless-redirect?{time.monotonic_ns()}")


def _failure() -> Iterator[bytes]:
    yield _answer("500 Internal Server Error", "<p>the shop is closed</p>")


def _half_a_body() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\nContent-Type: text/html\r\n\r\n<p>half"


def _garbage() -> Iterator[bytes]:
    yield b"\x00\x01\x02" * 100


ANSWERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "endless-redirect": _redirects,
    "endless-headers": _endless_headers,
    "dripping-body": _dripping_body,
    "silence": _silence,
    "500": _failure,
    "half-a-body": _half_a_body,
    "garbage": _garbage,
    "reset": lambda: iter(()),
    "hung-script": _pages("<p>x</p><script>while (true) {}</script>"),
    "greedy-script": _pages(
        "<p>x</p><script>const all = [];"
        "setInterval(() => all.push(new Uint8Array(2 ** 26).fill(1)))</script>"
    ),
}


class HostileSite:
    """Serves ANSWERS by path, and a plain page at all others."""

    def __init__(self, certificate: str | None = None) -> None:
        """`certificate`: path of a key and certificate in one file, to speak TLS with."""
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
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
            path = connection.recv(65536).decode(errors="replace").split(" ")[1][1:].split("?")[0]
            if path == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
            for part in ANSWERS.get(path, _pages("<p>home</p>"))():
                connection.sendall(part)
                if self._stop.wait(_DRIP):
                    return
