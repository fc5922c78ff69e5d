"""Where an engine computes that is not cut over a mesh.

On a CPU, XLA cuts every operation into parts for a pool of threads, one to a core. For a small
policy the handing out costs more than the parts do: a decode step of webagent-tiny takes as long on
two threads as on one, and twice the processor time (docs/architecture.md), of which browsers and
learner beside it have better uses. So engines of small policies compute on a device of their own, a
second client of XLA with one thread, which gives way to the learner; that keeps the first, with all
of them. Not where there are several hosts: on all but the first, JAX would take that device for one
of another host.
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import jax
from jaxlib import xla_client

from webagent_jax import cpu_priority
from webagent_jax.inference import engine_shapes
from webagent_jax.policy import ModelConfig

_POOL_SIZE = "NPROC"  # in the environment, read by XLA when it makes the pool of a client


def device_for(config: ModelConfig) -> jax.Device:
    """Of this host."""
    alone = jax.process_count() == 1
    return _one_thread() if alone and engine_shapes.in_cache(config) else jax.local_devices()[0]


@functools.cache
def _one_thread() -> jax.Device:
    before = os.environ.get(_POOL_SIZE)
    os.environ[_POOL_SIZE] = "1"
    try:
        # Its threads have the priority of the one that makes it.
        with ThreadPoolExecutor(1, initializer=cpu_priority.give_way) as maker:
            made = maker.submit(xla_client.make_cpu_client, asynchronous=True)
            client: Any = made.result()
    finally:
        del os.environ[_POOL_SIZE]
        if before is not None:
            os.environ[_POOL_SIZE] = before
    return cast(jax.Device, client.local_devices()[0])
