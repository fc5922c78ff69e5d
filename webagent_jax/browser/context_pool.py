"""Pool of browser contexts that later episodes of the same site reuse after their state is cleared.

A fresh context starts a process and compiles every script of its site. A cleared context keeps the
process, the compiled scripts and the HTTP cache; pages cannot observe any of them. Contexts that
opened a second tab, visited a second origin or failed are hard to clear and are closed instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from playwright.async_api import BrowserContext, Page

T = TypeVar("T")


async def clear_state(context: BrowserContext, page: Page, origin: str) -> None:
    """Reset a context to the state of a fresh one, with one tab.

    Afterwards the tab shows an empty page, without history, cookies, storage, databases or a window
    name.

    Args:
        context: context to reset.
        page: its only tab.
        origin: the only origin that the tab has shown, "http://host:port".
    """
    devtools = await context.new_cdp_session(page)
    # 1. Clear the state of the tab while it still has the origin. Window names survive navigation.
    await page.evaluate("() => { sessionStorage.clear(); window.name = ''; }")
    # 2. Leave the page without running its scripts, which could write new state.
    await devtools.send("Emulation.setScriptExecutionDisabled", {"value": True})
    await page.goto("about:blank")  # has no script objects; the history of a fresh tab starts here
    await devtools.send("Emulation.setScriptExecutionDisabled", {"value": False})
    await page.mouse.move(0, 0)  # pointer position of a fresh tab
    # 3. Delete the stored state, now that no page of the origin can write it again.
    await context.clear_cookies()
    await devtools.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    # 4. Remove the visited pages from the history; only the empty page remains.
    await devtools.send("Page.resetNavigationHistory")
    await devtools.detach()


class ContextPool(Generic[T]):
    """Items by key, each available for a limited time. For one event loop.

    An item is an asyncio task that may still be running when it is put here; `take` waits for it.

    Args:
        seconds: time that an item stays in the pool at most.
        dispose: receives every item that is removed unused.
    """

    def __init__(self, seconds: float, dispose: Callable[[T], object]) -> None:
        self._seconds = seconds
        self._dispose = dispose
        self._pooled: dict[object, list[asyncio.Task[T | None]]] = {}

    def put(self, key: object, pending: asyncio.Task[T | None]) -> None:
        """Add an item.

        Args:
            key: key of the item.
            pending: task that returns the item; None if it turns out to be unusable.
        """
        self._pooled.setdefault(key, []).append(pending)
        asyncio.get_running_loop().call_later(self._seconds, self._expire, key, pending)

    async def take(self, key: object) -> T | None:
        """Remove and return the newest item with the key `key`; None if there is none."""
        while tasks := self._pooled.get(key):
            # Removed before the wait, so that no other caller takes the same item.
            pending = tasks[-1]
            self._remove(key, pending)
            try:
                # Without the shield, a caller that stops waiting would cancel the clearing halfway.
                item = await asyncio.shield(pending)
            except asyncio.CancelledError:  # the caller stopped waiting
                pending.add_done_callback(self._dispose_result)
                raise
            if item is not None:
                return item
        return None

    def _expire(self, key: object, pending: asyncio.Task[T | None]) -> None:
        if pending in self._pooled.get(key, ()):
            self._remove(key, pending)
            pending.add_done_callback(self._dispose_result)

    def _remove(self, key: object, pending: asyncio.Task[T | None]) -> None:
        self._pooled[key].remove(pending)
        if not self._pooled[key]:
            del self._pooled[key]

    def _dispose_result(self, task: asyncio.Task[T | None]) -> None:
        item = None if task.cancelled() or task.exception() else task.result()
        if item is not None:
            self._dispose(item)
