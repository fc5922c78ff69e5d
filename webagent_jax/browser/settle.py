"""Detection of quiet pages: no open request, no navigation, no recent or running change.

The detection is event-driven. A static page takes a few hundredths of a second, a slow one as long
as it needs, up to a limit.
"""

from __future__ import annotations

import asyncio
import contextlib

from playwright.async_api import BrowserContext, Frame, Page, Request
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from webagent_jax.browser import injected

_QUIET_MS = 20  # time without a change of the document
_SLACK_SECONDS = 1.0  # time for the result of a page after its own limit
_MAX_UNSETTLED_MS = 700  # longest wait for a document that keeps changing, animations included
_ABORTED = "net::ERR_ABORTED"  # another navigation replaced the request, or it is a download
# Images count: without its data, an image may have no size and be neither visible nor clickable.
# Fonts, videos, sockets and beacons do not change observations.
_AWAITED_TYPES = frozenset({"document", "script", "stylesheet", "image", "xhr", "fetch"})


class RequestTracker:
    """Open requests of a context."""

    def __init__(self, context: BrowserContext):
        self._context = context
        self._is_listening = False
        self._open: set[Request] = set()
        self.failures: list[tuple[str, str]] = []  # (address, reason) of failed page loads
        self._idle = asyncio.Event()
        self._idle.set()

    def listen(self) -> None:
        """Track requests from now on."""
        if self._is_listening:
            return
        self._is_listening = True
        self._context.on("request", self._on_request)
        self._context.on("requestfinished", self._on_end)
        self._context.on("requestfailed", self._on_failure)

    def stop(self) -> None:
        """Stop tracking requests; the context remains usable."""
        if self._is_listening:
            self._context.remove_listener("request", self._on_request)
            self._context.remove_listener("requestfinished", self._on_end)
            self._context.remove_listener("requestfailed", self._on_failure)

    @property
    def is_busy(self) -> bool:
        """True while any request is open."""
        return bool(self._open)

    @property
    def is_navigating(self) -> bool:
        """True while a document request is open, committed or not."""
        return any(request.is_navigation_request() for request in self._open)

    @property
    def is_opening_tab(self) -> bool:
        """True while a tab that has no page yet waits for its document."""
        return any(r.is_navigation_request() and _frame_of(r) is None for r in self._open)

    async def wait_until_idle(self, timeout: float) -> None:
        """Wait until no request is open, for `timeout` seconds at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout)

    def reset(self) -> None:
        """Stop waiting for the open requests, because some never end, such as a long poll."""
        self._open.clear()
        self._idle.set()

    def _on_request(self, request: Request) -> None:
        if request.resource_type in _AWAITED_TYPES:
            self._open.add(request)
            self._idle.clear()

    def _on_failure(self, request: Request) -> None:
        self._on_end(request)
        if (
            request.is_navigation_request()
            and request.failure != _ABORTED
            and _is_tab_request(request)
        ):
            self.failures.append((request.url, request.failure or "no answer"))

    def _on_end(self, request: Request) -> None:
        self._open.discard(request)
        if not self._open:
            self._idle.set()


def _is_tab_request(request: Request) -> bool:
    """Return whether the main frame of a tab requested the document."""
    frame = _frame_of(request)
    return frame is None or frame.parent_frame is None


def _frame_of(request: Request) -> Frame | None:
    """Return the frame that sent a request; None for a new tab that has no page yet."""
    try:
        return request.frame
    except PlaywrightError:
        return None


async def settle(page: Page, tracker: RequestTracker, timeout: float) -> bool:
    """Wait until `page` is quiet, for `timeout` seconds at most.

    Returns:
        Whether the page requested a new tab.
    """
    loop = asyncio.get_running_loop()
    opens_tab = False
    deadline = loop.time() + timeout
    while (remaining := deadline - loop.time()) > 0:
        if not tracker.is_busy:
            # 1. Wait for a quiet document. A page that never rests is limited more strictly.
            limit = min(remaining * 1000, _MAX_UNSETTLED_MS)
            try:
                quiet = injected.call(page, "quiet", _QUIET_MS, limit, timeout=remaining)
                opens_tab |= await asyncio.wait_for(quiet, remaining + _SLACK_SECONDS)
            except (TimeoutError, PlaywrightTimeout):
                return opens_tab  # the observation contains what has loaded so far
            except PlaywrightError as error:
                if page.is_closed():
                    return opens_tab  # a tab that closed itself
                if not injected.is_navigation_error(error):
                    raise
                continue  # a page that navigates again and again
        # 2. Scripts may have sent requests meanwhile; both conditions must hold at the same time.
        if not tracker.is_busy:
            return opens_tab
        # 3. Wait for the requests, whose responses may change the document again.
        await tracker.wait_until_idle(max(deadline - loop.time(), 0))
    return opens_tab
