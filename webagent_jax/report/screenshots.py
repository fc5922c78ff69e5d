"""Screenshots for the report: crop to the page content, and storage without duplicates."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging
from PIL import Image, ImageChops

from webagent_jax.tracking import atomic_files, episode_log

_MARGIN = 6  # pixels around the content of a page
_NOISE = 12  # maximum gray value difference of blank pixels, because JPEG is lossy

Rect = tuple[float, float, float, float]  # x, y, width, height in CSS pixels


@dataclass(frozen=True)
class ScreenshotView:
    """Screenshot of a viewport with the visible part and the target element."""

    name: str  # file name of the JPEG, see `episode_log.screenshot_name`
    size: tuple[int, int]  # width and height of the JPEG, equal to the viewport in CSS pixels
    crop: Rect  # visible part
    mark: Rect | None  # box of the target element; None without one, or outside the viewport


def content_area(screenshots: Sequence[bytes]) -> Rect | None:
    """Return the bounding box of the content of all screenshots; None if none is readable.

    A small page in a large viewport is mostly blank. Blank pixels have the color of the bottom
    right corner.
    """
    boxes = [box for screenshot in screenshots if (box := _content_box(screenshot))]
    if not boxes:
        return None
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    # One box for the whole episode, so that its steps have the same crop and scale.
    left, top = min(lefts), min(tops)
    return left, top, max(rights) - left, max(bottoms) - top


def make_view(
    screenshot: bytes | None, crop: Rect | None, mark: Rect | None
) -> ScreenshotView | None:
    """Return the view of a screenshot; None if it is missing or not readable.

    Args:
        screenshot: JPEG of the viewport.
        crop: visible part; None if no screenshot of the episode is readable.
        mark: box of the target element.
    """
    image = _open(screenshot) if screenshot else None
    if screenshot is None or image is None or crop is None:
        return None
    visible_mark = mark if mark and _is_visible(mark, image.size) else None
    return ScreenshotView(episode_log.screenshot_name(screenshot), image.size, crop, visible_mark)


def link_or_copy(screenshot: bytes, source: Path, folder: Path) -> None:
    """Store a screenshot in `folder`, if possible as a hard link.

    Args:
        screenshot: JPEG of the viewport.
        source: directory that contains the JPEG under its `screenshot_name`.
        folder: target directory.
    """
    name = episode_log.screenshot_name(screenshot)
    if (folder / name).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source / name, folder / name)
    except OSError:  # another file system, or no support for hard links
        atomic_files.write_bytes(folder / name, screenshot)


def _content_box(screenshot: bytes) -> tuple[int, int, int, int] | None:
    """Return left, top, right and bottom of the content with a margin."""
    image = _open(screenshot)
    if image is None:
        return None
    width, height = image.size
    blank = Image.new("RGB", image.size, image.getpixel((width - 1, height - 1)))
    difference = ImageChops.difference(image, blank).convert("L").point(_is_content)
    # A blank page has no bounding box and is shown as a whole.
    left, top, right, bottom = difference.getbbox() or (0, 0, width, height)
    return (
        max(left - _MARGIN, 0),
        max(top - _MARGIN, 0),
        min(right + _MARGIN, width),
        min(bottom + _MARGIN, height),
    )


def _is_content(difference: int) -> int:
    return 255 if difference > _NOISE else 0


def _open(screenshot: bytes) -> Image.Image | None:
    try:
        return Image.open(io.BytesIO(screenshot)).convert("RGB")
    except OSError as error:
        logging.warning("skipped a screenshot of %d bytes: %s", len(screenshot), error)
        return None


def _is_visible(mark: Rect, size: tuple[int, int]) -> bool:
    x, y, width, height = mark
    is_overlapping = x < size[0] and y < size[1] and x + width > 0 and y + height > 0
    return is_overlapping and width > 0 and height > 0
