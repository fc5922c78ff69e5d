"""Flag --workdir."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.cli.arguments import reject_arguments
from webagent_jax.config import ConfigError

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for all files of the run.")


def parse_workdir(argv: Sequence[str], default_workdir: str | None = None) -> Path:
    """Return the workdir.

    Raises:
        ConfigError: the command has positional arguments, or no --workdir and no default.
    """
    reject_arguments(argv)
    workdir = _WORKDIR.value or default_workdir
    if workdir is None:
        raise ConfigError("--workdir is missing: set --workdir=DIR to the folder of the run")
    # The message of Ctrl-C describes this folder.
    flags.FLAGS["workdir"].value = workdir
    return Path(workdir)
