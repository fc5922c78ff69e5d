"""The browser room: observations, steps per second, and pages that change after a click.

Peers take the same pages of the same local site in the same run, each in a process of its own:
BrowserGym and VisualAgentBench's parser in the interpreter that has them, plain Playwright with its
usual two ways to wait in ours.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import numpy as np

from tools.benchmarks import baseline, site, timing
from webagent_jax.browser import BrowserPool, Session, chromium
from webagent_jax.config import BrowserConfig, ObservationFormat
from webagent_jax.types import Action, ActionKind

_ELEMENTS, _ROWS = 3_000, 500
_CONTEXTS = (1, 4, 8, 16, 32)
_STEPS = 320  # of all contexts together
_PEER_LOOKS = 3  # they take seconds each
_PEER_STEPS = 12  # of each of its environments
_PEER_PROCESSES = (1, 4)
_LATENCIES = 5  # of each kind of change, drawn from 20 to 300 ms
_THOUGHT = 0.7  # seconds that a model thinks before it clicks
_WHOLE = 10**7  # characters: peers have no budget


def run(repeats: int, peer_python: str, checkout: str) -> Iterator[dict[str, Any]]:
    """A result per page, per number of contexts, per way to wait.

    Args:
        repeats: ten looks each at every page.
        peer_python: interpreter with BrowserGym; empty leaves it and VisualAgentBench out.
        checkout: of VisualAgentBench; empty leaves it out.
    """
    pages = {
        "small": site.small(),
        "3,000 elements": site.large(_ELEMENTS),
        "500 rows": site.table(_ROWS),
        "counter": site.COUNTER,
    }
    with site.served({name.replace(" ", "-"): page for name, page in pages.items()}) as origin:
        urls = {name: f"http://{origin}/{name.replace(' ', '-')}" for name in pages}
        counter = urls.pop("counter")
        asked = {"urls": urls, "counter": counter, "repeats": 10 * repeats}
        yield from _observations(origin, asked, peer_python, checkout)
        yield from _steps(origin, asked, peer_python)
        yield from _settled(origin)


# --- observations --------------------------------------------------------------------------------


def _observations(
    origin: str, asked: dict[str, Any], peer_python: str, checkout: str
) -> Iterator[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {name: {} for name in asked["urls"]}
    for form in get_args(ObservationFormat):
        with BrowserPool(BrowserConfig(observation=form, observation_chars=_WHOLE)) as pool:
            for name, url in asked["urls"].items():
                with pool.session(origins=[origin]) as session:
                    session.goto(url)
                    look = timing.milliseconds(session.observe, asked["repeats"])
                    floor = timing.milliseconds(lambda: session.evaluate("1"), asked["repeats"])
                    found[name] |= {form: look, "empty evaluate": floor}
    asked = asked | {"repeats": _PEER_LOOKS, "checkout": str(Path(checkout).resolve())}
    if peer_python:
        _add(found, "BrowserGym", _ask(peer_python, "browsergym/observations.py", asked))
    if peer_python and checkout:
        theirs = _ask(peer_python, "visualagentbench/observations.py", asked)
        _add(found, "VisualAgentBench", theirs)
    for name, told in found.items():
        for who, ours in (("BrowserGym", "compact"), ("VisualAgentBench", "webarena_lite")):
            if who in told:
                told[f"{who} / {ours}"] = told[who]["median"] / told[ours]["median"]
        yield {"name": f"observation, ms: {name}"} | told


def _add(found: dict[str, dict[str, Any]], who: str, theirs: dict[str, list[float]]) -> None:
    for name, times in theirs.items():
        found[name][who] = timing.spread(times)


# --- steps ---------------------------------------------------------------------------------------


def _steps(origin: str, asked: dict[str, Any], peer_python: str) -> Iterator[dict[str, Any]]:
    """Click, wait until the page is quiet, observe, read the reward."""
    ours = {n: _steps_per_second(origin, asked["counter"], contexts=n) for n in _CONTEXTS}
    result: dict[str, Any] = {"name": "steps per second, by contexts", "ours": ours}
    if peer_python:
        asked = asked | {"steps": _PEER_STEPS, "processes": _PEER_PROCESSES}
        theirs = _ask(peer_python, "browsergym/steps.py", asked)
        best = max(ours.values())
        for way, by_processes in theirs.items():
            result[f"BrowserGym, {way}, by processes"] = by_processes
            result[f"ours / BrowserGym, {way}"] = {
                "one context": ours[_CONTEXTS[0]] / by_processes["1"],
                "best of both": best / max(by_processes.values()),
                "best / one process": best / by_processes["1"],
            }
    yield result


def _steps_per_second(origin: str, url: str, contexts: int) -> float:
    each = max(_STEPS // contexts, 2)
    started = threading.Barrier(contexts + 1, timeout=120)
    processes = min(contexts, os.cpu_count() or 1)
    with (
        BrowserPool(BrowserConfig(processes=processes)) as pool,
        ThreadPoolExecutor(contexts) as threads,
    ):

        def play() -> None:
            with pool.session(origins=[origin]) as session:
                session.goto(url)
                click = _click_on(session, "Count")
                _play(session, click, steps=2)
                started.wait()
                if _play(session, click, steps=each) != each + 2:
                    raise RuntimeError("a click was lost")

        players = [threads.submit(play) for _ in range(contexts)]
        started.wait()
        begun = time.perf_counter()
        for player in players:
            player.result()
        return contexts * each / (time.perf_counter() - begun)


def _play(session: Session, click: Action, steps: int) -> float:
    """The reward after the last step."""
    reward = 0.0
    for _ in range(steps):
        session.act(click)
        session.observe()
        reward = session.evaluate("window.reward")
    return reward


def _click_on(session: Session, name: str) -> Action:
    elements = session.observe().elements
    return Action(ActionKind.CLICK, next(i for i, e in elements.items() if e.name == name))


# --- pages that change after a click -------------------------------------------------------------


def _settled(origin: str) -> Iterator[dict[str, Any]]:
    """Share of the changes that were there when the wait was over, and ms from the click on."""
    rng = np.random.default_rng(2)
    changes = [(kind, int(ms)) for kind in site.KINDS for ms in rng.integers(20, 301, _LATENCIES)]
    urls = [f"http://{origin}/changing?kind={kind}&ms={ms}" for kind, ms in changes]
    theirs = _ask(sys.executable, "playwright/settle.py", {"urls": urls, "thought": _THOUGHT})
    found = {"ours": _waited(origin, urls)} | theirs
    for who, outcomes in found.items():
        told: dict[str, Any] = {"name": f"settled after a click: {who}"}
        for kind in (*site.KINDS, "all"):
            of = [o for o, (k, _) in zip(outcomes, changes, strict=True) if kind in (k, "all")]
            told[kind] = {
                "right": statistics.mean(float(right) for right, _ in of),
                "ms": statistics.median(ms for _, ms in of),
            }
        yield told


def _waited(origin: str, urls: list[str]) -> list[tuple[bool, float]]:
    """(the change was there, ms) of each page."""
    found = []
    with BrowserPool(BrowserConfig()) as pool:
        for url in urls:
            with pool.session(origins=[origin]) as session:
                session.goto(url)
                click = _click_on(session, "Go")
                time.sleep(_THOUGHT)
                begun = time.perf_counter()
                session.act(click)
                ms = 1000 * (time.perf_counter() - begun)
                found.append((session.evaluate("!!document.getElementById('done')"), ms))
    return found


def _ask(python: str, script: str, asked: dict[str, Any]) -> dict[str, Any]:
    return baseline.ask(python, script, asked | {"executable": chromium.find()})
