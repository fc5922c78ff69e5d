"""Setting of the C allocator that lets XLA reuse memory on CPU."""

from __future__ import annotations

import ctypes
import os
import platform

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_USER_SETTINGS = ("GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "LD_PRELOAD")


def keep_freed_memory() -> bool:
    """Keep freed memory in the process instead of returning it to Linux; return whether it worked.

    XLA on CPU allocates the temporary arrays of a program at each call. By default glibc maps new
    memory for large arrays, and Linux fills each page with zeros (docs/results.md). With this
    setting freed memory stays in the heap, so the process does not shrink. Only one heap can grow
    without bound; all threads share it, so call this before they start.

    Does nothing for allocators other than glibc and for settings in the environment.
    """
    if platform.libc_ver()[0] != "glibc" or any(os.environ.get(name) for name in _USER_SETTINGS):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1))
    return all([mallopt(parameter, value) == 1 for parameter, value in settings])
