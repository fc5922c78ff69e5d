"""One server for all tests of the arena, and a visitor who asks it without a browser."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest

from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.registry import seed_data
from webagent_jax.arena.task import Data


@dataclass(frozen=True)
class Page:
    status: int
    text: str
    location: str  # where a redirect leads

    @property
    def errors(self) -> list[str]:
        return re.findall(r'<p class="error"[^>]*>(.*?)</p>', self.text)


class Visitor:
    """Goes about one site of one world."""

    def __init__(self, host: ArenaServerHandle, world: str, site: str = "shop") -> None:
        self._host = f"{site}.{world}.localhost:{host.port}"
        self._port = host.port

    def get(self, path: str) -> Page:
        return self._ask("GET", path, None)

    def post(self, path: str, **fields: object) -> Page:
        """Sends a form; follows the redirect that answers a good one."""
        page = self._ask("POST", path, urlencode(fields))
        return self.get(page.location) if page.location else page

    def _ask(self, method: str, path: str, body: str | None) -> Page:
        return ask(self._port, self._host, path, method=method, body=body)


def ask(port: int, host: str, path: str, method: str = "GET", body: str | None = None) -> Page:
    """One request to 127.0.0.1, under the given name."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body, {"Host": host})
        response = connection.getresponse()
        text = response.read().decode()
        return Page(response.status, text, response.headers.get("Location", ""))


@pytest.fixture(scope="session")
def host() -> Iterator[ArenaServerHandle]:
    with ArenaServerHandle() as host:
        yield host


@pytest.fixture
def world(host: ArenaServerHandle) -> Iterator[str]:
    name = host.new()
    yield name
    host.drop(name)


@pytest.fixture
def shop(host: ArenaServerHandle, world: str) -> Visitor:
    return Visitor(host, world)


@pytest.fixture(scope="session")
def data() -> Iterator[Data]:
    opened = seed_data()
    yield opened
    for connection in opened.values():
        connection.close()
