"""Tests that the example jobs in launch/ divide over their processes and devices."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from configs import webagent_r1
from webagent_jax import config, sizing

LAUNCH = Path(__file__).parents[1] / "launch"


def test_image_contains_no_secrets():
    """`COPY . .` copies all that .dockerignore does not list."""
    root = LAUNCH.parent
    secrets = (root / ".gitignore").read_text().partition("secrets\n")[2].split()
    assert ".auth/" in secrets
    ignored = (root / ".dockerignore").read_text().split()
    assert [name for name in secrets if name.strip("/") not in ignored] == []
    # Nor the weights that the recipes download into the checkout.
    downloads = Path(webagent_r1.get_config("zero").policy.path).parts[0]
    assert downloads in ignored and f"/{downloads}/" in (root / ".gitignore").read_text().split()
    # The recipes read task files from the image.
    assert "tasks" in (LAUNCH / "gke" / "xpk.sh").read_text() and "tasks" not in ignored


def test_containers_run_tini_as_first_process():
    """Python as process 1 does not reap processes of Chromium and ignores SIGTERM."""
    image = (LAUNCH.parent / "Dockerfile").read_text()
    assert re.search(r"apt-get install .* tini ", image)
    assert 'ENTRYPOINT ["tini", "--", "webagent"]' in image
    # `command` replaces the entry point of the image.
    job = (LAUNCH / "gke" / "jobset.yaml").read_text().partition("command:")[2]
    assert re.findall(r"^ +- (\S+)", job, re.MULTILINE)[:3] == ["tini", "--", "env"]


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
    values = config.to_config_dict(webagent_r1.get_config("r1"))
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


# --- sites ----------------------------------------------------------------------------------------

# Substitutes for srun and xpk, which run the command once per process as the real ones do.
FAKE_SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
for index in 0 1; do SLURM_PROCID=$index "$@"; done
"""
FAKE_XPK = """#!/bin/bash
for option; do [[ $option == --command=* ]] && command=${option#--command=}; done
for index in 0 1; do JOB_COMPLETION_INDEX=$index bash -c "$command"; done
"""
FAKE_PYTHON = '#!/bin/bash\necho "$SHOPPING $GITLAB $XLA_PYTHON_CLIENT_MEM_FRACTION $1"\n'
SITES = re.compile(r"^SITES='.*?'$", re.DOTALL | re.MULTILINE)


def run_job(folder: Path, script: str, sites: str | None = None) -> list[list[str]]:
    """Return what the Python interpreter of each of two processes receives.

    Args:
        folder: working directory.
        script: script in launch/.
        sites: assignment that replaces that of SITES in the script; None keeps it.
    """
    text = (LAUNCH / script).read_text()
    assert len(SITES.findall(text)) == 1
    job = folder / "job"
    job.write_text(text if sites is None else SITES.sub(sites, text))
    programs = {"srun": FAKE_SRUN, "xpk": FAKE_XPK, "python": FAKE_PYTHON}
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(folder / "python")
    result = subprocess.run(
        ["bash", job],
        cwd=folder,
        env={"PATH": f"{folder}:/usr/bin:/bin", "SLURM_CPUS_PER_TASK": "8"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split() for line in result.stdout.splitlines()]


@pytest.mark.parametrize("script", ["slurm/train.sbatch", "gke/xpk.sh"])
def test_processes_of_job_have_different_sites(tmp_path: Path, script: str) -> None:
    processes = run_job(tmp_path, script)
    assert len(processes) == 2
    for index, (shopping, gitlab, *_, program) in enumerate(processes):
        assert (shopping, gitlab) == (
            f"http://sites-{index}.example:7770",
            f"http://sites-{index}.example:8023",
        )
        assert program == "launch/train_grpo.py"
    if script.startswith("slurm"):
        assert [process[2] for process in processes] == ["0.95", "0.95"]


@pytest.mark.parametrize("sites", ["", "SITES=''"])
def test_slurm_job_runs_without_sites(tmp_path: Path, sites: str) -> None:
    """`export` without names would print the environment, which may contain keys, into the log."""
    assert run_job(tmp_path, "slurm/train.sbatch", sites) == [["0.95", "launch/train_grpo.py"]] * 2


def test_slurm_job_accepts_several_addresses_of_a_site(tmp_path: Path) -> None:
    sites = "SITES='SHOPPING=\"http://a$SLURM_PROCID http://b\"'"
    processes = run_job(tmp_path, "slurm/train.sbatch", sites)
    assert [process[:2] for process in processes] == [[f"http://a{i}", "http://b"] for i in (0, 1)]


def test_processes_of_jobset_have_different_sites() -> None:
    """Kubernetes expands $(NAME) in `command` from the environment of the container."""
    text = (LAUNCH / "gke" / "jobset.yaml").read_text()
    addresses = re.findall(r"- (?:SHOPPING|GITLAB)=(\S+)", text)
    assert len(addresses) == 2
    assert all("$(JOB_COMPLETION_INDEX)" in address for address in addresses)
    assert "completionMode: Indexed" in text and "name: GITLAB" not in text


def test_recipes_page_has_memory_of_slurm_job() -> None:
    text, processes, devices = slurm_job()
    values = config.to_config_dict(webagent_r1.get_config("r1"))
    values.policy.path = "Qwen/Qwen2.5-3B-Instruct"
    values.mesh.tensor = read_number(r"mesh.tensor=(\d+)", text)
    hardware = sizing.Hardware("", "h100", processes * devices, (devices,), 0)
    # The workload does not affect the memory.
    workload = sizing.Workload(turns=1.0, prompt_tokens=1000, response_tokens=100)
    result = sizing.estimate(config.from_config_dict(values), hardware, workload)
    page = (LAUNCH.parent / "docs" / "recipes.md").read_text()
    assert f"needs {result.max_bytes / 2**30:.1f} of 75.1 GiB per device" in page
    assert result.fits
