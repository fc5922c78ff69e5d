"""Tests of training runs that are killed with kill -9 at random times."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.metric_records import TIMING_PREFIXES
from webagent_jax import policy
from webagent_jax.tracking.episode_log import load_episodes
from webagent_jax.tracking.metric_writers import read_metrics

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(3_600)]

ROOT = Path(__file__).parents[2]
MAX_KILLS = 20
MIN_KILLS = 2  # a fast machine completes the updates before the last kills


def start_run(workdir: Path, staleness: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "launch/train_grpo.py",
            "--config=configs/quickstart.py:smoke",
            "--config.grpo.updates=12",
            "--config.grpo.group_size=4",
            "--config.grpo.filter_groups=False",
            f"--config.grpo.max_staleness={staleness}",
            f"--workdir={workdir}",
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def run_with_kills(workdir: Path, staleness: int) -> int:
    """Kill and restart a run at random times until it finishes; return the number of kills."""
    rng = random.Random(staleness)
    kills = 0
    while True:
        process = start_run(workdir, staleness)
        try:
            if kills % 4:  # every fourth kill may occur at startup
                wait_for_output(process, workdir)
            process.wait(rng.uniform(0.0, 8.0) if kills < MAX_KILLS else 1_200)
        except subprocess.TimeoutExpired:
            assert kills < MAX_KILLS, "the run does not finish"
            kills += 1
            continue
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode == 0
        return kills


def wait_for_output(process: subprocess.Popen[bytes], workdir: Path) -> None:
    """Wait until the run writes to a JSON lines file."""

    def output_size() -> int:
        return sum(p.stat().st_size for p in workdir.rglob("*.jsonl"))

    initial_size = output_size()
    deadline = time.monotonic() + 600
    while output_size() == initial_size and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def load_episode_keys(workdir: Path) -> list[tuple[int, int]]:
    logs = sorted((workdir / "episodes").glob("update-*.jsonl"))
    return [(episode.group, episode.attempt) for log in logs for episode in load_episodes(log)]


def test_run_after_kills_matches_uninterrupted_run(tmp_path):
    assert start_run(tmp_path / "whole", 0).wait(1_200) == 0
    assert run_with_kills(tmp_path / "killed", 0) >= MIN_KILLS
    params = [policy.load_hf(tmp_path / run / "policy")[1] for run in ("whole", "killed")]
    jax.tree.map(np.testing.assert_array_equal, *params)
    logs = [read_metrics(tmp_path / run / "metrics.jsonl") for run in ("whole", "killed")]
    for expected, actual in zip(*logs, strict=True):
        names = {name for name in expected if not name.startswith(TIMING_PREFIXES)}
        assert {n: expected[n] for n in names} == {n: actual[n] for n in names}
    episode_keys = load_episode_keys(tmp_path / "killed")
    assert len(episode_keys) == len(set(episode_keys)), "an episode ran twice"
    assert set(episode_keys) == set(load_episode_keys(tmp_path / "whole"))


def test_asynchronous_run_after_kills_loses_and_repeats_no_task(tmp_path):
    assert run_with_kills(tmp_path / "killed", 1) >= MIN_KILLS
    episode_keys = load_episode_keys(tmp_path / "killed")
    assert len(episode_keys) == len(set(episode_keys)), "an episode ran twice"
    assert set(episode_keys) == {(group, attempt) for group in range(24) for attempt in range(4)}
    records = read_metrics(tmp_path / "killed" / "metrics.jsonl")
    assert [record["update"] for record in records] == list(range(1, 13))
    assert sum(record["episodes/total"] for record in records) == 96
    assert max(record["staleness/max"] for record in records) <= 1
