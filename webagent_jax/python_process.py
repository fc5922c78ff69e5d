"""Processes that run a module of this package with the interpreter of this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def start(module: str, *arguments: str, pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start `python -m module arguments...` and return its process.

    Args:
        module: name of the module.
        arguments: its command line.
        pass_fds: file descriptors that the process inherits.
    """
    package_parent = str(Path(__file__).parents[1])
    python_path = os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        # -P: a package of the current folder must not replace the one of this process.
        [sys.executable, "-P", "-m", module, *arguments],
        pass_fds=pass_fds,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": python_path},
    )
