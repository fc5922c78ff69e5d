"""Verdicts of verifiers, which run in a process of their own with a time limit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from webagent_jax.types import InfraError

_PROGRAM = Path(__file__).with_name("run_verifiers.py")
_SERVER_URL = "http://app.invalid"  # never opened: the program responds itself


def verify(path: Path, state: bytes, timeout: float) -> bool:
    """Return whether a verifier accepts a state.

    Args:
        path: Python file of the verifier.
        state: state of the app as JSON.
        timeout: time limit in seconds.

    Raises:
        InfraError: the verifier raises an exception, exceeds the time limit or ends its process.
    """
    return verify_all([path], state, timeout)[0]


def verify_all(paths: Sequence[Path], state: bytes, timeout: float) -> list[bool]:
    """Return whether each verifier accepts a state; see `verify` for arguments and errors."""
    # Isolated from the environment of this process, and without site packages for a fast start.
    command = [sys.executable, "-I", "-S", str(_PROGRAM), _SERVER_URL, *map(str, paths)]
    names = f"{paths[0]} and others" if len(paths) > 1 else str(paths[0])
    try:
        process = subprocess.run(
            command, input=state, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InfraError(f"the verifier {names} took more than {timeout:g} s") from error
    except OSError as error:
        raise InfraError(f"the verifier {names} did not start: {error}") from error
    # A killed process may leave a part of a line.
    lines = process.stdout.rpartition(b"\n")[0].splitlines()
    results = [json.loads(line) for line in lines]
    for path, result in zip(paths, results, strict=False):
        if "error" in result:
            raise InfraError(f"the verifier {path} failed: {result['error'].strip()}")
    if len(results) != len(paths):
        message = process.stderr.decode(errors="replace")[-1000:].strip()
        raise InfraError(f"the verifier {names} ended its process: {message}")
    return [result["passed"] for result in results]
