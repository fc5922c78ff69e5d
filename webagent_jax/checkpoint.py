"""Checkpoints of a run: the train state and the state of the training loop.

Orbax writes a checkpoint to a temporary directory, on its own threads while the run continues, and
renames it when it is complete: a process killed while it saves leaves the previous checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from webagent_jax.learn import TrainState
from webagent_jax.policy import Params
from webagent_jax.policy.weights import restore_params

_logger = logging.getLogger(__name__)

Position = Mapping[str, Any]
"""Where the run stands, as JSON: next update, seeds, lines of metrics written, ..."""


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

    def restore_params(self, abstract_params: Params, step: int | None = None) -> Params:
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
