"""Execution of actions in a page, with real pointer and key events at the element.

Each function returns None on success, otherwise an error message for the agent. An impossible
action raises nothing; a browser fault raises Playwright's Error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from playwright.async_api import Page

from webagent_jax.browser import injected, keys
from webagent_jax.types import Action, ActionKind

_WAIT_SECONDS = 1.0  # duration of the Wait action

ErrorMessage = str | None


async def act(page: Page, action: Action) -> ErrorMessage:
    """Execute an action within a page; `EpisodeContext` moves between pages and tabs."""
    return await _HANDLERS[action.kind](page, action)


async def _click(page: Page, action: Action) -> ErrorMessage:
    return await _point(page, action, "left")


async def _right_click(page: Page, action: Action) -> ErrorMessage:
    return await _point(page, action, "right")


async def _hover(page: Page, action: Action) -> ErrorMessage:
    return await _point(page, action, None)


async def _point(
    page: Page, action: Action, button: Literal["left", "right"] | None
) -> ErrorMessage:
    if action.element_id is None:
        return f"{action.kind} needs an element"
    target = await injected.call(page, "locate", action.element_id)
    if "error" in target:
        return str(target["error"])
    if button is None:
        await page.mouse.move(target["x"], target["y"])
        return None
    refusal = _click_refusal(target["tag"], target["type"])
    if refusal:
        return f"element {action.element_id} {refusal}"
    await page.mouse.click(target["x"], target["y"], button=button)
    return None


def _click_refusal(tag: str, type_: str) -> ErrorMessage:
    """Return the reason not to click a field that opens a window outside the page, if it does."""
    if tag == "SELECT":
        return "is a dropdown: use Select Dropdown Option with the text of an option"
    if tag == "INPUT" and type_ == "file":
        return "asks for a file, and there are none to choose from"
    if tag == "INPUT" and type_ == "color":
        return "is a colour field: use Type with a value such as #ff8800"
    return None


async def _type(page: Page, action: Action) -> ErrorMessage:
    if action.element_id is None:
        return f"{action.kind} needs an element"
    text = action.value or ""
    # 1. Focus the field and select its content, which the typed text replaces.
    field = await injected.call(page, "prepareTyping", action.element_id, text)
    if "error" in field:
        return str(field["error"])
    if field.get("done"):
        return None
    if field["isCode"]:
        # The editor has its own selection, which only keys change.
        await page.keyboard.press("Control+a")
    # 2. Delete the selected content, because an empty text has no key to press.
    if not text:
        if not field["empty"]:
            await page.keyboard.press("Delete")
        return None
    # Pages with autocompletion listen to keys, so the last character is a real key press. In rich
    # text and code, the caret may be elsewhere after several lines.
    is_split = (field["isRich"] or field["isCode"]) and "\n" in text
    has_last_key = text[-1] != "\n" and not is_split
    head, last_char = (text[:-1], text[-1]) if has_last_key else (text, "")
    if head:
        await page.keyboard.insert_text(head)
    if head and last_char:
        field = await injected.call(page, "resumeTyping", action.element_id)
        if "error" in field:
            return str(field["error"])
        # The page stores the text only as a whole.
        if field["isCleared"]:
            await page.keyboard.insert_text(text)
            return None
    # A final line end was inserted with the text: as a key it would be Enter and submit the form.
    if last_char:
        await page.keyboard.type(last_char)
    return None


async def _search(page: Page, action: Action) -> ErrorMessage:
    # A field that takes no text must not submit its form.
    refusal = await _type(page, action)
    if refusal is None:
        refusal = _refusal(await injected.call(page, "resumeTyping", action.element_id))
    if refusal is None:
        await page.keyboard.press("Enter")
    return refusal


async def _press_enter(page: Page, action: Action) -> ErrorMessage:
    return await _key(page, action.element_id, "Enter")


async def _press(page: Page, action: Action) -> ErrorMessage:
    try:
        key = keys.parse_key(action.value or "")
    except ValueError as refusal:
        return str(refusal)
    return await _key(page, action.element_id, key)


async def _key(page: Page, element_id: str | None, key: str) -> ErrorMessage:
    if element_id is not None:
        refusal = _refusal(await injected.call(page, "focusOn", element_id))
        if refusal:
            return refusal
    await page.keyboard.press(key)
    return None


async def _select(page: Page, action: Action) -> ErrorMessage:
    if action.element_id is None or not action.value:
        return f"{action.kind} needs an element and the text of an option"
    return _refusal(await injected.call(page, "choose", action.element_id, action.value))


async def _scroll_down(page: Page, action: Action) -> ErrorMessage:
    return _refusal(await injected.call(page, "scroll", action.element_id, 1))


async def _scroll_up(page: Page, action: Action) -> ErrorMessage:
    return _refusal(await injected.call(page, "scroll", action.element_id, -1))


async def _wait(page: Page, action: Action) -> ErrorMessage:
    await asyncio.sleep(_WAIT_SECONDS)
    return None


def _refusal(result: dict[str, Any]) -> ErrorMessage:
    return result.get("error")


_HANDLERS: dict[ActionKind, Callable[[Page, Action], Awaitable[ErrorMessage]]] = {
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
}
