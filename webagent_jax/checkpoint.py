"""What a restart needs, all of it, on disk: the train state and the position in the run.

Orbax writes each checkpoint aside, on threads of its own while the run goes on, and renames it when
it is whole: a process that is killed while it saves leaves the one before. Nothing else of the
package imports orbax.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from webagent_jax import policy
from webagent_jax.learn import TrainState

_logger = logging.getLogger(__name__)

Position = Mapping[str, Any]
"""Where the run stands, as JSON: next update, seeds, lines of metrics written, ..."""


def save_params(directory: Path, params: policy.Params) -> None:
    """Params alone, each device writing what it holds. Replaces what is there."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.absolute(), params, force=True)


def restore_params(
    directory: Path, abstract_params: policy.Params, *, within: tuple[str, ...] = ()
) -> policy.Params:
    """What `save_params` wrote, straight into the shards of `abstract_params`.

    Args:
        within: where in a larger tree the params stand; the rest of it is not read.

    Raises:
        ValueError: they are not there, damaged, or of other shapes.
    """
    wanted = jax.tree.map(ocp.utils.to_shape_dtype_struct, abstract_params)
    for name in reversed(within):
        wanted = {name: wanted}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        try:
            # Before the arrays are read: a reading that fails half-way leaves threads behind.
            _check_shapes(reader.metadata(directory.absolute()).item_metadata.tree, wanted)
            placed = ocp.checkpoint_utils.construct_restore_args(wanted)
            read = ocp.args.PyTreeRestore(wanted, placed, partial_restore=True)
            params = reader.restore(directory.absolute(), args=read)
        except Exception as error:
            told = f"no params of this model can be read from {directory}: {error}"
            raise ValueError(told) from error
    for name in within:
        params = params[name]
    return params


def _check_shapes(found: Any, wanted: Any) -> None:
    """Raises KeyError or ValueError, naming the array."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(wanted):
        at = functools.reduce(lambda tree, part: tree[part.key], path, found)
        if tuple(at.shape) != tuple(leaf.shape):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise ValueError(f"{name} is {tuple(at.shape)} there, and {leaf.shape} in the model")


class Checkpointer:
    """Checkpoints of one run. One process writes a directory at a time."""

    def __init__(self, directory: str | Path, keep: int = 2, *, read_only: bool = False) -> None:
        """Opens `directory`, made if missing, and keeps its `keep` latest checkpoints.

        `read_only` looks into the checkpoints of a run that may be going on, and changes nothing.
        """
        options = (
            ocp.CheckpointManagerOptions(read_only=True)
            if read_only
            else ocp.CheckpointManagerOptions(
                max_to_keep=keep, cleanup_tmp_directories=True, enable_async_checkpointing=True
            )
        )
        self._manager = ocp.CheckpointManager(Path(directory).absolute(), options=options)

    def save(self, step: int, state: TrainState, position: Position) -> None:
        """Returns when `state` may be changed or donated; `close` when all is on disk.

        Waits for the save before it. A step that is there already is not written again.
        """
        if step in self._manager.all_steps():
            return
        items = {
            "state": ocp.args.StandardSave(state),
            "position": ocp.args.JsonSave(dict(position)),
        }
        self._manager.save(step, args=ocp.args.Composite(**items), force=True)

    def restore(self, abstract_state: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """The latest checkpoint that can be read, or None when there is none at all.

        Args:
            abstract_state: shapes, dtypes and shardings wanted; a state at hand will do.

        Raises:
            ValueError: there are checkpoints, and none of them can be read into `abstract_state`.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, abstract_state)
        items = {
            "state": ocp.args.StandardRestore(abstract),
            "position": ocp.args.JsonRestore(),
        }
        for step in steps:
            try:
                restored = self._manager.restore(step, args=ocp.args.Composite(**items))
            except Exception as error:
                _logger.warning(
                    "checkpoint %d cannot be read, trying the one before: %s", step, error
                )
                continue
            return restored["state"], restored["position"]
        if steps:
            raise ValueError(
                f"none of the checkpoints {steps} in {self._manager.directory} can be read: they "
                "are damaged, or of another model or optimizer. Restart in another workdir"
            )
        return None

    def restore_params(
        self, abstract_params: policy.Params, step: int | None = None
    ) -> policy.Params:
        """The params of one checkpoint, the latest by default, and nothing else of it.

        Raises:
            ValueError: there is no such checkpoint, or it is not of this model.
        """
        steps = sorted(self._manager.all_steps())
        step = step if step is not None else max(steps, default=None)
        if step not in steps:
            raise ValueError(
                f"no checkpoint {step or ''} in {self._manager.directory}; there are: {steps}"
            )
        directory = Path(self._manager.directory) / str(step) / "state"
        return restore_params(directory, abstract_params, within=("params",))

    def close(self) -> None:
        self._manager.close()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
