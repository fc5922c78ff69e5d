"""When is a page quiet? No request under way, no navigation, no change for a moment.

Event-driven, so that a static page costs a few hundredths of a second and a slow one as long as it
takes, up to a limit.
"""

from __future__ import annotations

import asyncio
import contextlib

from playwright.async_api import BrowserContext, Page, Request
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from webagent_jax.browser import injected

_CALM = 20  # ms without a change of the document
_SLACK = 1.0  # seconds beyond its own limit for a page to answer
_RESTLESS = 700  # ms to wait at most for a document that keeps changing
_GIVEN_UP = "net::ERR_ABORTED"  # for another page, or because it is a file to download
# Pictures count: one that has not come yet may have no size, and be no thing to see or click.
# Fonts, films, sockets and beacons change nothing that an observation tells.
_AWAITED = frozenset({"document", "script", "stylesheet", "image", "xhr", "fetch"})


class Traffic:
    """The requests of a context that are under way."""

    def __init__(self, context: BrowserContext):
        self._context = context
        self._listens = False
        self._open: set[Request] = set()
        self.failures: list[tuple[str, str]] = []  # (address, why) of pages that did not load
        self._idle = asyncio.Event()
        self._idle.set()

    def listen(self) -> None:
        """Counts from now on. Up to the first page, its load event says as much for less."""
        if self._listens:
            return
        self._listens = True
        self._context.on("request", self._started)
        self._context.on("requestfinished", self._ended)
        self._context.on("requestfailed", self._failed)

    def stop(self) -> None:
        """Counts no more: the context goes on without this."""
        if self._listens:
            self._context.remove_listener("request", self._started)
            self._context.remove_listener("requestfinished", self._ended)
            self._context.remove_listener("requestfailed", self._failed)

    @property
    def busy(self) -> bool:
        return bool(self._open)

    @property
    def navigating(self) -> bool:
        """Whether a document is under way: one that has not begun, or does not end."""
        return any(request.is_navigation_request() for request in self._open)

    async def idle(self, timeout: float) -> None:
        """Waits for the last request to end, or for `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout)

    def forget(self) -> None:
        """Stops counting requests that never end, such as a long poll."""
        self._open.clear()
        self._idle.set()

    def _started(self, request: Request) -> None:
        if request.resource_type in _AWAITED:
            self._open.add(request)
            self._idle.clear()

    def _failed(self, request: Request) -> None:
        self._ended(request)
        if request.is_navigation_request() and request.failure != _GIVEN_UP and _is_a_tabs(request):
            self.failures.append((request.url, request.failure or "no answer"))

    def _ended(self, request: Request) -> None:
        self._open.discard(request)
        if not self._open:
            self._idle.set()


def _is_a_tabs(request: Request) -> bool:
    """Whether a document was asked for by a tab, not by a frame in one."""
    try:
        return request.frame.parent_frame is None
    except PlaywrightError:
        return True  # a tab that is so new that it has no page yet


async def settle(page: Page, traffic: Traffic, timeout: float) -> bool:
    """Returns once `page` is quiet, or after `timeout` seconds: whether it asked for a new tab."""
    loop = asyncio.get_running_loop()
    asked = False
    end = loop.time() + timeout
    while (left := end - loop.time()) > 0:
        if not traffic.busy:
            limit = min(left * 1000, _RESTLESS)
            try:
                quiet = injected.call(page, "quiet", _CALM, limit, timeout=left)
                asked |= await asyncio.wait_for(quiet, left + _SLACK)
            except (TimeoutError, PlaywrightTimeout):
                return asked  # a page that loads slower than this is observed as far as it came
            except PlaywrightError:
                if page.is_closed():
                    return asked  # a tab that closed itself
                raise
        if not traffic.busy:
            return asked
        await traffic.idle(max(end - loop.time(), 0))
    return asked
