"""Tests that the example jobs in launch/ divide over their processes and devices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from configs import webagent_r1
from webagent_jax import config

LAUNCH = Path(__file__).parents[1] / "launch"


def test_image_contains_no_secrets():
    """`COPY . .` copies all that .dockerignore does not list."""
    root = LAUNCH.parent
    secrets = (root / ".gitignore").read_text().partition("secrets\n")[2].split()
    assert ".auth/" in secrets
    ignored = (root / ".dockerignore").read_text().split()
    assert [name for name in secrets if name.strip("/") not in ignored] == []


def read_number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    assert match, pattern
    return int(match[1])


def slurm_job() -> tuple[str, int, int]:
    text = (LAUNCH / "slurm" / "train.sbatch").read_text()
    gpus = read_number(r"#SBATCH --gpus-per-node=(\d+)", text)
    tasks = read_number(r"#SBATCH --ntasks-per-node=(\d+)", text)
    return text, read_number(r"#SBATCH --nodes=(\d+)", text) * tasks, gpus // tasks


def gke_job() -> tuple[str, int, int]:
    text = (LAUNCH / "gke" / "jobset.yaml").read_text()
    chips = read_number(r"google.com/tpu: (\d+)", text)
    return text, read_number(r"parallelism: (\d+)", text), chips


def xpk_job() -> tuple[str, int, int]:
    text = (LAUNCH / "gke" / "xpk.sh").read_text()
    return text, read_number(r"TPU_TYPE=v6e-(\d+)", text) // 4, 4


@pytest.mark.parametrize("read_job", [slurm_job, gke_job, xpk_job])
def test_job_divides_over_processes_and_devices(read_job) -> None:
    text, processes, devices = read_job()
    values = webagent_r1.get_config("r1")
    for option, value in re.findall(r"--config\.((?:mesh|engine)\.\w+)=(\d+)", text):
        section, name = option.split(".")
        values[section][name] = int(value)
    cfg = config.from_config_dict(values)
    mesh = cfg.mesh
    fsdp = processes * devices // (mesh.data * mesh.tensor) if mesh.fsdp == -1 else mesh.fsdp
    assert mesh.data * fsdp * mesh.tensor == processes * devices
    assert devices % mesh.tensor == 0
    assert mesh.data * fsdp * mesh.microbatch_rows_per_device % processes == 0
    assert cfg.grpo.tasks_per_update % processes == 0
    # All devices of a process sample.
    assert cfg.engine.tensor_parallel_size == devices
