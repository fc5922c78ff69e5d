"""Writers of training metrics to JSONL, TensorBoard and Weights & Biases."""

from __future__ import annotations

import importlib
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, SupportsFloat

from webagent_jax.config import ConfigError
from webagent_jax.tracking import atomic_files


class MetricsWriter(Protocol):
    """Writer of the scalar metrics of a run; `step` is an update of the training loop."""

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        """Write the metrics of one update."""
        ...

    def truncate_after(self, step: int) -> None:
        """Discard the records of later updates: a run resumed from `step` writes them again."""
        ...

    def close(self) -> None:
        """Flush and release the underlying files or connections."""
        ...


class NullWriter:
    """Writer that discards all metrics."""

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        """Discard the metrics."""
        del step, scalars

    def truncate_after(self, step: int) -> None:
        """Do nothing."""
        del step

    def close(self) -> None:
        """Do nothing."""


class JsonlWriter:
    """JSONL writer, one line per update: `{"update": 3, "reward": 0.25, ...}`; null if not finite.

    Every line is on disk when `write` returns.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        """Append one line."""
        # JSON has neither NaN nor infinity.
        finite = {k: _finite(float(v)) for k, v in scalars.items()}
        atomic_files.append_jsonl(self._path, [{"update": int(step), **finite}])

    def truncate_after(self, step: int) -> None:
        """Rewrite the file without the lines of later updates."""
        atomic_files.filter_jsonl(self._path, lambda record: record["update"] <= step)

    def close(self) -> None:
        """Do nothing: no file stays open between writes."""


class TensorBoardWriter:
    """TensorBoard writer: one event file per start of the run in `folder`; finite scalars only.

    The scalars are on disk when `write` returns. `SummaryWriter` of tensorboardX would write them
    on a thread, whose error blocks the run or is lost.
    """

    def __init__(self, folder: Path) -> None:
        # tensorboardX imports torch if it is installed, which takes seconds.
        from tensorboardX import summary
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2

        folder.mkdir(parents=True, exist_ok=True)
        self._events = EventsWriter(str(folder / "events"))
        self._scalar, self._protos = summary.scalar, event_pb2

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        """Write the finite scalars and flush."""
        for name, value in scalars.items():
            if math.isfinite(float(value)):
                self._add(step, summary=self._scalar(name, float(value)))
        self._events.flush()

    def truncate_after(self, step: int) -> None:
        """Purge the later steps: TensorBoard hides them, and the old event files stay unchanged."""
        start = self._protos.SessionLog(status=self._protos.SessionLog.START)
        # TensorBoard purges from the step of this event on.
        self._add(step + 1, session_log=start)
        self._events.flush()

    def _add(self, step: int, **content: Any) -> None:
        event = self._protos.Event(wall_time=time.time(), step=int(step), **content)
        self._events.write_event(event)

    def close(self) -> None:
        """Close the event file."""
        self._events.close()


class WandbWriter:
    """Weights & Biases writer: one W&B run per workdir across resumes; finite scalars only.

    The environment variables of wandb select the destination: WANDB_MODE=offline, WANDB_ENTITY,
    WANDB_API_KEY.

    Raises:
        ConfigError: the package wandb is not installed.
    """

    def __init__(self, workdir: Path, project: str) -> None:
        try:
            wandb: Any = importlib.import_module("wandb")
        except ImportError as error:
            raise ConfigError(
                f"log.wandb_project={project!r} requires the package wandb: "
                "run pip install 'webagent_jax[wandb]'"
            ) from error
        self._run = wandb.init(
            project=project, id=_run_id(workdir / "wandb-run.txt"), dir=str(workdir), resume="allow"
        )
        # Steps of wandb only increase: a resumed run would log nothing until its last step.
        self._run.define_metric("update")
        self._run.define_metric("*", step_metric="update")

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        """Log the finite scalars."""
        finite = {k: float(v) for k, v in scalars.items() if math.isfinite(float(v))}
        self._run.log({"update": int(step), **finite})

    def truncate_after(self, step: int) -> None:
        """Do nothing: W&B cannot delete records, so a resume logs the later updates twice."""
        del step

    def close(self) -> None:
        """Finish the W&B run."""
        self._run.finish()


class MultiWriter:
    """Writer that forwards to several writers."""

    def __init__(self, writers: Sequence[MetricsWriter]) -> None:
        self._writers = tuple(writers)

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        """Write the metrics to all writers."""
        for writer in self._writers:
            writer.write(step, scalars)

    def truncate_after(self, step: int) -> None:
        """Discard the records of later updates in all writers."""
        for writer in self._writers:
            writer.truncate_after(step)

    def close(self) -> None:
        """Close all writers."""
        for writer in self._writers:
            writer.close()


def make_writer(workdir: Path, wandb_project: str = "") -> MetricsWriter:
    """Return a writer to `metrics.jsonl`, TensorBoard and, if a project is set, W&B.

    Args:
        workdir: directory of `metrics.jsonl` and of the TensorBoard events.
        wandb_project: W&B project; empty for no W&B run.

    Raises:
        ConfigError: `wandb_project` is set and the package wandb is not installed.
    """
    # W&B first: if its package is missing, no other writer is open.
    writers: list[MetricsWriter] = [WandbWriter(workdir, wandb_project)] if wandb_project else []
    writers.append(JsonlWriter(workdir / "metrics.jsonl"))
    writers.append(TensorBoardWriter(workdir / "tensorboard"))
    return MultiWriter(writers)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the records of a metrics.jsonl in order; NaN replaces null."""
    return [
        {key: math.nan if value is None else value for key, value in record.items()}
        for record in atomic_files.read_jsonl(path)
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _run_id(path: Path) -> str:
    """Return the W&B run id stored in `path`; create one if the file is missing."""
    if not path.exists():
        atomic_files.write_text(path, f"{uuid.uuid4().hex[:12]}\n")
    return path.read_text().strip()
