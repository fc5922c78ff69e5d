"""Frames that the scripts around them cannot enter, because they come from another origin.

Each is walked by scripts of its own and gives ids of its own; all of them count on from the highest
id of the page, so that an id says which frame to ask.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Frame, Page

_MOST = 20  # frames looked at
_OF_THE_PAGE = "about:srcdoc"  # a frame written out in the page, closed when it is sandboxed


async def number_closed(page: Page, allows: Callable[[str], bool]) -> dict[int, Frame]:
    """The closed frames to walk, by the number that their elements in the page now have."""
    found = {}
    for number, frame in enumerate(page.frames[1 : 1 + _MOST]):
        wanted = allows(frame.url) or frame.url == _OF_THE_PAGE
        given = number if wanted else None
        if await _answer(_in_parent(frame, "numberFrame", given)) and wanted:
            found[number] = frame
    return found


async def last_id(frames: Iterable[Frame]) -> int:
    """The highest id that any of the frames has given."""
    script = "() => window.__webagent?.highestId()"
    return max([await _answer(frame.evaluate(script)) or 0 for frame in frames])


async def holder(page: Page, element_id: str) -> Frame:
    """The frame that gave this id; the page's own when none did."""
    script = "id => window.__webagent?.holds(id)"
    for frame in page.frames:
        if await _answer(frame.evaluate(script, element_id)):
            return frame
    return page.main_frame


async def outward(frame: Frame, place: dict[str, Any]) -> dict[str, Any]:
    """A place to point at in `frame`, as one of the page; {"error"} when the frame is covered."""
    while frame.parent_frame is not None and "error" not in place:
        place = await _in_parent(frame, "outward", place)
        frame = frame.parent_frame
    return place


async def _in_parent(frame: Frame, function: str, argument: Any) -> Any:
    """Calls an injected function of the document around `frame` with the frame's element there."""
    element = await frame.frame_element()
    try:
        return await element.evaluate(
            f"(frame, argument) => window.__webagent?.{function}(frame, argument)", argument
        )
    finally:
        await element.dispose()


async def _answer(work: Awaitable[Any]) -> Any:
    """None from a frame that went away."""
    try:
        return await work
    except PlaywrightError:
        return None
