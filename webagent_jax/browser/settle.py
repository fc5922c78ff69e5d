"""When is a page quiet? No request under way, no navigation, no change for a moment.

Event-driven, so that a static page costs a few hundredths of a second and a slow one as long as it
takes, up to a limit.
"""

from __future__ import annotations

import asyncio

from playwright.async_api import BrowserContext, Page, Request
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from webagent_jax.browser import injected

_CALM = 20  # ms without a change of the document
_RESTLESS = 700  # ms to wait at most for a document that keeps changing
# Pictures count: one that has not come yet may have no size, and be no thing to see or click.
# Fonts, films, sockets and beacons change nothing that an observation tells.
_AWAITED = frozenset({"document", "script", "stylesheet", "image", "xhr", "fetch"})


class Traffic:
    """The requests of a context that are under way."""

    def __init__(self, context: BrowserContext):
        self._context = context
        self._listens = False
        self._open: set[Request] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def listen(self) -> None:
        """Counts from now on. Up to the first page, its load event says as much for less."""
        if self._listens:
            return
        self._listens = True
        self._context.on("request", self._started)
        self._context.on("requestfinished", self._ended)
        self._context.on("requestfailed", self._ended)

    @property
    def busy(self) -> bool:
        return bool(self._open)

    async def idle(self, timeout: float) -> bool:
        """Waits for the last request to end; False when `timeout` seconds passed first."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def forget(self) -> None:
        """Stops counting requests that never end, such as a long poll."""
        self._open.clear()
        self._idle.set()

    def _started(self, request: Request) -> None:
        if request.resource_type in _AWAITED:
            self._open.add(request)
            self._idle.clear()

    def _ended(self, request: Request) -> None:
        self._open.discard(request)
        if not self._open:
            self._idle.set()


async def settle(page: Page, traffic: Traffic, timeout: float) -> bool:
    """Returns once `page` is quiet, or after `timeout` seconds: whether it asked for a new tab."""
    loop = asyncio.get_running_loop()
    asked = False
    end = loop.time() + timeout
    while (left := end - loop.time()) > 0:
        if not traffic.busy:
            limit = min(left * 1000, _RESTLESS)
            try:
                asked |= await injected.call(page, "quiet", _CALM, limit, timeout=left)
            except PlaywrightTimeout:
                return asked  # a page that loads slower than this is observed as far as it came
            except PlaywrightError:
                if page.is_closed():
                    return asked  # a tab that closed itself
                raise
        if not traffic.busy:
            return asked
        if not await traffic.idle(max(end - loop.time(), 0)):
            traffic.forget()
    return asked
