"""Process that runs BrowserGym, and the calls to it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from webagent_jax.types import InfraError
from webagent_jax.unicode import to_well_formed

_WORKER_SCRIPT = Path(__file__).with_name("worker.py")
_END_TIMEOUT = 10.0  # seconds until the killed process has exited


class BrowserGymProcess:
    """Process that runs worker.py with the interpreter `python`; not thread-safe.

    Args:
        python: path of the interpreter.

    Raises:
        InfraError: the interpreter does not start.
    """

    def __init__(self, python: str) -> None:
        self._pipe, worker_pipe = multiprocessing.Pipe()
        # A file, because an unread pipe would block the process when it is full.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed by end()
        self.is_alive = True
        try:
            self._process = subprocess.Popen(
                [python, str(_WORKER_SCRIPT), str(worker_pipe.fileno())],
                pass_fds=[worker_pipe.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
            )
        except OSError as error:
            # `end` is not called for an object that was never created.
            self._stderr.close()
            self._pipe.close()
            raise InfraError(f"{python} does not start: {error}") from error
        finally:
            # With this copy closed, `recv_bytes` raises EOFError when the process ends.
            worker_pipe.close()

    def call(self, method: str, timeout: float, **arguments: Any) -> Any:
        """Call a method of `worker.EnvServer` and return its result.

        Args:
            method: name of the method.
            timeout: seconds until the process is killed.
            arguments: JSON arguments of the method.

        Raises:
            InfraError: the method raised an exception, timed out, or the process has ended. The
                process is unusable after the last two.
        """
        if not self.is_alive:
            raise InfraError("the process of BrowserGym has ended")
        try:
            self._pipe.send_bytes(json.dumps([method, arguments]).encode())
            # A late response would be mistaken for that of the next call, so the process is killed.
            if not self._pipe.poll(timeout):
                self.end()
                raise InfraError(f"BrowserGym did not respond in {timeout:g} s")
            response = to_well_formed(json.loads(self._pipe.recv_bytes()))
        except (EOFError, OSError) as error:
            # Read before `end`, which closes the file.
            stderr = self._stderr_tail()
            self.end()
            raise InfraError(f"the process of BrowserGym ended: {stderr}") from error
        if "error" in response:
            raise InfraError(f"BrowserGym failed: {response['error']}")
        return response["got"]

    def end(self) -> None:
        """Kill the process; Playwright's driver then closes its browser. Idempotent."""
        self.is_alive = False
        self._pipe.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT)
        self._stderr.close()

    def _stderr_tail(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read()[-500:].decode(errors="replace").strip() or "no message on stderr"
