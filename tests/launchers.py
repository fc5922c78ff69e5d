"""Access to the launchers for tests."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

_SHARED_FLAGS = {"format"}  # defined by several launchers


@functools.cache
def load_main(name: str) -> Callable[[Sequence[str]], None]:
    """Return the main function of launch/NAME.py, which is a script outside any package."""
    path = Path(__file__).parents[1] / "launch" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"launch_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    for flag in _SHARED_FLAGS & set(flags.FLAGS):
        delattr(flags.FLAGS, flag)  # each launcher defines its own
    spec.loader.exec_module(module)
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    return module.main
