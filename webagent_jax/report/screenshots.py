"""Pictures of pages for the report: cut to what they show, and kept once."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging
from PIL import Image, ImageChops

from webagent_jax.tracking import atomic_files, episode_log

_MARGIN = 6  # pixels kept around the content of a page
_NOISE = 12  # JPEG is lossy: smaller differences of grey value are no content

Rect = tuple[float, float, float, float]  # x, y, width, height in CSS pixels


@dataclass(frozen=True)
class Shot:
    """A picture of a page's viewport, to be shown through the window `crop`."""

    name: str  # of the JPEG, as the store names it
    size: tuple[int, int]  # of the JPEG, which is that of the viewport in CSS pixels
    crop: Rect
    mark: Rect | None  # of the acted element; None when there is none or it is out of sight


def content(pictures: Sequence[bytes]) -> Rect | None:
    """The smallest window through which all that any of the pictures shows can be seen.

    A small page in a large viewport is mostly empty; what is empty has the colour of the bottom
    right corner. None when no picture can be read.
    """
    boxes = [box for picture in pictures if (box := _content_box(picture))]
    if not boxes:
        return None
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    left, top = min(lefts), min(tops)
    return left, top, max(rights) - left, max(bottoms) - top


def shot(picture: bytes | None, crop: Rect | None, mark: Rect | None) -> Shot | None:
    """None when there is no picture, or none that can be read."""
    image = _open(picture) if picture else None
    if picture is None or image is None or crop is None:
        return None
    in_sight = mark if mark and _in_sight(mark, image.size) else None
    return Shot(episode_log.picture_name(picture), image.size, crop, in_sight)


def keep(picture: bytes, source: Path, folder: Path) -> None:
    """The picture as a file in `folder`: where that can be, a second name of that in `source`."""
    name = episode_log.picture_name(picture)
    if (folder / name).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source / name, folder / name)
    except OSError:  # another file system, or one without links
        atomic_files.write_bytes(folder / name, picture)


def _content_box(picture: bytes) -> tuple[int, int, int, int] | None:
    """Left, top, right and bottom of the content and its margin."""
    image = _open(picture)
    if image is None:
        return None
    width, height = image.size
    blank = Image.new("RGB", image.size, image.getpixel((width - 1, height - 1)))
    differs = ImageChops.difference(image, blank).convert("L").point(_is_content)
    left, top, right, bottom = differs.getbbox() or (0, 0, width, height)
    return (
        max(left - _MARGIN, 0),
        max(top - _MARGIN, 0),
        min(right + _MARGIN, width),
        min(bottom + _MARGIN, height),
    )


def _is_content(difference: int) -> int:
    return 255 if difference > _NOISE else 0


def _open(picture: bytes) -> Image.Image | None:
    try:
        return Image.open(io.BytesIO(picture)).convert("RGB")
    except OSError as error:
        logging.warning("a picture of %d bytes is left out: %s", len(picture), error)
        return None


def _in_sight(mark: Rect, size: tuple[int, int]) -> bool:
    x, y, width, height = mark
    overlaps = x < size[0] and y < size[1] and x + width > 0 and y + height > 0
    return overlaps and width > 0 and height > 0
