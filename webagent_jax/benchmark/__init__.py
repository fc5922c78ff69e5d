"""The project's own benchmarks: a suite measures in one run what it compares, and tells ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

from webagent_jax.benchmark import attention, generate, measure, update
from webagent_jax.report import provenance

SUITES: dict[str, Callable[[int, str], Iterator[dict[str, Any]]]] = {
    "attention": lambda repeats, peer: attention.run(repeats),
    "generate": generate.run,
    "update": update.run,
}


def run(suite: str, repeats: int, peer_python: str, show: Callable[[str], None]) -> dict[str, Any]:
    """Runs one of `SUITES`; what it finds, as JSON.

    Args:
        repeats: of every measurement; the median counts.
        peer_python: interpreter of an environment that has the peer; empty leaves it out.
        show: is given the figures as they come.
    """
    device = jax.devices()[0]
    before = measure.matmul_rate() / 1e9
    results = []
    for result in SUITES[suite](repeats, peer_python):
        results.append(result)
        show("\n".join(_lines(result)))
    after = measure.matmul_rate() / 1e9
    show(f"matmul {before:.0f} GFLOP/s before, {after:.0f} after")
    return {
        "suite": suite,
        "commit": provenance.commit(),
        "hardware": provenance.hardware() | {"device": device.device_kind},
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
