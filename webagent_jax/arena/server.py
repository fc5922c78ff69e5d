"""The one server of all sites and worlds, told apart by host name: `shop.w17.localhost:PORT`.

It is a process of its own, so that pages do not wait for whoever plays, and one thread: requests
are answered one after the other, each in a few milliseconds, so no view needs a lock. Worlds are
made and dropped over a pipe that the process inherits (`control`), which no browser can reach.

    python -m webagent_jax.arena.server PAGES_FD CONTROL_FD LATENCY_SECONDS
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from webagent_jax.arena import database
from webagent_jax.arena.registry import SITES
from webagent_jax.arena.site import Site
from webagent_jax.arena.worlds import Worlds
from webagent_jax.local_site import LatencyMiddleware

_HOST = re.compile(r"(?P<site>[a-z]+)\.(?P<world>(\d+\.)?w\d+)\.localhost(?::\d+)?")


class Arena:
    """The sites as one ASGI application. What belongs to no world is answered by `front`."""

    def __init__(self, sites: Sequence[Site]) -> None:
        kept = {site.database.name: site.database for site in sites}
        images = {name: database.image(each) for name, each in kept.items()}
        self.worlds = Worlds(images, {site.name: site.account for site in sites})
        self._routers = {site.name: Router(site.routes()) for site in sites}
        self.front: ASGIApp = PlainTextResponse("There is no such world.", 404)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        found = _HOST.fullmatch(host)
        router = self._routers.get(found["site"]) if found else None
        world = self.worlds.get(found["world"]) if found else None
        if router is None or world is None:
            await self.front(scope, receive, send)
            return
        scope["world"] = world
        await router(scope, receive, send)


# --- what the owner of the worlds may ask --------------------------------------------------------


def _new(worlds: Worlds) -> str:
    return worlds.new().name


def _copy(worlds: Worlds, world: str) -> str:
    return worlds.copy(world).name


def _drop(worlds: Worlds, world: str) -> None:
    worlds.drop(world)


def _rows(worlds: Worlds, world: str, name: str, sql: str, arguments: list[Any]) -> list[list[Any]]:
    """What a world's database says."""
    found = worlds.get(world)
    if found is None:
        raise KeyError(world)
    return [list(row) for row in found.reader(name).execute(sql, arguments)]


_COMMANDS: dict[str, Callable[..., Any]] = {
    "new": _new,
    "copy": _copy,
    "drop": _drop,
    "rows": _rows,
    "count": len,
}


async def control(worlds: Worlds, pipe: socket.socket) -> None:
    """Answers one JSON line with one JSON line: [command, arguments...] with {value} or {error}.

    Returns when the other end is closed, be it because its process died.
    """
    reader, writer = await asyncio.open_connection(sock=pipe)
    while line := await reader.readline():
        name, *arguments = json.loads(line)
        try:
            answer = {"value": _COMMANDS[name](worlds, *arguments)}
        except Exception as error:  # the asker is told, and the worlds of others live on
            answer = {"error": repr(error)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
    writer.close()


def make_server(arena: Arena, latency: float = 0.0) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            LatencyMiddleware(arena, latency) if latency else arena,
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
    )


async def serve(
    arena: Arena, pages: socket.socket, pipe: socket.socket, latency: float = 0.0
) -> None:
    """Until the other end of the pipe is closed."""
    server = make_server(arena, latency)
    serving = asyncio.create_task(server.serve(sockets=[pages]))
    await control(arena.worlds, pipe)
    server.should_exit = True
    await serving


def main(pages: int, pipe: int, latency: float) -> None:
    """Both are sockets that the process inherits, by their file descriptors."""
    inherited = [socket.socket(fileno=descriptor) for descriptor in (pages, pipe)]
    asyncio.run(serve(Arena(SITES), inherited[0], inherited[1], latency))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
