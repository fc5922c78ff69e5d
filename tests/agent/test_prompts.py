"""Dynamic context compression, word for word."""

from __future__ import annotations

import numpy as np

from webagent_jax.agent import TEMPLATES, TaskQuoter, build_messages, format_response
from webagent_jax.types import Action, ActionKind, Completion, Observation, Turn


def turn(reply: str, page: str, error: str | None = None) -> Turn:
    ids = np.arange(3, dtype=np.int32)
    completion = Completion(ids, np.zeros(3, np.float32), np.zeros(3, np.int32), "stop")
    action = Action(ActionKind.CLICK, "1")
    return Turn(ids, completion, reply, action, Observation(page, "http://a/", error=error))


PAST = [turn("r0", "first page"), turn("r1", "second page", error="it is covered")]
NOW = Observation("third page", "http://a/", error="no element 9")


def test_paper_format():
    told = build_messages(TEMPLATES["webarena"], True, "Find it", PAST, NOW)
    assert [(m.role, m.text) for m in told[1:]] == [
        ("user", "Task Instruction: Find it\n\nRound 0\n\n** Simplified html **"),
        ("assistant", "r0"),
        ("user", "Round 1\n\nThe last action failed: it is covered\n\n** Simplified html **"),
        ("assistant", "r1"),
        ("user", "Round 2\n\nThe last action failed: no element 9\n\nthird page"),
    ]
    assert told[0].role == "system"
    assert "<think>" in told[0].text


def test_compact_format():
    told = build_messages(TEMPLATES["compact"], False, "Find it", PAST, NOW)
    assert [(m.role, m.text) for m in told] == [
        ("system", "Act."),
        ("user", "Task: Find it\nPage 0\n..."),
        ("assistant", "r0"),
        ("user", "Page 1\nError: it is covered\n..."),
        ("assistant", "r1"),
        ("user", "Page 2\nError: no element 9\nthird page"),
    ]


def test_first_turn_shows_the_page_in_full():
    told = build_messages(
        TEMPLATES["compact"], True, "Find it", [], Observation("page", "http://a/")
    )
    assert [(m.role, m.text) for m in told] == [
        ("system", "Think, then act."),
        ("user", "Task: Find it\nPage 0\npage"),
    ]


def test_past_replies_keep_their_ids():
    told = build_messages(TEMPLATES["webarena"], True, "Find it", PAST, NOW)
    assert [m.token_ids is not None for m in told] == [m.role == "assistant" for m in told]


def test_replies():
    action = Action(ActionKind.TYPE, "2", "tea")
    call = 'do(action="Type", argument="tea", element="2")'
    assert format_response("why", action, True) == f"<think> why </think> <answer> {call} </answer>"
    assert format_response("why", action, False) == f"# Element: why\n{call}"


def test_thoughts_read_the_task_from_what_was_done_last_to_what_comes_next():
    reader = TaskQuoter('Put "Al Bo" in name, tick Alma and press Ok.')
    assert reader.thought("Al Bo", 'type "Al Bo" in name [2]') == (
        'Task: Put "Al Bo: type "Al Bo" in name [2]'
    )
    assert reader.thought("alma", "click ALMA [4]") == (
        'type "Al Bo" in name, tick Alma: click ALMA [4]'
    )
    assert reader.thought("Ok", "click Ok [5]") == "click ALMA and press Ok: click Ok [5]"


def test_a_decision_that_the_task_does_not_speak_of_stands_alone():
    reader = TaskQuoter("Tick Almast, then B.")
    assert reader.thought("Alma", "click Alma [1]") == "click Alma [1]"  # a word of its own only
    assert reader.thought("", "wait") == "wait"
    assert reader.thought("B", "click B [2]") == "Task: Tick Almast, then B: click B [2]"
    assert reader.thought("Almast", "click Almast [3]") == "click Almast [3]"  # that is behind us


def test_what_the_task_calls_otherwise_is_said_in_its_words():
    reader = TaskQuoter("Open the item (1), then B")
    assert reader.thought("item", "click Mail [1]") == "Task: Open the item: click Mail [1]"
    assert reader.thought("B", "click B [2]") == "item (1), then B: click B [2]"
