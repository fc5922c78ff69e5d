"""Tests of the guarded server: what it sends to whom, and the order of states."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from webagent_jax.suites.infinity.server import InfinityServer
from webagent_jax.world_names import hostname


@pytest.fixture
def server(small_checkout: Path) -> Iterator[InfinityServer]:
    with InfinityServer({"notes": small_checkout / "apps" / "notes"}) as server:
        yield server


@pytest.fixture
def world(server: InfinityServer) -> str:
    return server.new("notes")


def send(
    server: InfinityServer,
    world: str,
    request: str,
    destination: str = "",
    body: str | None = None,
    app: str = "notes",
) -> http.client.HTTPResponse:
    """Send "METHOD /path" with Sec-Fetch-Dest `destination`; return the response, read."""
    method, path = request.split()
    headers = {"Host": f"{hostname(app, world)}:{server.port}"}
    if destination:
        headers["Sec-Fetch-Dest"] = destination
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        response.text = response.read().decode()  # type: ignore[attr-defined]
        return response


@pytest.mark.parametrize(
    ("request_line", "destination"),
    [
        ("GET /", "document"),
        ("GET /index.html", "document"),
        ("GET /js/app.js", "script"),
        ("GET /css/styles.css", "style"),
    ],
)
def test_files_are_sent_for_their_use(
    server: InfinityServer, world: str, request_line: str, destination: str
) -> None:
    assert send(server, world, request_line, destination).status == 200
    for other in {"document", "script", "style", "image", "iframe", "empty", ""} - {destination}:
        assert send(server, world, request_line, other).status == 404, other


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /api/state",
        "POST /api/state",
        "POST /api/reset",
        "GET /api/reset",
        "POST /",
        "GET /server.py",
        "GET /real-tasks.json",
        "GET /real-tasks/task_e1.py",
        "GET /js/../server.py",
        "GET /js/%2e%2e/server.py",
        "GET /js/",
        "GET /css",
        "GET //js/app.js",
        "HEAD /js/app.js",
    ],
)
def test_other_requests_get_404(server: InfinityServer, world: str, request_line: str) -> None:
    for destination in ("document", "empty", "script", "style", "image", "iframe", ""):
        assert send(server, world, request_line, destination).status == 404, destination


@pytest.mark.parametrize("destination", ["document", "iframe", "script", ""])
def test_only_scripts_report_states(server: InfinityServer, world: str, destination: str) -> None:
    assert send(server, world, "PUT /api/state", destination, body="{}").status == 404
    assert server.state("notes", world) is None


def test_states_belong_to_worlds(server: InfinityServer, world: str) -> None:
    other = server.new("notes")
    assert send(server, world, "PUT /api/state", "empty", body='{"a": 1}').status == 200
    assert (server.state("notes", world), server.state("notes", other)) == (b'{"a": 1}', None)


def test_late_request_does_not_reach_next_world_of_slot(server: InfinityServer, world: str) -> None:
    server.drop("notes", world)
    server.drop("notes", world)
    successor = server.new("notes")
    assert server.origin(successor) == server.origin(world) and successor != world
    assert send(server, world, "PUT /api/state", "empty", body="{}").status == 404
    assert server.state("notes", successor) is None and len(server) == 1


def test_world_serves_its_app_only(server: InfinityServer, world: str) -> None:
    assert send(server, world, "GET /", "document", app="mail").status == 404
    assert send(server, "w99", "GET /", "document").status == 404


def test_state_of_newer_request_is_final(server: InfinityServer, world: str) -> None:
    head = (
        f"PUT /api/state HTTP/1.1\r\nHost: {hostname('notes', world)}\r\n"
        "Sec-Fetch-Dest: empty\r\nContent-Length: 8\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
        # The first request begins before the second, but its body ends after it.
        slow.sendall(head + b'{"a"')
        send(server, world, "GET /", "document")
        send(server, world, "PUT /api/state", "empty", body='{"a": 2}')
        slow.sendall(b": 1}")
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")
    assert server.state("notes", world) == b'{"a": 2}'


def test_event_stream_stays_open_without_events(server: InfinityServer, world: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stream:
        stream.sendall(
            f"GET /api/events HTTP/1.1\r\nHost: {hostname('notes', world)}\r\n"
            "Sec-Fetch-Dest: empty\r\n\r\n".encode()
        )
        received = b""
        while b"data: connected\n\n" not in received:
            received += stream.recv(1000)
        assert b"text/event-stream" in received
        assert send(server, world, "PUT /api/state", "empty", body="{}").status == 200
        stream.settimeout(0.3)
        with pytest.raises(TimeoutError):
            stream.recv(1000)


def test_page_policy_forbids_inline_scripts(server: InfinityServer, world: str) -> None:
    headers = send(server, world, "GET /", "document").headers
    policy = headers["Content-Security-Policy"].split("; ")
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
