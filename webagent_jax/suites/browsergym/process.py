"""A process with BrowserGym in it, as the rest of the suite sees it."""

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

_PROGRAM = Path(__file__).with_name("worker.py")
_END_TIMEOUT = 10.0  # seconds


class Worker:
    """Runs worker.py under the interpreter `python`. One thread at a time may use it."""

    def __init__(self, python: str) -> None:
        """Raises InfraError when there is no such interpreter."""
        self._pipe, theirs = multiprocessing.Pipe()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  its standard error; see end()
        self.alive = True
        try:
            self._process = subprocess.Popen(
                [python, str(_PROGRAM), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._words,
            )
        except OSError as error:
            self._words.close()
            self._pipe.close()
            raise InfraError(f"{python} does not start: {error}") from error
        finally:
            theirs.close()

    def ask(self, method: str, timeout: float, **arguments: Any) -> Any:
        """What the method of worker.World returns.

        Raises InfraError with what it raised there; after `timeout` seconds, and when the process
        has ended, the worker is ended too.
        """
        if not self.alive:
            raise InfraError("the process of BrowserGym has ended")
        try:
            self._pipe.send_bytes(json.dumps([method, arguments]).encode())
            if not self._pipe.poll(timeout):
                self.end()
                raise InfraError(f"BrowserGym did not answer in {timeout:g} s")
            answer = to_well_formed(json.loads(self._pipe.recv_bytes()))
        except (EOFError, OSError) as error:
            words = self._last_words()
            self.end()
            raise InfraError(f"the process of BrowserGym ended: {words}") from error
        if "error" in answer:
            raise InfraError(f"BrowserGym failed: {answer['error']}")
        return answer["got"]

    def end(self) -> None:
        """Ends the process; Playwright's driver ends its browser. Never raises; twice is once."""
        self.alive = False
        self._pipe.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT)
        self._words.close()

    def _last_words(self) -> str:
        self._words.seek(0)
        return self._words.read()[-500:].decode(errors="replace").strip() or "without a word"
