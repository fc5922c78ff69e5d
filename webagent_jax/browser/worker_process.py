"""Browser workers in processes of their own, and the sessions in them.

Playwright's Python client takes most of the CPU time of a turn, and the threads of a process share
one interpreter lock, so threads limit the turns per second (docs/results.md).

Each session has a connection of its own to the process, whose end closes the session: it also
closes if this process is killed. worker_server.py is the other side.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import socket
import subprocess
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TypeVar, cast

from webagent_jax import python_process
from webagent_jax.browser.context import ContextSpec
from webagent_jax.browser.launchers import BrowserLauncher
from webagent_jax.browser.session import Session, quiet_timeout
from webagent_jax.browser.worker import OPEN_TIMEOUT, STOP_TIMEOUT, WorkerStats
from webagent_jax.config import BrowserConfig, ConfigError
from webagent_jax.types import InfraError

Method = TypeVar("Method", bound=Callable[..., Any])

_SERVER_MODULE = "webagent_jax.browser.worker_server"
_SLACK_SECONDS = 10.0  # extra wait, so that the limits in the process pass first
_STATS_TIMEOUT = 5.0  # seconds
_END_TIMEOUT = 10.0  # seconds from the kill of a process to its end


class _ProcessEnded(InfraError):
    """The process of the worker has ended."""


def _forward(method: Method) -> Method:
    """Return a method that calls `method` of the session in the process."""

    @functools.wraps(method)
    def call(self: RemoteSession, *args: Any, **kwargs: Any) -> Any:
        return self._send(method.__name__, *args, **kwargs)

    return cast(Method, call)


class RemoteSession(Session):
    """Session in the process of a worker, with the interface of `Session`.

    Args:
        connection: connection to the session.
        timeout: seconds until a call fails; the session has shorter limits.
        on_timeout: called when a call fails for this reason.
        on_close: called when the session closes.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        timeout: float,
        on_timeout: Callable[[], None],
        on_close: Callable[[], None],
    ):
        # Only the interface of the base class is used: its state is in the process.
        self._connection = connection
        self._timeout = timeout
        self._on_timeout = on_timeout
        self._on_close = on_close
        self._closed = False

    goto = _forward(Session.goto)
    open_tab = _forward(Session.open_tab)
    switch_tab = _forward(Session.switch_tab)
    observe = _forward(Session.observe)
    act = _forward(Session.act)
    settle = _forward(Session.settle)
    evaluate = _forward(Session.evaluate)
    storage_state = _forward(Session.storage_state)
    network_log = _forward(Session.network_log)
    screenshot = _forward(Session.screenshot)
    take_timings = _forward(Session.take_timings)

    @property
    def url(self) -> str:
        """Address of the active tab."""
        return str(self._send("url"))

    def with_page(self, *_: Any) -> NoReturn:
        """Raise ConfigError: Playwright's page is in another process."""
        raise ConfigError(
            "Session.with_page needs Playwright's page in this process; set "
            "--config.browser.worker_type=thread"
        )

    def close(self) -> None:
        """Close the connection, which releases the context. Idempotent; never raises."""
        if self._closed:
            return
        self._closed = True
        self._connection.close()
        self._on_close()

    def _send(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self._closed:
            raise InfraError("the session is closed")
        try:
            return _request(self._connection, (method, args, kwargs), self._timeout)
        except TimeoutError as error:
            self._on_timeout()
            raise InfraError(f"the browser process: {error}") from error


class WorkerProcess:
    """Process with one `BrowserWorker`; its methods are thread-safe.

    The next session after the end of the process starts a new one.
    """

    def __init__(self, config: BrowserConfig, launcher: BrowserLauncher, name: str):
        self._config = config
        self._launcher = launcher
        self._name = name
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stats = WorkerStats()  # last counts of the process
        self._ended_stats = WorkerStats()  # counts of processes that have ended
        self._closed = False

    def open_session(self, spec: ContextSpec, on_close: Callable[[], None]) -> RemoteSession:
        """Open a session in a fresh or cleared context.

        Raises:
            InfraError: the process or Chromium does not start, or opens no context.
        """
        try:
            return self._open_session(spec, on_close)
        except _ProcessEnded:
            # The end of a process may be noticed only here; the second try starts a new one.
            return self._open_session(spec, on_close)

    def stats(self) -> WorkerStats:
        """Return the counts of the worker.

        Those of a process that has ended are as of the last call; the rest is missing.
        """
        with self._lock:
            is_running = self._is_running()
        if is_running:
            with contextlib.suppress(InfraError, TimeoutError):
                process, connection = self._connect()
                with connection:
                    stats = _request(connection, "stats", _STATS_TIMEOUT)
                with self._lock:
                    if process is self._process:
                        self._stats = stats
        return self._ended_stats + self._stats

    def close(self) -> None:
        """End the process and its Chromium in bounded time. Idempotent."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
            if process is None:
                return
            # The process stops when its end of the socket reads the end of the file.
            self._control.close()
        try:
            process.wait(STOP_TIMEOUT + _SLACK_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _wait(process)

    def _open_session(self, spec: ContextSpec, on_close: Callable[[], None]) -> RemoteSession:
        config = self._config
        process, connection = self._connect()
        try:
            _request(connection, spec, OPEN_TIMEOUT + _SLACK_SECONDS)
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                self._kill(process)
                raise InfraError(f"the browser process: {error}") from error
            if isinstance(error, _ProcessEnded):
                _wait(process)
            raise
        return RemoteSession(
            connection,
            timeout=quiet_timeout(config)
            + max(config.navigation_timeout, config.call_timeout)
            + _SLACK_SECONDS,
            on_timeout=lambda: self._kill(process),
            on_close=on_close,
        )

    def _connect(self) -> tuple[subprocess.Popen[bytes], Connection]:
        """Return the process, started if necessary, and a new connection to it."""
        with self._lock:
            if self._closed:
                raise InfraError("the browser pool is closed")
            try:
                if self._process is None or not self._is_running():
                    self._process = self._start()
                return self._process, _open_connection(self._control)
            except ConnectionError as error:
                if self._process is not None:
                    _wait(self._process)
                raise _ProcessEnded("the browser process has ended") from error
            except OSError as error:
                raise InfraError(f"the browser process does not start: {error}") from error

    def _is_running(self) -> bool:
        """Return whether there is a process; count its end as a crash. The lock must be held."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self._control.close()
        self._process = None
        self._ended_stats += self._stats + WorkerStats(crashes=1)
        self._stats = WorkerStats()
        return False

    def _start(self) -> subprocess.Popen[bytes]:
        with contextlib.ExitStack() as on_error:
            control, server_end = socket.socketpair()
            on_error.callback(control.close)
            with server_end:
                process = python_process.start(
                    _SERVER_MODULE, str(server_end.fileno()), pass_fds=[server_end.fileno()]
                )
            with _open_connection(control) as connection:
                connection.send((self._config, self._launcher, self._name))
            on_error.pop_all()
        self._control = control
        return process

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a frozen process; its open sessions fail."""
        with self._lock:
            process.kill()
            _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process that was killed or is about to end."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_TIMEOUT)


def _open_connection(control: socket.socket) -> Connection:
    """Return a connection whose other end is sent to worker_server.py."""
    ours, theirs = multiprocessing.Pipe()
    try:
        with theirs:  # with this copy closed, reads end when the process ends
            socket.send_fds(control, [b"\0"], [theirs.fileno()])
    except OSError:
        ours.close()
        raise
    return ours


def _request(connection: Connection, request: Any, timeout: float) -> Any:
    """Send a request to worker_server.py and return the result.

    Raises:
        InfraError: the process ended.
        TimeoutError: no response in `timeout` seconds.
        Exception: the exception of the method.
    """
    try:
        connection.send(request)
        if not connection.poll(timeout):
            raise TimeoutError(f"no response in {timeout:g} s")
        error, result = connection.recv()
    except TimeoutError:
        raise
    except (EOFError, OSError) as error:
        raise _ProcessEnded("the browser process has ended") from error
    except KeyboardInterrupt:
        # A later request must not receive the response to this one.
        connection.close()
        raise
    if error is not None:
        raise error
    return result
