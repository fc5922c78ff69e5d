"""Lower CPU priority of rollout threads, so that they do not delay the train step.

XLA splits an operation over all CPU cores and waits for the slowest core, so other work on one core
delays the whole update (docs/results.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading

_NICENESS = 5  # about a third of the CPU share of a thread at niceness 0
_MAX_NICENESS = 19
_PR_CAPBSET_DROP, _CAP_SYS_NICE = 24, 23  # constants of prctl(2) and capabilities(7)


def lower_priority() -> None:
    """Lower the CPU priority of this thread and of threads and processes that it starts later.

    Also drops the capability to raise the priority: Chromium as root would set its threads to a
    niceness of -8. Linux stores both settings per thread; on other systems this does nothing.
    """
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):
        niceness = os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS
        os.setpriority(os.PRIO_PROCESS, thread, min(niceness, _MAX_NICENESS))
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_SYS_NICE)
