"""Preemption of a training run by SIGTERM, which schedulers send before they end a job."""

from __future__ import annotations

import signal
import threading
from typing import Any, Self

from jax.experimental import multihost_utils

from webagent_jax import distributed


class PreemptionNotice:
    """Handler of SIGTERM that lets the training complete its update.

    In a job of several processes, JAX handles the signal and forwards it to all of them. A second
    signal ends a process immediately.
    """

    def __init__(self) -> None:
        self._is_received = False
        self._num_calls = 0
        self._previous_handler: Any = None

    def __enter__(self) -> Self:
        # Python can install signal handlers only from the main thread.
        is_main_thread = threading.current_thread() is threading.main_thread()
        if distributed.process_count() == 1 and is_main_thread:
            self._previous_handler = signal.signal(signal.SIGTERM, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore_handler()

    @property
    def is_received(self) -> bool:
        """True if the signal arrived; always False in a job of several processes."""
        return self._is_received

    def has_arrived(self) -> bool:
        """Return whether to stop after this update; every process calls it after each update."""
        if distributed.process_count() == 1:
            return self._is_received
        # JAX selects the first step that no process has passed yet as the one to stop at: step 1 if
        # the signal precedes the first call. So steps count the calls; the number of the update
        # would never equal 1 in a resumed run.
        self._num_calls += 1
        return bool(multihost_utils.reached_preemption_sync_point(self._num_calls))

    def _receive(self, *_: object) -> None:
        self._is_received = True
        self._restore_handler()

    def _restore_handler(self) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGTERM, self._previous_handler)
            self._previous_handler = None
