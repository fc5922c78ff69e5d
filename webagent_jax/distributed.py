"""Flags and setup of multi-process jobs, barrier and allgather.

Each process runs its own episodes with its own browsers and engine; only the train step is global.
All processes must call `barrier` and `allgather`. JAX is imported lazily, because `--help` also
imports this module for its flags.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from absl import flags

from webagent_jax import device_memory
from webagent_jax.config import ConfigError, RunStoppedError

_DISTRIBUTED = flags.DEFINE_bool(
    "distributed",
    False,
    "Run as one process of a job; Slurm, GKE or the TPU pod provides the settings.",
)
_COORDINATOR_ADDRESS = flags.DEFINE_string(
    "coordinator_address",
    "",
    "HOST:PORT of process 0, instead of --distributed; needs --num_processes and --process_id.",
)
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", 0, "Number of processes of the job.")
_PROCESS_ID = flags.DEFINE_integer("process_id", -1, "Index of this process, from 0.")

# The other processes exit this long after the last heartbeat of a failed one.
_HEARTBEAT_TIMEOUT_SECONDS = 60


@contextmanager
def initialized() -> Iterator[None]:
    """Initialize JAX for all processes of the job; do nothing without the flags of a job.

    Must precede all other JAX calls. If another process fails, this one exits with a message. A
    restart of all processes resumes from the workdir.

    Raises:
        ConfigError: the flags are inconsistent.
    """
    if not _DISTRIBUTED.value and not _COORDINATOR_ADDRESS.value:
        if _NUM_PROCESSES.value > 1:
            raise ConfigError(
                "--num_processes needs --coordinator_address=HOST:PORT; or use only --distributed"
            )
        yield
        return
    import jax

    options: dict[str, Any] = {}
    if _COORDINATOR_ADDRESS.value:
        if not 0 <= _PROCESS_ID.value < _NUM_PROCESSES.value:
            raise ConfigError(
                "--coordinator_address needs --num_processes=N and --process_id=I, "
                "with I from 0 to N - 1"
            )
        if not _COORDINATOR_ADDRESS.value.rpartition(":")[2].isdecimal():
            raise ConfigError(
                f"--coordinator_address={_COORDINATOR_ADDRESS.value} must be HOST:PORT"
            )
        options = {
            "coordinator_address": _COORDINATOR_ADDRESS.value,
            "num_processes": _NUM_PROCESSES.value,
            "process_id": _PROCESS_ID.value,
        }
    # After an error, JAX waits for the other processes before it exits, and they notice only then.
    try:
        jax.distributed.initialize(
            **options,
            heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT_SECONDS,
            shutdown_timeout_seconds=_HEARTBEAT_TIMEOUT_SECONDS,
        )
    except ValueError as error:
        raise ConfigError(
            f"--distributed found no job of Slurm, GKE or a TPU pod ({error}): start one there, or "
            "set --coordinator_address=HOST:PORT --num_processes=N --process_id=I"
        ) from error
    stopped: RunStoppedError | None = None
    try:
        try:
            yield
        except RunStoppedError as error:
            stopped = error  # all processes stop after the same update
        # Processes wait for their last episodes, some longer than `shutdown` waits for others.
        barrier("end")
    except jax.errors.JaxRuntimeError as error:
        if device_memory.is_exhausted(error):
            raise  # a restart fails in the same way
        sys.stderr.write(
            f"Process {process_index()} cannot continue, probably because another process failed: "
            "see its log. Restart all processes with the same --workdir: the run resumes "
            f"from its last checkpoint.\n({error})\n"
        )
        sys.stderr.flush()
        # A normal exit would wait for the failed processes.
        os._exit(1)
    # Process 0, the coordinator, must end last.
    jax.distributed.shutdown()
    if stopped is not None:
        raise stopped


def process_count() -> int:
    """Return the number of processes of the job."""
    import jax

    return jax.process_count()


def process_index() -> int:
    """Return the index of this process; process 0 writes the files that the job shares."""
    import jax

    return jax.process_index()


def barrier(name: str) -> None:
    """Wait until all processes call `barrier` with this name."""
    if process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def allgather(value: Any) -> list[Any]:
    """Return the values of all processes, by process index; for small JSON values."""
    if process_count() == 1:
        return [value]
    from jax.experimental import multihost_utils

    # process_allgather requires equal shapes: exchange the lengths, then pad to the longest.
    data = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = np.ravel(multihost_utils.process_allgather(np.asarray(len(data), np.int32)))
    buffer = np.pad(data, (0, int(lengths.max()) - len(data)))
    rows = np.asarray(multihost_utils.process_allgather(buffer)).reshape(process_count(), -1)
    return [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]
