"""Access to the subcommands for tests."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence

from absl import flags

_SHARED_FLAGS = {"format", "input", "output_dir", "port", "split"}  # defined by several subcommands


@functools.cache
def load_main(name: str) -> Callable[[Sequence[str]], None]:
    """Return the main function of webagent_jax/commands/NAME.py; it takes its flags from FLAGS."""
    for flag in _SHARED_FLAGS & set(flags.FLAGS):
        delattr(flags.FLAGS, flag)  # each subcommand defines its own
    module = importlib.import_module(f"webagent_jax.commands.{name}")
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    return module.main
