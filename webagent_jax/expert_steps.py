r"""Building blocks of experts: reading an observation of either format, and moves on the page.

A move is a generator that an expert runs with `yield from`; it returns the page after the move.
The format `webarena_lite` contains the viewport only: there a move scrolls to the element it needs.

    def expert(slots, page):
        page = yield from search(page, "Search products", slots["product"])
        page = yield from click(page, slots["product"])
        yield from answer(extract_text(page, r"SKU (\w+)"), evidence="SKU")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np

from webagent_jax.config import ExpertThoughts
from webagent_jax.types import DIALOG_PREFIX, Action, ActionKind, Decision, Expert, Observation

Moves = Generator[Decision, Observation, Observation]

_ID = re.compile(r" \[(\d+)\]")
_TAG = re.compile(r'<(?P<close>/?)(?P<tag>[a-z][\w-]*)(?P<rest>(?: [\w-]+="[^"]*")*)>')
# A list of tabs may precede the first tag.
_LITE = re.compile(r"^<html", re.M)
_DATA_TEXT = re.compile(r' data-text="([^"]*)"')
_MAX_NAME_CHARS = 40  # characters of a name that a thought repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(Decision):
    """Decision with a reason, which long thoughts contain."""

    reason: str = ""  # reason for the decision, as a sentence; "" for none


# --- reading -------------------------------------------------------------------------------------


def page_text(page: Observation) -> str:
    """Return the words of the page in one line, equal in both formats for visible text.

    Elements appear by their names; options of drop-down lists are left out.
    """
    lite = _LITE.search(page.text)
    words = _lite_words(page.text[lite.start() :]) if lite else _compact_words(page)
    return " ".join(" ".join(words).split())


def is_lite(page: Observation) -> bool:
    """Return whether the page is in the format `webarena_lite`."""
    return _LITE.search(page.text) is not None


def _compact_words(page: Observation) -> Iterator[str]:
    for line in page.text.splitlines():
        # A line of an element begins with the kind of its last id; names may contain brackets.
        ids = [element_id for element_id in _ID.findall(line) if element_id in page.elements]
        if ids and line.startswith(page.elements[ids[-1]].kind):
            element = page.elements[ids[-1]]
            yield element.name
            yield element.value if element.kind == "textbox" else ""
        else:
            yield line.replace(" | ", " ")


def _lite_words(text: str) -> Iterator[str]:
    """Yield the words in page order; text after the children of a tag is only in `data-text`."""
    trailing_texts: list[str] = []
    position, tag = 0, ""
    # Text between two tags belongs to the tag before it.
    for match in _TAG.finditer(text):
        words = text[position : match.start()].strip()
        # Options are left out, as they are in the other format.
        if tag != "option":
            yield words
        position = match.end()
        if match["close"]:
            tag = ""
            trailing_text = trailing_texts.pop() if trailing_texts else ""
            yield trailing_text
            continue
        tag = match["tag"]
        attribute = _DATA_TEXT.search(match["rest"])
        leading_text = text[position : text.find("<", position)].strip()
        data_text = attribute[1] if attribute and tag not in ("option", "select") else ""
        # data-text joins the texts of a tag with commas and begins with the leading text.
        trailing_texts.append(
            data_text.removeprefix(leading_text).lstrip(",") if data_text != leading_text else ""
        )


def extract_text(page: Observation, pattern: str) -> str:
    """Return the first group of the pattern in the words of the page.

    Raises:
        LookupError: the pattern does not match.
    """
    match = re.search(pattern, page_text(page))
    if match is None:
        raise LookupError(f"no match for {pattern!r} on:\n{page.text}")
    return match[1]


def has_element(page: Observation, name: str, kind: str = "") -> bool:
    """Return whether an element with this name, and this kind unless "", is on the page."""
    return _find_element(page, name, kind) is not None


def element_names(page: Observation, kind: str) -> list[str]:
    """Return the names of all elements of a kind in the observation, in order."""
    return [element.name for element in page.elements.values() if element.kind == kind]


def element_names_after(page: Observation, name: str, kind: str) -> list[str]:
    """Return the names of all elements of a kind after the first element with the name `name`."""
    elements = list(page.elements.values())
    # Without such an element the search starts at the first one.
    start = next((i for i, element in enumerate(elements) if element.name == name), -1)
    return [element.name for element in elements[start + 1 :] if element.kind == kind]


def _find_element(page: Observation, name: str, kind: str, after: str = "") -> str | None:
    _, _, text = page.text.partition(after) if after else ("", "", page.text)
    for element_id, element in page.elements.items():
        # The formats have ids as in `[7]` and `id="7"`.
        is_after = not after or f"[{element_id}]" in text or f'id="{element_id}"' in text
        if is_after and element.name == name and kind in ("", element.kind):
            return element_id
    return None


# --- thoughts ------------------------------------------------------------------------------------


def decide(page: Observation, action: Action, *, name: str = "") -> Decision:
    """Return the decision for an action, with the thought that an expert has for it.

    Args:
        page: page of the action.
        action: action on an element of the page, or on the page itself.
        name: name to use for an element without one.
    """
    value, label, phrase = action.value or "", "", ""
    if action.element_id is not None:
        element = page.elements[action.element_id]
        label = _label(element.name or name, action.element_id)
        # Tasks name the text of a field, not the field.
        phrase = "" if element.kind == "textbox" else element.name
    match action.kind:
        case ActionKind.CLICK:
            return Decision(f"click {label}", action, intent_phrase=phrase)
        case ActionKind.TYPE | ActionKind.SEARCH | ActionKind.SELECT:
            verb = {ActionKind.SELECT: "select"}.get(action.kind, action.kind.value.lower())
            return Decision(f'{verb} "{value}" in {label}', action, intent_phrase=value)
        case ActionKind.SWITCH_TAB:
            return Decision(f"switch to tab {value}", action)
        case ActionKind.GO_BACK:
            return Decision("go back", action)
        case ActionKind.EXIT:
            return Decision(f'answer "{value}"' if value else "done", action)
    return Decision(" ".join(filter(None, [action.kind.value.lower(), value, label])), action)


# --- moving --------------------------------------------------------------------------------------


def click(
    page: Observation,
    name: str,
    kind: str = "",
    *,
    after: str = "",
    intent_phrase: str | None = None,
    reason: str = "",
) -> Moves:
    """Click an element.

    Args:
        page: current page.
        name: name of the element.
        kind: kind of the element; "" for any.
        after: text of the page before the element, such as the first cell of its table row, if
            several elements have the name; the thought begins with it.
        intent_phrase: words by which the task may refer to the element; None: `after` or its name,
            "": no words.
        reason: reason for the click.
    """
    page, element = yield from scroll_to(page, name, kind, after)
    action = Action(ActionKind.CLICK, element)
    thought = decide(page, action).thought
    return (
        yield Move(
            f"{after}: {thought}" if after else thought,
            action,
            intent_phrase=after or name if intent_phrase is None else intent_phrase,
            reason=reason,
        )
    )


def type_text(page: Observation, name: str, text: str, *, reason: str = "") -> Moves:
    """Replace the text of a field."""
    page, element = yield from scroll_to(page, name, "textbox")
    action = Action(ActionKind.TYPE, element, text)
    return (yield Move(decide(page, action).thought, action, intent_phrase=text, reason=reason))


def search(page: Observation, name: str, text: str, *, reason: str = "") -> Moves:
    """Replace the text of a field and press Enter."""
    page, element = yield from scroll_to(page, name, "textbox")
    action = Action(ActionKind.SEARCH, element, text)
    return (yield Move(decide(page, action).thought, action, intent_phrase=text, reason=reason))


def select_option(
    page: Observation, name: str, option: str, *, intent_phrase: str | None = None, reason: str = ""
) -> Moves:
    """Select an option of a drop-down list; `intent_phrase` is that of `click`, for the option."""
    page, element = yield from scroll_to(page, name, "select")
    action = Action(ActionKind.SELECT, element, option)
    phrase = option if intent_phrase is None else intent_phrase
    thought = decide(page, action).thought
    return (yield Move(thought, action, intent_phrase=phrase, reason=reason))


def set_checked(
    page: Observation, name: str, is_checked: bool = True, *, reason: str = ""
) -> Moves:
    """Click a check box or a radio button unless it already has the state `is_checked`."""
    page, element = yield from scroll_to(page, name)
    if (page.elements[element].value == "on") == is_checked:
        return page
    return (yield from click(page, name, page.elements[element].kind, reason=reason))


def go_back(reason: str = "") -> Moves:
    """Go back in the history."""
    return (yield Move("go back", Action(ActionKind.GO_BACK), reason=reason))


def switch_tab(tab: int, reason: str) -> Moves:
    """Switch to a tab; tabs are numbered from 0."""
    return (
        yield Move(
            f"switch to tab {tab}", Action(ActionKind.SWITCH_TAB, value=str(tab)), reason=reason
        )
    )


def answer(text: str, *, evidence: str = "", reason: str = "") -> Expert:
    """End the episode with an answer; `evidence` is the text before it on the page."""
    thought = f'{evidence}: answer "{text}"' if evidence else f'answer "{text}"'
    yield Move(thought, Action(ActionKind.EXIT, value=text), reason=reason)


def finish(reason: str = "") -> Expert:
    """End the episode without an answer."""
    yield Move("done", Action(ActionKind.EXIT, value=""), reason=reason)


def give_up(reason: str) -> Expert:
    """End the episode of an unachievable task."""
    yield Move(f"{reason}: answer N/A", Action(ActionKind.EXIT, value="N/A"), reason=reason)


def scroll_to(
    page: Observation, name: str, kind: str = "", after: str = ""
) -> Generator[Decision, Observation, tuple[Observation, str]]:
    """Scroll an element into view; return the page and the id of the element.

    The `compact` format contains the full page. In the other format, search below, then above.
    `after` is that of `click`.

    Raises:
        LookupError: no such element is on the page.
    """
    page, element = yield from scroll_to_match(
        page, lambda view: _find_element(view, name, kind, after), name
    )
    if element is None:
        place = f" after {after!r}" if after else ""
        raise LookupError(f"no {kind or 'element'} named {name!r}{place} on:\n{page.text}")
    return page, element


def scroll_to_match(
    page: Observation, find: Callable[[Observation], str | None], goal: str
) -> Generator[Decision, Observation, tuple[Observation, str | None]]:
    """Scroll down, then up, until `find` returns an element; return the page and the element.

    Args:
        page: current page.
        find: returns the id of an element of the observation; None if it has none.
        goal: name of the searched element, for the thought.

    Returns:
        Page and id. The id is None if no view has the element; `compact` has only one view.
    """
    for direction in (ActionKind.SCROLL_DOWN, ActionKind.SCROLL_UP):
        while (element := find(page)) is None and is_lite(page):
            previous_text = page.text
            page = yield scroll(direction, goal)
            if page.text == previous_text:
                # Scrolling has reached the end of the page.
                break
        if element is not None:
            return page, element
    return page, None


def scroll_until(
    page: Observation, pattern: str
) -> Generator[Decision, Observation, tuple[Observation, re.Match[str] | None]]:
    """Scroll down until the pattern matches; return the page and the match, or None without one."""
    while True:
        match = re.search(pattern, page_text(page))
        if match or not is_lite(page):
            return page, match
        previous_text = page.text
        page = yield scroll(ActionKind.SCROLL_DOWN, "more")
        if page.text == previous_text:
            return page, None


def scroll_through(
    page: Observation,
) -> Generator[Decision, Observation, tuple[Observation, list[Observation]]]:
    """Scroll to the end; return the page and its views, only one if it contains the full page."""
    views = [page]
    while is_lite(page):
        page = yield scroll(ActionKind.SCROLL_DOWN, "the rest")
        if page.text == views[-1].text:
            break
        views.append(page)
    return page, views


def scroll(direction: ActionKind, goal: str) -> Move:
    """Return the decision to scroll down or up; `goal` names the target in the thought."""
    word = "down" if direction is ActionKind.SCROLL_DOWN else "up"
    return Move(f"scroll {word} to {goal}", Action(direction))


def _label(name: str, element: str) -> str:
    return f"{name[:_MAX_NAME_CHARS].strip()} [{element}]"


# --- mistakes ------------------------------------------------------------------------------------


def with_mistakes(
    expert: Expert, page: Observation, rate: float, rng: np.random.Generator
) -> Expert:
    """Yield the same decisions, some of them after a mistake and its correction.

    A mistake is a click on a link, corrected with Go Backward, or the next decision with an id that
    no element has, corrected by the decision itself. The corrections teach BC to recover (DART,
    Laskey et al. 2017, arXiv 1703.09327). Forms lose their text when the agent leaves the page, so
    there are no wrong links on a page with a filled field.

    Args:
        expert: expert before its first decision.
        page: first page.
        rate: probability of a mistake before a decision.
        rng: draws the mistakes.

    Raises:
        LookupError: Go Backward does not return to the page.
    """
    decision = next(expert, None)
    while decision is not None:
        if rng.random() < rate:
            yield from _make_mistake(page, decision, rng)
        page = yield decision
        try:
            decision = expert.send(page)
        except StopIteration:
            return


def _make_mistake(page: Observation, decision: Decision, rng: np.random.Generator) -> Expert:
    target = decision.action.element_id
    is_filled = any(e.kind == "textbox" and e.value for e in page.elements.values())
    links = [i for i, e in page.elements.items() if e.kind == "link" and i != target]
    has_link = bool(links) and not is_filled
    if has_link and (target is None or rng.random() < 0.5):
        wrong = decide(page, Action(ActionKind.CLICK, links[rng.integers(len(links))]))
        # No intent phrase, because the phrases of the task belong to the correct decisions.
        after = yield replace(wrong, is_mistake=True, intent_phrase="")
        # A link to the page itself adds nothing to the history.
        if after.url != page.url:
            after = yield from go_back()
        if after.url != page.url or (
            target and _kind_name(after, target) != _kind_name(page, target)
        ):
            raise LookupError(f"the page after {wrong.thought!r} and its correction is another one")
    elif target is not None:
        missing = str(max(map(int, page.elements)) + int(rng.integers(1, 21)))
        thought = decision.thought.replace(f"[{target}]", f"[{missing}]")
        yield Decision(thought, replace(decision.action, element_id=missing), is_mistake=True)


def _kind_name(page: Observation, element_id: str) -> tuple[str, str] | None:
    element = page.elements.get(element_id)
    return None if element is None else (element.kind, element.name)


# --- other thoughts -------------------------------------------------------------------------------


def with_thoughts(
    expert: Expert, page: Observation, intent: str, thoughts: ExpertThoughts
) -> Expert:
    """Return an expert with the same decisions and thoughts of a kind (`bc.expert_thoughts`).

    Args:
        expert: expert with short thoughts, before its first decision.
        page: first page.
        intent: task of the episode.
        thoughts: kind of the thoughts.
    """
    match thoughts:
        case "short":
            return expert
        case "restate":
            return restate(expert, intent)
        case "long":
            return with_long_thoughts(expert, intent, page)


def restate(expert: Expert, intent: str) -> Expert:
    """Yield the same decisions, with the task directly before each step in the thought."""
    page: Observation | None = None
    while True:
        try:
            # A generator must be started with `next` before it can receive a page.
            decision = next(expert) if page is None else expert.send(page)
        except StopIteration:
            return
        thought = f"Task: {intent} Next: {decision.thought}"
        page = yield Decision(thought, decision.action, is_mistake=decision.is_mistake)


def with_long_thoughts(expert: Expert, intent: str, page: Observation) -> Expert:
    """Yield the same decisions with the long thoughts of R1-CoT: task, past steps, next step."""
    past_steps: list[str] = []
    decision = next(expert, None)
    while decision is not None:
        reason = decision.reason if isinstance(decision, Move) else ""
        parts = [
            f"The task: {_end_sentence(intent)}",
            f"Done so far: {'; '.join(past_steps)}." if past_steps else "Nothing is done yet.",
            f"I am on the page {page.title!r}.",
            _end_sentence(reason) if reason else "",
            f"Next: {decision.thought}",
        ]
        thought = " ".join(part for part in parts if part)
        page = yield Decision(thought, decision.action, is_mistake=decision.is_mistake)
        # A refused step, such as a mistake, is not done. The text of a dialog is no refusal.
        if page.error is None or page.error.startswith(DIALOG_PREFIX):
            # Ids of earlier pages have no meaning on later ones.
            past_steps.append(re.sub(r" \[\d+\]", "", decision.thought))
        try:
            decision = expert.send(page)
        except StopIteration:
            return


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
