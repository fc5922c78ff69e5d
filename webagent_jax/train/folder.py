"""The workdir of a training, which all hosts share and the first one writes."""

from __future__ import annotations

from pathlib import Path

from webagent_jax.config import RunConfig
from webagent_jax.report import metrics, provenance
from webagent_jax.report.metrics import MetricsWriter
from webagent_jax.train import hosts


def open_folder(workdir: Path, cfg: RunConfig) -> None:
    """As `provenance.open_workdir`, and returns when all hosts have found it good.

    Raises ConfigError: the workdir holds a run with another config.
    """
    if hosts.this() == 0:
        provenance.open_workdir(workdir, cfg)
    hosts.wait("workdir")
    if hosts.this() > 0:
        provenance.open_workdir(workdir, cfg)


def open_writer(workdir: Path, cfg: RunConfig) -> MetricsWriter:
    """Of the metrics; one that writes nothing on all hosts but the first."""
    if hosts.this() > 0:
        return metrics.NullWriter()
    return metrics.open_writer(workdir, cfg.log.wandb_project)
