"""Action -> the page: real pointer and key events at the place where the element is.

Every function returns None when the action is done, else why not, in words for the agent. A wish
that cannot be met is no exception; a browser fault is (playwright's Error).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from webagent_jax.browser import injected
from webagent_jax.types import Action, ActionKind

_WAIT = 1.0  # seconds that the action Wait waits
_HISTORY_TIMEOUT = 10_000.0  # ms

Refusal = str | None


async def act(page: Page, action: Action) -> Refusal:
    """Does everything but Switch Tab, which is the context's, and Exit, which is nobody's."""
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
    if action.element_id is not None:
        refusal = _refusal(await injected.call(page, "focusOn", action.element_id))
        if refusal:
            return refusal
    await page.keyboard.press("Enter")
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


async def _go_back(page: Page, action: Action) -> Refusal:
    return await _travel(page, -1)


async def _go_forward(page: Page, action: Action) -> Refusal:
    return await _travel(page, 1)


async def _travel(page: Page, step: Literal[-1, 1]) -> Refusal:
    """Along the history of the tab, which starts at the first page after the empty one."""
    devtools = await page.context.new_cdp_session(page)
    history = await devtools.send("Page.getNavigationHistory")
    await devtools.detach()
    goal = history["currentIndex"] + step
    entries = history["entries"]
    if not 0 <= goal < len(entries) or entries[goal]["url"] == "about:blank":
        return f"there is no page to go {'back' if step < 0 else 'forward'} to"
    travel = page.go_back if step < 0 else page.go_forward
    try:
        await travel(wait_until="commit", timeout=_HISTORY_TIMEOUT)
    except PlaywrightError as error:
        # A page kept by its own script (history.pushState) answers at once, or is superseded.
        if "ERR_ABORTED" not in str(error):
            raise
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
    ActionKind.SELECT: _select,
    ActionKind.WAIT: _wait,
    ActionKind.GO_BACK: _go_back,
    ActionKind.GO_FORWARD: _go_forward,
    ActionKind.EXIT: _exit,
}
