"""Conversations in WebRL's form, put together again as episodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from absl.testing import flagsaver

from tests.launchers import load_main
from webagent_jax import demos
from webagent_jax.demos import webrl
from webagent_jax.types import Action, ActionKind

PLACEHOLDER = "** Simplified html **"
REPLIES = (
    '# Element: the search button\ndo(action="Click", element="7")',
    '# Note: it costs 5\nexit(message="5")',
)
PAGES = ("<html> one </html>", "<html> two\n\nlines </html>")


def conversation(shown: int, intent: str = "What does\nit cost?", replies: Any = REPLIES) -> Any:
    """Of the turns up to the shown one, whose page alone is there."""
    messages = []
    for number in range(shown + 1):
        page = PAGES[number] if number == shown else PLACEHOLDER
        task = f"Task Instruction: {intent}\n\n" if number == 0 else ""
        asked = f"{task}Round {number}\n\n{page}"
        messages += [
            {"from": "human", "value": asked},
            {"from": "gpt", "value": replies[number]},
        ]
    return {"conversations": messages}


def written(tmp_path: Path, rows: Any) -> Path:
    path = tmp_path / "sft.json"
    path.write_text(json.dumps(rows))
    return path


def test_half_a_character_is_replaced(tmp_path):
    rows = [conversation(0, "Buy \ud83d"), conversation(1, "Buy \ud83d")]
    (demonstration,) = webrl.load(written(tmp_path, rows)).demonstrations
    assert demonstration.intent == "Buy \ufffd"


def test_turns_in_conversations_of_their_own_are_one_episode(tmp_path):
    other = conversation(1, "Another", REPLIES)
    other["conversations"][0]["value"] = f"Task Instruction: Another\n\nRound 0\n\n{PAGES[0]}"
    rows = [conversation(0), conversation(1), other]
    imported = webrl.load(written(tmp_path, rows))
    assert not imported.skipped
    first, second = imported.demonstrations
    assert (first.intent, second.intent) == ("What does\nit cost?", "Another")
    assert [turn.observation.text for turn in first.turns] == list(PAGES)
    assert first.turns == second.turns
    clicked, ended = (turn.decision for turn in first.turns)
    assert clicked.action == Action(ActionKind.CLICK, "7")
    assert clicked.thought == "the search button"
    assert ended.action == Action(ActionKind.EXIT, value="5")


def test_what_cannot_be_learned_from_is_left_out_and_counted(tmp_path):
    rows = [
        conversation(1),  # its first page is nowhere
        conversation(0, "a", ["do something"]),
        conversation(0, "b"),
        conversation(0, "c", ['exit(message="")']),
    ]
    imported = webrl.load(written(tmp_path, rows))
    assert [one.intent for one in imported.demonstrations] == ["c"]
    assert imported.skipped == {
        "a page is missing from all conversations": 1,
        "a response contains no action": 1,
        "it does not end with exit()": 1,
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "list of conversations"),
        ([{"conversations": []}], "conversation 0: messages must alternate"),
        ([{"conversations": [{"from": "gpt", "value": ""}] * 2}], "human first"),
        ([{"conversations": conversation(0)["conversations"][:1]}], "alternate"),
        (
            [{"conversations": [{"from": r, "value": "Hi"} for r in ("human", "gpt")]}],
            "Task Instruction",
        ),
    ],
)
def test_another_form_is_refused_by_name(tmp_path, rows, message):
    with pytest.raises(demos.DemosError, match=message):
        webrl.load(written(tmp_path, rows))


def test_the_launcher_writes_a_dataset(tmp_path, capsys):
    path = written(tmp_path, [conversation(0), conversation(1), conversation(0, "b")])
    main = load_main("import_demos")  # defines its flags
    with flagsaver.flagsaver(workdir=str(tmp_path / "run"), webrl=str(path)):
        main(["import_demos"])
    (one,) = demos.read(tmp_path / "run" / "demos")
    assert [turn.observation.text for turn in one.turns] == list(PAGES)
    assert "1 skipped: it does not end" in capsys.readouterr().out
