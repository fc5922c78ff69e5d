"""Check of positional arguments."""

from __future__ import annotations

from collections.abc import Sequence

from webagent_jax.config import ConfigError


def reject_arguments(argv: Sequence[str]) -> None:
    """Check that the command has no positional arguments.

    Raises:
        ConfigError: it has some.
    """
    if len(argv) > 1:
        raise ConfigError(f"unexpected arguments: {' '.join(argv[1:])}; options begin with --")
