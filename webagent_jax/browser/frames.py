"""Cross-origin frames, whose documents the scripts of the page cannot access.

The scripts run in each frame separately and assign element ids there. The ids of all frames
continue from the highest id of the page, so an id identifies the frame of its element.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Frame, Page

_MAX_FRAMES = 20  # frames checked per page
_SRCDOC_URL = "about:srcdoc"  # inline frame, which is cross-origin when it is sandboxed


async def tag_cross_origin_frames(page: Page, allows: Callable[[str], bool]) -> dict[int, Frame]:
    """Tag the elements of cross-origin frames; return the frames to traverse by their numbers.

    Args:
        page: page with the frames.
        allows: returns whether frames with this address are traversed.
    """
    frames_by_number = {}
    # The first frame is the main frame, which `collect` starts from.
    for number, frame in enumerate(page.frames[1 : 1 + _MAX_FRAMES]):
        is_allowed = allows(frame.url) or frame.url == _SRCDOC_URL
        tag = number if is_allowed else None
        if await _or_none(_call_in_parent(frame, "numberFrame", tag)) and is_allowed:
            frames_by_number[number] = frame
    return frames_by_number


async def last_id(frames: Iterable[Frame]) -> int:
    """Return the highest element id in the frames."""
    script = "() => window.__webagent?.highestId()"
    return max([await _or_none(frame.evaluate(script)) or 0 for frame in frames])


async def frame_of_element(page: Page, element_id: str) -> Frame:
    """Return the frame that assigned this id; the main frame of the page if none did."""
    script = "id => window.__webagent?.hasElement(id)"
    # Ids are unique over all frames, so at most one frame has the element.
    for frame in page.frames:
        if await _or_none(frame.evaluate(script, element_id)):
            return frame
    return page.main_frame


async def to_page_coordinates(frame: Frame, point: dict[str, Any]) -> dict[str, Any]:
    """Convert a point in `frame` to page coordinates; {"error"} if the frame is covered."""
    # One step per level of nesting: each parent adds the position of its frame element.
    while frame.parent_frame is not None and "error" not in point:
        point = await _call_in_parent(frame, "toParentCoordinates", point)
        frame = frame.parent_frame
    return point


async def _call_in_parent(frame: Frame, function: str, argument: Any) -> Any:
    """Call an injected function of the parent document with the element of `frame`."""
    element = await frame.frame_element()
    try:
        return await element.evaluate(
            f"(frame, argument) => window.__webagent?.{function}(frame, argument)", argument
        )
    finally:
        # Handles keep their element alive in the page.
        await element.dispose()


async def _or_none(work: Awaitable[Any]) -> Any:
    """Return the result of `work`; None if its frame was removed."""
    try:
        return await work
    except PlaywrightError:
        return None
