"""Flags and error handling shared by the launchers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from absl import app, flags, logging
from ml_collections import config_flags

from webagent_jax import config, heap
from webagent_jax.browser import ChromiumMissing
from webagent_jax.config import RunConfig
from webagent_jax.suites import registry
from webagent_jax.types import InfraError

_CONFIG = config_flags.DEFINE_config_file("config", "configs/quickstart.py", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for all files of the run.")


def parse_workdir(argv: Sequence[str], default_workdir: str | None = None) -> Path:
    """Configure logging and memory, and return the workdir.

    Raises:
        app.UsageError: the command has positional arguments, or no --workdir and no default.
    """
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    heap.keep_freed_memory()
    logging.set_verbosity(logging.WARNING)  # orbax and uvicorn log every step at INFO
    workdir = _WORKDIR.value or default_workdir
    if workdir is None:
        raise app.UsageError("--workdir is missing: set --workdir=DIR to the folder of the run")
    return Path(workdir)


def run_config() -> RunConfig:
    """Return the validated config of --config and its overrides.

    Raises:
        app.UsageError: an option is unknown or invalid.
    """
    try:
        return config.from_config_dict(_CONFIG.value)
    except config.ConfigError as error:
        raise app.UsageError(str(error)) from error


def load_checked_config() -> RunConfig:
    """Return the validated config of a run with episodes.

    Raises:
        app.UsageError: an option is unknown or invalid.
        ConfigError: a requirement of the suite is missing, such as a site address.
    """
    cfg = run_config()
    registry.check_requirements(cfg.suite)
    return cfg


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Exit with the message instead of a traceback on errors that the user can fix.

    An InfraError ends here only if the browser or a site fails before the first episode.
    """
    try:
        yield
    except (config.ConfigError, config.RunStoppedError, ChromiumMissing, InfraError) as error:
        sys.exit(str(error))
