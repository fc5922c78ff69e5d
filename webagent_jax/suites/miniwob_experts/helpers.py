"""Helpers of the experts, which read an observation or make one decision.

Thoughts are designed for a small policy, which first names the target and then finds its id. A
thought ends like the line of the target in the observation: `click Cancel [7]`, `type "karrie" in
Username [1]`, `select "Peru" in Country [2]`, `type "karrie" in textbox [3]` for an element without
a name, and `at @karrie click like [9]` if several elements have the same name. If the target
follows from a comparison or computation, the thought begins with the result:
`2:53 PM is 14:53: type "14:53" in textbox [1]`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

from webagent_jax.types import Action, ActionKind, Decision, Element, Expert, Observation

ExpertFactory = Callable[[str, Observation], Expert]
"""Function that creates the expert of a task from the intent and the first observation."""

ORDINALS = {"1st": 0, "2nd": 1, "3rd": 2}

_NAME_LIMIT = 30  # maximum number of characters of a name in a thought


# --- reading --------------------------------------------------------------------------------------


def quotations(intent: str) -> list[str]:
    """Return the phrases in double quotes."""
    return re.findall(r'"([^"]*)"', intent)


def search(pattern: str, text: str) -> re.Match[str]:
    """Return the match of `re.search`.

    Raises:
        LookupError: there is no match.
    """
    match = re.search(pattern, text)
    if match is None:
        raise LookupError(f"nothing like {pattern!r} in {text!r}")
    return match


def text_between(intent: str, prefix: str, suffix: str) -> str:
    """Return the text between two phrases of the intent.

    Raises:
        LookupError: the intent does not contain the phrases.
    """
    return search(f"{re.escape(prefix)}(.*?){re.escape(suffix)}", intent).group(1)


def plain_lines(page: Observation) -> list[str]:
    """Return the lines that describe no element."""
    return [line for line in page.text.splitlines() if _id_of(page, line) is None]


def all_of(page: Observation, kind: str) -> list[str]:
    """Return the ids of all elements of a kind, in the order of the page."""
    return [i for i, element in page.elements.items() if element.kind == kind]


def has(page: Observation, name: str, kind: str = "") -> bool:
    """Return whether the page has an element with this name and, unless empty, this kind."""
    return any(_has_name(element, name, kind) for element in page.elements.values())


def find(page: Observation, name: str, kind: str = "") -> str:
    """Return the id of the first element with this name and, unless empty, this kind.

    Raises:
        LookupError: there is no such element.
    """
    for element_id, element in page.elements.items():
        if _has_name(element, name, kind):
            return element_id
    raise LookupError(f"no {kind or 'element'} named {name!r} on:\n{page.text}")


def find_below(page: Observation, text: str, name: str) -> list[str]:
    """Return the first element below each plain line that contains a text.

    Args:
        page: observation of the page.
        text: words that the plain line contains.
        name: name of the element.

    Returns:
        Ids of the elements, in the order of the page.
    """
    # Whole words only, so that the name of a user is not found inside a longer one.
    words = re.compile(rf"(?<!\S){re.escape(text)}(?!\S)")
    ids: list[str] = []
    is_searching = False
    for line in page.text.splitlines():
        element_id = _id_of(page, line)
        if element_id is None:
            is_searching = is_searching or words.search(line) is not None
        elif is_searching and page.elements[element_id].name == name:
            ids.append(element_id)
            is_searching = False
    return ids


def _id_of(page: Observation, line: str) -> str | None:
    """Return the id of the element that the line describes."""
    for element_id in re.findall(r" \[(\d+)\]", line):
        element = page.elements.get(element_id)
        # Text may contain a number in brackets too; a line of an element starts with its kind.
        if element is not None and line.startswith(element.kind):
            return element_id
    return None


def _has_name(element: Element, name: str, kind: str) -> bool:
    return element.name == name and kind in ("", element.kind)


# --- deciding -------------------------------------------------------------------------------------


def click(page: Observation, name: str, kind: str = "", *, reason: str = "") -> Decision:
    """Click the first element with this name and, unless empty, this kind; see `click_on`."""
    return click_on(page, find(page, name, kind), reason=reason)


def click_on(
    page: Observation, element_id: str, *, text: str = "", location: str = "", reason: str = ""
) -> Decision:
    """Click an element.

    Args:
        page: observation of the page.
        element_id: id of the element.
        text: name of the element in the thought; empty for the name in the observation.
        location: text that distinguishes the element from others with the same name; empty if the
            name is unique.
        reason: result of the comparison or computation that leads to the element; empty for none.
    """
    text = text or _name(page, element_id)
    thought = (
        f"at {location} click {text} [{element_id}]" if location else f"click {text} [{element_id}]"
    )
    return _decide(thought, Action(ActionKind.CLICK, element_id), location or text, reason)


def hover(page: Observation, name: str, *, reason: str = "") -> Decision:
    """Move the mouse over the first element with this name; `reason` is that of `click_on`."""
    element_id = find(page, name)
    thought = f"hover {_name_with_id(page, element_id)}"
    return _decide(thought, Action(ActionKind.HOVER, element_id), name, reason)


def type_into(page: Observation, text: str, name: str, *, reason: str = "") -> Decision:
    """Type a text into the first textbox with this name; see `type_in`."""
    return type_in(page, text, find(page, name, "textbox"), reason=reason)


def type_in(page: Observation, text: str, element_id: str, *, reason: str = "") -> Decision:
    """Type a text into the textbox with this id; `reason` is that of `click_on`, for the text."""
    thought = f'type "{text}" in {_name_with_id(page, element_id)}'
    return _decide(thought, Action(ActionKind.TYPE, element_id, text), text, reason)


def select(page: Observation, option: str) -> Decision:
    """Select an option of the only drop-down list of the page."""
    (element_id,) = all_of(page, "select")
    thought = f'select "{option}" in {_name_with_id(page, element_id)}'
    return Decision(thought, Action(ActionKind.SELECT, element_id, option), intent_phrase=option)


def wait(text: str) -> Decision:
    """Wait once for the page to show `text`."""
    return Decision(f'wait for "{text}"', Action(ActionKind.WAIT))


def _decide(thought: str, action: Action, intent_phrase: str, reason: str) -> Decision:
    # A reason already names what the task says about the target.
    if reason:
        return Decision(f"{reason}: {thought}", action)
    return Decision(thought, action, intent_phrase=intent_phrase)


def _name_with_id(page: Observation, element_id: str) -> str:
    return f"{_name(page, element_id)} [{element_id}]"


def _name(page: Observation, element_id: str) -> str:
    element = page.elements[element_id]
    return textwrap.shorten(element.name, _NAME_LIMIT, placeholder="") or element.kind
