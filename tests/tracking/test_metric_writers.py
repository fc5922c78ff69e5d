"""Tests of metric writers and atomic files."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from webagent_jax.config import ConfigError
from webagent_jax.tracking import atomic_files, metric_writers


class FakeWandb:
    """Fake of the wandb package that records every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def init(self, **options: Any) -> FakeWandb:
        self.calls.append(("init", options))
        return self

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.calls.append(("define_metric", name, step_metric))

    def log(self, values: Mapping[str, float]) -> None:
        self.calls.append(("log", values))

    def finish(self) -> None:
        self.calls.append(("finish",))


def test_jsonl_writer_writes_lines_immediately(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    writer = metric_writers.JsonlWriter(path)
    writer.write(1, {"reward": np.float32(0.25), "kl": math.nan})
    (line,) = metric_writers.read_metrics(path)
    assert line["update"] == 1 and line["reward"] == 0.25 and math.isnan(line["kl"])
    record = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert record == {"update": 1, "reward": 0.25, "kl": None}


def test_truncate_after_removes_later_updates(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for step in range(1, 6):
        metric_writers.JsonlWriter(path).write(step, {"reward": step})
    with path.open("a") as file:
        file.write('{"update": 6, "rew')
    writer = metric_writers.JsonlWriter(path)
    writer.truncate_after(3)
    writer.write(4, {"reward": 40})
    rewards = [(line["update"], line["reward"]) for line in metric_writers.read_metrics(path)]
    assert rewards == [(1, 1), (2, 2), (3, 3), (4, 40)]


def test_truncate_after_accepts_missing_file(tmp_path: Path) -> None:
    metric_writers.JsonlWriter(tmp_path / "metrics.jsonl").truncate_after(0)


def test_multi_writer_forwards_all_calls(tmp_path: Path) -> None:
    logs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    writer = metric_writers.MultiWriter([metric_writers.JsonlWriter(log) for log in logs])
    writer.write(1, {"x": 1.0})
    writer.write(2, {"x": 2.0})
    writer.truncate_after(1)
    writer.close()
    assert [len(metric_writers.read_metrics(log)) for log in logs] == [1, 1]


def test_make_writer_writes_jsonl_and_tensorboard(tmp_path: Path) -> None:
    writer = metric_writers.make_writer(tmp_path)
    writer.write(1, {"reward": 1.0, "infinite": math.inf})
    writer.truncate_after(1)
    writer.write(2, {"reward": 2.0})
    writer.close()
    assert len(metric_writers.read_metrics(tmp_path / "metrics.jsonl")) == 2
    events = b"".join(event.read_bytes() for event in (tmp_path / "tensorboard").iterdir())
    assert b"reward" in events and b"infinite" not in events


def read_events(folder: Path) -> list[Any]:
    """Return the complete events of all files, in the order of their starts."""
    events = []
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        content = path.read_bytes()
        # A record is its length, a checksum, the event and another checksum.
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            events.append(event_pb2.Event.FromString(content[12 : 12 + length]))
            content = content[16 + length :]
    return events


def test_tensorboard_scalars_are_on_disk_when_write_returns(tmp_path: Path) -> None:
    script = """
import os, pathlib, sys
from webagent_jax.tracking.metric_writers import TensorBoardWriter
writer = TensorBoardWriter(pathlib.Path(sys.argv[1]))
writer.truncate_after(2)
writer.write(3, {f"metric-{i}": i for i in range(60)})
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)
    version, start, *scalars = read_events(tmp_path)
    # TensorBoard discards the events of other files from the step of a start event on, if the
    # version of the file is 2 or higher.
    assert version.file_version == "brain.Event:2"
    assert start.session_log.status == event_pb2.SessionLog.START and start.step == 3
    values = {value.tag: value.simple_value for e in scalars for value in e.summary.value}
    assert values == {f"metric-{i}": i for i in range(60)}
    assert {event.step for event in scalars} == {3}


@pytest.mark.timeout(240)
def test_tensorboard_error_ends_the_run(tmp_path: Path) -> None:
    script = """
import pathlib, resource, signal, sys
from webagent_jax.tracking.metric_writers import TensorBoardWriter
writer = TensorBoardWriter(pathlib.Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for step in range(1_000):
    writer.write(step, {f"metric-{i}": i for i in range(100)})
"""
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=False,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert "File too large" in result.stderr and result.returncode == 1


def test_null_writer_accepts_all_calls() -> None:
    writer: metric_writers.MetricsWriter = metric_writers.NullWriter()
    writer.write(1, {"x": 1.0})
    writer.truncate_after(0)
    writer.close()


def test_failed_json_write_keeps_old_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    atomic_files.write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        atomic_files.write_json(path, {"a": math.nan})
    assert atomic_files.read_json(path) == {"a": 1}


def test_read_json_error_names_file(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(ValueError, match=r"summary\.json"):
        atomic_files.read_json(tmp_path / "summary.json")


def test_wandb_writer_resumes_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for steps in ((1, 2, 3), (2, 3)):
        writer = metric_writers.make_writer(tmp_path / "run", "agents")
        writer.truncate_after(steps[0] - 1)
        for step in steps:
            writer.write(step, {"x": np.float32(step), "y": math.nan})
        writer.close()
    metric_writers.make_writer(tmp_path / "other", "agents").close()
    first_options, second_options, other_options = (
        call[1] for call in wandb.calls if call[0] == "init"
    )
    assert first_options == second_options  # W&B resumes the run with the same id
    assert first_options["project"] == "agents" and first_options["resume"] == "allow"
    assert first_options["id"] and first_options["id"] != other_options["id"]
    assert "mode" not in first_options  # it would override WANDB_MODE
    assert ("define_metric", "*", "update") in wandb.calls
    log_values = [call[1] for call in wandb.calls if call[0] == "log"]
    assert log_values == [{"update": step, "x": step} for step in (1, 2, 3, 2, 3)]
    assert wandb.calls.count(("finish",)) == 3
    lines = metric_writers.read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["update"] for line in lines] == [1, 2, 3]


def test_missing_wandb_raises_config_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"pip install 'webagent_jax\[wandb\]'"):
        metric_writers.make_writer(tmp_path, "agents")
    metric_writers.make_writer(tmp_path).close()
