"""Action -> the page: real pointer and key events at the place where the element is.

Every function returns None when the action is done, else why not, in words for the agent. A wish
that cannot be met is no exception; a browser fault is (playwright's Error).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from playwright.async_api import Page

from webagent_jax.browser import injected, keys
from webagent_jax.types import Action, ActionKind

_WAIT = 1.0  # seconds that the action Wait waits

Refusal = str | None


async def act(page: Page, action: Action) -> Refusal:
    """Does everything within a page: moves between pages and tabs are the context's."""
    return await _HANDLERS[action.kind](page, action)


async def _click(page: Page, action: Action) -> Refusal:
    return await _point(page, action, "left")


async def _right_click(page: Page, action: Action) -> Refusal:
    return await _point(page, action, "right")


async def _hover(page: Page, action: Action) -> Refusal:
    return await _point(page, action, None)


async def _point(page: Page, action: Action, button: Literal["left", "right"] | None) -> Refusal:
    if action.element_id is None:
        return f"{action.kind} needs an element"
    at = await injected.call(page, "locate", action.element_id)
    if "error" in at:
        return str(at["error"])
    if button is None:
        await page.mouse.move(at["x"], at["y"])
        return None
    refusal = _no_click(at["tag"], at["type"])
    if refusal:
        return f"element {action.element_id} {refusal}"
    await page.mouse.click(at["x"], at["y"], button=button)
    return None


def _no_click(tag: str, type_: str) -> Refusal:
    """Some fields open a window of the browser's own, which the page does not hold."""
    if tag == "SELECT":
        return "is a dropdown: use Select Dropdown Option with the text of an option"
    if tag == "INPUT" and type_ == "file":
        return "asks for a file, and there are none to choose from"
    if tag == "INPUT" and type_ == "color":
        return "is a colour field: use Type with a value such as #ff8800"
    return None


async def _type(page: Page, action: Action) -> Refusal:
    if action.element_id is None:
        return f"{action.kind} needs an element"
    text = action.value or ""
    found = await injected.call(page, "prepareTyping", action.element_id, text)
    if "error" in found:
        return str(found["error"])
    if found.get("done"):
        return None
    if not text:
        if not found["empty"]:
            await page.keyboard.press("Delete")
        return None
    # Pages that complete what is typed listen to keys: the last character is a real key press.
    head, last = (text[:-1], text[-1]) if text[-1] != "\n" else (text, "")
    if head:
        await page.keyboard.insert_text(head)
    if last:
        await page.keyboard.type(last)
    return None


async def _search(page: Page, action: Action) -> Refusal:
    refusal = await _type(page, action)
    if refusal is None:
        await page.keyboard.press("Enter")
    return refusal


async def _press_enter(page: Page, action: Action) -> Refusal:
    return await _key(page, action.element_id, "Enter")


async def _press(page: Page, action: Action) -> Refusal:
    try:
        key = keys.read(action.value or "")
    except ValueError as refusal:
        return str(refusal)
    return await _key(page, action.element_id, key)


async def _key(page: Page, element_id: str | None, key: str) -> Refusal:
    if element_id is not None:
        refusal = _refusal(await injected.call(page, "focusOn", element_id))
        if refusal:
            return refusal
    await page.keyboard.press(key)
    return None


async def _select(page: Page, action: Action) -> Refusal:
    if action.element_id is None or not action.value:
        return f"{action.kind} needs an element and the text of an option"
    return _refusal(await injected.call(page, "choose", action.element_id, action.value))


async def _scroll_down(page: Page, action: Action) -> Refusal:
    return _refusal(await injected.call(page, "scroll", action.element_id, 1))


async def _scroll_up(page: Page, action: Action) -> Refusal:
    return _refusal(await injected.call(page, "scroll", action.element_id, -1))


async def _wait(page: Page, action: Action) -> Refusal:
    await asyncio.sleep(_WAIT)
    return None


async def _exit(page: Page, action: Action) -> Refusal:
    return None


def _refusal(answer: dict[str, Any]) -> Refusal:
    return answer.get("error")


_HANDLERS: dict[ActionKind, Callable[[Page, Action], Awaitable[Refusal]]] = {
    ActionKind.CLICK: _click,
    ActionKind.RIGHT_CLICK: _right_click,
    ActionKind.TYPE: _type,
    ActionKind.SEARCH: _search,
    ActionKind.HOVER: _hover,
    ActionKind.SCROLL_UP: _scroll_up,
    ActionKind.SCROLL_DOWN: _scroll_down,
    ActionKind.PRESS_ENTER: _press_enter,
    ActionKind.PRESS: _press,
    ActionKind.SELECT: _select,
    ActionKind.WAIT: _wait,
    ActionKind.EXIT: _exit,
}
