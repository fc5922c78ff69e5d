"""Errors of JAX that report exhausted device memory."""

from __future__ import annotations

import sys


def is_exhausted(error: BaseException) -> bool:
    """Return whether JAX raised the error because the memory of a device is exhausted."""
    # Without JAX there is no such error; its import is slow.
    jax = sys.modules.get("jax")
    return (
        jax is not None
        and isinstance(error, jax.errors.JaxRuntimeError)
        and "RESOURCE_EXHAUSTED" in str(error)
        # A kernel exceeds the shared memory of a GPU core at any size of the batch.
        and "Shared memory" not in str(error)
    )
