"""Timing of programs: the median of several runs after one of warmup."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_WARMUP = 1


def seconds(run: Callable[[], Any], repeats: int) -> float:
    """Return the median of `repeats` runs after one that compiles; waits for JAX results."""
    times = []
    for _ in range(_WARMUP + repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - start)
    return statistics.median(times[_WARMUP:])


def milliseconds(run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Return median and 90th percentile of `repeats` runs after one of warmup."""
    times = []
    for _ in range(_WARMUP + repeats):
        start = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - start))
    return spread(times)


def medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each value over runs with the same keys."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def spread(times: Sequence[float]) -> dict[str, float]:
    """Return median and 90th percentile."""
    return {"median": float(np.median(times)), "p90": float(np.percentile(times, 90))}


def matmul_rate(matmul: Callable[..., jax.Array] = jnp.matmul) -> float:
    """Return the FLOP per second of `matmul` for float32 arrays of 1,024 x 1,024.

    It measures the current speed of the machine. Compare results of two runs only if it is similar.
    """
    side = 1024
    x = jnp.ones((side, side))
    product = jax.jit(lambda x: matmul(x, x))
    return 2 * side**3 / seconds(lambda: product(x), 20)


def bandwidth() -> float:
    """Return the memory bandwidth in bytes per second, measured by a sum over 128 MiB."""
    x = jnp.ones(2**25)
    total = jax.jit(jnp.sum)
    return x.nbytes / seconds(lambda: total(x), 20)


def program_bytes(compiled: jax.stages.Compiled) -> int:
    """Return the bytes of a program on one device: arguments, outputs and temporary arrays."""
    memory: Any = compiled.memory_analysis()
    output_bytes = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return int(memory.argument_size_in_bytes + memory.temp_size_in_bytes + output_bytes)
