"""Tests of demonstrations from the episode logs of trainings."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from absl.testing import flagsaver

from tests.demos.test_demos import episode
from tests.launchers import load_main
from webagent_jax import demos, logged_episodes
from webagent_jax.config import ConfigError
from webagent_jax.tracking import episode_log
from webagent_jax.types import Episode, Outcome, ParseError


def write_log(run: Path, update: int, *episodes: Episode) -> None:
    (run / "episodes").mkdir(parents=True, exist_ok=True)
    episode_log.append_episodes(run / "episodes" / f"update-{update:05}.jsonl", episodes)


def failed(source: Episode) -> Episode:
    return dataclasses.replace(source, reward=0.0, outcome=Outcome.FAILURE)


def with_parse_error(source: Episode) -> Episode:
    first = dataclasses.replace(source.turns[0], action=ParseError("no action"))
    return dataclasses.replace(source, turns=(first, *source.turns[1:]))


def test_successes_are_the_shortest_of_each_task(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_log(first, 1, episode(1), failed(episode(2)), episode(3, turns=2))
    write_log(first, 2, episode(1, turns=3), with_parse_error(episode(1, turns=2)))
    write_log(second, 1, episode(3, turns=2, thinking=False), with_parse_error(episode(4)))
    imported = logged_episodes.import_successes([first, second])
    found = [(demo.task.seed, len(demo.turns)) for demo in imported.demonstrations]
    assert found == [(1, 3), (3, 2)]
    assert imported.skipped == {
        "it has no turns, or a response contains no valid action": 2,
        "the task has a shorter or earlier success": 2,
    }
    actions = [turn.decision.action for turn in imported.demonstrations[0].turns]
    assert actions == [turn.action for turn in episode(1, turns=3).turns]


def test_truncated_success_is_no_demonstration(tmp_path: Path) -> None:
    # The policy continued after it had solved the task.
    truncated = dataclasses.replace(episode(1, turns=2), truncated=True)
    write_log(tmp_path, 1, truncated, episode(1, turns=3))
    imported = logged_episodes.import_successes([tmp_path])
    assert [len(demo.turns) for demo in imported.demonstrations] == [3]
    assert imported.skipped == {"it ended at the turn or token limit": 1}


def test_success_without_turns_is_no_demonstration(tmp_path: Path) -> None:
    # Its first prompt was too long, and the task is solved at the start.
    write_log(tmp_path, 1, episode(1), dataclasses.replace(episode(1), turns=(), truncated=True))
    imported = logged_episodes.import_successes([tmp_path])
    assert [len(demo.turns) for demo in imported.demonstrations] == [len(episode(1).turns)]
    assert imported.skipped == {"it has no turns, or a response contains no valid action": 1}


def test_import_demos_writes_successes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "grpo", 1, episode(1), failed(episode(2)))
    main = load_main("import_demos")
    with flagsaver.flagsaver(workdir=str(tmp_path / "bc"), successes=[str(tmp_path / "grpo")]):
        main(["import_demos"])
    (demonstration,) = demos.read(tmp_path / "bc" / "demos")
    assert demonstration.intent == episode(1).intent
    assert capsys.readouterr().out == f"1 demonstrations in {tmp_path / 'bc' / 'demos'}\n"


def test_run_without_successes_is_refused(tmp_path: Path) -> None:
    # An evaluation has episodes of test tasks.
    write_log(tmp_path / "evaluation", 1, episode(1))
    log = tmp_path / "evaluation" / "episodes" / "update-00001.jsonl"
    log.rename(log.with_name("episodes.jsonl"))
    with pytest.raises(ConfigError, match="no episodes of training"):
        logged_episodes.import_successes([tmp_path / "evaluation"])
    write_log(tmp_path / "grpo", 1, failed(episode(1)))
    main = load_main("import_demos")
    with (
        flagsaver.flagsaver(workdir=str(tmp_path / "bc"), successes=[str(tmp_path / "grpo")]),
        pytest.raises(demos.DemosError, match="all episodes are skipped"),
    ):
        main(["import_demos"])
