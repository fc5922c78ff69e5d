"""Errors of functions that users write."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from webagent_jax.config import ConfigError
from webagent_jax.types import InfraError


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
    except OSError as error:
        # Connections and timeouts: the episode can be repeated.
        raise InfraError(f"{function} failed: {error!r}") from error
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"{function} raised {error!r} at {frame.filename}:{frame.lineno}: fix the function"
        ) from error
