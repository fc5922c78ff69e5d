"""Scalars over time, to JSONL and TensorBoard."""

from __future__ import annotations

import importlib
import math
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, SupportsFloat

from tensorboardX import SummaryWriter

from webagent_jax.config import ConfigError
from webagent_jax.tracking import atomic_files


class MetricsWriter(Protocol):
    """Takes the scalars of a run, step by step; a step is one optimizer update."""

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None: ...

    def truncate_after(self, step: int) -> None:
        """Forgets what was written for later steps: a run resumed from `step` writes them again."""
        ...

    def close(self) -> None: ...


class NullWriter:
    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        del step, scalars

    def truncate_after(self, step: int) -> None:
        del step

    def close(self) -> None:
        pass


class JsonlWriter:
    """One line per step: `{"step": 3, "reward": 0.25, ...}`; null where a scalar is not finite.

    Every line is on disk when `write` returns.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        finite = {k: _finite(float(v)) for k, v in scalars.items()}
        atomic_files.append_jsonl(self._path, [{"step": int(step), **finite}])

    def truncate_after(self, step: int) -> None:
        atomic_files.filter_jsonl(self._path, lambda record: record["step"] <= step)

    def close(self) -> None:
        pass


class TensorBoardWriter:
    """Event files in `folder`, one more for every start of the run; finite scalars only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._events = SummaryWriter(str(folder), max_queue=1, flush_secs=10)

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        for name, value in scalars.items():
            if math.isfinite(float(value)):
                self._events.add_scalar(name, float(value), int(step))
        self._events.flush()

    def truncate_after(self, step: int) -> None:
        """TensorBoard hides the purged steps; the old event files stay as they are."""
        self._events.close()
        self._events = SummaryWriter(
            str(self._folder), max_queue=1, flush_secs=10, purge_step=step + 1
        )

    def close(self) -> None:
        self._events.close()


class WandbWriter:
    """One run of Weights & Biases for a workdir, however often it is resumed; finite scalars only.

    Where it goes is up to wandb's own environment: WANDB_MODE=offline, WANDB_ENTITY, WANDB_API_KEY.
    """

    def __init__(self, workdir: Path, project: str) -> None:
        """Raises ConfigError when the package wandb is not installed."""
        try:
            wandb: Any = importlib.import_module("wandb")
        except ImportError as error:
            raise ConfigError(
                f"log.wandb_project={project!r} needs a package that is not installed: "
                "pip install 'webagent_jax[wandb]'"
            ) from error
        self._run = wandb.init(
            project=project, id=_run_id(workdir / "wandb-run.txt"), dir=str(workdir), resume="allow"
        )
        # Its own steps only go up: a resumed run would be silent until it is past where it stopped.
        self._run.define_metric("update")
        self._run.define_metric("*", step_metric="update")

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        finite = {k: float(v) for k, v in scalars.items() if math.isfinite(float(v))}
        self._run.log({"update": int(step), **finite})

    def truncate_after(self, step: int) -> None:
        """Nothing logged can be taken back: later steps are there twice after a resume."""
        del step

    def close(self) -> None:
        self._run.finish()


class MultiWriter:
    """Writes to all of `writers`."""

    def __init__(self, writers: Sequence[MetricsWriter]) -> None:
        self._writers = tuple(writers)

    def write(self, step: int, scalars: Mapping[str, SupportsFloat]) -> None:
        for writer in self._writers:
            writer.write(step, scalars)

    def truncate_after(self, step: int) -> None:
        for writer in self._writers:
            writer.truncate_after(step)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


def open_writer(workdir: Path, wandb_project: str = "") -> MetricsWriter:
    """`metrics.jsonl` and TensorBoard events in `workdir`, and W&B where a project is named.

    Raises ConfigError when the package wandb is missing.
    """
    writers: list[MetricsWriter] = [WandbWriter(workdir, wandb_project)] if wandb_project else []
    writers.append(JsonlWriter(workdir / "metrics.jsonl"))
    writers.append(TensorBoardWriter(workdir / "tensorboard"))
    return MultiWriter(writers)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The lines of a metrics.jsonl in order; NaN where a scalar was not finite."""
    return [
        {key: math.nan if value is None else value for key, value in record.items()}
        for record in atomic_files.read_jsonl(path)
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _run_id(path: Path) -> str:
    """The one that the file keeps; a new one the first time."""
    if not path.exists():
        atomic_files.write_text(path, f"{uuid.uuid4().hex[:12]}\n")
    return path.read_text().strip()
