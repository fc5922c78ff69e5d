"""What the launchers share: their flags, and what each main does first."""

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

_CONFIG = config_flags.DEFINE_config_file("config", "configs/quickstart.py", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for all that the run writes.")


def begin(argv: Sequence[str], default_workdir: str | None = None) -> Path:
    """Refuses stray arguments and returns the workdir. Raises app.UsageError."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    heap.keep_freed_memory()
    logging.set_verbosity(logging.WARNING)  # orbax and uvicorn tell of every step
    workdir = _WORKDIR.value or default_workdir
    if workdir is None:
        raise app.UsageError("--workdir=DIR is missing: the folder of the run")
    return Path(workdir)


def run_config() -> RunConfig:
    """The config that was asked for. Raises app.UsageError when it cannot work."""
    try:
        return config.from_config_dict(_CONFIG.value)
    except config.ConfigError as error:
        raise app.UsageError(str(error)) from error


def playable_config() -> RunConfig:
    """The same of a run that plays episodes, whose suite has all it needs.

    Raises app.UsageError, and ConfigError for what the suite lacks.
    """
    cfg = run_config()
    registry.check(cfg.suite)
    return cfg


@contextmanager
def told_plainly() -> Iterator[None]:
    """What the user has to mend ends the program with its message, and without a traceback."""
    try:
        yield
    except (config.ConfigError, ChromiumMissing) as error:
        sys.exit(str(error))
