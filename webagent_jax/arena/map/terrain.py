"""The lie of the land: water, hills and woods, in metres east and north of Alder Falls.

The shapes of data/map_ground.json are in kilometres, a few points each; here they are rounded off.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from webagent_jax.arena import random_data

Point = tuple[int, int]  # metres

_LATITUDE, _LONGITUDE = 47.2, -38.6  # of Alder Falls
_METRES_NORTH = 111_200.0  # in a degree of latitude
_METRES_EAST = 75_550.0  # in a degree of longitude, at this latitude


def degrees(point: Point) -> tuple[float, float]:
    """Latitude and longitude, to about ten metres: four places."""
    x, y = point
    return round(_LATITUDE + y / _METRES_NORTH, 4), round(_LONGITUDE + x / _METRES_EAST, 4)


def metres(latitude: float, longitude: float) -> Point:
    x = round((longitude - _LONGITUDE) * _METRES_EAST)
    return x, round((latitude - _LATITUDE) * _METRES_NORTH)


def between(a: Point, b: Point) -> float:
    """Metres in a straight line."""
    return math.hypot(b[0] - a[0], b[1] - a[1])


@dataclass(frozen=True)
class River:
    name: str
    width: int
    line: tuple[Point, ...]


@dataclass(frozen=True)
class Ground:
    sea: tuple[Point, ...]  # closed, as lakes, woods and contours are
    lakes: tuple[tuple[Point, ...], ...]
    rivers: tuple[River, ...]
    woods: tuple[tuple[Point, ...], ...]
    contours: tuple[tuple[Point, ...], ...]
    labels: tuple[tuple[str, Point, str], ...]  # words, where, of what kind

    def wet(self, point: Point) -> bool:
        """In the sea or a lake."""
        return any(inside(point, shape) for shape in (self.sea, *self.lakes))


@functools.cache
def ground() -> Ground:
    told: Any = random_data.table("map_ground")
    rng = random_data.stream("map", "ground")
    coast = rounded(_points(told["coast"]))
    contours = [
        _blob(rng, x, y, radius=size * ring / 4, wobble=0.10)
        for x, y, size in told["peaks"]
        for ring in (1, 2, 3, 4)
    ]
    return Ground(
        sea=(*coast, *_points(told["corners"])),
        lakes=tuple(rounded(_points(each), closed=True) for each in told["lakes"]),
        rivers=tuple(
            River(each["name"], each["width"], rounded(_points(each["line"])))
            for each in told["rivers"]
        ),
        woods=tuple(_blob(rng, x, y, radius=size, wobble=0.22) for x, y, size in told["forests"]),
        contours=tuple(contours),
        labels=tuple((text, _metric(x, y), kind) for text, x, y, kind in told["labels"]),
    )


def _metric(x: float, y: float) -> Point:
    return round(x * 1000), round(y * 1000)


def _points(kilometres: Sequence[Sequence[float]]) -> list[Point]:
    return [_metric(x, y) for x, y in kilometres]


def _blob(
    rng: random.Random, x: float, y: float, *, radius: float, wobble: float
) -> tuple[Point, ...]:
    """A closed shape, nearly round."""
    turns = [step * math.tau / 11 for step in range(11)]
    reach = [radius * (1 + wobble * rng.uniform(-1, 1)) for _ in turns]
    corners = [
        _metric(x + size * math.cos(turn), y + 0.8 * size * math.sin(turn))
        for turn, size in zip(turns, reach, strict=True)
    ]
    return rounded(corners, closed=True)


def rounded(points: Sequence[Point], *, closed: bool = False, steps: int = 6) -> tuple[Point, ...]:
    """A smooth line through points (Catmull and Rom's spline), `steps` pieces from one to the "
    "next."""
    count = len(points)
    at = (lambda i: points[i % count]) if closed else (lambda i: points[min(max(i, 0), count - 1)])
    line: list[Point] = []
    for i in range(count if closed else count - 1):
        corners = at(i - 1), at(i), at(i + 1), at(i + 2)
        line += [_spline(corners, step / steps) for step in range(steps)]
    return tuple(line if closed else [*line, points[-1]])


def _spline(corners: tuple[Point, Point, Point, Point], t: float) -> Point:
    x, y = (
        b + t / 2 * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
        for a, b, c, d in zip(*corners, strict=True)
    )
    return round(x), round(y)


def inside(point: Point, shape: Sequence[Point]) -> bool:
    """Whether a point is in a closed shape: a ray from it crosses the border an odd time."""
    x, y = point
    odd = False
    for (ax, ay), (bx, by) in _sides(shape):
        if (ay > y) != (by > y) and x < ax + (y - ay) * (bx - ax) / (by - ay):
            odd = not odd
    return odd


def _sides(shape: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    return zip(shape, (*shape[1:], shape[0]), strict=True)


def crosses(a: Point, b: Point, line: Sequence[Point]) -> bool:
    """Whether the straight way from a to b meets a line."""
    return any(
        _side(a, b, c) != _side(a, b, d) and _side(c, d, a) != _side(c, d, b)
        for c, d in itertools.pairwise(line)
    )


def _side(a: Point, b: Point, c: Point) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0])
