"""Interpreter with webarena-verified, for the tests of its scorer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_COMMAND = shutil.which("webarena-verified")
VERIFIED_PYTHON = os.environ.get("WEBAGENT_VERIFIED_PYTHON") or (
    str(Path(_COMMAND).resolve().with_name("python")) if _COMMAND else ""
)
"""Interpreter with the package: that of the variable, or next to the command on the PATH."""

needs_package = pytest.mark.skipif(
    not VERIFIED_PYTHON,
    reason="needs webarena-verified in an environment of its own: set WEBAGENT_VERIFIED_PYTHON",
)
