"""Modules and functions that users write: where they are found, and their errors."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from webagent_jax.config import ConfigError
from webagent_jax.types import InfraError

# Retries of the episode cannot fix these errors.
_FILE_ERRORS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
# Files of the standard library, of installed packages and of this package.
_LIBRARY_PREFIXES = (
    "<frozen ",
    *(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib")),
    f"{Path(__file__).parents[1]}{os.sep}",
)


def add_current_folder() -> None:
    """Add the current folder to the paths of imports, in front as with `python -m`."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


@contextmanager
def convert_user_errors(function: str) -> Iterator[None]:
    """Convert errors of a user's function: InfraError if a request failed, else ConfigError.

    Args:
        function: name of the function, for the message.
    """
    try:
        yield
    except (ConfigError, InfraError):
        raise
    except Exception as error:
        # Connections and timeouts: the episode can be repeated.
        if isinstance(error, OSError) and not isinstance(error, _FILE_ERRORS):
            raise InfraError(f"{function} failed: {error!r}") from error
        # The repr of an OSError lacks the name of the file.
        reason = f"{type(error).__name__}: {error}" if isinstance(error, OSError) else repr(error)
        frames = traceback.extract_tb(error.__traceback__)
        # The call of a library function that raises is in the user's code.
        user_frames = [f for f in frames if not f.filename.startswith(_LIBRARY_PREFIXES)]
        frame = (user_frames or frames)[-1]
        # A call with wrong arguments fails in the caller, which is no code of the user.
        location = f" at {frame.filename}:{frame.lineno}" if _has_begun(error) else ""
        raise ConfigError(f"{function} raised {reason}{location}: fix the function") from error


def _has_begun(error: Exception) -> bool:
    """Return whether the error was raised below the functions that still run."""
    *_, (last_frame, _) = traceback.walk_tb(error.__traceback__)
    return all(frame is not last_frame for frame, _ in traceback.walk_stack(sys._getframe()))
