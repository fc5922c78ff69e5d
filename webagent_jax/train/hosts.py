"""What the hosts of a run tell one another. With one host nobody is asked.

Each plays its own episodes with its own browsers and engine; the update alone is global. The
functions that tell or wait are called by all hosts together.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def count() -> int:
    return jax.process_count()


def this() -> int:
    """0 is the first, which writes what is written once."""
    return jax.process_index()


def wait(name: str) -> None:
    """Until all hosts are at this point of the program, which has that name."""
    if count() > 1:
        multihost_utils.sync_global_devices(name)


def gather(value: Any) -> list[Any]:
    """What every host says, host after host: JSON values, small ones."""
    if count() == 1:
        return [value]
    said = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = np.ravel(multihost_utils.process_allgather(np.asarray(len(said), np.int32)))
    padded = np.pad(said, (0, int(lengths.max()) - len(said)))
    everyone = np.asarray(multihost_utils.process_allgather(padded)).reshape(count(), -1)
    return [
        json.loads(row[:length].tobytes()) for row, length in zip(everyone, lengths, strict=True)
    ]
