"""DOM traversal of a page and its frames into the entries of an observation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from playwright.async_api import Frame, Page

from webagent_jax.browser import frames, injected
from webagent_jax.config import BrowserConfig

NO_PAGE = "chrome-error:"  # start of the address of a page that did not load
_MAX_NODES = 200_000  # elements per observation
# A generous limit, because observations must not depend on the load of the machine.
_MAX_MS = 3000

Entry = Mapping[str, Any]
"""Data of one element, run of text or tag; the `*Walk` classes in the *.js files define it."""


class Walk:
    """Traversal of a page: its entries, and the number of elements that it skipped."""

    def __init__(
        self, config: BrowserConfig, cross_origin_frames: Mapping[int, Frame], last_id: int
    ):
        self.title = ""
        self.entries: list[Entry] = []
        self.has_stopped = False  # whether a limit on size or time ended the traversal
        self.num_skipped = 0  # elements that were not visited
        self._pending_frames = dict(cross_origin_frames)  # not yet visited, by number
        self._limits = {
            "format": config.observation_format,
            "boxes": config.data_bbox,
            "chars": config.max_observation_chars,
            "nodes": _MAX_NODES,
            "millis": _MAX_MS,
            "lastId": last_id,
        }

    async def collect(
        self, document: Page | Frame, frame_box: Mapping[str, float] | None = None
    ) -> None:
        """Add the entries of a document and its cross-origin frames, in document order.

        Args:
            document: page or frame.
            frame_box: position and visible part of a frame in the viewport of the page; None for
                the page itself.

        Raises:
            Exception: the values are malformed, because the page replaced built-in functions.
        """
        result = await injected.call_json(
            document, "observe", {**self._limits, "frameBox": frame_box}
        )
        # The entries come from the page, which may have replaced JSON.stringify or Array methods.
        if not all(isinstance(entry, dict) for entry in result["entries"]):
            raise TypeError("the entries of the page are not objects")
        self.title = self.title or str(result["title"])
        self.has_stopped |= result["hasStopped"]
        self.num_skipped += max(result["total"] - result["numVisited"], 0)
        # The limit on elements and the ids are shared by all frames; the time limit is per frame.
        self._limits["nodes"] -= result["numVisited"]
        self._limits["lastId"] = result["lastId"]
        for entry in result["entries"]:
            self.entries.append(entry)
            # Each frame is visited once, even if a page repeats its number in its entries.
            frame = self._pending_frames.pop(entry.get("frame"), None)
            if frame is None:
                continue
            num_entries, limits = len(self.entries), dict(self._limits)
            try:
                await self.collect(frame, entry["frameBox"])
            except Exception:  # the frame was removed, or it broke the scripts
                del self.entries[num_entries:]
                self._limits = limits


async def walk(page: Page, config: BrowserConfig, allows: Callable[[str], bool]) -> Walk:
    """Traverse a page and its frames.

    The browser's error page has no entries, because the observation has an error message instead.

    Args:
        page: page to traverse.
        config: observation format and limits.
        allows: returns whether cross-origin frames with this address are traversed.
    """
    if page.url.startswith(NO_PAGE):
        return Walk(config, {}, 0)
    frames_by_number = await frames.tag_cross_origin_frames(page, allows)
    # Without cross-origin frames no other frame has ids, and a call per frame is saved.
    last_id = 0
    if frames_by_number:
        last_id = await frames.last_id([page.main_frame, *frames_by_number.values()])
    traversal = Walk(config, frames_by_number, last_id)
    await traversal.collect(page)
    return traversal
