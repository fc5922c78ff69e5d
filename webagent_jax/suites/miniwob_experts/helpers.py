"""What all experts are made of: reading an observation, and one decision about it.

The thoughts are written for a small policy that first says what it wants and then finds its id.
They end as the target's own line does: `click Cancel [7]`, `type "karrie" in Username [1]`,
`select "Peru" in Country [2]`, `type "karrie" in textbox [3]` where the element has no name, and
`at @karrie click like [9]` where several have the same.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

from webagent_jax.types import Action, ActionKind, Decision, Element, Expert, Observation

Solver = Callable[[str, Observation], Expert]
"""An expert for one page, made from the intent and the first observation."""

ORDINALS = {"1st": 0, "2nd": 1, "3rd": 2}

_NAME_LIMIT = 30  # characters of a name that a thought repeats


# --- reading --------------------------------------------------------------------------------------


def quoted(intent: str) -> list[str]:
    """The phrases in double quotes."""
    return re.findall(r'"([^"]*)"', intent)


def search(pattern: str, text: str) -> re.Match[str]:
    """Raises LookupError where `re.search` finds nothing."""
    match = re.search(pattern, text)
    if match is None:
        raise LookupError(f"nothing like {pattern!r} in {text!r}")
    return match


def between(intent: str, before: str, after: str) -> str:
    """What stands between two phrases of the intent. Raises LookupError."""
    return search(f"{re.escape(before)}(.*?){re.escape(after)}", intent).group(1)


def plain_lines(page: Observation) -> list[str]:
    """The lines that are no elements."""
    return [line for line in page.text.splitlines() if _id_of(page, line) is None]


def all_of(page: Observation, kind: str) -> list[str]:
    """Ids of all elements of a kind, as they follow one another."""
    return [i for i, element in page.elements.items() if element.kind == kind]


def has(page: Observation, name: str, kind: str = "") -> bool:
    return any(_is(element, name, kind) for element in page.elements.values())


def find(page: Observation, name: str, kind: str = "") -> str:
    """Id of the first element with that name. Raises LookupError."""
    for element_id, element in page.elements.items():
        if _is(element, name, kind):
            return element_id
    raise LookupError(f"no {kind or 'element'} named {name!r} on:\n{page.text}")


def find_below(page: Observation, text: str, name: str) -> list[str]:
    """For each plain line with these words: id of the first element below that has the name."""
    words = re.compile(rf"(?<!\S){re.escape(text)}(?!\S)")
    found: list[str] = []
    searching = False
    for line in page.text.splitlines():
        element_id = _id_of(page, line)
        if element_id is None:
            searching = searching or words.search(line) is not None
        elif searching and page.elements[element_id].name == name:
            found.append(element_id)
            searching = False
    return found


def _id_of(page: Observation, line: str) -> str | None:
    """Id of the element that the line is about."""
    for element_id in re.findall(r" \[(\d+)\]", line):
        element = page.elements.get(element_id)
        if element is not None and line.startswith(element.kind):
            return element_id
    return None


def _is(element: Element, name: str, kind: str) -> bool:
    return element.name == name and kind in ("", element.kind)


# --- deciding -------------------------------------------------------------------------------------


def click(page: Observation, name: str, kind: str = "") -> Decision:
    return click_on(page, find(page, name, kind))


def click_on(page: Observation, element_id: str, *, text: str = "", at: str = "") -> Decision:
    """`text` is the part of the element's name to think of, `at` what tells it from its likes."""
    text = text or _name(page, element_id)
    thought = f"at {at} click {text} [{element_id}]" if at else f"click {text} [{element_id}]"
    return Decision(thought, Action(ActionKind.CLICK, element_id), about=at or text)


def hover(page: Observation, name: str) -> Decision:
    element_id = find(page, name)
    thought = f"hover {_called(page, element_id)}"
    return Decision(thought, Action(ActionKind.HOVER, element_id), about=name)


def type_into(page: Observation, text: str, name: str) -> Decision:
    return type_in(page, text, find(page, name, "textbox"))


def type_in(page: Observation, text: str, element_id: str) -> Decision:
    thought = f'type "{text}" in {_called(page, element_id)}'
    return Decision(thought, Action(ActionKind.TYPE, element_id, text), about=text)


def select(page: Observation, option: str) -> Decision:
    """Chooses from the only drop-down list of the page."""
    (element_id,) = all_of(page, "select")
    thought = f'select "{option}" in {_called(page, element_id)}'
    return Decision(thought, Action(ActionKind.SELECT, element_id, option), about=option)


def wait(what: str) -> Decision:
    return Decision(f'wait for "{what}"', Action(ActionKind.WAIT))


def _called(page: Observation, element_id: str) -> str:
    return f"{_name(page, element_id)} [{element_id}]"


def _name(page: Observation, element_id: str) -> str:
    element = page.elements[element_id]
    return textwrap.shorten(element.name, _NAME_LIMIT, placeholder="") or element.kind
