"""Navigation of a tab to another document, with timeouts.

A tab that has requested a document runs no script until that document commits. A navigation that
exceeds its timeout is therefore stopped. The agent then receives an error and stays on its page.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, Literal

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Frame, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from webagent_jax.browser import injected
from webagent_jax.types import InfraError

_NETWORK_ERROR = re.compile(r"net::(?!ERR_ABORTED)\w+")  # error names of Chromium

_STOP_TIMEOUT = 5.0  # seconds

ErrorMessage = str | None


async def go_to(page: Page, url: str, timeout: float) -> ErrorMessage:
    """Load `url` up to its first response; `settle` waits for the rest, as after a click."""
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


async def go_in_history(page: Page, step: Literal[-1, 1], timeout: float) -> ErrorMessage:
    """Move in the history of the tab, which starts at the first page after the empty one."""
    # The history also contains the empty tab, to which the agent must not return.
    devtools = await page.context.new_cdp_session(page)
    history = await devtools.send("Page.getNavigationHistory")
    await devtools.detach()
    goal = history["currentIndex"] + step
    entries = history["entries"]
    direction = "back" if step < 0 else "forward"
    if not 0 <= goal < len(entries) or entries[goal]["url"] == "about:blank":
        return f"there is no page to go {direction} to"
    move = page.go_back if step < 0 else page.go_forward
    try:
        await _finish_in_any_frame(page, move(wait_until="commit", timeout=timeout * 1000))
    except PlaywrightTimeout:
        await _give_up(page)
        return f"the page to go {direction} to did not answer in {timeout:g} s"
    except PlaywrightError as error:
        reason = _NETWORK_ERROR.search(error.message)
        if reason:
            return f"the page to go {direction} to did not load: {reason[0]}"
        # Entries of history.pushState commit at once, or another navigation supersedes them.
        if "ERR_ABORTED" not in error.message:
            raise
    return None


async def _finish_in_any_frame(page: Page, move: Coroutine[Any, Any, object]) -> None:
    """Await a move in the history of the tab, which may navigate only a frame of the page.

    Playwright's moves end when the main frame navigates.
    """
    frame_navigation: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_navigation(frame: Frame) -> None:
        if frame.parent_frame is not None and not frame_navigation.done():
            frame_navigation.set_result(None)

    page.on("framenavigated", on_navigation)
    task = asyncio.ensure_future(move)
    futures: set[asyncio.Future[Any]] = {task, frame_navigation}
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()  # raises its error
    finally:
        task.cancel()
        page.remove_listener("framenavigated", on_navigation)


async def wait_for_commit(page: Page, timeout: float) -> bool:
    """Return whether the document that the page requested commits within `timeout` seconds.

    True if the tab closes meanwhile, because nothing is left to wait for.
    """
    try:
        # The tab evaluates an expression only after the next document has committed.
        await asyncio.wait_for(injected.evaluate(page, "0", None, timeout), timeout)
    except (TimeoutError, PlaywrightTimeout):
        await _give_up(page)
        return False
    except PlaywrightError:
        if not page.is_closed():
            raise
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
