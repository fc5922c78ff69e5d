"""Checkpoints of a run: the train state and the state of the training loop.

Orbax writes a checkpoint to a temporary directory, on its own threads while the run continues, and
renames it when it is complete. A process killed during a save keeps the previous checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from webagent_jax import device_memory
from webagent_jax.config import ConfigError
from webagent_jax.learn import TrainState
from webagent_jax.policy import Params
from webagent_jax.policy.weights import restore_params

_MAX_TO_KEEP = 2  # number of latest checkpoints
_logger = logging.getLogger(__name__)

LoopState = Mapping[str, Any]
"""State of the training loop as JSON values: next update, pending groups, ..."""


class Checkpointer:
    """Checkpoints of one run; only one process may write a directory at a time.

    Args:
        directory: folder of the checkpoints; created if missing.
        read_only: read the checkpoints of a run that may be active; change no files.
    """

    def __init__(self, directory: str | Path, *, read_only: bool = False) -> None:
        options = (
            ocp.CheckpointManagerOptions(read_only=True)
            if read_only
            else ocp.CheckpointManagerOptions(
                max_to_keep=_MAX_TO_KEEP,
                # Interrupted saves leave their temporary directories.
                cleanup_tmp_directories=True,
                enable_async_checkpointing=True,
            )
        )
        # Orbax requires an absolute path.
        self._manager = ocp.CheckpointManager(Path(directory).absolute(), options=options)
        self._damaged_steps: set[int] = set()

    def save(self, step: int, state: TrainState, loop_state: LoopState) -> None:
        """Start saving a checkpoint; do nothing if the step already has an undamaged one.

        Waits for the previous save. `state` may be modified or donated after this returns; `close`
        waits until all data is on disk.
        """
        if step in self._damaged_steps:
            self._manager.delete(step)
            self._damaged_steps.remove(step)
        if step in self._manager.all_steps():
            return
        items = {
            "state": ocp.args.StandardSave(state),
            "loop_state": ocp.args.JsonSave(dict(loop_state)),
        }
        self._manager.save(step, args=ocp.args.Composite(**items), force=True)

    def restore(self, abstract_state: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """Return the latest readable checkpoint; None if the directory has no checkpoints.

        Args:
            abstract_state: shapes, dtypes and shardings of the result; may be a concrete state.

        Raises:
            ConfigError: no checkpoint of the directory can be read into `abstract_state`.
            JaxRuntimeError: too little device memory.
            MemoryError, OSError: the machine cannot read files, although they may be intact.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        # The checkpoint is read into these shardings, whatever mesh wrote it.
        targets = jax.tree.map(ocp.utils.to_shape_dtype_struct, abstract_state)
        items = {
            "state": ocp.args.StandardRestore(targets),
            "loop_state": ocp.args.JsonRestore(),
        }
        for step in steps:
            try:
                checkpoint = self._manager.restore(step, args=ocp.args.Composite(**items))
            # Damage raises errors of many types. ConfigError follows if no checkpoint is readable.
            except Exception as error:
                if device_memory.is_exhausted(error) or _is_io_error(error):
                    raise  # not damage
                _logger.warning(
                    "checkpoint %d cannot be read; trying the previous one: %s", step, error
                )
                self._damaged_steps.add(step)
                continue
            return checkpoint["state"], checkpoint["loop_state"]
        if steps:
            raise ConfigError(
                f"none of the checkpoints {steps} in {self._manager.directory} can be read: they "
                "are damaged or of another model or optimizer; use a new --workdir"
            )
        return None

    def restore_params(self, abstract_params: Params, step: int | None = None) -> Params:
        """Return only the params of a checkpoint; `step` None selects the latest.

        Raises:
            ValueError: the checkpoint does not exist or belongs to another model.
        """
        steps = sorted(self._manager.all_steps())
        step = step if step is not None else max(steps, default=None)
        if step not in steps:
            raise ValueError(
                f"no checkpoint {step or ''} in {self._manager.directory}; available: {steps}"
            )
        # Only the params of the item are read, not the moments.
        directory = Path(self._manager.directory) / str(step) / "state"
        return restore_params(directory, abstract_params, key_path=("params",))

    def close(self) -> None:
        """Wait for the last save and close the directory."""
        self._manager.close()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_io_error(error: Exception) -> bool:
    # A missing file is damage. Too many open files or an unreachable disk is not.
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
    )
