"""Tests of chat templates and dynamic context compression."""

from __future__ import annotations

import numpy as np
import pytest

from webagent_jax.agent import (
    TEMPLATES,
    PromptFormat,
    TaskQuoter,
    actions,
    build_messages,
    format_response,
)
from webagent_jax.types import Action, ActionKind, Completion, Observation, Turn


def make_turn(response: str, page: str, error: str | None = None) -> Turn:
    ids = np.arange(3, dtype=np.int32)
    completion = Completion(ids, np.zeros(3, np.float32), np.zeros(3, np.int32), "stop")
    action = Action(ActionKind.CLICK, "1")
    return Turn(ids, completion, response, action, Observation(page, "http://a/", error=error))


HISTORY = [make_turn("r0", "first page"), make_turn("r1", "second page", error="it is covered")]
OBSERVATION = Observation("third page", "http://a/", error="no element 9")


def test_webarena_template_matches_paper_format():
    messages = build_messages(PromptFormat(TEMPLATES["webarena"]), "Find it", HISTORY, OBSERVATION)
    assert [(m.role, m.text) for m in messages[1:]] == [
        ("user", "Task Instruction: Find it\n\nRound 0\n\n** Simplified html **"),
        ("assistant", "r0"),
        ("user", "Round 1\n\nThe last action failed: it is covered\n\n** Simplified html **"),
        ("assistant", "r1"),
        ("user", "Round 2\n\nThe last action failed: no element 9\n\nthird page"),
    ]
    assert messages[0].role == "system"
    assert "<think>" in messages[0].text


def test_compact_template_renders_history():
    messages = build_messages(
        PromptFormat(TEMPLATES["compact"], thinking=False), "Find it", HISTORY, OBSERVATION
    )
    assert [(m.role, m.text) for m in messages] == [
        ("system", "Act."),
        ("user", "Task: Find it\nPage 0\n..."),
        ("assistant", "r0"),
        ("user", "Page 1\nError: it is covered\n..."),
        ("assistant", "r1"),
        ("user", "Page 2\nError: no element 9\nthird page"),
    ]


@pytest.mark.parametrize(
    ("full_pages", "num_placeholders"), [(1, 2), (2, 1), (3, 0), (9, 0), (0, 0)]
)
def test_latest_pages_are_in_full(full_pages, num_placeholders):
    prompt = PromptFormat(TEMPLATES["compact"], full_pages=full_pages)
    messages = build_messages(prompt, "Find it", HISTORY, OBSERVATION)
    bodies = [m.text.splitlines()[-1] for m in messages if m.role == "user"]
    pages = ["first page", "second page", "third page"]
    assert bodies == ["..."] * num_placeholders + pages[num_placeholders:]


def test_first_turn_contains_full_page():
    messages = build_messages(
        PromptFormat(TEMPLATES["compact"]), "Find it", [], Observation("page", "http://a/")
    )
    assert [(m.role, m.text) for m in messages] == [
        ("system", "Think, then act."),
        ("user", "Task: Find it\nPage 0\npage"),
    ]


def test_past_responses_have_token_ids():
    messages = build_messages(PromptFormat(TEMPLATES["webarena"]), "Find it", HISTORY, OBSERVATION)
    assert [m.token_ids is not None for m in messages] == [m.role == "assistant" for m in messages]


def test_format_response_writes_both_formats():
    action = Action(ActionKind.TYPE, "2", "tea")
    call = 'do(action="Type", argument="tea", element="2")'
    assert format_response("why", action, True) == f"<think> why </think> <answer> {call} </answer>"
    assert format_response("why", action, False) == f"# Element: why\n{call}"


def test_plain_response_has_thought_in_one_line():
    action = Action(ActionKind.CLICK, "3")
    call = actions.format_action(action)
    response = format_response(f"The button is  3.\nSo {call} is right.", action, False)
    assert response == f"# Element: The button is  3. So {call} is right.\n{call}"
    assert actions.parse(response) == action


def test_format_response_inverts_extract_thought_of_notes():
    for response in ('# Note: it costs 5\nexit(message="5")', "# Element: the box\nexit()"):
        action, thought = actions.parse(response), actions.extract_thought(response)
        assert format_response(thought, action, False) == response.replace("()", '(message="")')


def test_task_quoter_quotes_task_between_actions():
    quoter = TaskQuoter('Put "Al Bo" in name, tick Alma and press Ok.')
    assert quoter.thought("Al Bo", 'type "Al Bo" in name [2]') == (
        'Task: Put "Al Bo: type "Al Bo" in name [2]'
    )
    assert quoter.thought("alma", "click ALMA [4]") == (
        'type "Al Bo" in name, tick Alma: click ALMA [4]'
    )
    assert quoter.thought("Ok", "click Ok [5]") == "click ALMA and press Ok: click Ok [5]"


def test_task_quoter_omits_quote_without_match():
    quoter = TaskQuoter("Tick Almast, then B.")
    assert quoter.thought("Alma", "click Alma [1]") == "click Alma [1]"  # only whole words match
    assert quoter.thought("", "wait") == "wait"
    assert quoter.thought("B", "click B [2]") == "Task: Tick Almast, then B: click B [2]"
    # "Almast" precedes the last match.
    assert quoter.thought("Almast", "click Almast [3]") == "click Almast [3]"


def test_task_quoter_accepts_phrase_other_than_label():
    quoter = TaskQuoter("Open the item (1), then B")
    assert quoter.thought("item", "click Mail [1]") == "Task: Open the item: click Mail [1]"
    assert quoter.thought("B", "click B [2]") == "item (1), then B: click B [2]"
