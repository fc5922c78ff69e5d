"""The project's own benchmarks: a suite measures in one run what it compares, and tells ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax

from tools.benchmarks import (
    arena,
    async_training,
    attention,
    browser,
    evaluate,
    generate,
    language_model,
    packing,
    timing,
    update,
)
from webagent_jax.tracking import run_metadata


@dataclass(frozen=True)
class Asked:
    """How a suite is to be run."""

    repeats: int
    peer_python: str
    peer_checkout: str
    policy: str


SUITES: dict[str, Callable[[Asked], Iterator[dict[str, Any]]]] = {
    "arena": lambda asked: arena.run(asked.repeats),
    "attention": lambda asked: attention.run(asked.repeats),
    "browser": lambda asked: browser.run(asked.repeats, asked.peer_python, asked.peer_checkout),
    "evaluate": lambda asked: evaluate.run(asked.repeats, asked.policy),
    "generate": lambda asked: generate.run(asked.repeats, asked.peer_python),
    "language_model": lambda asked: language_model.run(
        asked.repeats, asked.policy, asked.peer_python, asked.peer_checkout
    ),
    "rows": lambda asked: packing.run(asked.repeats),
    "training": lambda asked: async_training.run(asked.repeats),
    "update": lambda asked: update.run(asked.repeats, asked.peer_python),
}


def run(
    suite: str,
    repeats: int,
    peer_python: str,
    show: Callable[[str], None],
    *,
    peer_checkout: str = "",
    policy: str = "webagent-tiny",
) -> dict[str, Any]:
    """Runs one of `SUITES`; what it finds, as JSON.

    Args:
        repeats: of every measurement; the median counts.
        peer_python: interpreter of an environment that has the peer; empty leaves it out.
        show: is given the figures as they come.
        peer_checkout: of VisualAgentBench for the suite `browser`, folder of llama.cpp for
            `language_model`; empty leaves the peer out.
        policy: name or directory of that of the suites `evaluate` and `language_model`.
    """
    device = jax.devices()[0]
    before = timing.matmul_rate() / 1e9
    results = []
    for result in SUITES[suite](Asked(repeats, peer_python, peer_checkout, policy)):
        results.append(result)
        show("\n".join(_lines(result)))
    after = timing.matmul_rate() / 1e9
    show(f"matmul {before:.0f} GFLOP/s before, {after:.0f} after")
    return {
        "suite": suite,
        "commit": run_metadata.commit(),
        "hardware": run_metadata.hardware() | {"device": device.device_kind},
        "matmul_gflops": [before, after],
        "results": results,
    }


def _lines(result: Any, indent: str = "") -> Iterator[str]:
    for name, value in result.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "    ")
        else:
            told = f"{value:.4g}" if isinstance(value, float) else value
            yield f"{indent}{name}: {told}" if name != "name" else f"{indent}{told}"
