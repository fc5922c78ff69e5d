"""Benchmarks of the project; each measures its alternatives in one run and reports ratios."""

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
    infinity,
    language_model,
    packing,
    speculation,
    timing,
    update,
)
from webagent_jax.tracking import run_metadata


@dataclass(frozen=True)
class Options:
    """Options of a benchmark."""

    repeats: int  # number of runs per measurement; results are medians
    # Python interpreter of an environment with the baselines; empty: skip them.
    baseline_python: str = ""
    # Checkout of VisualAgentBench for `browser`, folder with llama.cpp for `language_model`; empty:
    # skip this baseline. Checkout of WebArena-Infinity for `infinity`, which needs it.
    baseline_checkout: str = ""
    # Name or directory of the policy of `evaluate`, `infinity`, `language_model`, `speculation`.
    policy: str = "webagent-tiny"
    episodes: str = ""  # workdir of a training run, for `speculation`, which needs it


SUITES: dict[str, Callable[[Options], Iterator[dict[str, Any]]]] = {
    "arena": lambda options: arena.run(options.repeats),
    "attention": lambda options: attention.run(options.repeats),
    "browser": lambda options: browser.run(
        options.repeats, options.baseline_python, options.baseline_checkout
    ),
    "evaluate": lambda options: evaluate.run(options.repeats, options.policy),
    "generate": lambda options: generate.run(options.repeats, options.baseline_python),
    "infinity": lambda options: infinity.run(
        options.repeats, options.policy, options.baseline_checkout
    ),
    "language_model": lambda options: language_model.run(
        options.repeats, options.policy, options.baseline_python, options.baseline_checkout
    ),
    "rows": lambda options: packing.run(options.repeats),
    "speculation": lambda options: speculation.run(
        options.repeats, options.policy, options.episodes
    ),
    "training": lambda options: async_training.run(options.repeats),
    "update": lambda options: update.run(options.repeats, options.baseline_python),
}


def run(suite: str, options: Options, show: Callable[[str], None]) -> dict[str, Any]:
    """Run one of `SUITES` and return its results as JSON values.

    Args:
        suite: name of the benchmark.
        options: options of the benchmark.
        show: receives each result as text.
    """
    device = jax.devices()[0]
    first_rate = timing.matmul_rate() / 1e9
    results = []
    for result in SUITES[suite](options):
        results.append(result)
        show("\n".join(_lines(result)))
    last_rate = timing.matmul_rate() / 1e9
    show(f"matmul {first_rate:.0f} GFLOP/s before, {last_rate:.0f} after")
    return {
        "suite": suite,
        "commit": run_metadata.commit(),
        "hardware": run_metadata.hardware() | {"device": device.device_kind},
        "matmul_gflops": [first_rate, last_rate],
        "results": results,
    }


def _lines(result: Any, indent: str = "") -> Iterator[str]:
    for name, value in result.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "    ")
        else:
            text = f"{value:.4g}" if isinstance(value, float) else value
            yield f"{indent}{name}: {text}" if name != "name" else f"{indent}{text}"
