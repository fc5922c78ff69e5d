"""What oracles are made of: reading an observation of either format, and moves about it.

A move is a generator that an oracle goes through with `yield from`; it returns the page as it is
afterwards. Where only the viewport is told (`webarena_lite`), it scrolls to what it needs.

    def oracle(slots, page):
        page = yield from search(page, "Search products", slots["product"])
        page = yield from click(page, slots["product"])
        yield from answer(found(page, r"SKU (\\w+)"), seen="SKU")
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from webagent_jax.types import Action, ActionKind, Decision, Expert, Observation

Moves = Generator[Decision, Observation, Observation]

_ID = re.compile(r" \[(\d+)\]")
_TAG = re.compile(r'<(?P<close>/?)(?P<tag>[a-z][\w-]*)(?P<rest>(?: [\w-]+="[^"]*")*)>')
_LITE = re.compile(r"^<html", re.M)  # lines that list tabs may stand before it
_DATA_TEXT = re.compile(r' data-text="([^"]*)"')
_NAME_LIMIT = 40  # characters of a name that a thought repeats


@dataclass(frozen=True, slots=True)
class Move(Decision):
    """A decision that can say more: `why` it is the next thing to do, for long thoughts."""

    why: str = ""


# --- reading -------------------------------------------------------------------------------------


def flat(page: Observation) -> str:
    """The words of the page in one line, the same in both formats but for what is out of view.

    Elements are told by their names, options of a list left out.
    """
    lite = _LITE.search(page.text)
    words = _lite_words(page.text[lite.start() :]) if lite else _compact_words(page)
    return " ".join(" ".join(words).split())


def is_lite(page: Observation) -> bool:
    return _LITE.search(page.text) is not None


def _compact_words(page: Observation) -> Iterator[str]:
    for line in page.text.splitlines():
        ids = [found for found in _ID.findall(line) if found in page.elements]
        if ids and line.startswith(page.elements[ids[-1]].kind):
            element = page.elements[ids[-1]]
            yield element.name
            yield element.value if element.kind == "textbox" else ""
        else:
            yield line.replace(" | ", " ")


def _lite_words(text: str) -> Iterator[str]:
    """Own words of a tag stand before what is in it; what comes after that, only in data-text."""
    later: list[str] = []
    at, tag = 0, ""
    for found in _TAG.finditer(text):
        words = text[at : found.start()].strip()
        if tag != "option":
            yield words
        at = found.end()
        if found["close"]:
            tag = ""
            rest = later.pop() if later else ""
            yield rest
            continue
        tag = found["tag"]
        own = _DATA_TEXT.search(found["rest"])
        following = text[at : text.find("<", at)].strip()
        told = own[1] if own and tag not in ("option", "select") else ""
        later.append(told.removeprefix(following).lstrip(",") if told != following else "")


def found(page: Observation, pattern: str) -> str:
    """First group of the pattern in the words of the page. Raises LookupError."""
    match = re.search(pattern, flat(page))
    if match is None:
        raise LookupError(f"nothing like {pattern!r} on:\n{page.text}")
    return match[1]


def has(page: Observation, name: str, kind: str = "") -> bool:
    return _find(page, name, kind) is not None


def names(page: Observation, kind: str) -> list[str]:
    """Of all elements of a kind that are told, in their order."""
    return [element.name for element in page.elements.values() if element.kind == kind]


def names_after(page: Observation, name: str, kind: str) -> list[str]:
    """Of all elements of a kind that stand behind the first one with that name."""
    elements = list(page.elements.values())
    start = next((i for i, element in enumerate(elements) if element.name == name), -1)
    return [element.name for element in elements[start + 1 :] if element.kind == kind]


def _find(page: Observation, name: str, kind: str) -> str | None:
    for element_id, element in page.elements.items():
        if element.name == name and kind in ("", element.kind):
            return element_id
    return None


# --- moving --------------------------------------------------------------------------------------


def click(
    page: Observation, name: str, kind: str = "", *, about: str | None = None, why: str = ""
) -> Moves:
    """`about`: how the task may have called it, where not by its name; "" if not at all."""
    page, element = yield from bring(page, name, kind)
    thought = f"click {_called(name, element)}"
    return (
        yield Move(
            thought,
            Action(ActionKind.CLICK, element),
            about=name if about is None else about,
            why=why,
        )
    )


def type_text(page: Observation, name: str, text: str, *, why: str = "") -> Moves:
    """Puts a text into a field, instead of what is in it."""
    page, element = yield from bring(page, name, "textbox")
    thought = f'type "{text}" in {_called(name, element)}'
    return (yield Move(thought, Action(ActionKind.TYPE, element, text), about=text, why=why))


def search(page: Observation, name: str, text: str, *, why: str = "") -> Moves:
    """Puts a text into a field and presses Enter."""
    page, element = yield from bring(page, name, "textbox")
    thought = f'search "{text}" in {_called(name, element)}'
    return (yield Move(thought, Action(ActionKind.SEARCH, element, text), about=text, why=why))


def choose(
    page: Observation, name: str, option: str, *, about: str | None = None, why: str = ""
) -> Moves:
    """An option of a drop-down list."""
    page, element = yield from bring(page, name, "select")
    thought = f'select "{option}" in {_called(name, element)}'
    move = Move(
        thought, Action(ActionKind.SELECT, element, option), option if about is None else about, why
    )
    return (yield move)


def tick(page: Observation, name: str, on: bool = True, *, why: str = "") -> Moves:
    """Clicks a check box or a radio button, unless it is as it should be."""
    page, element = yield from bring(page, name)
    if (page.elements[element].value == "on") == on:
        return page
    return (yield from click(page, name, page.elements[element].kind, why=why))


def go_back(why: str = "") -> Moves:
    return (yield Move("go back", Action(ActionKind.GO_BACK), why=why))


def switch(tab: int, why: str) -> Moves:
    """To one of the tabs, which are numbered from 0."""
    return (
        yield Move(f"switch to tab {tab}", Action(ActionKind.SWITCH_TAB, value=str(tab)), why=why)
    )


def answer(text: str, *, seen: str = "", why: str = "") -> Expert:
    """Ends with an answer; `seen` is what stands before it on the page."""
    thought = f'{seen}: answer "{text}"' if seen else f'answer "{text}"'
    yield Move(thought, Action(ActionKind.EXIT, value=text), why=why)


def done(why: str = "") -> Expert:
    """Ends without an answer."""
    yield Move("done", Action(ActionKind.EXIT, value=""), why=why)


def give_up(why: str) -> Expert:
    """Ends a task that cannot be done."""
    yield Move(f"{why}: answer N/A", Action(ActionKind.EXIT, value="N/A"), why=why)


def bring(
    page: Observation, name: str, kind: str = ""
) -> Generator[Decision, Observation, tuple[Observation, str]]:
    """Into view: the page, and the id of the element on it. Raises LookupError.

    The whole page is told in the `compact` format; else it is looked for below, then above.
    """
    for direction in (ActionKind.SCROLL_DOWN, ActionKind.SCROLL_UP):
        while (element := _find(page, name, kind)) is None and is_lite(page):
            seen = page.text
            page = yield _scroll(direction, name)
            if page.text == seen:
                break
        if element is not None:
            return page, element
    raise LookupError(f"no {kind or 'element'} named {name!r} on:\n{page.text}")


def read_on(
    page: Observation, pattern: str
) -> Generator[Decision, Observation, tuple[Observation, re.Match[str] | None]]:
    """Scrolls down until the pattern is in the words of the page; None if it is not on it."""
    while True:
        match = re.search(pattern, flat(page))
        if match or not is_lite(page):
            return page, match
        seen = page.text
        page = yield _scroll(ActionKind.SCROLL_DOWN, "more")
        if page.text == seen:
            return page, None


def read_all(
    page: Observation,
) -> Generator[Decision, Observation, tuple[Observation, list[Observation]]]:
    """Scrolls to the end: the page, and every view of it. One view when all of it is told."""
    views = [page]
    while is_lite(page):
        page = yield _scroll(ActionKind.SCROLL_DOWN, "the rest")
        if page.text == views[-1].text:
            break
        views.append(page)
    return page, views


def _scroll(direction: ActionKind, goal: str) -> Move:
    word = "down" if direction is ActionKind.SCROLL_DOWN else "up"
    return Move(f"scroll {word} to {goal}", Action(direction))


def _called(name: str, element: str) -> str:
    return f"{name[:_NAME_LIMIT].strip()} [{element}]"


# --- other thoughts -------------------------------------------------------------------------------


def restate(oracle: Expert, intent: str) -> Expert:
    """The same decisions, each after the whole task: what to do follows right after it."""
    page: Observation | None = None
    while True:
        try:
            decision = next(oracle) if page is None else oracle.send(page)
        except StopIteration:
            return
        page = yield Decision(f"Task: {intent} Next: {decision.thought}", decision.action)


def deliberate(oracle: Expert, intent: str, page: Observation) -> Expert:
    """The same decisions with the long thoughts of R1-CoT: the task, what is done, what is next."""
    past: list[str] = []
    decision = next(oracle, None)
    while decision is not None:
        why = decision.why if isinstance(decision, Move) else ""
        parts = [
            f"The task: {intent}",
            f"Done so far: {'; '.join(past)}." if past else "Nothing is done yet.",
            f"I am on the page {page.title!r}.",
            f"{why.rstrip('.')}." if why else "",
            f"Next: {decision.thought}",
        ]
        past.append(re.sub(r" \[\d+\]", "", decision.thought))
        thought = " ".join(part for part in parts if part)
        page = yield Decision(thought, decision.action)
        try:
            decision = oracle.send(page)
        except StopIteration:
            return
