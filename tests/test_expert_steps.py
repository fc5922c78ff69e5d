"""Tests of the thoughts of experts."""

from __future__ import annotations

import pytest

from webagent_jax.expert_steps import with_long_thoughts
from webagent_jax.types import DIALOG_PREFIX, Action, ActionKind, Decision, Expert, Observation


def click_twice() -> Expert:
    yield Decision("click A [1]", Action(ActionKind.CLICK, "1"))
    yield Decision("click B [2]", Action(ActionKind.CLICK, "2"))


@pytest.mark.parametrize(
    ("error", "history"),
    [
        (None, "Done so far: click A."),
        ("there is no element 1", "Nothing is done yet."),
        (f"{DIALOG_PREFIX}saved", "Done so far: click A."),
        (f"there is no element 1; {DIALOG_PREFIX}saved", "Nothing is done yet."),
    ],
)
def test_long_thoughts_omit_refused_steps(error: str | None, history: str) -> None:
    page = Observation("button A [1]", "http://a/")
    expert = with_long_thoughts(click_twice(), "Click A and B.", page)
    next(expert)
    decision = expert.send(Observation("button B [2]", "http://a/", error=error))
    assert history in decision.thought
