"""Moves of a tab to another document, which may never come.

A tab that has asked for a document answers no script until that one begins, so a move that takes
too long is given up, and the agent is told and sees the page that it was on.
"""

from __future__ import annotations

import asyncio
import re
from typing import Literal

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from webagent_jax.browser import injected
from webagent_jax.types import InfraError

_NETWORK_ERROR = re.compile(r"net::(?!ERR_ABORTED)\w+")  # as Chromium names what went wrong

_STOP_TIMEOUT = 5.0  # seconds

Refusal = str | None


async def go_to(page: Page, url: str, timeout: float) -> Refusal:
    """Up to the first answer: what comes after it is waited for as it is after a click."""
    try:
        await page.goto(url, wait_until="commit", timeout=timeout * 1000)
    except PlaywrightTimeout:
        await _give_up(page)
        return f"{url} did not answer in {timeout:g} s"
    except PlaywrightError as error:
        reason = _NETWORK_ERROR.search(error.message)
        if reason:
            return f"{url} did not load: {reason[0]}"
        if "ERR_ABORTED" in error.message or "Download is starting" in error.message:
            return f"{url} is no page to look at"
        raise
    return None


async def travel(page: Page, step: Literal[-1, 1], timeout: float) -> Refusal:
    """Along the history of the tab, which starts at the first page after the empty one."""
    devtools = await page.context.new_cdp_session(page)
    history = await devtools.send("Page.getNavigationHistory")
    await devtools.detach()
    goal = history["currentIndex"] + step
    entries = history["entries"]
    way = "back" if step < 0 else "forward"
    if not 0 <= goal < len(entries) or entries[goal]["url"] == "about:blank":
        return f"there is no page to go {way} to"
    move = page.go_back if step < 0 else page.go_forward
    try:
        await move(wait_until="commit", timeout=timeout * 1000)
    except PlaywrightTimeout:
        await _give_up(page)
        return f"the page to go {way} to did not answer in {timeout:g} s"
    except PlaywrightError as error:
        reason = _NETWORK_ERROR.search(error.message)
        if reason:
            return f"the page to go {way} to did not load: {reason[0]}"
        # A page kept by its own script (history.pushState) answers at once, or is superseded.
        if "ERR_ABORTED" not in error.message:
            raise
    return None


async def comes(page: Page, timeout: float) -> bool:
    """Whether the document that the page has asked for begins within `timeout` seconds."""
    try:
        await asyncio.wait_for(injected.evaluate(page, "0", None, timeout), timeout)
    except (TimeoutError, PlaywrightTimeout):
        await _give_up(page)
        return False
    return True


async def _give_up(page: Page) -> None:
    async def stop() -> None:
        devtools = await page.context.new_cdp_session(page)
        await devtools.send("Page.stopLoading")
        await devtools.detach()

    try:
        await asyncio.wait_for(stop(), _STOP_TIMEOUT)
    except TimeoutError as error:
        raise InfraError("the page hangs") from error
