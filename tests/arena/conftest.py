"""Arena server and HTTP client shared by the arena tests."""

from __future__ import annotations

import asyncio
import http.client
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest
from starlette.types import ASGIApp

from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.registry import seed_data
from webagent_jax.arena.task import Data


@dataclass(frozen=True)
class Page:
    status: int
    text: str
    location: str  # target of a redirect, else empty

    @property
    def errors(self) -> list[str]:
        return re.findall(r'<p class="error"[^>]*>(.*?)</p>', self.text)


class SiteClient:
    """HTTP client of one site of one world."""

    def __init__(self, server: ArenaServerHandle, world: str, site: str = "shop") -> None:
        self._host = f"{site}.{world}.localhost:{server.port}"
        self._port = server.port

    def get(self, path: str) -> Page:
        return self._request("GET", path, None)

    def post(self, path: str, /, **fields: object) -> Page:
        """Submit a form and follow the redirect of the response."""
        page = self._request("POST", path, urlencode(fields))
        return self.get(page.location) if page.location else page

    def _request(self, method: str, path: str, body: str | None) -> Page:
        return send_request(self._port, self._host, path, method=method, body=body)


def send_request(
    port: int, host: str, path: str, method: str = "GET", body: str | None = None
) -> Page:
    """Send one request to 127.0.0.1 with `host` as the Host header."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body, {"Host": host})
        response = connection.getresponse()
        text = response.read().decode()
        return Page(response.status, text, response.headers.get("Location", ""))


def call_asgi(
    app: ASGIApp, host: str, path: str, method: str = "GET", body: bytes = b"", origin: str = ""
) -> Page:
    """Send one request to an application without a server."""
    messages: list[dict] = []

    async def receive() -> dict:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict) -> None:
        messages.append(message)

    path, _, query = path.partition("?")
    headers = {"host": host} | ({"origin": origin} if origin else {})
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": (host, 1),
        "scheme": "http",
    }
    asyncio.run(app(scope, receive, send))
    response_headers = dict(messages[0]["headers"])
    location = response_headers.get(b"location", b"").decode()
    return Page(messages[0]["status"], messages[1]["body"].decode(), location)


@pytest.fixture(scope="session")
def server() -> Iterator[ArenaServerHandle]:
    with ArenaServerHandle() as server:
        yield server


@pytest.fixture
def world(server: ArenaServerHandle) -> Iterator[str]:
    name = server.new()
    yield name
    server.drop(name)


@pytest.fixture
def shop(server: ArenaServerHandle, world: str) -> SiteClient:
    return SiteClient(server, world)


@pytest.fixture(scope="session")
def data() -> Iterator[Data]:
    connections = seed_data()
    yield connections
    for connection in connections.values():
        connection.close()
