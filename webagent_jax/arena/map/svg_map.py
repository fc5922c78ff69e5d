"""Map as a picture (SVG), with sea, hills and letters in the style of old atlases.

The picture is for human users: pages mark it `aria-hidden` and contain its information as text.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from webagent_jax.arena import common
from webagent_jax.arena.map.network import Edge, RoadKind
from webagent_jax.arena.map.roads import network
from webagent_jax.arena.map.terrain import Point, terrain

WIDTH, HEIGHT = 840, 664  # size of the picture in SVG units
REGION = (3_500, 1_500, 112.0)  # center x and y, and meters per unit, of the whole region

_WIDTHS: dict[RoadKind, tuple[float, float]] = {  # width in meters, and minimum width in units
    "trail": (5, 1.1),
    "path": (3, 1.0),
    "square": (14, 1.5),
    "street": (13, 0.5),
    "main": (20, 1.0),
    "road": (24, 1.7),
    "motorway": (34, 2.6),
}


@dataclass(frozen=True, slots=True)
class Pin:
    point: Point
    text: str = ""  # letter or number on the pin


@dataclass(frozen=True, slots=True)
class Frame:
    """Visible part of the region."""

    x: int
    y: int
    scale: float  # meters per unit

    def to_svg(self, point: Point) -> tuple[float, float]:
        x = WIDTH / 2 + (point[0] - self.x) / self.scale
        return round(x, 1), round(HEIGHT / 2 - (point[1] - self.y) / self.scale, 1)

    def path(self, line: Sequence[Point], *, closed: bool = False) -> str:
        """Return the data of an SVG path, without corners that almost coincide."""
        words: list[str] = []
        last = None
        for point in line:
            x, y = self.to_svg(point)
            if last is None or abs(x - last[0]) + abs(y - last[1]) > 1.4:
                words.append(f"{x:g} {y:g}")
                last = (x, y)
        return f"M{'L'.join(words)}{'Z' if closed else ''}"

    def shows(self, line: Sequence[Point]) -> bool:
        """Return whether part of a line may be in the frame."""
        low_x, high_x, low_y, high_y = _bounding_box(tuple(line))
        half_width, half_height = self.scale * (WIDTH / 2 + 30), self.scale * (HEIGHT / 2 + 30)
        return (
            low_x < self.x + half_width
            and high_x > self.x - half_width
            and low_y < self.y + half_height
            and high_y > self.y - half_height
        )


@functools.lru_cache(maxsize=8192)
def _bounding_box(line: tuple[Point, ...]) -> tuple[int, int, int, int]:
    xs, ys = [p[0] for p in line], [p[1] for p in line]
    return min(xs), max(xs), min(ys), max(ys)


def fit_frame(points: Sequence[Point], *, min_scale: float = 1.9) -> Frame:
    """Return a frame of all the points with a margin; the whole region if it would be large.

    Args:
        points: points to show.
        min_scale: minimum scale in meters per unit.
    """
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    exact_scale = max(
        (max(xs) - min(xs)) / (WIDTH * 0.78), (max(ys) - min(ys)) / (HEIGHT * 0.78), min_scale
    )
    scale = min_scale * 1.25 ** math.ceil(math.log(exact_scale / min_scale, 1.25) - 1e-9)
    if scale > REGION[2] / 2:
        return region_frame()
    return Frame((min(xs) + max(xs)) // 2, (min(ys) + max(ys)) // 2, scale)


def region_frame() -> Frame:
    return Frame(*REGION)


def draw_map(frame: Frame, pins: Sequence[Pin] = (), route: Sequence[Point] = ()) -> Markup:
    """Return the SVG picture of a frame.

    Args:
        frame: visible part of the region.
        pins: pins to draw.
        route: line to draw, empty for none.
    """
    route_path = frame.path(route) if route else ""
    # The layers escape the names that they draw.
    return Markup(
        f'<svg class="map" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="xMidYMid slice"'
        f' aria-hidden="true">{_draw_base(frame)}'
        + (
            f'<path class="way-edge" d="{route_path}"/><path class="way" d="{route_path}"/>'
            if route_path
            else ""
        )
        + "".join(_draw_pin(frame, pin) for pin in pins)
        + "</svg>"
    )


def _draw_pin(frame: Frame, pin: Pin) -> str:
    x, y = frame.to_svg(pin.point)
    return (
        f'<g class="pin" transform="translate({x:g} {y:g})"><ellipse rx="6" ry="2.4"/>'
        '<path d="M0 0C-3-9-12-13-12-22a12 12 0 1 1 24 0C12-13 3-9 0 0Z"/>'
        + (
            f'<text y="-17.5">{escape(pin.text)}</text>'
            if pin.text
            else '<circle cy="-22" r="4.5"/>'
        )
        + "</g>"
    )


# --- layers of the base map ----------------------------------------------------------------------


@functools.lru_cache(maxsize=512)
def _draw_base(frame: Frame) -> str:
    layers = (_draw_land, _draw_towns, _draw_water, _draw_roads, _draw_labels)
    return "".join([part for layer in layers for part in layer(frame)]) + _draw_legend(frame)


def _draw_shapes(frame: Frame, kind: str, shapes: Sequence[Sequence[Point]]) -> str:
    path_data = "".join(frame.path(shape, closed=True) for shape in shapes if frame.shows(shape))
    return f'<path class="{kind}" d="{path_data}"/>' if path_data else ""


def _draw_land(frame: Frame) -> Iterator[str]:
    land = terrain()
    yield f'<rect class="land" width="{WIDTH}" height="{HEIGHT}"/>'
    yield _draw_shapes(frame, "wood", land.woods)
    yield _draw_shapes(frame, "contour", land.contours)


def _draw_water(frame: Frame) -> Iterator[str]:
    land = terrain()
    for river in land.rivers:
        if frame.shows(river.line):
            stroke_width = max(river.width / frame.scale, 1.4)
            path_data = frame.path(river.line)
            yield f'<path class="river" style="stroke-width:{stroke_width:.1f}" d="{path_data}"/>'
    if frame.shows(land.sea):
        sea = frame.path(land.sea, closed=True)
        yield f'<clipPath id="sea"><path id="coast" d="{sea}"/></clipPath>'
        rings = "".join(f'<use href="#coast" class="shore s{i}"/>' for i in (1, 2, 3))
        yield '<use href="#coast" class="water"/>'
        yield f'<g clip-path="url(#sea)">{rings}</g><use href="#coast" class="coast"/>'
    yield _draw_shapes(frame, "water lake", land.lakes)


@functools.cache
def _town_hulls() -> tuple[tuple[Point, ...], ...]:
    """Return the convex hull of the junctions of each town."""
    net = network()
    corners: dict[str, set[Point]] = {city.name: set() for city in common.cities()}
    for edge in net.edges:
        if edge.kind in ("main", "street"):
            corners[edge.town].update(edge.line)
    return tuple(_convex_hull(sorted(points)) for points in corners.values())


def _convex_hull(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the convex hull by Andrew's monotone chain."""

    def chain(points: Sequence[Point]) -> list[Point]:
        line: list[Point] = []
        for x, y in points:
            while len(line) > 1 and (line[-1][0] - line[-2][0]) * (y - line[-2][1]) <= (
                line[-1][1] - line[-2][1]
            ) * (x - line[-2][0]):
                line.pop()
            line.append((x, y))
        return line[:-1]

    return (*chain(points), *chain(points[::-1]))


def _draw_towns(frame: Frame) -> Iterator[str]:
    yield _draw_shapes(frame, "town", _town_hulls())
    if frame.scale < 30:
        yield _draw_shapes(frame, "park", [shape for shape, _ in network().parks])


def _edges_in_frame(frame: Frame) -> list[Edge]:
    """Return the roads to draw; for large frames, only those between towns."""
    if frame.scale >= 45:
        main_edges = (e for e in network().edges if e.kind in ("road", "motorway", "trail"))
        return [edge for edge in main_edges if frame.shows(edge.line)]
    half_width, half_height = frame.scale * (WIDTH / 2 + 30), frame.scale * (HEIGHT / 2 + 30)
    corners = (
        (frame.x - half_width, frame.y - half_height),
        (frame.x + half_width, frame.y + half_height),
    )
    return network().edges_in_box(*((round(x), round(y)) for x, y in corners))


def _draw_roads(frame: Frame) -> Iterator[str]:
    """Yield the rims of all roads, then the roads, small ones first, so that crossings are open."""
    edges_by_kind: dict[RoadKind, list[Edge]] = {kind: [] for kind in _WIDTHS}
    for edge in _edges_in_frame(frame):
        edges_by_kind[edge.kind].append(edge)
    paths = {
        kind: "".join(frame.path(edge.line) for edge in edges)
        for kind, edges in edges_by_kind.items()
        if edges
    }
    for kind, path in paths.items():
        if kind not in ("path", "trail"):
            rim_width = _stroke_width(frame, kind) + (2 if frame.scale < 12 else 1.1)
            yield f'<path class="rim" style="stroke-width:{rim_width:.1f}" d="{path}"/>'
    for kind, path in paths.items():
        yield (
            f'<path class="{kind}" style="stroke-width:{_stroke_width(frame, kind):.1f}"'
            f' d="{path}"/>'
        )


def _stroke_width(frame: Frame, kind: RoadKind) -> float:
    meters, min_width = _WIDTHS[kind]
    return max(meters / frame.scale, min_width)


# --- labels --------------------------------------------------------------------------------------


def _draw_labels(frame: Frame) -> Iterator[str]:
    """Yield the labels, the topmost last."""
    if frame.scale > 20:
        yield from _draw_land_names(frame)
    if frame.scale < 3.6:
        yield from _draw_street_names(frame)
    elif frame.scale > 12:
        yield from _draw_road_numbers(frame)
    if frame.scale > 3.6:
        yield from _draw_town_names(frame)


def _draw_land_names(frame: Frame) -> Iterator[str]:
    for text, point, kind in terrain().labels:
        if frame.shows([point]):
            x, y = frame.to_svg(point)
            yield f'<text class="{kind}-name" x="{x:g}" y="{y:g}">{escape(text)}</text>'
    for i, river in enumerate(terrain().rivers):
        if frame.shows(river.line):
            yield (
                f'<path id="r{i}" d="{frame.path(river.line)}"/><text class="river-name" dy="-4">'
                f'<textPath href="#r{i}" startOffset="18%">{escape(river.name)}</textPath></text>'
            )


def _draw_town_names(frame: Frame) -> Iterator[str]:
    for city in common.cities():
        center = (round(city.x * 1000), round(city.y * 1000))
        if frame.shows([center]):
            x, y = frame.to_svg(center)
            size = 11.5 + 2.1 * math.log(city.population / 4000)
            offset = 9 + 1500 / frame.scale if frame.scale > 30 else 0
            yield (
                f'<text class="town-name" style="font-size:{size:.1f}px" x="{x:g}"'
                f' y="{y - offset:g}">{escape(city.name)}</text>'
            )


def _draw_street_names(frame: Frame) -> Iterator[str]:
    """Yield each street name once, near the center of the frame."""
    best: dict[tuple[str, str], tuple[float, Edge]] = {}
    for edge in _edges_in_frame(frame):
        if edge.length > 90:
            x, y = frame.to_svg(network().point_at(edge, edge.length // 2))
            if 40 < x < WIDTH - 40 and 20 < y < HEIGHT - 20:
                distance = abs(x - WIDTH / 2 + 37 * (len(edge.name) % 5 - 2)) + abs(
                    y - HEIGHT / 2 + 60
                )
                key = (edge.town, edge.name)
                best[key] = min(
                    best.get(key, (1e9, edge)), (distance, edge), key=lambda candidate: candidate[0]
                )
    for (_, name), (_, edge) in best.items():
        x, y = frame.to_svg(network().point_at(edge, edge.length // 2))
        (start_x, start_y), (end_x, end_y) = frame.to_svg(edge.line[0]), frame.to_svg(edge.line[-1])
        turn = math.degrees(math.atan2(end_y - start_y, end_x - start_x))
        turn = turn - 180 if turn > 90 else turn + 180 if turn < -90 else turn
        spot = f"translate({x:g} {y:g}) rotate({turn:.0f})"
        yield f'<text class="street-name" transform="{spot}" dy="3">{escape(name)}</text>'


def _draw_road_numbers(frame: Frame) -> Iterator[str]:
    labeled_names: set[str] = set()
    for edge in network().edges:
        if edge.kind not in ("road", "motorway") or edge.name in labeled_names:
            continue
        x, y = frame.to_svg(edge.line[-1])
        if 30 < x < WIDTH - 30 and 30 < y < HEIGHT - 30:
            labeled_names.add(edge.name)
            number = edge.name.replace("Motorway ", "M").replace("Route ", "")
            shield_width = 7 + 6.4 * len(number)
            yield (
                f'<g class="shield {edge.kind}-shield" transform="translate({x:g} {y:g})">'
                f'<rect x="{-shield_width / 2:g}" y="-7.5" width="{shield_width:g}" height="15"'
                ' rx="3.5"/>'
                f'<text y="3.7">{number}</text></g>'
            )


def _draw_legend(frame: Frame) -> str:
    """Return the compass and the scale bar."""
    for meters in (100, 200, 500, 1000, 2000, 5000, 10_000):
        if meters / frame.scale >= 60:
            break
    bar_width = meters / frame.scale
    label = f"{meters} m" if meters < 1000 else f"{meters // 1000} km"
    return (
        f'<g class="scale" transform="translate({WIDTH - 26} {HEIGHT - 20})">'
        f'<path d="M{-bar_width:.1f}-6V0H0V-6"/>'
        f'<text x="{-bar_width / 2:.1f}" y="-5">{label}</text></g>'
        f'<g class="compass" transform="translate({WIDTH - 52} 56)"><circle r="27"/><circle '
        f'r="22"/>'
        '<path class="minor" d="M0-16L3-3L16 0L3 3L0 16L-3 3L-16 0L-3-3Z" transform="rotate(45)"/>'
        '<path d="M0-25L5-5L25 0L5 5L0 25L-5 5L-25 0L-5-5Z"/>'
        '<path class="north" d="M0-25L5-5L0 0Z"/><text y="-29">N</text></g>'
    )
