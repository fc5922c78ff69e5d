"""Local chat endpoint with scripted replies and faults."""

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
    """HTTP response to one request; a `body` that is not bytes is sent as JSON."""

    body: Any = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0  # seconds before the response
    missing_bytes: int = 0  # bytes at the end that Content-Length includes and that are not sent
    byte_interval: float = 0.0  # seconds between two bytes
    reset_connection: bool = False  # resets the connection instead of responding

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def message(text: str | None, finish: str = "stop", **extra_fields: Any) -> dict[str, Any]:
    """Return a chat completion with one message; `extra_fields` are added to the message."""
    assistant_message = {"role": "assistant", "content": text, **extra_fields}
    return {"choices": [{"index": 0, "message": assistant_message, "finish_reason": finish}]}


Reply = str | int | bytes | Answer  # message, status, raw body


@dataclass
class ChatServer:
    """State of the endpoint: sends its replies in order, then repeats the last one."""

    replies: list[Reply]
    answer: Callable[[Any], Reply] | None = None  # reply to a request body, instead of `replies`
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    max_concurrency: int = 0
    url: str = ""
    shutdown_event: threading.Event = field(default_factory=threading.Event)
    _num_active: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.requests]

    @property
    def prompts(self) -> list[str]:
        return [body["messages"][0]["content"] for body in self.bodies]

    def start_request(self, path: str, headers: dict[str, str], body: Any) -> Answer:
        with self._lock:
            self.requests.append((path, headers, body))
            self._num_active += 1
            self.max_concurrency = max(self.max_concurrency, self._num_active)
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

    def finish_request(self) -> None:
        with self._lock:
            self._num_active -= 1


class _Handler(BaseHTTPRequestHandler):
    chat_server: ChatServer

    def do_POST(self) -> None:
        chat_server = self.chat_server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = chat_server.start_request(self.path, dict(self.headers), body)
        chat_server.shutdown_event.wait(answer.delay)
        chat_server.finish_request()
        if answer.reset_connection:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        with suppress(OSError):  # the client disconnected
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        content = answer.content
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        content = content[: len(content) - answer.missing_bytes]
        size = 1 if answer.byte_interval else len(content) + 1
        for start in range(0, len(content), size):
            self.wfile.write(content[start : start + size])
            if self.chat_server.shutdown_event.wait(answer.byte_interval):
                break

    def log_message(self, format: str, *args: object) -> None:
        del format, args


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = False  # handler threads are joined on close
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the errors of deliberately reset connections."""


@contextmanager
def serve_chat(monkeypatch: pytest.MonkeyPatch, *replies: Reply) -> Iterator[ChatServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    chat_server = ChatServer(list(replies))
    handler = type("Handler", (_Handler,), {"chat_server": chat_server})
    with _HttpServer(("127.0.0.1", 0), handler) as http_server:
        thread = threading.Thread(
            target=http_server.serve_forever, kwargs={"poll_interval": 0.01}, name="chat-server"
        )
        thread.start()
        chat_server.url = f"http://127.0.0.1:{http_server.server_address[1]}/v1"
        # Without the end of the thread, a failed test would keep the process alive.
        try:
            yield chat_server
        finally:
            chat_server.shutdown_event.set()
            http_server.shutdown()
            thread.join()
