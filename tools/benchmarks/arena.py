"""The arena's server: milliseconds of its pages, and what worlds cost in time and memory.

Pages are asked of the application itself, in this process: no socket and no browser has a part.
They are those that links lead to from the front page of a site, as an agent would find them. Time
is the processor's: the server waits for nothing, and so a busy machine tells the same as an idle
one.
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
from webagent_jax.arena.server import Arena
from webagent_jax.arena.worlds import Worlds
from webagent_jax.browser import process_memory

_PAGES = 200  # of each site
_ROUNDS = 3  # visits of each page, for one repeat
_WORLDS = 100  # alive together
_COPIES = 20
_LINK = re.compile(r'<a [^>]*?href="(/[^"]*)"')


def run(repeats: int) -> Iterator[dict[str, Any]]:
    """A result per site, and one of worlds."""
    arena, started = _timed(Arena, SITES)
    with asyncio.Runner() as runner:
        for site in SITES:
            world = arena.worlds.new()
            visit = functools.partial(_visit, runner, arena, f"{site.name}.{world.name}.localhost")
            yield _pages(site.name, visit, repeats)
            arena.worlds.drop(world.name)
    yield {"name": "worlds, ms", "making the server": started} | _worlds(arena.worlds)


# --- pages ---------------------------------------------------------------------------------------


def _pages(site: str, visit: Callable[[str], tuple[int, str]], repeats: int) -> dict[str, Any]:
    paths = _found(visit)
    times = [_timed(visit, path)[1] for path in paths * _ROUNDS * repeats]
    return {
        "name": f"page, ms: {site}",
        "pages": len(paths),
        "p50": float(np.median(times)),
        "p95": float(np.percentile(times, 95)),
        "most": max(times),
        "slowest": paths[int(np.argmax(times)) % len(paths)],
    }


def _found(visit: Callable[[str], tuple[int, str]]) -> list[str]:
    """Paths of good pages, breadth first from the front page."""
    seen, waiting = {"/"}, collections.deque(["/"])
    found: list[str] = []
    while waiting and len(found) < _PAGES:
        path = waiting.popleft()
        status, text = visit(path)
        if status != 200:
            continue
        found.append(path)
        for link in _LINK.findall(text):
            target = unescape(link).partition("#")[0]
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return found


def _visit(runner: asyncio.Runner, arena: Arena, host: str, path: str) -> tuple[int, str]:
    """Status and text of a page."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", host.encode())],
    }
    answer: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        answer.append(message)

    runner.run(arena(scope, receive, send))
    return answer[0]["status"], b"".join(part.get("body", b"") for part in answer[1:]).decode()


# --- worlds --------------------------------------------------------------------------------------


def _worlds(worlds: Worlds) -> dict[str, Any]:
    """Each is begun, written to on every site, copied and dropped."""
    before = _resident_mb()
    begun = [_timed(worlds.new) for _ in range(_WORLDS)]
    reading = _resident_mb()
    alive = [world for world, _ in begun]
    written = {
        name: [_timed(world.writer, name)[1] for world in alive]
        for name in sorted({site.database.name for site in SITES})
    }
    writing = _resident_mb()
    copies = [_timed(worlds.copy, alive[0].name) for _ in range(_COPIES)]
    everybody = [*alive, *(twin for twin, _ in copies)]
    dropped = [_timed(worlds.drop, world.name)[1] for world in everybody]
    return {
        "alive": _WORLDS,
        "begin": timing.spread([ms for _, ms in begun]),
        "first write": {name: timing.spread(times) for name, times in written.items()},
        "copy of one that wrote on all sites": timing.spread([ms for _, ms in copies]),
        "drop": timing.spread(dropped),
        "MiB of one that reads": (reading - before) / _WORLDS,
        "MiB of one that wrote on all sites": (writing - reading) / _WORLDS,
    }


def _resident_mb() -> float:
    return process_memory.resident_mb(os.getpid())


def _timed(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What it returns, and the milliseconds of processor time that it took."""
    begun = time.thread_time()
    returned = call(*arguments)
    return returned, 1000 * (time.thread_time() - begun)
