"""Steps of scripted solutions, which read observations of either format as an agent does.

A step is a function from the current page to moves (webagent_jax.expert_steps). Steps find
elements by their text, because names differ between the formats: `compact` has one element per row
or button, `webarena_lite` one per text in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

from webagent_jax import expert_steps
from webagent_jax.expert_steps import Moves, finish, is_lite
from webagent_jax.types import Action, ActionKind, Expert, Observation

Step = Callable[[Observation], Moves]


def solve(steps: Iterable[Step], page: Observation) -> Expert:
    """Run the steps one after the other, then end the episode."""
    for step in steps:
        page = yield from step(page)
    yield from finish()


def click(text: str, *, after_text: str = "", before_text: str = "", kind: str = "") -> Step:
    """Return a step that clicks the element with a text.

    Args:
        text: text of the element, or of a line inside it; "" for any.
        after_text: text that precedes the element; elements before it do not count.
        before_text: text that follows the element; the last element with the text counts.
        kind: kind of the element; "" for any.
    """
    return partial(
        _act, ActionKind.CLICK, text=text, after_text=after_text, before_text=before_text, kind=kind
    )


def choose(option: str, *, after_text: str) -> tuple[Step, Step]:
    """Return the steps that open the drop-down list after a text and click an option."""
    return click("", after_text=after_text), click(option, after_text=after_text)


def type_text(value: str, text: str = "", *, after_text: str = "") -> Step:
    """Return a step that replaces the content of the field with a name, or the first one."""
    return partial(
        _act, ActionKind.TYPE, value=value, text=text, after_text=after_text, kind="textbox"
    )


def select(option: str, text: str) -> Step:
    """Return a step that selects an option of a `select` element with a name."""
    return partial(_act, ActionKind.SELECT, value=option, text=text, kind="select")


def _act(
    action: ActionKind,
    page: Observation,
    *,
    text: str,
    after_text: str = "",
    before_text: str = "",
    kind: str = "",
    value: str | None = None,
) -> Moves:
    page, element = yield from expert_steps.scroll_to_match(
        page, lambda view: find(view, text, after_text, before_text, kind), text or after_text
    )
    if element is None:
        raise LookupError(f"no {kind or 'element'} {text!r} after {after_text!r} on:\n{page.text}")
    return (
        yield expert_steps.decide(page, Action(action, element, value), name=text or after_text)
    )


def find(
    page: Observation, text: str, after_text: str = "", before_text: str = "", kind: str = ""
) -> str | None:
    """Return the id of the element with a text; None if the page has none.

    Prefers an element whose name is the text, then one whose name contains it, then the last
    element that begins before the text. The other arguments are those of `click`.
    """
    start = _position(page.text, after_text, 0) if after_text else 0
    end = _position(page.text, before_text, 0) if before_text else len(page.text)
    if start < 0 or end < 0:
        return None
    marker = ' id="{}"' if is_lite(page) else " [{}]"
    # Positions of the elements in the page, in its order.
    positions = {
        element_id: position
        for element_id, element in page.elements.items()
        if start <= (position := page.text.find(marker.format(element_id))) < end
        and kind in ("", element.kind)
    }
    names = {element_id: page.elements[element_id].name for element_id in positions}
    exact = [i for i, name in names.items() if text in ("", name)]
    containing = [i for i, name in names.items() if text and _position(name, text, 0) >= 0]
    text_position = _position(page.text, text, start) if text else -1
    enclosing = [i for i, position in positions.items() if position < text_position][-1:]
    candidates = exact or containing or enclosing
    if not candidates:
        return None
    return candidates[-1] if before_text else candidates[0]


def _position(text: str, words: str, start: int) -> int:
    """Return the position of whole words; -1 without a match."""
    match = re.compile(rf"(?<!\w){re.escape(words)}(?!\w)").search(text, start)
    return match.start() if match else -1
