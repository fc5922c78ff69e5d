"""What a restart needs, all of it, on disk: the train state and the position in the run.

Orbax writes each checkpoint aside and renames it when it is whole, so a process that is killed
while it saves leaves the one before. Nothing else of the package imports orbax.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import orbax.checkpoint as ocp

from webagent_jax.learn import TrainState

_logger = logging.getLogger(__name__)

Position = Mapping[str, Any]
"""Where the run stands, as JSON: next update, seeds, lines of metrics written, ..."""


class Checkpointer:
    """Checkpoints of one run. One process writes a directory at a time."""

    def __init__(self, directory: str | Path, keep: int = 2) -> None:
        """Opens `directory`, made if missing, and keeps its `keep` latest checkpoints."""
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, cleanup_tmp_directories=True, enable_async_checkpointing=False
        )
        self._manager = ocp.CheckpointManager(Path(directory).absolute(), options=options)

    def save(self, step: int, state: TrainState, position: Position) -> None:
        """Returns when it is on disk. A step that is there already is not written again."""
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

    def close(self) -> None:
        self._manager.close()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
