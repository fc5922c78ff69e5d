"""Browser benchmark: observations, steps per second, and waits for changes after a click.

Baselines use the same pages of the same local site in the same run, each in its own process:
BrowserGym and the parser of VisualAgentBench in the interpreter of `baseline_python`, Playwright
with its two usual waits in the current one.
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
from webagent_jax.config import BrowserConfig, ObservationFormat, WorkerType
from webagent_jax.types import Action, ActionKind

_ELEMENTS, _ROWS = 3_000, 500
_CONTEXTS = (1, 4, 8, 16, 32)
_CPU_CONTEXTS = 8
_STEPS = 320  # steps of all contexts together
_BASELINE_OBSERVATIONS = 3  # per page; each takes seconds
_BASELINE_STEPS = 12  # steps per environment
_BASELINE_PROCESSES = (1, 4, 8, 16)
_DELAYS_PER_KIND = 5  # delays of each kind of change, from 20 to 300 ms
_THINK_SECONDS = 0.7  # time of a model before its click
_MAX_CHARS = 10**7  # no limit in practice: baselines have none


def run(repeats: int, baseline_python: str, checkout: str) -> Iterator[dict[str, Any]]:
    """Yield one result per page, one for steps per second, and one per kind of wait.

    Args:
        repeats: number of measurements; each has ten observations per page.
        baseline_python: interpreter with BrowserGym; empty skips BrowserGym and VisualAgentBench.
        checkout: checkout of VisualAgentBench; empty skips it.
    """
    pages = {
        "small": site.small(),
        "3,000 elements": site.large(_ELEMENTS),
        "500 rows": site.table(_ROWS),
        "counter": site.COUNTER,
    }
    with site.serve_pages({name.replace(" ", "-"): page for name, page in pages.items()}) as origin:
        urls = {name: f"http://{origin}/{name.replace(' ', '-')}" for name in pages}
        counter = urls.pop("counter")
        request = {"urls": urls, "counter": counter, "repeats": 10 * repeats}
        yield from _observations(origin, request, baseline_python, checkout)
        yield from _steps(origin, request, baseline_python)
        yield from _waits(origin)


# --- observations --------------------------------------------------------------------------------


def _observations(
    origin: str, request: dict[str, Any], baseline_python: str, checkout: str
) -> Iterator[dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {name: {} for name in request["urls"]}
    for observation_format in get_args(ObservationFormat):
        with BrowserPool(
            BrowserConfig(observation_format=observation_format, max_observation_chars=_MAX_CHARS)
        ) as pool:
            for name, url in request["urls"].items():
                with pool.session(origins=[origin]) as session:
                    session.goto(url)
                    observe = timing.milliseconds(session.observe, request["repeats"])
                    floor = timing.milliseconds(lambda: session.evaluate("1"), request["repeats"])
                    results[name] |= {observation_format: observe, "empty evaluate": floor}
    request = request | {
        "repeats": _BASELINE_OBSERVATIONS,
        "checkout": str(Path(checkout).resolve()),
    }
    if baseline_python:
        times = _run_baseline(baseline_python, "browsergym/observations.py", request)
        _add_baseline(results, "BrowserGym", times)
    if baseline_python and checkout:
        times = _run_baseline(baseline_python, "visualagentbench/observations.py", request)
        _add_baseline(results, "VisualAgentBench", times)
    for page, result in results.items():
        for label, name in (("BrowserGym", "compact"), ("VisualAgentBench", "webarena_lite")):
            if label in result:
                result[f"{label} / {name}"] = result[label]["median"] / result[name]["median"]
        yield {"name": f"observation, ms: {page}"} | result


def _add_baseline(
    results: dict[str, dict[str, Any]], label: str, times_by_page: dict[str, list[float]]
) -> None:
    for name, times in times_by_page.items():
        results[name][label] = timing.spread(times)


# --- steps ---------------------------------------------------------------------------------------


def _steps(origin: str, request: dict[str, Any], baseline_python: str) -> Iterator[dict[str, Any]]:
    """Yield steps per second; a step clicks, waits for a quiet page, observes, reads the reward."""
    url = request["counter"]
    our_rates = {n: _measure_steps(origin, url, n)[0] for n in _CONTEXTS}
    result: dict[str, Any] = {"name": "steps per second, by contexts", "ours": our_rates}
    if baseline_python:
        request = request | {"steps": _BASELINE_STEPS, "processes": _BASELINE_PROCESSES}
        rates = _run_baseline(baseline_python, "browsergym/steps.py", request)
        best = max(our_rates.values())
        for setting, by_processes in rates.items():
            result[f"BrowserGym, {setting}, by processes"] = by_processes
            result[f"ours / BrowserGym, {setting}"] = {
                "one context": our_rates[_CONTEXTS[0]] / by_processes["1"],
                "best of both": best / max(by_processes.values()),
                "best / one process": best / by_processes["1"],
            }
    yield result
    # Threads of one process share an interpreter lock, which this time occupies.
    yield {"name": "CPU ms of the main process per step, by worker type"} | {
        worker_type: _measure_steps(origin, url, _CPU_CONTEXTS, worker_type)[1]
        for worker_type in get_args(WorkerType)
    }


def _measure_steps(
    origin: str, url: str, contexts: int, worker_type: WorkerType = "thread"
) -> tuple[float, float]:
    """Return steps per second, and CPU milliseconds of this process per step."""
    steps_per_context = max(_STEPS // contexts, 2)
    barrier = threading.Barrier(contexts + 1, timeout=120)
    processes = min(contexts, os.cpu_count() or 1)
    with (
        BrowserPool(BrowserConfig(num_processes=processes, worker_type=worker_type)) as pool,
        ThreadPoolExecutor(contexts) as threads,
    ):

        def run_context() -> None:
            with pool.session(origins=[origin]) as session:
                session.goto(url)
                click = _click_on(session, "Count")
                _run_steps(session, click, steps=2)
                barrier.wait()
                reward = _run_steps(session, click, steps=steps_per_context)
                if reward != steps_per_context + 2:
                    raise RuntimeError("a click was lost")

        futures = [threads.submit(run_context) for _ in range(contexts)]
        barrier.wait()
        start, cpu_start = time.perf_counter(), time.process_time()
        for future in futures:
            future.result()
        steps = contexts * steps_per_context
        cpu_ms = 1000 * (time.process_time() - cpu_start) / steps
        return steps / (time.perf_counter() - start), cpu_ms


def _run_steps(session: Session, click: Action, steps: int) -> float:
    """Return the reward after the last step."""
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


def _waits(origin: str) -> Iterator[dict[str, Any]]:
    """Yield the fraction of changes that are complete after the wait, and ms since the click."""
    rng = np.random.default_rng(2)
    changes = [
        (kind, int(ms)) for kind in site.KINDS for ms in rng.integers(20, 301, _DELAYS_PER_KIND)
    ]
    urls = [f"http://{origin}/changing?kind={kind}&ms={ms}" for kind, ms in changes]
    baselines = _run_baseline(
        sys.executable, "playwright/settle.py", {"urls": urls, "thought": _THINK_SECONDS}
    )
    outcomes_by_label = {"ours": _click_and_wait(origin, urls)} | baselines
    for label, outcomes in outcomes_by_label.items():
        result: dict[str, Any] = {"name": f"settled after a click: {label}"}
        for kind in (*site.KINDS, "all"):
            of_kind = [o for o, (k, _) in zip(outcomes, changes, strict=True) if kind in (k, "all")]
            result[kind] = {
                "right": statistics.mean(float(is_complete) for is_complete, _ in of_kind),
                "ms": statistics.median(ms for _, ms in of_kind),
            }
        yield result


def _click_and_wait(origin: str, urls: list[str]) -> list[tuple[bool, float]]:
    """Return for each page whether the change is complete after the wait, and ms of the wait."""
    outcomes = []
    with BrowserPool(BrowserConfig()) as pool:
        for url in urls:
            with pool.session(origins=[origin]) as session:
                session.goto(url)
                click = _click_on(session, "Go")
                time.sleep(_THINK_SECONDS)
                start = time.perf_counter()
                session.act(click)
                ms = 1000 * (time.perf_counter() - start)
                is_complete = session.evaluate("!!document.getElementById('done')")
                outcomes.append((is_complete, ms))
    return outcomes


def _run_baseline(python: str, script: str, request: dict[str, Any]) -> dict[str, Any]:
    return baseline.run_script(python, script, request | {"executable": chromium.find_executable()})
