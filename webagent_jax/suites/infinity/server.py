"""Guarded server of the apps: one process serves the worlds of all episodes.

Each world is one app in one episode, with a hostname of its own (world_names.py). The protocol is
that of the apps' own servers: static files, PUT /api/state, by which a page reports its state, and
GET /api/events. Their servers also return the state, the verifiers and the seed data to anyone, and
the apps insert text as HTML, so an agent could read a solution or run a script. This server
prevents both:

- A file is sent only as what the app uses it for: `js/data.js` as a script, not as a page. The
  browser names the use in the header Sec-Fetch-Dest, which no page can change.
- Only the scripts of a page reach the interface, and only what they use: no GET of the state, no
  reset.
- The content security policy blocks scripts in inserted HTML, and requests to other origins.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from webagent_jax.local_site import LocalServer
from webagent_jax.world_names import WorldNames, hostname, parse_host, slot_origin

# The apps use style attributes, but no inline scripts, <style> elements, images, fonts or frames,
# and no form that loads a page.
_CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src-elem 'self'",
        "style-src-attr 'unsafe-inline'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

# Folder of an app -> suffix and media type of its files, and the value of Sec-Fetch-Dest for which
# they are sent. Further folders contain tasks, verifiers and results.
_FOLDERS = {
    "js": (".js", "text/javascript", "script"),
    "css": (".css", "text/css", "style"),
}
_NOT_FOUND = PlainTextResponse("There is no such page.", 404)


@dataclass(slots=True)
class _World:
    """App in one episode."""

    files: Mapping[tuple[str, str], Response]
    state: bytes | None = None  # newest state that the page has reported, as JSON; None before
    state_number: int = -1  # number of the request that reported it


class InfinityServer(LocalServer):
    """Server of apps in its own thread, with a world per episode. All methods are thread-safe.

    Args:
        folders: folder of each app by its name.

    Raises:
        InfraError: the server does not start.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._files = {app: _read_files(folder) for app, folder in folders.items()}
        self._worlds: dict[tuple[str, str], _World] = {}  # by app and name of the world
        self._names = WorldNames()
        self._lock = threading.Lock()
        self._request_numbers = itertools.count()
        super().__init__(self)

    def new(self, app: str) -> str:
        """Create a world of an app and return its name."""
        with self._lock:
            world = self._names.take()
        self._worlds[app, world] = _World(self._files[app])
        return world

    def drop(self, app: str, world: str) -> None:
        """Delete a world. Repeated calls have no effect."""
        if self._worlds.pop((app, world), None) is not None:
            with self._lock:
                self._names.release(world)

    def state(self, app: str, world: str) -> bytes | None:
        """Return the state of a world as JSON; None before its page has reported one."""
        return self._worlds[app, world].state

    def __len__(self) -> int:
        return len(self._worlds)

    def start_url(self, app: str, world: str) -> str:
        """Return the address of the app in a world."""
        return f"http://{hostname(app, world)}:{self.port}/"

    def origin(self, world: str) -> str:
        """Return the allow-list of a world's browser."""
        return slot_origin(world, self.port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an HTTP request; ignore other protocols."""
        if scope["type"] == "http":
            response = await self._respond(Request(scope, receive))
            await response(scope, receive, send)

    async def _respond(self, request: Request) -> ASGIApp:
        headers = request.headers
        # A deleted world is missing here, so that late requests of its pages reach no other world.
        world = self._worlds.get(parse_host(headers.get("host", "")) or ("", ""))
        if world is None:
            return _NOT_FOUND
        path, destination = request.url.path, headers.get("sec-fetch-dest", "")
        match request.method, path, destination:
            case "PUT", "/api/state", "empty":
                # Numbered before the body arrives: a page may report two states at once.
                number = next(self._request_numbers)
                try:
                    state = await request.body()
                except ClientDisconnect:
                    return _NOT_FOUND
                if number > world.state_number:
                    world.state, world.state_number = state, number
                return JSONResponse({"status": "ok"})
            case "GET", "/api/events", "empty":
                return _stream_no_events
            case "GET", _, _:
                return world.files.get((path, destination), _NOT_FOUND)
            case _:
                return _NOT_FOUND


async def _stream_no_events(scope: Scope, receive: Receive, send: Send) -> None:
    """Keep an event stream open; its only event would be a reset."""
    del scope
    headers = Headers({"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await send({"type": "http.response.start", "status": 200, "headers": headers.raw})
    await send({"type": "http.response.body", "body": b"data: connected\n\n", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


def _read_files(folder: Path) -> dict[tuple[str, str], Response]:
    """Return the responses of an app by path and destination."""
    # Addresses contain the name of the world, so a cache would only grow.
    headers = {"Cache-Control": "no-store"}
    page = Response(
        (folder / "index.html").read_bytes(),
        media_type="text/html",
        headers={**headers, "Content-Security-Policy": _CONTENT_SECURITY_POLICY},
    )
    files = {("/", "document"): page, ("/index.html", "document"): page}
    for name, (suffix, media_type, destination) in _FOLDERS.items():
        for path in (folder / name).rglob(f"*{suffix}"):
            address = f"/{path.relative_to(folder).as_posix()}"
            response = Response(path.read_bytes(), media_type=media_type, headers=headers)
            files[address, destination] = response
    return files
