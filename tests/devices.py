"""Tests on more devices than there are: a process of its own that is told to have eight."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

# Compiled in haste, in half the time: where things are is tested, not how fast they are computed.
_FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"


def on_eight_devices(module: str, *args: str) -> Any:
    """The JSON that `python -m module` prints with eight CPU devices."""
    ran = subprocess.run(
        [sys.executable, "-m", module, *args],
        env={**os.environ, "XLA_FLAGS": _FLAGS},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
