"""Comparison of the checkpoints of equal runs."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp


def assert_equal_checkpoints(update: int, workdir: Path, other_workdir: Path) -> None:
    """Assert that params, moments and step count after an update are equal bit by bit."""
    paths = [folder / "checkpoints" / str(update) / "state" for folder in (workdir, other_workdir)]
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        tree = reader.metadata(paths[0].absolute()).item_metadata.tree
        restore_args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        args = ocp.args.PyTreeRestore(restore_args=restore_args)
        states = [reader.restore(path.absolute(), args=args) for path in paths]
    assert set(states[0]) == {"step", "params", "opt_state"}
    jax.tree.map(np.testing.assert_array_equal, *states)
