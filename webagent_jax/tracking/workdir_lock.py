"""Lock of a workdir, so that two commands do not write the same run."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from webagent_jax.config import ConfigError
from webagent_jax.tracking import atomic_files

LOCK_FILE = ".lock"
"""File in a workdir that is locked while a command runs; it contains the id of the process."""

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}


@contextmanager
def hold_lock(workdir: Path, process_index: int = 0) -> Iterator[None]:
    """Create the workdir and hold its lock.

    The operating system releases the lock when the process ends, even if it is killed. File systems
    without locks, such as mounted object stores, do not protect the workdir.

    Args:
        workdir: folder of the run.
        process_index: index in the job, whose processes share the workdir: the first holds the
            lock.

    Raises:
        ConfigError: another process holds the lock, or the workdir cannot be written.
    """
    if process_index > 0:
        yield
        return
    atomic_files.make_workdir(workdir)
    # Not "w", which would delete the id of the process that holds the lock.
    with (workdir / LOCK_FILE).open("a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise ConfigError(
                f"process {file.read().decode()} writes to {workdir}: wait until it ends, stop it, "
                "or choose another --workdir"
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        yield
