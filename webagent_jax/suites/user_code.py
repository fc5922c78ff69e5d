"""Errors of functions that users write."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from webagent_jax.config import ConfigError
from webagent_jax.types import InfraError

# A repetition of the episode does not fix these.
_FILE_ERRORS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


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
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"{function} raised {reason} at {frame.filename}:{frame.lineno}: fix the function"
        ) from error
