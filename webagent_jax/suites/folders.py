"""Folders of a run that a suite writes to."""

from __future__ import annotations

import tempfile
from pathlib import Path

from webagent_jax.config import ConfigError


def create_writable_folder(folder: Path, option: str, mode: int = 0o777) -> None:
    """Create a folder if it is missing, and check that files can be created in it.

    Args:
        folder: path of the folder.
        option: option that selects the folder, for the message.
        mode: permissions of a new folder.

    Raises:
        ConfigError: the folder cannot be created or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        # A trial also finds read-only and full disks.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"{option}={str(folder)!r} is not writable ({error.strerror}): use another folder"
        ) from error
