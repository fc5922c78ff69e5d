"""Tests of the console command outside of a checkout, and on a full disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(3_600)]

ROOT = Path(__file__).parents[1]


def run(command: list[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1_800,
        check=False,
    )


def install_wheel(folder: Path) -> Path:
    """Build the wheel, install it in a new environment and return the folder of its programs.

    The environment reads the other packages from this one.
    """
    # A copy, because setuptools leaves files that a later build would take into its wheel.
    ignore = shutil.ignore_patterns(".*", "runs", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, folder / "source", ignore=ignore, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder / "dist"]
    result = run([*pip, "wheel", *options, folder / "source"], folder)
    assert result.returncode == 0, result.stderr
    shutil.rmtree(folder / "source")
    (wheel,) = (folder / "dist").glob("*.whl")
    run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], folder)
    (site_packages,) = (folder / "env").glob("lib/python*/site-packages")
    # Editable packages of this environment stay out: .pth files count in the folder itself only.
    (site_packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "env" / "bin" / "python"
    result = run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], folder)
    assert result.returncode == 0, result.stderr
    return python.parent


def test_wheel_runs_quickstart_outside_of_checkout(tmp_path):
    programs = install_wheel(tmp_path)
    script = "import webagent_jax; print(webagent_jax.__file__)"
    package = Path(run([programs / "python", "-c", script], tmp_path).stdout.strip()).parent
    assert package.is_relative_to(tmp_path) and (package / "py.typed").exists()
    result = run([programs / "webagent", "list-tasks", "--config=arena:smollm2"], tmp_path)
    assert len(result.stdout.splitlines()) == 165
    result = run([programs / "webagent", "quickstart", "--config=quickstart:smoke"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert "[6/6] evaluate grpo: 4/4 episodes" in result.stdout
    # Rows of tables are indented; messages are lines of any length.
    rows = [line for line in result.stdout.splitlines() if line.startswith(" ")]
    assert len(rows) > 5 and max(map(len, rows)) <= 80
    summary = json.loads((tmp_path / "runs" / "quickstart" / "summary.json").read_text())
    assert summary["grpo"]["n"] == 4
    assert (tmp_path / "runs" / "quickstart" / "report.html").exists()


def test_full_disk_loses_nothing(tmp_path):
    if run(["unshare", "-rm", "true"], tmp_path).returncode:
        pytest.skip("needs user namespaces, for a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    train = (
        f"PYTHONPATH={ROOT} {sys.executable} -m webagent_jax train bc --config=quickstart:smoke "
        f"--workdir={disk / 'bc'}"
    )
    # Demonstrations and metrics fit the small disk, the checkpoint does not.
    script = f"""
        mount -t tmpfs -o size=4m tmpfs {disk} && {train}
        echo "status $?"
        mount -o remount,size=200m {disk} && {train}
        echo "status $?"
        ls {disk}/bc/policy
    """
    result = run(["unshare", "-rm", "sh", "-c", script], tmp_path)
    statuses = [line for line in result.stdout.splitlines() if line.startswith("status")]
    assert statuses == ["status 2", "status 0"], result
    assert result.stderr.startswith("error: no space left on device: free disk space, then run")
    assert "Traceback" not in result.stderr and len(result.stderr.splitlines()) <= 3
    # The second start reuses the demonstrations of the first.
    assert result.stdout.count("demonstrations:") == 2  # first and last line of the phase
    assert "model.safetensors" in result.stdout
