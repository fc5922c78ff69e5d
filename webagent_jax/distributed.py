"""Processes of a job: flags and set-up, barrier and allgather.

Each process runs its own episodes with its own browsers and engine; only the train step is global.
All processes call `barrier` and `allgather` together.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from absl import app, flags
from jax.experimental import multihost_utils

_DISTRIBUTED = flags.DEFINE_bool(
    "distributed", False, "Run as one process of a job that Slurm, GKE or a TPU pod describes."
)
_COORDINATOR_ADDRESS = flags.DEFINE_string(
    "coordinator_address",
    "",
    "HOST:PORT of process 0, for jobs without a description; needs the next two flags.",
)
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", 0, "Number of processes of the job.")
_PROCESS_ID = flags.DEFINE_integer("process_id", -1, "Index of this process, from 0.")

_HEARTBEAT_TIMEOUT_SECONDS = 60


@contextmanager
def initialized() -> Iterator[None]:
    """Initialize JAX for all processes of the job, as the flags say; do nothing without them.

    No JAX function may run before. If another process fails, this one exits with a message: the
    whole job must be started again, and resumes from its workdir.

    Raises:
        app.UsageError: the flags contradict one another.
    """
    if not _DISTRIBUTED.value and not _COORDINATOR_ADDRESS.value:
        if _NUM_PROCESSES.value > 1:
            raise app.UsageError(
                "--num_processes needs --coordinator_address=HOST:PORT, or --distributed alone"
            )
        yield
        return
    options: dict[str, Any] = {}
    if _COORDINATOR_ADDRESS.value:
        if not 0 <= _PROCESS_ID.value < _NUM_PROCESSES.value:
            raise app.UsageError(
                "--coordinator_address needs --num_processes=N and --process_id=I, "
                "with I from 0 to N - 1"
            )
        options = {
            "coordinator_address": _COORDINATOR_ADDRESS.value,
            "num_processes": _NUM_PROCESSES.value,
            "process_id": _PROCESS_ID.value,
        }
    jax.distributed.initialize(**options, heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT_SECONDS)
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        sys.stderr.write(
            f"Process {process_index()} cannot continue, probably because another process failed: "
            "see its log. Start all processes again with the same --workdir: the run resumes "
            f"from its last checkpoint.\n({error})\n"
        )
        sys.stderr.flush()
        os._exit(1)  # a normal exit would wait for the processes that failed
    jax.distributed.shutdown()


def process_count() -> int:
    """Return the number of processes of the job."""
    return jax.process_count()


def process_index() -> int:
    """Return the index of this process; process 0 writes the files that the job shares."""
    return jax.process_index()


def barrier(name: str) -> None:
    """Wait until all processes reach the barrier of this name."""
    if process_count() > 1:
        multihost_utils.sync_global_devices(name)


def allgather(value: Any) -> list[Any]:
    """Return the values of all processes, by process index; for small JSON values."""
    if process_count() == 1:
        return [value]
    encoded = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = np.ravel(multihost_utils.process_allgather(np.asarray(len(encoded), np.int32)))
    padded = np.pad(encoded, (0, int(lengths.max()) - len(encoded)))
    rows = np.asarray(multihost_utils.process_allgather(padded)).reshape(process_count(), -1)
    return [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]
