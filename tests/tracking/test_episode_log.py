"""Tests of the episode log and of eval.json."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webagent_jax import types
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.tracking import episode_log

SCREENSHOTS = (b"\xff\xd8 one", b"\xff\xd8 two")


def are_equal(a: Any, b: Any) -> bool:
    """Compare values that contain arrays by type, shape and bits."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if dataclasses.is_dataclass(a):
        fields = [field.name for field in dataclasses.fields(a)]
        return type(a) is type(b) and all(are_equal(getattr(a, f), getattr(b, f)) for f in fields)
    if isinstance(a, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(are_equal, a, b))
    return type(a) is type(b) and a == b


def make_turn(action: types.Action | types.ParseError, screenshot: bytes | None) -> types.Turn:
    return types.Turn(
        prompt_ids=np.array([1, 2**31 - 1, 0], np.int32),
        completion=types.Completion(
            token_ids=np.array([], np.int32),
            logp=np.array([-0.1, -np.inf, np.nan, -1e-38], np.float32),
            policy_version=np.array([3, 4], np.int32),
            finish="length",
            sampling_logp=None if screenshot is None else np.array([], np.float32),
            is_mistake=screenshot is None,
        ),
        response_text="Grüße\n\u2028 \ud800 </script>",
        action=action,
        observation=types.Observation(
            text="button Ok [1]",
            url="http://x/",
            error="no such element",
            truncated=True,
            elements={"1": types.Element("button", "Ok", box=(0.1, 2.0, 1e-9, 4.0))},
        ),
        seconds={"model": 0.1 + 0.2},
        screenshot=screenshot,
    )


def make_episode() -> types.Episode:
    return types.Episode(
        task=types.Task("a/b/1", "a", ("b", "c"), "do", "http://x/", 5, None, {"kind": ["x", 1]}),
        intent="do it",
        turns=(
            make_turn(types.Action(types.ActionKind.TYPE, "1", "text"), SCREENSHOTS[0]),
            make_turn(types.Action(types.ActionKind.GO_BACK), SCREENSHOTS[0]),
            make_turn(types.ParseError("no action"), None),
        ),
        reward=1.0,
        outcome=types.Outcome.SUCCESS,
        answer="",
        seconds=1.5,
        final_screenshot=SCREENSHOTS[1],
        truncated=True,
        group=3,
        update=2,
        files={"network.har": b"{}"},
    )


def make_infra_episode() -> types.Episode:
    task = types.Task("a/b/2", "a", ("b",), "do", "http://x/")
    return types.Episode(task, "", (), None, types.Outcome.INFRA, infra_error="Chromium is gone")


def test_load_returns_appended_episodes(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "episodes.jsonl"
    episode_log.append_episodes(path, [make_episode()])
    episode_log.append_episodes(path, [make_infra_episode(), make_episode()])
    assert are_equal(
        episode_log.load_episodes(path), (make_episode(), make_infra_episode(), make_episode())
    )


def test_equal_screenshots_are_stored_once(tmp_path: Path) -> None:
    episode_log.append_episodes(tmp_path / "episodes.jsonl", [make_episode(), make_episode()])
    contents = sorted(path.read_bytes() for path in (tmp_path / "screenshots").glob("*.jpg"))
    assert contents == sorted(SCREENSHOTS)
    assert not list(tmp_path.rglob("*.tmp"))


def test_files_of_one_attempt_are_in_folders_by_task_id(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    evaluated = dataclasses.replace(make_episode(), update=-1, attempt=1)
    episode_log.append_episodes(path, [make_episode(), evaluated])
    files = [str(file.relative_to(tmp_path)) for file in sorted(tmp_path.rglob("network.har"))]
    assert files == [
        "files/1/a/b/1/network.har",
        "files/update-2/group-3/0/a/b/1/network.har",
    ]


def test_missing_file_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "episodes.jsonl"
    episode_log.append_episodes(path, [make_episode()])
    next(tmp_path.rglob("network.har")).unlink()
    with caplog.at_level("WARNING", logger="absl"):
        [episode] = episode_log.load_episodes(path)
    assert not episode.files and "network.har is missing" in caplog.text


def test_load_without_log_returns_no_episodes(tmp_path: Path) -> None:
    assert episode_log.load_episodes(tmp_path / "episodes.jsonl") == ()


@pytest.mark.parametrize("cut", [1, 10, 500])
def test_half_written_line_is_skipped_and_overwritten(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "episodes.jsonl"
    episode_log.append_episodes(path, [make_episode(), make_infra_episode(), make_episode()])
    path.write_bytes(path.read_bytes()[:-cut])
    with caplog.at_level("WARNING", logger="absl"):
        assert are_equal(episode_log.load_episodes(path), (make_episode(), make_infra_episode()))
    assert "half-written" in caplog.text
    episode_log.append_episodes(path, [make_infra_episode()])
    assert are_equal(
        episode_log.load_episodes(path),
        (make_episode(), make_infra_episode(), make_infra_episode()),
    )


def test_load_error_names_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    episode_log.append_episodes(path, [make_infra_episode()])
    path.write_bytes(b"{oops\n" + path.read_bytes())
    with pytest.raises(ValueError, match="line 1"):
        episode_log.load_episodes(path)


@pytest.mark.parametrize("change", [{"turns": None}, {"outcome": "WON"}, {"task": {}}])
def test_episode_of_other_version_is_an_error_with_the_file(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "episodes.jsonl"
    episode_log.append_episodes(path, [make_episode()])
    path.write_text(json.dumps(json.loads(path.read_text()) | change) + "\n")
    with pytest.raises(ConfigError, match=r"episodes\.jsonl contains .* of another version"):
        episode_log.load_episodes(path)
    with pytest.raises(ConfigError, match="of another version"):
        episode_log.read_episode(path, 0)


def test_load_tolerates_missing_screenshots(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    episode_log.append_episodes(path, [make_episode()])
    for screenshot in (tmp_path / "screenshots").iterdir():
        screenshot.unlink()
    (episode,) = episode_log.load_episodes(path)
    assert episode.final_screenshot is None and len(episode.turns) == 3


def test_eval_json_matches_documented_schema() -> None:
    report = types.EvalReport(
        success_rate=1.0,
        n=1,
        ci95=(0.2, 1.0),
        by_site={"b": types.SuccessRate(1.0, 1, (0.3, 1.0))},
        by_outcome={types.Outcome.SUCCESS: 1, types.Outcome.INFRA: 1},
        mean_turns=3.0,
        mean_response_tokens=0.0,
        seconds=2.0,
        episodes=(make_episode(), make_infra_episode()),
        turns=types.SummaryStats(3.0, 3.0, 3.0, 3.0),
        parse_error_rate=0.25,
        invalid_action_rate=0.5,
        utilization={"browser": 0.5, "engine": 1.0},
    )
    record = json.loads(
        json.dumps(episode_log.eval_json(report, RunConfig(), "abc"), allow_nan=False)
    )
    assert record.pop("config")["grpo"]["updates"] == RunConfig().grpo.updates
    zeros = {"mean": 0.0, "p50": 0.0, "p90": 0.0, "max": 0.0}
    assert record == {
        "success_rate": 1.0,
        "n": 1,
        "ci95": [0.2, 1.0],
        "by_site": {"b": {"success_rate": 1.0, "n": 1, "ci95": [0.3, 1.0]}},
        "by_outcome": {"SUCCESS": 1, "INFRA": 1},
        "attempts": 1,
        "mean_turns": 3.0,
        "mean_response_tokens": 0.0,
        "turns": {"mean": 3.0, "p50": 3.0, "p90": 3.0, "max": 3.0},
        "response_tokens": zeros,
        "episode_seconds": zeros,
        "parse_error_rate": 0.25,
        "invalid_action_rate": 0.5,
        "utilization": {"browser": 0.5, "engine": 1.0},
        "infra": [{"task_id": "a/b/2", "attempt": 0, "infra_error": "Chromium is gone"}],
        "seconds": 2.0,
        "commit": "abc",
        "tasks": [
            {
                "task_id": "a/b/1",
                "attempt": 0,
                "site": "b,c",
                "reward": 1.0,
                "outcome": "SUCCESS",
                "turns": 3,
                "max_turns_used": 10,
                "response_tokens": 0,
                "parse_errors": 1,
                "invalid_actions": 2,
                "seconds": 1.5,
                "answer": "",
            },
            {
                "task_id": "a/b/2",
                "attempt": 0,
                "site": "b",
                "reward": None,
                "outcome": "INFRA",
                "turns": 0,
                "max_turns_used": 10,
                "response_tokens": 0,
                "parse_errors": 0,
                "invalid_actions": 0,
                "seconds": 0.0,
                "answer": None,
            },
        ],
    }


def test_eval_json_contains_pass_at_k_turn_limits_and_usage() -> None:
    report = types.EvalReport(
        success_rate=0.5,
        n=2,
        ci95=(0.1, 0.9),
        by_site={},
        by_outcome={},
        mean_turns=3.0,
        mean_response_tokens=0.0,
        seconds=2.0,
        episodes=(),
        attempts=2,
        pass_at_k={
            1: types.SuccessRate(0.5, 2, (0.1, 0.9)),
            2: types.SuccessRate(1.0, 1, (0.2, 1.0)),
        },
        by_max_turns={
            5: types.SuccessRate(0.0, 2, (0.0, 0.7)),
            10: types.SuccessRate(0.5, 2, (0.1, 0.9)),
        },
        usage={"prompt_tokens": 5, "completion_tokens": 1, "dollars": None},
    )
    record = episode_log.eval_json(report, RunConfig(), "abc")
    assert record["pass_at_k"] == {
        "1": {"rate": 0.5, "n": 2, "ci95": [0.1, 0.9]},
        "2": {"rate": 1.0, "n": 1, "ci95": [0.2, 1.0]},
    }
    assert record["by_max_turns"] == [
        {"max_turns": 5, "success_rate": 0.0, "n": 2, "ci95": [0.0, 0.7]},
        {"max_turns": 10, "success_rate": 0.5, "n": 2, "ci95": [0.1, 0.9]},
    ]
    assert record["usage"] == {"prompt_tokens": 5, "completion_tokens": 1, "dollars": None}
