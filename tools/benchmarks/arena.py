"""Benchmark of the arena server: milliseconds per page, time and memory per world.

Requests call the ASGI application in this process, without a socket or a browser. The pages are
those that links reach from the front page of a site. Times are CPU time, so other processes of the
machine hardly affect them; the server never waits.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import os
import re
import time
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import numpy as np

from tools.benchmarks import timing
from webagent_jax.arena.registry import SITES
from webagent_jax.arena.server import ArenaApp
from webagent_jax.arena.worlds import WorldStore
from webagent_jax.browser import process_memory

_PAGES = 200  # maximum number of pages per site
_ROUNDS = 3  # requests per page and repeat
_WORLDS = 100  # number of worlds that exist at the same time
_LINK = re.compile(r'<a [^>]*?href="(/[^"]*)"')


def run(repeats: int) -> Iterator[dict[str, Any]]:
    """Yield one result per site, and one for worlds."""
    arena, startup_ms = _call_timed(ArenaApp, SITES)
    with asyncio.Runner() as runner:
        for site in SITES:
            world = arena.worlds.new()
            request = functools.partial(
                _request, runner, arena, f"{site.name}.{world.name}.localhost"
            )
            yield _pages(site.name, request, repeats)
            arena.worlds.drop(world.name)
    yield {"name": "worlds, ms", "making the server": startup_ms} | _worlds(arena.worlds)


# --- pages ---------------------------------------------------------------------------------------


def _pages(site: str, request: Callable[[str], tuple[int, str]], repeats: int) -> dict[str, Any]:
    paths = _crawl(request)
    times = [_call_timed(request, path)[1] for path in paths * _ROUNDS * repeats]
    return {
        "name": f"page, ms: {site}",
        "pages": len(paths),
        "p50": float(np.median(times)),
        "p95": float(np.percentile(times, 95)),
        "most": max(times),
        "slowest": paths[int(np.argmax(times)) % len(paths)],
    }


def _crawl(request: Callable[[str], tuple[int, str]]) -> list[str]:
    """Return paths with status 200, breadth first from the front page."""
    visited, queue = {"/"}, collections.deque(["/"])
    paths: list[str] = []
    while queue and len(paths) < _PAGES:
        path = queue.popleft()
        status, text = request(path)
        if status != 200:
            continue
        paths.append(path)
        for link in _LINK.findall(text):
            target = unescape(link).partition("#")[0]
            if target not in visited:
                visited.add(target)
                queue.append(target)
    return paths


def _request(runner: asyncio.Runner, arena: ArenaApp, host: str, path: str) -> tuple[int, str]:
    """Return status and text of a page."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", host.encode())],
    }
    messages: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    runner.run(arena(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return messages[0]["status"], body.decode()


# --- worlds --------------------------------------------------------------------------------------


def _worlds(worlds: WorldStore) -> dict[str, Any]:
    """Create worlds, write to them on all sites and drop them; return times and memory."""
    rss_mib = _rss_mib()
    new_worlds = [_call_timed(worlds.new) for _ in range(_WORLDS)]
    read_rss_mib = _rss_mib()
    live_worlds = [world for world, _ in new_worlds]
    write_times = {
        name: [_call_timed(world.writer, name)[1] for world in live_worlds]
        for name in sorted({site.database.name for site in SITES})
    }
    write_rss_mib = _rss_mib()
    drop_times = [_call_timed(worlds.drop, world.name)[1] for world in live_worlds]
    return {
        "alive": _WORLDS,
        "begin": timing.spread([ms for _, ms in new_worlds]),
        "first write": {name: timing.spread(times) for name, times in write_times.items()},
        "drop": timing.spread(drop_times),
        "MiB of one that reads": (read_rss_mib - rss_mib) / _WORLDS,
        "MiB of one that wrote on all sites": (write_rss_mib - read_rss_mib) / _WORLDS,
    }


def _rss_mib() -> float:
    return process_memory.tree_rss_mib(os.getpid())


def _call_timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return the result of a call and its CPU time in milliseconds."""
    start = time.thread_time()
    result = function(*arguments)
    return result, 1000 * (time.thread_time() - start)
