"""Terrain: water, hills and woods, in meters east and north of Alder Falls.

The shapes in data/map_ground.json are in kilometers and have few points; splines smooth them.
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

Point = tuple[int, int]  # meters east and north of Alder Falls

_LATITUDE, _LONGITUDE = 47.2, -38.6  # coordinates of Alder Falls in degrees
_METERS_PER_LATITUDE_DEGREE = 111_200.0  # meters per degree of latitude
_METERS_PER_LONGITUDE_DEGREE = 75_550.0  # meters per degree of longitude at this latitude


def to_degrees(point: Point) -> tuple[float, float]:
    """Return latitude and longitude with four decimals, which is about ten meters."""
    x, y = point
    return round(_LATITUDE + y / _METERS_PER_LATITUDE_DEGREE, 4), round(
        _LONGITUDE + x / _METERS_PER_LONGITUDE_DEGREE, 4
    )


def to_point(latitude: float, longitude: float) -> Point:
    x = round((longitude - _LONGITUDE) * _METERS_PER_LONGITUDE_DEGREE)
    return x, round((latitude - _LATITUDE) * _METERS_PER_LATITUDE_DEGREE)


def straight_distance(a: Point, b: Point) -> float:
    """Return the straight-line distance in meters."""
    return math.hypot(b[0] - a[0], b[1] - a[1])


@dataclass(frozen=True)
class River:
    name: str
    width: int
    line: tuple[Point, ...]


@dataclass(frozen=True)
class Terrain:
    sea: tuple[Point, ...]  # closed shape, like lakes, woods and contours
    lakes: tuple[tuple[Point, ...], ...]
    rivers: tuple[River, ...]
    woods: tuple[tuple[Point, ...], ...]
    contours: tuple[tuple[Point, ...], ...]
    labels: tuple[tuple[str, Point, str], ...]  # text, position and kind

    def is_water(self, point: Point) -> bool:
        """Return whether a point is in the sea or a lake."""
        return any(contains(point, shape) for shape in (self.sea, *self.lakes))


@functools.cache
def terrain() -> Terrain:
    shapes: Any = random_data.read_json("map_ground")
    rng = random_data.random_stream("map", "ground")
    coast = smooth_line(_to_points(shapes["coast"]))
    contours = [
        _sample_blob(rng, x, y, radius=size * ring / 4, wobble=0.10)
        for x, y, size in shapes["peaks"]
        for ring in (1, 2, 3, 4)
    ]
    return Terrain(
        sea=(*coast, *_to_points(shapes["corners"])),
        lakes=tuple(smooth_line(_to_points(shape), closed=True) for shape in shapes["lakes"]),
        rivers=tuple(
            River(shape["name"], shape["width"], smooth_line(_to_points(shape["line"])))
            for shape in shapes["rivers"]
        ),
        woods=tuple(
            _sample_blob(rng, x, y, radius=size, wobble=0.22) for x, y, size in shapes["forests"]
        ),
        contours=tuple(contours),
        labels=tuple((text, _to_meters(x, y), kind) for text, x, y, kind in shapes["labels"]),
    )


def _to_meters(x: float, y: float) -> Point:
    return round(x * 1000), round(y * 1000)


def _to_points(kilometers: Sequence[Sequence[float]]) -> list[Point]:
    return [_to_meters(x, y) for x, y in kilometers]


def _sample_blob(
    rng: random.Random, x: float, y: float, *, radius: float, wobble: float
) -> tuple[Point, ...]:
    """Return a closed, nearly round shape; `x`, `y` and `radius` are in kilometers."""
    turns = [step * math.tau / 11 for step in range(11)]
    reach = [radius * (1 + wobble * rng.uniform(-1, 1)) for _ in turns]
    corners = [
        _to_meters(x + size * math.cos(turn), y + 0.8 * size * math.sin(turn))
        for turn, size in zip(turns, reach, strict=True)
    ]
    return smooth_line(corners, closed=True)


def smooth_line(
    points: Sequence[Point], *, closed: bool = False, steps: int = 6
) -> tuple[Point, ...]:
    """Return a smooth line through points (Catmull-Rom spline).

    Args:
        points: points of the line.
        closed: whether the last point connects to the first.
        steps: pieces from one point to the next.
    """
    count = len(points)
    point_at = (
        (lambda i: points[i % count]) if closed else (lambda i: points[min(max(i, 0), count - 1)])
    )
    line: list[Point] = []
    for i in range(count if closed else count - 1):
        corners = point_at(i - 1), point_at(i), point_at(i + 1), point_at(i + 2)
        line += [_spline(corners, step / steps) for step in range(steps)]
    return tuple(line if closed else [*line, points[-1]])


def _spline(corners: tuple[Point, Point, Point, Point], t: float) -> Point:
    x, y = (
        b + t / 2 * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
        for a, b, c, d in zip(*corners, strict=True)
    )
    return round(x), round(y)


def contains(point: Point, shape: Sequence[Point]) -> bool:
    """Return whether a closed shape contains a point, by the even-odd rule."""
    x, y = point
    is_inside = False
    for (start_x, start_y), (end_x, end_y) in _sides(shape):
        if (start_y > y) != (end_y > y) and x < start_x + (y - start_y) * (end_x - start_x) / (
            end_y - start_y
        ):
            is_inside = not is_inside
    return is_inside


def _sides(shape: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    return zip(shape, (*shape[1:], shape[0]), strict=True)


def crosses(a: Point, b: Point, line: Sequence[Point]) -> bool:
    """Return whether the segment from `a` to `b` crosses a line."""
    return any(
        _side(a, b, c) != _side(a, b, d) and _side(c, d, a) != _side(c, d, b)
        for c, d in itertools.pairwise(line)
    )


def _side(a: Point, b: Point, c: Point) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0])
