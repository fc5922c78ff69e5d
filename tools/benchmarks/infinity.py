"""Benchmark of WebArena-Infinity: tokens of pages, steps per second, time and memory per world.

The pages of an app are its start page, and the page after a click on each of its first elements.
The baseline of a world is the app's own server, which needs a process per world.
"""

from __future__ import annotations

import http.client
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import numpy as np

from tools.benchmarks import timing
from webagent_jax.agent import ChatTokenizer
from webagent_jax.browser import BrowserPool, process_memory
from webagent_jax.config import BrowserConfig, InfinityConfig, ObservationFormat
from webagent_jax.policy import resolve_dir
from webagent_jax.suites.infinity import Infinity, catalog
from webagent_jax.suites.infinity.server import InfinityServer
from webagent_jax.types import Action, ActionKind, Task

_CLICKS = 20  # elements per app that are clicked
_CONTEXTS = (1, 8)
_WORLDS = 200  # number of worlds that exist at the same time
_MAX_CHARS = 10**7  # no limit in practice


def run(repeats: int, policy: str, checkout: str) -> Iterator[dict[str, Any]]:
    """Yield one result per app and format, one for steps per second, and one for worlds.

    Args:
        repeats: number of starts of an app's own server.
        policy: name or directory of the policy whose tokenizer counts tokens.
        checkout: checkout of WebArena-Infinity.
    """
    tasks = {task.sites[0]: task for task in catalog.read_all(checkout)}
    config = InfinityConfig(path=checkout, test_apps=())
    tokenizer = ChatTokenizer(resolve_dir(policy))
    for observation_format in get_args(ObservationFormat):
        browser = BrowserConfig(
            observation_format=observation_format, max_observation_chars=_MAX_CHARS
        )
        with BrowserPool(browser) as pool:
            suite = Infinity(pool, config)
            for app, task in tasks.items():
                pages, _ = _click_elements(suite, task)
                counts = [len(tokenizer.encode(page)) for page in pages]
                yield {
                    "name": f"tokens of a page, {observation_format}: {app}",
                    "pages": len(pages),
                    "median": float(np.median(counts)),
                    "p95": float(np.percentile(counts, 95)),
                    "characters, median": float(np.median([len(page) for page in pages])),
                }
            suite.close()
    yield {"name": "steps per second, by contexts"} | {
        str(contexts): _steps_per_second(config, list(tasks.values()), contexts)
        for contexts in _CONTEXTS
    }
    yield _worlds({app: catalog.app_folder(task) for app, task in tasks.items()}, tasks, config)
    yield _own_servers({app: catalog.app_folder(task) for app, task in tasks.items()}, repeats)


# --- pages ---------------------------------------------------------------------------------------


def _click_elements(suite: Infinity, task: Task) -> tuple[list[str], float]:
    """Return the texts of the start page and the pages after clicks, and the seconds per click."""
    environment = suite.make_env(task)
    try:
        page = environment.reset().observation
        pages, seconds = [page.text], []
        for index in range(_CLICKS):
            ids = [i for i, element in page.elements.items() if element.kind != "textbox"]
            if index >= len(ids):
                break
            start = time.perf_counter()
            result = environment.step(Action(ActionKind.CLICK, ids[index])).observation
            seconds.append(time.perf_counter() - start)
            pages.append(result.text)
            page = environment.step(Action(ActionKind.GOTO, value="/")).observation
        return pages, statistics.mean(seconds)
    finally:
        environment.close()


def _steps_per_second(config: InfinityConfig, tasks: list[Task], contexts: int) -> float:
    """Return the clicks per second of `contexts` episodes at once, page loads excluded."""
    # The episodes of an incomplete last wave would run with less load, and so faster.
    tasks = tasks[: len(tasks) // contexts * contexts]
    processes = min(contexts, os.cpu_count() or 1)
    with (
        BrowserPool(BrowserConfig(num_processes=processes)) as pool,
        ThreadPoolExecutor(contexts) as threads,
    ):
        suite = Infinity(pool, config)
        results = list(threads.map(lambda task: _click_elements(suite, task)[1], tasks))
        suite.close()
        return contexts / statistics.mean(results)


# --- worlds --------------------------------------------------------------------------------------


def _worlds(
    folders: dict[str, Path], tasks: dict[str, Task], config: InfinityConfig
) -> dict[str, Any]:
    """Return time and memory of a world, empty and with the state of its app."""
    states = {}
    with BrowserPool(BrowserConfig()) as pool:
        suite = Infinity(pool, config)
        for app, task in tasks.items():
            environment = suite.make_env(task)
            environment.reset()
            states[app] = environment.read_state()
            environment.close()
        first, *_ = tasks.values()
        resets = [_reset_ms(suite, first) for _ in range(10)]
        suite.close()
    with InfinityServer(folders) as server:
        app, *_ = folders
        rss_mib = process_memory.tree_rss_mib(os.getpid())
        new_ms = []
        for _ in range(_WORLDS):
            start = time.perf_counter()
            server.new(app)
            new_ms.append(1000 * (time.perf_counter() - start))
        empty_mib = (process_memory.tree_rss_mib(os.getpid()) - rss_mib) / _WORLDS
    state_kib = [len(state) / 1024 for state in states.values()]
    return {
        "name": "worlds",
        "new, ms": timing.spread(new_ms),
        "MiB of one without a state": empty_mib,
        "KiB of a state, by app": {"median": float(np.median(state_kib)), "most": max(state_kib)},
        "reset of an environment in a reused context, ms": timing.spread(resets[1:]),
    }


def _reset_ms(suite: Infinity, task: Task) -> float:
    start = time.perf_counter()
    environment = suite.make_env(task)
    environment.reset()
    milliseconds = 1000 * (time.perf_counter() - start)
    environment.close()
    return milliseconds


def _own_servers(folders: dict[str, Path], repeats: int) -> dict[str, Any]:
    """Return time to the first response and memory of the apps' own servers."""
    times, memory = zip(
        *(_start_own_server(folder) for folder in folders.values() for _ in range(repeats)),
        strict=True,
    )
    return {
        "name": "processes of the apps' own servers",
        "start, ms": timing.spread(times),
        "MiB": float(np.median(memory)),
    }


def _start_own_server(folder: Path) -> tuple[float, float]:
    """Return the milliseconds to the first response of an app's own server, and its MiB."""
    with socket.create_server(("127.0.0.1", 0)) as free_socket:
        port = free_socket.getsockname()[1]
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-B", "server.py", "--port", str(port)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not _responds(port):
            time.sleep(0.001)
        milliseconds = 1000 * (time.perf_counter() - start)
        return milliseconds, process_memory.tree_rss_mib(process.pid)
    finally:
        process.kill()
        process.wait()


def _responds(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
