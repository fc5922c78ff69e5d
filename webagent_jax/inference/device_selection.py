"""Device of an engine that is not sharded over a mesh.

On a CPU, XLA splits every operation over a pool of threads, one per core. For a small policy the
split costs more than it saves: a decode step of webagent-tiny takes as long on two threads as on
one and uses twice the CPU time, which browsers and learner then lack (docs/lab_log.md). Engines of
small policies therefore run on a second XLA client with one thread of lower priority; the learner
keeps the first client with all threads. Runs of several processes use the first client only: in all
processes but the first, JAX would attribute the second client's device to another process.
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

# Environment variable that XLA reads when it creates the thread pool of a client.
_POOL_SIZE = "NPROC"


def select_device(config: ModelConfig) -> jax.Device:
    """Return the device of this process that the engine runs on."""
    is_single_process = jax.process_count() == 1
    return (
        _single_thread_cpu_device()
        if is_single_process and engine_shapes.fits_cpu_cache(config)
        else jax.local_devices()[0]
    )


@functools.cache
def _single_thread_cpu_device() -> jax.Device:
    old_size = os.environ.get(_POOL_SIZE)
    os.environ[_POOL_SIZE] = "1"
    try:
        # The threads of a client inherit the priority of the thread that creates it.
        with ThreadPoolExecutor(1, initializer=cpu_priority.lower_priority) as executor:
            future = executor.submit(xla_client.make_cpu_client, asynchronous=True)
            client: Any = future.result()
    finally:
        del os.environ[_POOL_SIZE]
        if old_size is not None:
            os.environ[_POOL_SIZE] = old_size
    return cast(jax.Device, client.local_devices()[0])
