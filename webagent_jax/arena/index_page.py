"""The front page of the arena for people: the sites, and every task in a world of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Mapping
from pathlib import Path

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route, Router

from webagent_jax.arena import selection
from webagent_jax.arena.registry import SITES, TEMPLATES, seed_data
from webagent_jax.arena.selection import Draft
from webagent_jax.arena.server import Arena, make_server
from webagent_jax.arena.worlds import Worlds
from webagent_jax.types import Split

_PAGE = 40  # tasks


def serve_people(port: int) -> None:
    """Until it is interrupted. Raises OSError when the port cannot be had."""
    pages = socket.create_server(("127.0.0.1", port), backlog=512)
    arena = Arena(SITES)
    arena.front = front(arena.worlds, selection.select(TEMPLATES, seed_data()), port)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(make_server(arena).serve(sockets=[pages]))


def front(worlds: Worlds, drafts: Mapping[Split, tuple[Draft, ...]], port: int) -> Router:
    listed = list(itertools.chain(drafts["test"], drafts["train"]))
    template = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True
    ).get_template("front.html.j2")

    async def index(request: Request) -> Response:
        """All tasks, or those whose words or name have what is looked for."""
        asked = request.query_params.get("q", "").lower()
        fitting = [d for d in listed if asked in f"{d.task.id} {d.task.intent}".lower()]
        shown = fitting[:_PAGE]
        text = template.render(
            sites=SITES, tasks=shown, total=len(fitting), asked=asked, live=len(worlds)
        )
        return HTMLResponse(text)

    async def visit(request: Request) -> Response:
        """Begins a world and goes to a site in it, or to where a task starts."""
        world = worlds.new().name
        urls = {
            f"__{s.task_name.upper()}__": f"http://{s.name}.{world}.localhost:{port}" for s in SITES
        }
        chosen = request.query_params.get("task", "")
        starts = [draft.task.start_url for draft in listed if draft.task.id == chosen]
        site = request.query_params.get("site", "shopping")
        start = starts[0].split(" |AND| ")[0] if starts else f"__{site.upper()}__/"
        for placeholder, url in urls.items():
            start = start.replace(placeholder, url)
        return RedirectResponse(start, 303)

    return Router([Route("/", index), Route("/visit", visit, methods=["POST"])])
