"""Contexts that serve again: wiped, kept for a moment, and given to the next episode of a site.

A fresh context pays for a process of its own and compiles every script of its site anew. A wiped
one keeps those, and the files that the site let the browser cache; a page finds nothing of it by
looking. What would be hard to wipe is thrown away instead: a context that opened a second tab, met
a second origin, or failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from playwright.async_api import BrowserContext, Page

T = TypeVar("T")


async def wipe(context: BrowserContext, page: Page, origin: str) -> None:
    """Leaves of a tab that has shown `origin` ("http://host:port") alone what a fresh one has.

    That is an empty page, no history, cookie, storage or database, and no name of the window.
    """
    devtools = await context.new_cdp_session(page)
    await page.evaluate("() => { sessionStorage.clear(); window.name = ''; }")
    await devtools.send("Emulation.setScriptExecutionDisabled", {"value": True})
    await page.goto("about:blank")  # no script objects, and a fresh tab's history begins there
    await devtools.send("Emulation.setScriptExecutionDisabled", {"value": False})
    await page.mouse.move(0, 0)  # where the pointer of a fresh tab is
    await context.clear_cookies()
    await devtools.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    await devtools.send("Page.resetNavigationHistory")
    await devtools.detach()


class Shelf(Generic[T]):
    """Things by what they fit, to be taken within `seconds`; then they leave. For one event loop.

    A thing may still be on its way when it is put here: who takes it waits for it.
    """

    def __init__(self, seconds: float, leave: Callable[[T], object]) -> None:
        self._seconds = seconds
        self._leave = leave
        self._lying: dict[object, list[asyncio.Task[T | None]]] = {}

    def put(self, fits: object, coming: asyncio.Task[T | None]) -> None:
        """`coming` ends in None for what turned out not to be fit."""
        self._lying.setdefault(fits, []).append(coming)
        asyncio.get_running_loop().call_later(self._seconds, self._expire, fits, coming)

    async def take(self, fits: object) -> T | None:
        """The one that was put last; None where there is none."""
        while lying := self._lying.get(fits):
            coming = lying[-1]
            self._remove(fits, coming)
            try:
                found = await asyncio.shield(coming)
            except asyncio.CancelledError:  # who waited gave up
                coming.add_done_callback(self._lost)
                raise
            if found is not None:
                return found
        return None

    def _expire(self, fits: object, coming: asyncio.Task[T | None]) -> None:
        if coming in self._lying.get(fits, ()):
            self._remove(fits, coming)
            coming.add_done_callback(self._lost)

    def _remove(self, fits: object, coming: asyncio.Task[T | None]) -> None:
        self._lying[fits].remove(coming)
        if not self._lying[fits]:
            del self._lying[fits]

    def _lost(self, come: asyncio.Task[T | None]) -> None:
        found = None if come.cancelled() or come.exception() else come.result()
        if found is not None:
            self._leave(found)
