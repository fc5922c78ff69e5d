"""Execution of test modules on eight simulated CPU devices or in several processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

# Level 0 halves the compile time; these tests check sharding, not speed.
_FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"


def find_free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as free_socket:
        free_socket.bind(("localhost", 0))
        port: int = free_socket.getsockname()[1]
        return port


def run_on_eight_devices(module: str, *args: str) -> Any:
    """Run `python -m module` with eight CPU devices and return its JSON output."""
    result = subprocess.run(
        [sys.executable, "-m", module, *args],
        env={**os.environ, "XLA_FLAGS": _FLAGS},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
