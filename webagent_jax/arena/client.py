"""The arena's server as whoever plays sees it: an address, and worlds to begin and to drop."""

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

_START_SECONDS = 180.0  # a first start builds the data, maybe on a busy machine
_ANSWER_SECONDS = 20.0
_STOP_SECONDS = 10.0


class ArenaHost:
    """Starts the server in a process of its own, on a free port or the given one of 127.0.0.1.

    `latency` is how many seconds late every page comes.
    Any thread may call. The process ends with `close`, and when this process dies.

    Raises InfraError when the server does not come up, OSError when the port is taken.
    """

    def __init__(self, port: int = 0, latency: float = 0.0) -> None:
        pages = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port = pages.getsockname()[1]
        self._pipe, theirs = socket.socketpair()
        module = "webagent_jax.arena.server"
        descriptors = (pages.fileno(), theirs.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, descriptors), str(latency)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": _python_path()},
        )
        pages.close()
        theirs.close()
        self._answers = self._pipe.makefile("rb")
        self._lock = threading.Lock()
        self._ask("count", timeout=_START_SECONDS)

    def new(self) -> str:
        """Begins a world; returns its name."""
        return str(self._ask("new"))

    def copy(self, world: str) -> str:
        """Begins a world in the state of another."""
        return str(self._ask("copy", world))

    def drop(self, world: str) -> None:
        """Ends a world. Dropping twice is fine."""
        self._ask("drop", world)

    def rows(self, world: str, database: str, sql: str, *arguments: Any) -> list[list[Any]]:
        """What the database of a world says to a SELECT."""
        return list(self._ask("rows", world, database, sql, arguments))

    def addresses(self, world: str) -> Mapping[str, str]:
        """Of all sites in a world, by WebArena's names."""
        return {s.task_name: f"http://{s.name}.{world}.localhost:{self.port}" for s in SITES}

    def origin(self, world: str) -> str:
        """The allow-list of a world's browser: all sites at its place, and nothing else."""
        place = world.rpartition(".")[2]
        return f".{place}.localhost:{self.port}"

    def close(self) -> None:
        """Stops the server. Closing twice is fine."""
        self._answers.close()
        self._pipe.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_SECONDS)

    def __enter__(self) -> ArenaHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, *command: Any, timeout: float = _ANSWER_SECONDS) -> Any:
        with self._lock:
            try:
                self._pipe.settimeout(timeout)
                self._pipe.sendall(json.dumps(command).encode() + b"\n")
                line = self._answers.readline()
            except (OSError, ValueError) as error:  # ValueError: closed by us
                raise InfraError(f"the arena does not answer: {error}") from error
        if not line:
            raise InfraError("the arena's server has ended; its last words are on stderr")
        answer = json.loads(line)
        if "error" in answer:
            raise InfraError(f"the arena refused {command}: {answer['error']}")
        return answer["value"]


def _python_path() -> str:
    """So that the child finds this very package, wherever it was imported from."""
    here = str(Path(webagent_jax.__file__).parents[1])
    return os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
