"""Tests of the lock of a workdir, with a second process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from webagent_jax.config import ConfigError
from webagent_jax.tracking.workdir_lock import hold_lock

_HOLD = """
import sys
from pathlib import Path
from webagent_jax.tracking.workdir_lock import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_process(workdir: Path) -> Iterator[subprocess.Popen]:
    """Run a process that holds the lock until its stdin is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(workdir)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process


def test_second_process_is_rejected_until_first_ends(tmp_path):
    with other_process(tmp_path / "run") as process:
        for _ in range(2):
            with (
                pytest.raises(ConfigError, match=f"process {process.pid} writes to .*run: wait"),
                hold_lock(tmp_path / "run"),
            ):
                pass
    with hold_lock(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock").read_text() == str(os.getpid())


def test_killed_process_holds_no_lock(tmp_path):
    with other_process(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with hold_lock(tmp_path):
            pass


def test_other_processes_of_a_job_share_the_lock(tmp_path):
    with other_process(tmp_path), hold_lock(tmp_path, process_index=1):
        pass


def test_unwritable_workdir_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match="Not a directory; choose another --workdir"),
        hold_lock(tmp_path / "file" / "run"),
    ):
        pass
