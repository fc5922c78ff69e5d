"""Tests of the import of WebRL conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from absl.testing import flagsaver

from tests.launchers import load_main
from webagent_jax import demos
from webagent_jax.config import ConfigError
from webagent_jax.demos import webrl
from webagent_jax.tracking.workdir_lock import hold_lock
from webagent_jax.types import Action, ActionKind

PLACEHOLDER = "** Simplified html **"
RESPONSES = (
    '# Element: the search button\ndo(action="Click", element="7")',
    '# Note: it costs 5\nexit(message="5")',
)
PAGES = ("<html> one </html>", "<html> two\n\nlines </html>")


def make_conversation(
    last_turn: int, intent: str = "What does\nit cost?", responses: Any = RESPONSES
) -> Any:
    """Return the turns up to `last_turn`; only `last_turn` contains its page."""
    messages = []
    for number in range(last_turn + 1):
        page = PAGES[number] if number == last_turn else PLACEHOLDER
        task = f"Task Instruction: {intent}\n\n" if number == 0 else ""
        prompt = f"{task}Round {number}\n\n{page}"
        messages += [
            {"from": "human", "value": prompt},
            {"from": "gpt", "value": responses[number]},
        ]
    return {"conversations": messages}


def write_rows(tmp_path: Path, rows: Any) -> Path:
    path = tmp_path / "sft.json"
    path.write_text(json.dumps(rows))
    return path


def test_load_replaces_lone_surrogates(tmp_path):
    rows = [make_conversation(0, "Buy \ud83d"), make_conversation(1, "Buy \ud83d")]
    (demonstration,) = webrl.load(write_rows(tmp_path, rows)).demonstrations
    assert demonstration.intent == "Buy \ufffd"


def test_load_merges_conversations_of_one_episode(tmp_path):
    other = make_conversation(1, "Another", RESPONSES)
    other["conversations"][0]["value"] = f"Task Instruction: Another\n\nRound 0\n\n{PAGES[0]}"
    rows = [make_conversation(0), make_conversation(1), other]
    result = webrl.load(write_rows(tmp_path, rows))
    assert not result.skipped
    first, second = result.demonstrations
    assert (first.intent, second.intent) == ("What does\nit cost?", "Another")
    assert [turn.observation.text for turn in first.turns] == list(PAGES)
    assert first.turns == second.turns
    click, stop = (turn.decision for turn in first.turns)
    assert click.action == Action(ActionKind.CLICK, "7")
    assert click.thought == "the search button"
    assert stop.action == Action(ActionKind.EXIT, value="5")


def test_load_skips_and_counts_unusable_conversations(tmp_path):
    rows = [
        make_conversation(1),  # its first page is missing
        make_conversation(0, "a", ["do something"]),
        make_conversation(0, "b"),
        make_conversation(0, "c", ['exit(message="")']),
    ]
    result = webrl.load(write_rows(tmp_path, rows))
    assert [demonstration.intent for demonstration in result.demonstrations] == ["c"]
    assert result.skipped == {
        "a page is missing from all conversations": 1,
        "a response contains no valid action": 1,
        "it does not end with exit()": 1,
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "list of conversations"),
        ([{"conversations": []}], "conversation 0: messages must alternate"),
        ([{"conversations": None}], "conversation 0: messages must alternate"),
        ([{"conversations": 3}], "conversation 0: messages must alternate"),
        ([3], "conversation 0: messages must alternate"),
        ([{"conversations": [{"from": "gpt", "value": ""}] * 2}], "human first"),
        ([{"conversations": make_conversation(0)["conversations"][:1]}], "alternate"),
        (
            [{"conversations": [{"from": r, "value": "Hi"} for r in ("human", "gpt")]}],
            "Task Instruction",
        ),
    ],
)
def test_load_rejects_other_formats(tmp_path, rows, message):
    with pytest.raises(demos.DemosError, match=message):
        webrl.load(write_rows(tmp_path, rows))


def test_import_demos_writes_dataset(tmp_path, capsys):
    path = write_rows(
        tmp_path, [make_conversation(0), make_conversation(1), make_conversation(0, "b")]
    )
    main = load_main("import_demos")  # defines its flags
    with flagsaver.flagsaver(workdir=str(tmp_path / "run"), webrl=str(path)):
        main(["import_demos"])
    (demonstration,) = demos.read(tmp_path / "run" / "demos")
    assert [turn.observation.text for turn in demonstration.turns] == list(PAGES)
    assert "1 skipped: it does not end" in capsys.readouterr().out


def test_import_demos_joins_workdirs(tmp_path, capsys):
    path = write_rows(tmp_path, [make_conversation(0), make_conversation(1)])
    main = load_main("import_demos")
    for name in ("a", "b"):
        with flagsaver.flagsaver(workdir=str(tmp_path / name), webrl=str(path)):
            main(["import_demos"])
    with flagsaver.flagsaver(
        workdir=str(tmp_path / "run"), merge=[str(tmp_path / "a"), str(tmp_path / "b")]
    ):
        main(["import_demos"])
    assert len(demos.read(tmp_path / "run" / "demos")) == 1
    assert "1 skipped: the task has an earlier" in capsys.readouterr().out


def test_import_demos_rejects_workdir_in_use(tmp_path):
    path = write_rows(tmp_path, [make_conversation(0), make_conversation(1)])
    main = load_main("import_demos")
    with (
        hold_lock(tmp_path / "run"),
        flagsaver.flagsaver(workdir=str(tmp_path / "run"), webrl=str(path)),
        pytest.raises(ConfigError, match="wait until it ends"),
    ):
        main(["import_demos"])
    assert not demos.exists(tmp_path / "run" / "demos")


def test_import_demos_needs_one_source(tmp_path):
    main = load_main("import_demos")
    with (
        flagsaver.flagsaver(workdir=str(tmp_path / "run")),
        pytest.raises(ConfigError, match="--merge"),
    ):
        main(["import_demos"])
