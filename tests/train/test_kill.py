"""kill -9 at random moments: the run that is left is the uninterrupted one, bit for bit."""

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
KILLS = 20


def start(workdir: Path, staleness: int) -> subprocess.Popen[bytes]:
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


def killed_often(workdir: Path, staleness: int) -> int:
    """Plays a run to its end, killed at random moments; how often it was."""
    dice = random.Random(staleness)
    kills = 0
    while True:
        process = start(workdir, staleness)
        try:
            if 0 < kills % 4 < KILLS:  # every fourth may hit it while it starts
                wait_for_more(process, workdir)
            process.wait(dice.uniform(0.0, 8.0) if kills < KILLS else 1_200)
        except subprocess.TimeoutExpired:
            assert kills < KILLS, "it does not come to its end"
            kills += 1
            continue
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode == 0
        return kills


def wait_for_more(process: subprocess.Popen[bytes], workdir: Path) -> None:
    """Until the run has written something that was not there."""

    def written() -> int:
        return sum(p.stat().st_size for p in workdir.rglob("*.jsonl"))

    before = written()
    deadline = time.monotonic() + 600
    while written() == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def episodes_of(workdir: Path) -> list[tuple[int, int]]:
    logs = sorted((workdir / "episodes").glob("update-*.jsonl"))
    return [(e.group, e.attempt) for log in logs for e in load_episodes(log)]


def test_twenty_kills_change_nothing(tmp_path):
    assert start(tmp_path / "whole", 0).wait(1_200) == 0
    assert killed_often(tmp_path / "killed", 0) == KILLS
    params = [policy.load_hf(tmp_path / run / "policy")[1] for run in ("whole", "killed")]
    jax.tree.map(np.testing.assert_array_equal, *params)
    logs = [read_metrics(tmp_path / run / "metrics.jsonl") for run in ("whole", "killed")]
    for whole, killed in zip(*logs, strict=True):
        names = {name for name in whole if not name.startswith(TIMING_PREFIXES)}
        assert {n: whole[n] for n in names} == {n: killed[n] for n in names}
    played = episodes_of(tmp_path / "killed")
    assert len(played) == len(set(played)), "an episode was played twice"
    assert set(played) == set(episodes_of(tmp_path / "whole"))


def test_asynchronous_runs_lose_and_repeat_no_task_either(tmp_path):
    assert killed_often(tmp_path / "killed", 1) == KILLS
    played = episodes_of(tmp_path / "killed")
    assert len(played) == len(set(played)), "an episode was played twice"
    assert set(played) == {(group, at) for group in range(24) for at in range(4)}
    updates = read_metrics(tmp_path / "killed" / "metrics.jsonl")
    assert [record["update"] for record in updates] == list(range(1, 13))
    assert sum(record["episodes/total"] for record in updates) == 96
    assert max(record["staleness/max"] for record in updates) <= 1
