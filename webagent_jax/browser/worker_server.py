"""Process of a browser worker, started by worker_process.py.

Descriptors of connections arrive on a socket. The first connection has the arguments of the worker.
On any other, the first request is the string "stats" or the `ContextSpec` of a session, and later
ones are (method, args, kwargs) of the session. Each response is (exception or None, result).

    python -m webagent_jax.browser.worker_server CONTROL_FD
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import socket
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from webagent_jax import cpu_priority
from webagent_jax.browser.session import Session
from webagent_jax.browser.worker import BrowserWorker
from webagent_jax.config import BrowserConfig
from webagent_jax.types import InfraError


def main(control_fd: int) -> None:
    """Serve sessions until the other end of the socket `control_fd` closes."""
    # Signals to the process group are for the other process, which then closes the socket. Handlers
    # that do nothing, because Chromium would inherit that signals are ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    with socket.socket(fileno=control_fd) as control:
        first = _receive_connection(control)
        if first is None:
            return
        with first:
            config, launcher, name = first.recv()
        with contextlib.closing(BrowserWorker(config, launcher, name)) as worker:
            # After the start of the worker's thread, which lowers its own: a thread inherits the
            # priority, so that of Chromium would be lowered twice.
            cpu_priority.lower_priority()
            while connection := _receive_connection(control):
                threading.Thread(
                    target=_serve, args=(connection, worker, config), daemon=True
                ).start()


def _receive_connection(control: socket.socket) -> Connection | None:
    """Return the next connection; None if the other end is closed."""
    data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    return Connection(descriptors[0]) if data else None


def _serve(connection: Connection, worker: BrowserWorker, config: BrowserConfig) -> None:
    """Respond to the requests of a connection until its other end closes."""
    # The other end may close at any time, also if its process is killed.
    with connection, contextlib.suppress(EOFError, OSError):
        first = connection.recv()
        if first == "stats":
            _respond(connection, None, worker.stats())
            return
        try:
            session = Session.open(worker, first, config)
        except Exception as error:  # raised by the other process
            _respond(connection, error, None)
            return
        with session:
            _respond(connection, None, None)
            while True:
                _respond(connection, *_call(session, *connection.recv()))


def _call(
    session: Session, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Exception | None, Any]:
    """Return exception and result of a method of the session, or of its property `url`."""
    try:
        member = getattr(session, name)
        return None, member(*args, **kwargs) if callable(member) else member
    except Exception as error:  # raised by the other process
        return error, None


def _respond(connection: Connection, error: Exception | None, result: Any) -> None:
    try:
        message = pickle.dumps((error, result))
        if error is not None:
            pickle.loads(message)
    except Exception:
        # Some exceptions cannot be restored, because their arguments are not those of their class.
        message = pickle.dumps((InfraError(f"the browser failed: {error!r}"), None))
    connection.send_bytes(message)


if __name__ == "__main__":
    main(int(sys.argv[1]))
