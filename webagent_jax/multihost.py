"""Flags of the launchers that run on several hosts at once, and how a host joins the others."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
from absl import app, flags

_DISTRIBUTED = flags.DEFINE_bool(
    "distributed", False, "Join the other hosts of the job, as Slurm, GKE or the TPU pod tell them."
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator", "", "HOST:PORT of the first host, to join where nobody tells; with the next two."
)
_HOSTS = flags.DEFINE_integer("hosts", 0, "How many hosts there are.")
_HOST = flags.DEFINE_integer("host", -1, "Which of them this is, from 0.")

_HEARTBEAT = 60  # seconds without a sign of life after which a host counts as dead


@contextmanager
def joined() -> Iterator[None]:
    """Within it JAX sees the devices of all hosts; nothing of JAX may be used before.

    When a host dies the others end, with a message: the job is to be started again as a whole, and
    goes on where its workdir says. Does nothing where no flag asks for it.

    Raises app.UsageError: the flags do not fit together.
    """
    if not _DISTRIBUTED.value and not _COORDINATOR.value:
        if _HOSTS.value > 1:
            raise app.UsageError("--hosts needs --coordinator=HOST:PORT, or --distributed alone")
        yield
        return
    by_hand: dict[str, Any] = {}
    if _COORDINATOR.value:
        if not 0 <= _HOST.value < _HOSTS.value:
            raise app.UsageError(
                "--coordinator needs --hosts=N and --host=I, with I from 0 to N - 1"
            )
        by_hand = {
            "coordinator_address": _COORDINATOR.value,
            "num_processes": _HOSTS.value,
            "process_id": _HOST.value,
        }
    jax.distributed.initialize(**by_hand, heartbeat_timeout_seconds=_HEARTBEAT)
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        sys.stderr.write(
            f"Host {jax.process_index()} cannot go on, most likely because another one is gone: "
            "look into its log. Start all hosts again with the same --workdir: the run goes on "
            f"from its last checkpoint.\n({error})\n"
        )
        sys.stderr.flush()
        os._exit(1)  # what else would say goodbye waits for those who are gone
    jax.distributed.shutdown()
