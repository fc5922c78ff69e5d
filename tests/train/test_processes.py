"""Two processes of four devices each, over jax.distributed on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from webagent_jax import policy
from webagent_jax.tracking.episode_log import load_episodes
from webagent_jax.tracking.metric_writers import read_metrics

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(3_600)]

ROOT = Path(__file__).parents[2]
MINUTES = 60.0


def start(workdir: Path, devices: int, *others: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.train.train_process",
            str(workdir),
            str(devices),
            *map(str, others),
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str], minutes: float = 15) -> tuple[int, str]:
    try:
        _, told = process.communicate(timeout=minutes * MINUTES)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, told


def two_hosts(workdir: Path) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    return [start(workdir, 4, port, 2, host) for host in range(2)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run on one host of eight devices."""
    workdir = tmp_path_factory.mktemp("hosts") / "alone"
    status, told = ended(start(workdir, 8))
    assert status == 0, told
    return workdir


def fed_by(alone: Path, workdir: Path) -> Path:
    """A workdir whose episodes are those of the run on one host, so that none is played."""
    shutil.copytree(alone / "episodes", workdir / "episodes")
    return workdir


def assert_same_run(workdir: Path, alone: Path) -> None:
    """Up to the order of sums, which Adam makes large where a gradient is next to nothing."""
    first, here, there = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(policy.load_hf(path)[1])])
        for path in ("webagent-tiny", workdir / "policy", alone / "policy")
    )
    moved = np.linalg.norm(there - first)
    assert moved > 0.1, "five updates moved nothing: this would pass whatever they did"
    assert np.linalg.norm(here - there) < 0.03 * moved
    logs = [read_metrics(folder / "metrics.jsonl") for folder in (workdir, alone)]
    assert len(logs[0]) == len(logs[1]) == 5
    for mine, theirs in zip(*logs, strict=True):
        for name in ("reward", "episodes/total", "episodes/infra_errors", "episode/num_turns"):
            assert mine[name] == pytest.approx(theirs[name])
        for name in ("loss", "grad_norm", "entropy"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-3)


def test_two_hosts_learn_what_one_learns_from_the_same_episodes(alone, tmp_path):
    workdir = fed_by(alone, tmp_path / "two")
    before = sorted(p.name for p in (workdir / "episodes").iterdir())
    for status, told in map(ended, two_hosts(workdir)):
        assert status == 0, told
    assert_same_run(workdir, alone)
    assert sorted(p.name for p in (workdir / "episodes").iterdir()) == before, "nothing was played"


def test_a_dead_host_ends_the_job_and_it_resumes(alone, tmp_path):
    workdir = fed_by(alone, tmp_path / "killed")
    first, second = two_hosts(workdir)
    deadline = time.monotonic() + 10 * MINUTES
    while not (workdir / "metrics.jsonl").exists():
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(second.pid, signal.SIGKILL)
    assert ended(second)[0] == -signal.SIGKILL
    status, told = ended(first, minutes=5)
    assert status != 0
    assert "another" in told and ("gone" in told or "died" in told)
    for status, told in map(ended, two_hosts(workdir)):
        assert status == 0, told
    assert_same_run(workdir, alone)
    played = [e for p in (workdir / "episodes").glob("*.jsonl") for e in load_episodes(p)]
    keys = [(e.group, e.attempt) for e in played]
    assert len(keys) == len(set(keys)) == 20
