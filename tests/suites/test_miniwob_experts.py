"""Tests of decisions of MiniWoB++ experts, on observations without a browser."""

from __future__ import annotations

import pytest

from webagent_jax.suites.miniwob_experts import EXPERTS
from webagent_jax.types import Element, Observation

INBOX = Observation(
    "",
    "",
    elements={
        "1": Element("item", "open-search"),
        "2": Element("item", "Star Lorem ipsum."),
        "3": Element("item", "Ada Dolor."),
        "4": Element("item", "trash"),
        "5": Element("item", "Bea Sit amet."),
    },
)
MAIL = Observation(
    "",
    "",
    elements={
        "6": Element("item", "trash"),
        "7": Element("item", "star"),
        "8": Element("item", "Reply"),
        "9": Element("item", "Forward"),
    },
)
FORM = Observation("", "", elements={"10": Element("textbox", "")})


@pytest.mark.parametrize(
    ("intent", "names"),
    [
        ("Delete Ada's email from today.", "Ada trash"),
        ("Delete the emails from Ada that are not marked as important.", "Ada trash"),
        ("Can you please list emails from Star and then delete them?", "Star trash"),
        ("Get rid of the message from Star.", "Star trash"),
        ("Mark Ada's email as imporant.", "Ada star"),
        ("Find the email by Ada and mark it as please.", "Ada star"),
        ("mark the email from Ada with a star", "Ada star"),
        ("mark all emails in primary with Ada", "Ada star"),
        ("Important mark on emails by Ada please.", "Ada star"),
        ("find Adas email and mark it as important", "Ada star"),
        ('Reply to Ada with the text "Sit."', "Ada Reply Sit."),
        ('AnswerAda\'s email with "Sit."', "Ada Reply Sit."),
        ('please send a reply email to Ada with ""Sit." "', "Ada Reply Sit."),
        ("Forward the email by Ada to Bea.", "Ada Forward Bea"),
        ("please forward Adas last email to Bea", "Ada Forward Bea"),
    ],
)
def test_email_expert_understands_wording(intent: str, names: str) -> None:
    expert = EXPERTS["email-inbox-nl-turk"](intent, INBOX)
    sender = INBOX.elements[next(expert).action.element_id or ""].name.split()[0]
    button = MAIL.elements[expert.send(MAIL).action.element_id or ""].name
    text = expert.send(FORM).action.value if button in ("Reply", "Forward") else None
    assert " ".join(filter(None, (sender, button, text))) == names


@pytest.mark.parametrize(
    ("board", "thought"),
    [
        ("... ... ...", "no two in a row, 5 is in 4 rows without mark-o, 0 with mark-x"),
        ("o.. .x. ...", "no two in a row, 3 is in 2 rows without mark-o, 1 with mark-x"),
        ("ox. ... ...", "no two in a row, 5 is in 3 rows without mark-o, 1 with mark-x"),
        # Cell 9 is in no row that can still be won.
        ("o.x xxo o..", "no two in a row, 2 is in 1 row without mark-o, 1 with mark-x"),
        ("oo. .x. x..", "mark-x at 5 and 7, 3 is free"),
        ("oo. .x. ...", "mark-o at 1 and 2, 3 is free"),
    ],
)
def test_tic_tac_toe_expert_prefers_rows_that_can_be_won(board: str, thought: str) -> None:
    marks = {"x": "mark-x", "o": "mark-o", ".": ""}
    cells = (Element("item", marks[mark]) for mark in board.replace(" ", ""))
    page = Observation("", "", elements=dict(zip("abcdefghi", cells, strict=True)))
    decision = next(EXPERTS["tic-tac-toe"]("Playing as 'X', win a game of tic-tac-toe.", page))
    assert decision.thought.partition(":")[0] == thought
