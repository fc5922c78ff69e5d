"""One walk over a page and its frames, as the entries that an observation is made from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Frame, Page

from webagent_jax.browser import frames, injected
from webagent_jax.config import BrowserConfig
from webagent_jax.types import InfraError

NO_PAGE = "chrome-error:"  # address of what the browser shows when a page does not load
_NODES = 20_000  # elements looked at per observation, at most
_MILLISECONDS = 3000  # a last resort: what is seen must not depend on how busy the machine is

Entry = Mapping[str, Any]
"""What the scripts tell of one element, one run of text or one tag; see the walks in *.js."""


class Walk:
    """A walk that is done: what it found, and how much it left out."""

    def __init__(self, config: BrowserConfig, closed: Mapping[int, Frame], last_id: int):
        self.title = ""
        self.entries: list[Entry] = []
        self.stopped = False  # for want of room or time
        self.left = 0  # elements that were not looked at
        self._closed = dict(closed)  # those that are still to be walked
        self._limits = {
            "format": config.observation,
            "boxes": config.data_bbox,
            "chars": config.observation_chars,
            "nodes": _NODES,
            "millis": _MILLISECONDS,
            "lastId": last_id,
        }

    async def over(self, document: Page | Frame, place: Mapping[str, float] | None = None) -> None:
        """Adds what is in the document, and in closed frames there, in its order."""
        found = await injected.call_json(document, "observe", {**self._limits, "place": place})
        if not all(isinstance(entry, dict) for entry in found["entries"]):
            raise InfraError("the page broke observe(): its entries are no entries")
        self.title = self.title or found["title"]
        self.stopped |= found["stopped"]
        self.left += max(found["total"] - found["seen"], 0)
        self._limits["nodes"] -= found["seen"]
        self._limits["lastId"] = found["lastId"]
        for entry in found["entries"]:
            self.entries.append(entry)
            frame = self._closed.pop(entry.get("frame"), None)
            if frame is None:
                continue
            with contextlib.suppress(PlaywrightError, InfraError):  # a frame that is gone
                await self.over(frame, entry["place"])


async def walk(page: Page, config: BrowserConfig, allows: Callable[[str], bool]) -> Walk:
    """`allows` tells which addresses the frames may have that the page's scripts cannot enter.

    The browser's own words about a page that did not load are left out: the agent is told why.
    """
    if page.url.startswith(NO_PAGE):
        return Walk(config, {}, 0)
    closed = await frames.number_closed(page, allows)
    last_id = await frames.last_id([page.main_frame, *closed.values()]) if closed else 0
    done = Walk(config, closed, last_id)
    await done.over(page)
    return done
