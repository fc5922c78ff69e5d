"""Server of all sites and worlds, selected by the hostname: `shop.w17.localhost:PORT`.

The server is a separate process, so pages do not wait for rollouts. It has one thread: it handles
requests one at a time, each in a few milliseconds, so no view needs a lock. Worlds are
created and deleted over a socket that the process inherits (`serve_control`); browsers cannot reach
it.

    python -m webagent_jax.arena.server PAGES_FD CONTROL_FD LATENCY_SECONDS
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from webagent_jax.arena import database
from webagent_jax.arena.registry import SITES
from webagent_jax.arena.site import Site
from webagent_jax.arena.worlds import WorldStore
from webagent_jax.local_site import make_server
from webagent_jax.world_names import parse_host


class ArenaApp:
    """ASGI application of all sites.

    `fallback_app` handles requests to hostnames without a world.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        databases = {site.database.name: site.database for site in sites}
        images = {name: database.load_image(entry) for name, entry in databases.items()}
        self.worlds = WorldStore(images, {site.name: site.account_id for site in sites})
        self._routers = {site.name: Router(site.routes()) for site in sites}
        self.fallback_app: ASGIApp = PlainTextResponse("There is no such world.", 404)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an HTTP request; ignore other protocols."""
        if scope["type"] != "http":
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        site_name, world_name = parse_host(host) or ("", "")
        # A dropped world is missing here, so late requests from its pages reach no other world.
        router, world = self._routers.get(site_name), self.worlds.get(world_name)
        if router is None or world is None:
            await self.fallback_app(scope, receive, send)
            return
        scope["world"] = world
        await router(scope, receive, send)


# --- commands of the control socket --------------------------------------------------------------


def _new(worlds: WorldStore) -> str:
    return worlds.new().name


def _drop(worlds: WorldStore, world: str) -> None:
    worlds.drop(world)


def _rows(
    worlds: WorldStore, world_name: str, database_name: str, sql: str, arguments: list[Any]
) -> list[list[Any]]:
    """Return the rows of a query on a database of a world."""
    world = worlds.get(world_name)
    if world is None:
        raise KeyError(world_name)
    return [list(row) for row in world.reader(database_name).execute(sql, arguments)]


_COMMANDS: dict[str, Callable[..., Any]] = {
    "new": _new,
    "drop": _drop,
    "rows": _rows,
    "count": len,
}


async def serve_control(worlds: WorldStore, control_socket: socket.socket) -> None:
    """Respond to each JSON line with a JSON line.

    A request is [number, command, arguments...], its response {number, value} or {number, error}.
    Returns when the other end is closed, for example because its process ended.
    """
    reader, writer = await asyncio.open_connection(sock=control_socket)
    while line := await reader.readline():
        number, command, *arguments = json.loads(line)
        try:
            response = {"value": _COMMANDS[command](worlds, *arguments)}
        except Exception as error:  # the caller receives it; the other worlds stay usable
            response = {"error": repr(error)}
        writer.write(json.dumps({"number": number, **response}).encode() + b"\n")
        await writer.drain()
    writer.close()


async def serve(
    arena: ArenaApp, page_socket: socket.socket, control_socket: socket.socket, latency: float = 0.0
) -> None:
    """Serve until the other end of `control_socket` is closed."""
    server = make_server(arena, latency)
    task = asyncio.create_task(server.serve(sockets=[page_socket]))
    await serve_control(arena.worlds, control_socket)
    # The handle closed the control socket, or its process ended.
    server.should_exit = True
    await task


def main(page_fd: int, control_fd: int, latency: float) -> None:
    """Serve on two inherited sockets: `page_fd` and `control_fd` are their file descriptors."""
    sockets = [socket.socket(fileno=descriptor) for descriptor in (page_fd, control_fd)]
    asyncio.run(serve(ArenaApp(SITES), sockets[0], sockets[1], latency))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
