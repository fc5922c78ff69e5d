"""Tests of the phases of the quickstart."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from webagent_jax import quickstart
from webagent_jax.config import (
    BCConfig,
    ConfigError,
    EndpointConfig,
    LoRAConfig,
    PolicyConfig,
    PromptConfig,
    RunConfig,
)
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.tracking.workdir_lock import hold_lock

CHAT_POLICY = PolicyConfig(
    kind="openai", endpoint=EndpointConfig(url="http://localhost:1/v1", model="chat")
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"policy": CHAT_POLICY, "prompt": PromptConfig(template="compact")},
            "has no weights to train",
        ),
        ({"bc": BCConfig(demos_per_task=10**6)}, "bc.demos_per_task=1000000 must be at most"),
        (
            {"lora": LoRAConfig(rank=4, create_new_adapter=False)},
            "does not support lora.create_new_adapter=False",
        ),
    ],
)
def test_invalid_config_of_a_later_phase_is_rejected_first(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        quickstart.quickstart(RunConfig(**options), tmp_path, NullProgress())
    assert not list(tmp_path.iterdir())


def test_seconds_of_an_interrupted_phase_include_all_calls(tmp_path: Path, monkeypatch) -> None:
    # Each reading of the clock is 10 s after the previous one.
    clock = count(step=10.0)
    monkeypatch.setattr(quickstart.time, "monotonic", lambda: next(clock))
    record = tmp_path / "phases" / "grpo.json"

    def interrupt(folder: Path) -> None:
        raise KeyboardInterrupt

    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        quickstart._run_phase(record, tmp_path / "grpo", interrupt)
    assert quickstart._run_phase(record, tmp_path / "grpo", lambda _: calls.append(1)) == 20
    # A complete phase does not run again.
    assert quickstart._run_phase(record, tmp_path / "grpo", lambda _: calls.append(2)) == 20
    assert calls == [1]


def test_evaluation_with_faults_runs_again(tmp_path: Path) -> None:
    record = tmp_path / "phases" / "eval_bc.json"
    results = [False, True, True]
    for _ in range(3):
        quickstart._run_phase(record, tmp_path / "eval" / "bc", lambda _: results.pop(0))
    # The second call has no faults left, so the third does nothing.
    assert results == [True]


def test_phase_holds_the_lock_of_its_workdir(tmp_path: Path) -> None:
    record, folder = tmp_path / "phases" / "grpo.json", tmp_path / "grpo"
    calls: list[Path] = []

    def work(folder: Path) -> None:
        with pytest.raises(ConfigError, match=f"writes to {folder}"), hold_lock(folder):
            pass
        calls.append(folder)

    with hold_lock(folder), pytest.raises(ConfigError, match=f"writes to {folder}"):
        quickstart._run_phase(record, folder, work)
    assert calls == []
    quickstart._run_phase(record, folder, work)
    assert calls == [folder]
    # The lock is free after the phase, and a complete phase does not need it.
    with hold_lock(folder):
        quickstart._run_phase(record, folder, work)
