"""Index page for manual use: lists the sites and opens every task in its own world."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import socket
from collections.abc import Mapping
from pathlib import Path

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, Router

from webagent_jax.arena import selection
from webagent_jax.arena.registry import SITES, TEMPLATES, seed_data
from webagent_jax.arena.selection import GeneratedTask
from webagent_jax.arena.server import ArenaApp
from webagent_jax.arena.worlds import WorldStore
from webagent_jax.local_site import LOCAL_HOSTS_ONLY, is_same_origin, make_server
from webagent_jax.types import Split
from webagent_jax.world_names import hostname

_MAX_TASKS = 40  # tasks that the page lists at once
_MAX_WORLDS = 50  # worlds that exist at once; the oldest one is deleted


def serve_forever(port: int) -> None:
    """Serve the arena on 127.0.0.1 until interrupted.

    Raises:
        OSError: the port is not available.
    """
    page_socket = socket.create_server(("127.0.0.1", port), backlog=512)
    arena = ArenaApp(SITES)
    arena.fallback_app = make_router(
        arena.worlds, selection.select_tasks(TEMPLATES, seed_data()), port
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(make_server(arena).serve(sockets=[page_socket]))


def make_router(
    worlds: WorldStore, tasks_by_split: Mapping[Split, tuple[GeneratedTask, ...]], port: int
) -> Router:
    """Return the router of the index page, which creates worlds in `worlds`.

    Args:
        worlds: worlds of the server.
        tasks_by_split: tasks of the index by split.
        port: port of the server.
    """
    names: collections.deque[str] = collections.deque()  # worlds that the page created
    # The test tasks are listed first, because the list is cut.
    tasks = list(itertools.chain(tasks_by_split["test"], tasks_by_split["train"]))
    template = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True
    ).get_template("front.html.j2")

    async def index(request: Request) -> Response:
        """Show the tasks whose id or intent contains the query; all tasks without a query."""
        text_query = request.query_params.get("q", "").lower()
        matches = [
            generated
            for generated in tasks
            if text_query in f"{generated.task.id} {generated.task.intent}".lower()
        ]
        first_matches = matches[:_MAX_TASKS]
        text = template.render(
            sites=SITES,
            tasks=first_matches,
            total=len(matches),
            query=text_query,
            num_worlds=len(worlds),
        )
        return HTMLResponse(text)

    async def start_world(request: Request) -> Response:
        """Create a world and redirect to a site in it, or to the start page of a task."""
        if not is_same_origin(request):
            return PlainTextResponse("The request does not come from the index page.", 403)
        world = worlds.new().name
        names.append(world)
        if len(names) > _MAX_WORLDS:
            worlds.drop(names.popleft())
        urls = {
            f"__{entry.task_name.upper()}__": f"http://{hostname(entry.name, world)}:{port}"
            for entry in SITES
        }
        task_id = request.query_params.get("task", "")
        start_urls = [
            generated.task.start_url for generated in tasks if generated.task.id == task_id
        ]
        site = request.query_params.get("site", "shopping")
        # A link opens one tab, that of the first site.
        target = start_urls[0].split(" |AND| ")[0] if start_urls else f"__{site.upper()}__/"
        for placeholder, url in urls.items():
            target = target.replace(placeholder, url)
        return RedirectResponse(target, 303)

    return Router(
        [Route("/", index), Route("/visit", start_world, methods=["POST"])],
        middleware=[LOCAL_HOSTS_ONLY],
    )
