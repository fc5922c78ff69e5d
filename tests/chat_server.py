"""A chat endpoint on this machine that answers as it is told, faults included."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass(frozen=True)
class Answer:
    """What is sent for one request; `body` as it is, or as JSON."""

    body: Any = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    hold: float = 0.0  # seconds before it is sent
    lost: int = 0  # bytes at the end that are promised and do not come
    drip: float = 0.0  # seconds between two bytes
    reset: bool = False  # the connection, instead of an answer

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def message(text: str | None, finish: str = "stop", **more: Any) -> dict[str, Any]:
    """A whole answer with one message; `more` stands in the message."""
    said = {"role": "assistant", "content": text, **more}
    return {"choices": [{"index": 0, "message": said, "finish_reason": finish}]}


Reply = str | int | bytes | Answer  # a message, a status, a body that is sent as it is


@dataclass
class ChatServer:
    """Says its replies in turn, and the last one for ever."""

    replies: list[Reply]
    answer: Callable[[Any], Reply] | None = None  # from the body of the request, instead of those
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.requests]

    @property
    def prompts(self) -> list[str]:
        return [body["messages"][0]["content"] for body in self.bodies]

    def take(self, path: str, headers: dict[str, str], body: Any) -> Answer:
        with self._lock:
            self.requests.append((path, headers, body))
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if self.answer is not None:
            reply = self.answer(body)
        match reply:
            case str():
                return Answer(message(reply))
            case int():
                return Answer(status=reply)
            case bytes():
                return Answer(reply)
        return reply

    def answered(self) -> None:
        with self._lock:
            self._now -= 1


class _Handler(BaseHTTPRequestHandler):
    server_of_chats: ChatServer

    def do_POST(self) -> None:
        chats = self.server_of_chats
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = chats.take(self.path, dict(self.headers), body)
        chats.over.wait(answer.hold)
        chats.answered()
        if answer.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        with suppress(OSError):  # the client did not wait
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        content = answer.content
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        content = content[: len(content) - answer.lost]
        size = 1 if answer.drip else len(content) + 1
        for start in range(0, len(content), size):
            self.wfile.write(content[start : start + size])
            if self.server_of_chats.over.wait(answer.drip):
                break

    def log_message(self, format: str, *args: object) -> None:
        del format, args


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # joined when it closes, so that nothing is left behind
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was reset on purpose is no error."""


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, *replies: Reply) -> Iterator[ChatServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    chats = ChatServer(list(replies))
    handler = type("Handler", (_Handler,), {"server_of_chats": chats})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="chat-server"
        )
        thread.start()
        chats.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield chats
        chats.over.set()
        server.shutdown()
        thread.join()
