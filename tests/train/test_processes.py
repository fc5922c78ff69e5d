"""Tests of two local processes with four devices each, connected by jax.distributed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.devices import find_free_port
from webagent_jax import policy
from webagent_jax.tracking.episode_log import load_episodes
from webagent_jax.tracking.metric_writers import read_metrics

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(3_600)]

ROOT = Path(__file__).parents[2]
SECONDS_PER_MINUTE = 60.0


def start_training(workdir: Path, devices: int, *process_args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.train.train_process",
            str(workdir),
            str(devices),
            *map(str, process_args),
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_exit(process: subprocess.Popen[str], minutes: float = 15) -> tuple[int, str]:
    try:
        _, stderr = process.communicate(timeout=minutes * SECONDS_PER_MINUTE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, stderr


def start_two_processes(workdir: Path) -> list[subprocess.Popen[str]]:
    port = find_free_port()
    return [start_training(workdir, 4, port, 2, process_id) for process_id in range(2)]


@pytest.fixture(scope="module")
def single_process_workdir(tmp_path_factory):
    """Return the workdir of a run of one process with eight devices."""
    workdir = tmp_path_factory.mktemp("hosts") / "alone"
    status, stderr = wait_for_exit(start_training(workdir, 8))
    assert status == 0, stderr
    return workdir


def copy_episodes(expected_workdir: Path, workdir: Path) -> Path:
    """Copy the episodes of the single-process run, so that no episode runs again."""
    shutil.copytree(expected_workdir / "episodes", workdir / "episodes")
    return workdir


def assert_equal_runs(workdir: Path, expected_workdir: Path) -> None:
    """Compare up to the order of sums, which Adam amplifies for gradients close to zero."""
    initial_params, params, expected_params = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(policy.load_hf(path)[1])])
        for path in ("webagent-tiny", workdir / "policy", expected_workdir / "policy")
    )
    update_norm = np.linalg.norm(expected_params - initial_params)
    assert update_norm > 0.1, "five updates changed too little for a comparison"
    assert np.linalg.norm(params - expected_params) < 0.03 * update_norm
    logs = [read_metrics(folder / "metrics.jsonl") for folder in (workdir, expected_workdir)]
    assert len(logs[0]) == len(logs[1]) == 5
    for record, expected_record in zip(*logs, strict=True):
        for name in ("reward", "episodes/total", "episodes/infra_errors", "episode/num_turns"):
            assert record[name] == pytest.approx(expected_record[name])
        for name in ("loss", "grad_norm", "entropy"):
            assert record[name] == pytest.approx(expected_record[name], rel=1e-3)


def test_two_processes_match_single_process_run(single_process_workdir, tmp_path):
    workdir = copy_episodes(single_process_workdir, tmp_path / "two")
    expected_names = sorted(p.name for p in (workdir / "episodes").iterdir())
    for status, stderr in map(wait_for_exit, start_two_processes(workdir)):
        assert status == 0, stderr
    assert_equal_runs(workdir, single_process_workdir)
    assert sorted(p.name for p in (workdir / "episodes").iterdir()) == expected_names, (
        "new episodes ran"
    )


def test_job_exits_and_resumes_after_process_death(single_process_workdir, tmp_path):
    workdir = copy_episodes(single_process_workdir, tmp_path / "killed")
    first_process, second_process = start_two_processes(workdir)
    deadline = time.monotonic() + 10 * SECONDS_PER_MINUTE
    while not (workdir / "metrics.jsonl").exists():
        assert first_process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(second_process.pid, signal.SIGKILL)
    assert wait_for_exit(second_process)[0] == -signal.SIGKILL
    status, stderr = wait_for_exit(first_process, minutes=5)
    assert status != 0
    assert "probably because another process failed" in stderr
    for status, stderr in map(wait_for_exit, start_two_processes(workdir)):
        assert status == 0, stderr
    assert_equal_runs(workdir, single_process_workdir)
    episodes = [e for p in (workdir / "episodes").glob("*.jsonl") for e in load_episodes(p)]
    keys = [(e.group, e.attempt) for e in episodes]
    assert len(keys) == len(set(keys)) == 20


def num_event_files(workdir: Path) -> int:
    """Return the number of files of TensorBoard; a training creates one before its first update."""
    return len(list((workdir / "tensorboard").glob("*")))


def test_sigterm_of_one_process_stops_all_after_same_update(single_process_workdir, tmp_path):
    workdir = copy_episodes(single_process_workdir, tmp_path / "preempted")
    updates = []
    # The second time, the signal arrives before the first update after the resume.
    for is_resumed in (False, True):
        num_files = num_event_files(workdir)
        processes = start_two_processes(workdir)
        deadline = time.monotonic() + 10 * SECONDS_PER_MINUTE
        while num_event_files(workdir) == num_files or not (
            is_resumed or (workdir / "metrics.jsonl").exists()
        ):
            assert processes[0].poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        processes[1].send_signal(signal.SIGTERM)
        results = [wait_for_exit(process, minutes=5) for process in processes]
        update = len(read_metrics(workdir / "metrics.jsonl"))
        assert update < 5, "the run ended before the signal"
        assert max(int(path.name) for path in (workdir / "checkpoints").iterdir()) == update
        for status, stderr in results:
            assert status == 1
            assert f"PreemptedError: stopped by SIGTERM after update {update}" in stderr
        updates.append(update)
    assert updates[1] == updates[0] + 1
    for status, stderr in map(wait_for_exit, start_two_processes(workdir)):
        assert status == 0, stderr
    assert_equal_runs(workdir, single_process_workdir)
