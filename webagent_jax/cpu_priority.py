"""Who goes first where cores are few: the learner, then everything that plays.

An operation of XLA's on a CPU is cut over all cores and waits for the slowest of them, so whatever
else runs on one holds up the whole update: half a core's work beside it makes an update 1.4 times
as long, and 1.05 times when it gives way (docs/architecture.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading

_NICE = 5  # a third of the share of those who do not give way
_LAST = 19
_PR_CAPBSET_DROP, _CAP_SYS_NICE = 24, 23  # Linux: prctl(2), capabilities(7)


def give_way() -> None:
    """Puts this thread behind others, and the threads and processes that it starts from now on.

    Chromium that runs as root would go before everybody (its threads choose a niceness of -8);
    without the capability that is taken here its processes cannot. Linux keeps both per thread;
    elsewhere nothing is done.
    """
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):
        niceness = os.getpriority(os.PRIO_PROCESS, thread) + _NICE
        os.setpriority(os.PRIO_PROCESS, thread, min(niceness, _LAST))
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_SYS_NICE)
