"""Handle of the arena server: its addresses, and worlds to create and delete."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from webagent_jax import python_process
from webagent_jax.arena.registry import SITES
from webagent_jax.types import InfraError
from webagent_jax.world_names import hostname, slot_origin

# The first start builds the data, possibly on a busy machine.
_START_TIMEOUT_SECONDS = 180.0
_CALL_TIMEOUT_SECONDS = 20.0
_STOP_TIMEOUT_SECONDS = 10.0
_MIN_TIMEOUT_SECONDS = 0.001  # a timeout of 0 would make the socket non-blocking
_RECEIVE_BYTES = 65_536


class ArenaServerHandle:
    """Handle of an arena server that runs in its own process.

    Any thread may call the methods. The server ends with `close`, or when this process ends.

    Args:
        latency: delay of every page, in seconds.

    Raises:
        InfraError: the server does not start.
    """

    def __init__(self, latency: float = 0.0) -> None:
        # Created here, so that the port is known before the server is ready.
        page_socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = page_socket.getsockname()[1]
        self._socket, server_end = socket.socketpair()
        descriptors = (page_socket.fileno(), server_end.fileno())
        # The server ends when this end of the socket pair closes, even if this process is killed.
        self._process = python_process.start(
            "webagent_jax.arena.server", *map(str, descriptors), str(latency), pass_fds=descriptors
        )
        # Only the server may hold these ends: otherwise its exit would not close them.
        page_socket.close()
        server_end.close()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._unanswered: dict[int, str] = {}  # commands without a response, by number
        self._received = b""  # start of the next response
        # The first response shows that the data is built and the server runs.
        try:
            self.check(_START_TIMEOUT_SECONDS)
        except BaseException:
            self.close()
            raise

    def check(self, timeout: float = _CALL_TIMEOUT_SECONDS) -> None:
        """Check that the server responds.

        Args:
            timeout: seconds to wait at most.

        Raises:
            InfraError: it has ended, or does not respond in time.
        """
        self._call("count", timeout=timeout)

    def new(self) -> str:
        """Create a world and return its name."""
        return str(self._call("new"))

    def drop(self, world: str) -> None:
        """Delete a world. Repeated calls have no effect."""
        self._call("drop", world)

    def rows(self, world: str, database: str, sql: str, *arguments: Any) -> list[list[Any]]:
        """Return the rows of a SELECT on a database of a world."""
        return list(self._call("rows", world, database, sql, arguments))

    def addresses(self, world: str) -> Mapping[str, str]:
        """Return the URLs of all sites in a world by WebArena's site names."""
        return {s.task_name: f"http://{hostname(s.name, world)}:{self.port}" for s in SITES}

    def origin(self, world: str) -> str:
        """Return the allow-list of a world's browser: only the sites of its slot."""
        return slot_origin(world, self.port)

    def close(self) -> None:
        """Stop the server. Repeated calls have no effect."""
        # The server ends when its end of the socket reads the end of the file.
        self._socket.close()
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_TIMEOUT_SECONDS)

    @property
    def has_ended(self) -> bool:
        """True if the process of the server has ended."""
        return self._process.poll() is not None

    def __enter__(self) -> ArenaServerHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, *command: Any, timeout: float = _CALL_TIMEOUT_SECONDS) -> Any:
        # One command at a time, so that no thread reads the response of another one's command.
        with self._lock:
            try:
                number = self._send(command)
                response = self._receive(number, time.monotonic() + timeout)
            except OSError as error:  # a timeout, or `close` was called
                raise InfraError(f"the arena server does not respond: {error}") from error
        if response is None:
            raise InfraError("the arena server has ended; see its last output on stderr")
        if "error" in response:
            raise InfraError(f"the arena server rejected {command}: {response['error']}")
        return response["value"]

    def _send(self, command: Sequence[Any]) -> int:
        """Send a command and return its number."""
        number = next(self._numbers)
        self._socket.settimeout(_CALL_TIMEOUT_SECONDS)
        self._socket.sendall(json.dumps([number, *command]).encode() + b"\n")
        self._unanswered[number] = command[0]
        return number

    def _receive(self, number: int, deadline: float) -> dict[str, Any] | None:
        """Return the response to a command; None if the server has ended.

        Responses to earlier commands, which timed out, are dropped.

        Raises:
            TimeoutError: the response does not arrive before the deadline.
        """
        while line := self._read_line(deadline):
            response: dict[str, Any] = json.loads(line)
            command = self._unanswered.pop(response["number"])
            if response["number"] == number:
                return response
            # No caller has the name of this world.
            if command == "new" and "value" in response:
                self._send(["drop", response["value"]])
        return None

    def _read_line(self, deadline: float) -> bytes:
        """Return the next line; empty if the server has ended."""
        # A file of the socket cannot be read any more after a timeout.
        while b"\n" not in self._received:
            self._socket.settimeout(max(deadline - time.monotonic(), _MIN_TIMEOUT_SECONDS))
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                return b""
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line
