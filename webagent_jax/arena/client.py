"""Handle of the arena server: its addresses, and worlds to create and delete."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import webagent_jax
from webagent_jax.arena.registry import SITES
from webagent_jax.types import InfraError
from webagent_jax.world_names import hostname, slot_origin

# The first start builds the data, possibly on a busy machine.
_START_TIMEOUT_SECONDS = 180.0
_CALL_TIMEOUT_SECONDS = 20.0
_STOP_TIMEOUT_SECONDS = 10.0


class ArenaServerHandle:
    """Handle of an arena server that runs in its own process.

    Any thread may call the methods. The server ends with `close`, or when this process ends.

    Args:
        port: port on 127.0.0.1; 0 selects a free one.
        latency: delay of every page, in seconds.

    Raises:
        InfraError: the server does not start.
        OSError: the port is in use.
    """

    def __init__(self, port: int = 0, latency: float = 0.0) -> None:
        # Created here, so that the port is known before the server is ready.
        page_socket = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port = page_socket.getsockname()[1]
        self._socket, server_end = socket.socketpair()
        module = "webagent_jax.arena.server"
        descriptors = (page_socket.fileno(), server_end.fileno())
        # The server ends when this end of the socket pair closes, even if this process is killed.
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, descriptors), str(latency)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": _python_path()},
        )
        # Only the server may hold these ends: otherwise its exit would not close them.
        page_socket.close()
        server_end.close()
        self._responses = self._socket.makefile("rb")
        self._lock = threading.Lock()
        # The first response shows that the data is built and the server runs.
        self._call("count", timeout=_START_TIMEOUT_SECONDS)

    def new(self) -> str:
        """Create a world and return its name."""
        return str(self._call("new"))

    def copy(self, world: str) -> str:
        """Create a world in the state of another and return its name."""
        return str(self._call("copy", world))

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
        self._responses.close()
        self._socket.close()
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_TIMEOUT_SECONDS)

    def __enter__(self) -> ArenaServerHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, *command: Any, timeout: float = _CALL_TIMEOUT_SECONDS) -> Any:
        with self._lock:
            # One command at a time, because responses have no number that assigns them to commands.
            try:
                self._socket.settimeout(timeout)
                self._socket.sendall(json.dumps(command).encode() + b"\n")
                line = self._responses.readline()
            except (OSError, ValueError) as error:  # ValueError: `close` was called
                raise InfraError(f"the arena server does not respond: {error}") from error
        if not line:
            raise InfraError("the arena server has ended; see its last output on stderr")
        response = json.loads(line)
        if "error" in response:
            raise InfraError(f"the arena server rejected {command}: {response['error']}")
        return response["value"]


def _python_path() -> str:
    """Return a PYTHONPATH with which the server imports this package, wherever it is."""
    parent_folder = str(Path(webagent_jax.__file__).parents[1])
    return os.pathsep.join(filter(None, [parent_folder, os.environ.get("PYTHONPATH")]))
