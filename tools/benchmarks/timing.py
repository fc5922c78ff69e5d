"""How things are timed: compiled first, waited for, the middle of several runs."""

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
    """Median of `repeats` runs after one that compiles; each is waited for."""
    times = []
    for _ in range(_WARMUP + repeats):
        begun = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - begun)
    return statistics.median(times[_WARMUP:])


def milliseconds(run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Of `repeats` calls after a first one that does not count."""
    times = []
    for _ in range(_WARMUP + repeats):
        begun = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - begun))
    return spread(times)


def spread(times: Sequence[float]) -> dict[str, float]:
    """Median and 90th percentile."""
    return {"median": float(np.median(times)), "p90": float(np.percentile(times, 90))}


def matmul_rate() -> float:
    """FLOP per second of a float32 product of 1,024 x 1,024: the machine as it is at this moment.

    Figures of two runs are only to be compared where this is alike.
    """
    side = 1024
    x = jnp.ones((side, side))
    product = jax.jit(lambda x: x @ x)
    return 2 * side**3 / seconds(lambda: product(x), 20)


def bandwidth() -> float:
    """Bytes per second that are read of memory in a sum of 128 MiB."""
    x = jnp.ones(2**25)
    total = jax.jit(jnp.sum)
    return x.nbytes / seconds(lambda: total(x), 20)


def program_bytes(compiled: jax.stages.Compiled) -> int:
    """Memory of a program on one device: arguments, results and what it needs in between."""
    memory: Any = compiled.memory_analysis()
    own = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return int(memory.argument_size_in_bytes + memory.temp_size_in_bytes + own)
