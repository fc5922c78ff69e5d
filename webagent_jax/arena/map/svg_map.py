"""The map as a picture (SVG): old atlases were looked at for the sea, the hills and the letters.

It is for people: pages mark it `aria-hidden`, and tell in words whatever it shows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from webagent_jax.arena import common
from webagent_jax.arena.map.network import Edge, Kind
from webagent_jax.arena.map.roads import network
from webagent_jax.arena.map.terrain import Point, ground

WIDTH, HEIGHT = 840, 664  # of the picture, in its own units
REGION = (3_500, 1_500, 112.0)  # centre, and metres a unit: all of it

_WIDTHS: dict[Kind, tuple[float, float]] = {  # metres, and units at least
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
    at: Point
    text: str = ""  # a letter or a number


@dataclass(frozen=True, slots=True)
class Frame:
    """What part of the land is shown."""

    x: int
    y: int
    scale: float  # metres a unit

    def place(self, point: Point) -> tuple[float, float]:
        x = WIDTH / 2 + (point[0] - self.x) / self.scale
        return round(x, 1), round(HEIGHT / 2 - (point[1] - self.y) / self.scale, 1)

    def path(self, line: Sequence[Point], *, closed: bool = False) -> str:
        """Of an SVG path. Corners that fall together are left out."""
        words: list[str] = []
        last = None
        for point in line:
            x, y = self.place(point)
            if last is None or abs(x - last[0]) + abs(y - last[1]) > 1.4:
                words.append(f"{x:g} {y:g}")
                last = (x, y)
        return f"M{'L'.join(words)}{'Z' if closed else ''}"

    def shows(self, line: Sequence[Point]) -> bool:
        """Whether some of a line may be in the frame."""
        low_x, high_x, low_y, high_y = _box(tuple(line))
        wide, high = self.scale * (WIDTH / 2 + 30), self.scale * (HEIGHT / 2 + 30)
        return (
            low_x < self.x + wide
            and high_x > self.x - wide
            and low_y < self.y + high
            and high_y > self.y - high
        )


@functools.lru_cache(maxsize=8192)
def _box(line: tuple[Point, ...]) -> tuple[int, int, int, int]:
    xs, ys = [p[0] for p in line], [p[1] for p in line]
    return min(xs), max(xs), min(ys), max(ys)


def around(points: Sequence[Point], *, least: float = 1.9) -> Frame:
    """A frame that shows all the points, with some room; the whole region if it must be large."""
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    needed = max((max(xs) - min(xs)) / (WIDTH * 0.78), (max(ys) - min(ys)) / (HEIGHT * 0.78), least)
    scale = least * 1.25 ** math.ceil(math.log(needed / least, 1.25) - 1e-9)
    if scale > REGION[2] / 2:
        return region()
    return Frame((min(xs) + max(xs)) // 2, (min(ys) + max(ys)) // 2, scale)


def region() -> Frame:
    return Frame(*REGION)


def picture(frame: Frame, pins: Sequence[Pin] = (), route: Sequence[Point] = ()) -> Markup:
    """The whole of it."""
    way = frame.path(route) if route else ""
    return Markup(  # names on it are escaped where they are drawn
        f'<svg class="map" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="xMidYMid slice"'
        f' aria-hidden="true">{_base(frame)}'
        + (f'<path class="way-edge" d="{way}"/><path class="way" d="{way}"/>' if way else "")
        + "".join(_pin(frame, pin) for pin in pins)
        + "</svg>"
    )


def _pin(frame: Frame, pin: Pin) -> str:
    x, y = frame.place(pin.at)
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


# --- what is always there ------------------------------------------------------------------------


@functools.lru_cache(maxsize=512)
def _base(frame: Frame) -> str:
    layers = (_land, _towns, _water, _roads, _letters)
    return "".join([part for layer in layers for part in layer(frame)]) + _legend(frame)


def _shapes(frame: Frame, kind: str, shapes: Sequence[Sequence[Point]]) -> str:
    told = "".join(frame.path(shape, closed=True) for shape in shapes if frame.shows(shape))
    return f'<path class="{kind}" d="{told}"/>' if told else ""


def _land(frame: Frame) -> Iterator[str]:
    land = ground()
    yield f'<rect class="land" width="{WIDTH}" height="{HEIGHT}"/>'
    yield _shapes(frame, "wood", land.woods)
    yield _shapes(frame, "contour", land.contours)


def _water(frame: Frame) -> Iterator[str]:
    land = ground()
    for river in land.rivers:
        if frame.shows(river.line):
            wide = max(river.width / frame.scale, 1.4)
            told = frame.path(river.line)
            yield f'<path class="river" style="stroke-width:{wide:.1f}" d="{told}"/>'
    if frame.shows(land.sea):
        sea = frame.path(land.sea, closed=True)
        yield f'<clipPath id="sea"><path id="coast" d="{sea}"/></clipPath>'
        rings = "".join(f'<use href="#coast" class="shore s{i}"/>' for i in (1, 2, 3))
        yield '<use href="#coast" class="water"/>'
        yield f'<g clip-path="url(#sea)">{rings}</g><use href="#coast" class="coast"/>'
    yield _shapes(frame, "water lake", land.lakes)


@functools.cache
def _hulls() -> tuple[tuple[Point, ...], ...]:
    """Around each town: the smallest shape without dents that has all of its junctions."""
    net = network()
    corners: dict[str, set[Point]] = {city.name: set() for city in common.cities()}
    for edge in net.edges:
        if edge.kind in ("main", "street"):
            corners[edge.town].update(edge.line)
    return tuple(_hull(sorted(points)) for points in corners.values())


def _hull(points: Sequence[Point]) -> tuple[Point, ...]:
    """Andrew's monotone chain."""

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


def _towns(frame: Frame) -> Iterator[str]:
    yield _shapes(frame, "town", _hulls())
    if frame.scale < 30:
        yield _shapes(frame, "park", [shape for shape, _ in network().greens])


def _edges(frame: Frame) -> list[Edge]:
    """The roads to draw: from afar, those between towns alone."""
    if frame.scale >= 45:
        overland = (e for e in network().edges if e.kind in ("road", "motorway", "trail"))
        return [edge for edge in overland if frame.shows(edge.line)]
    wide, high = frame.scale * (WIDTH / 2 + 30), frame.scale * (HEIGHT / 2 + 30)
    corners = (frame.x - wide, frame.y - high), (frame.x + wide, frame.y + high)
    return network().inside(*((round(x), round(y)) for x, y in corners))


def _roads(frame: Frame) -> Iterator[str]:
    """Small ones first; the rims of all before the roads, so that crossings are open."""
    shown: dict[Kind, list[Edge]] = {kind: [] for kind in _WIDTHS}
    for edge in _edges(frame):
        shown[edge.kind].append(edge)
    paths = {
        kind: "".join(frame.path(edge.line) for edge in edges)
        for kind, edges in shown.items()
        if edges
    }
    for kind, path in paths.items():
        if kind not in ("path", "trail"):
            wide = _wide(frame, kind) + (2 if frame.scale < 12 else 1.1)
            yield f'<path class="rim" style="stroke-width:{wide:.1f}" d="{path}"/>'
    for kind, path in paths.items():
        yield f'<path class="{kind}" style="stroke-width:{_wide(frame, kind):.1f}" d="{path}"/>'


def _wide(frame: Frame, kind: Kind) -> float:
    metres, least = _WIDTHS[kind]
    return max(metres / frame.scale, least)


# --- letters -------------------------------------------------------------------------------------


def _letters(frame: Frame) -> Iterator[str]:
    """What must be read last is drawn last."""
    if frame.scale > 20:
        yield from _land_names(frame)
    if frame.scale < 3.6:
        yield from _street_names(frame)
    elif frame.scale > 12:
        yield from _road_numbers(frame)
    if frame.scale > 3.6:
        yield from _town_names(frame)


def _land_names(frame: Frame) -> Iterator[str]:
    for text, point, kind in ground().labels:
        if frame.shows([point]):
            x, y = frame.place(point)
            yield f'<text class="{kind}-name" x="{x:g}" y="{y:g}">{escape(text)}</text>'
    for i, river in enumerate(ground().rivers):
        if frame.shows(river.line):
            yield (
                f'<path id="r{i}" d="{frame.path(river.line)}"/><text class="river-name" dy="-4">'
                f'<textPath href="#r{i}" startOffset="18%">{escape(river.name)}</textPath></text>'
            )


def _town_names(frame: Frame) -> Iterator[str]:
    for city in common.cities():
        centre = (round(city.x * 1000), round(city.y * 1000))
        if frame.shows([centre]):
            x, y = frame.place(centre)
            size = 11.5 + 2.1 * math.log(city.population / 4000)
            above = 9 + 1500 / frame.scale if frame.scale > 30 else 0
            yield (
                f'<text class="town-name" style="font-size:{size:.1f}px" x="{x:g}"'
                f' y="{y - above:g}">{escape(city.name)}</text>'
            )


def _street_names(frame: Frame) -> Iterator[str]:
    """Each once, where most of it is seen."""
    best: dict[tuple[str, str], tuple[float, Edge]] = {}
    for edge in _edges(frame):
        if edge.length > 90:
            x, y = frame.place(network().at(edge, edge.length // 2))
            if 40 < x < WIDTH - 40 and 20 < y < HEIGHT - 20:
                away = abs(x - WIDTH / 2 + 37 * (len(edge.name) % 5 - 2)) + abs(y - HEIGHT / 2 + 60)
                key = (edge.town, edge.name)
                best[key] = min(best.get(key, (1e9, edge)), (away, edge), key=lambda each: each[0])
    for (_, name), (_, edge) in best.items():
        x, y = frame.place(network().at(edge, edge.length // 2))
        (ax, ay), (bx, by) = frame.place(edge.line[0]), frame.place(edge.line[-1])
        turn = math.degrees(math.atan2(by - ay, bx - ax))
        turn = turn - 180 if turn > 90 else turn + 180 if turn < -90 else turn
        spot = f"translate({x:g} {y:g}) rotate({turn:.0f})"
        yield f'<text class="street-name" transform="{spot}" dy="3">{escape(name)}</text>'


def _road_numbers(frame: Frame) -> Iterator[str]:
    done: set[str] = set()
    for edge in network().edges:
        if edge.kind not in ("road", "motorway") or edge.name in done:
            continue
        x, y = frame.place(edge.line[-1])
        if 30 < x < WIDTH - 30 and 30 < y < HEIGHT - 30:
            done.add(edge.name)
            number = edge.name.replace("Motorway ", "M").replace("Route ", "")
            wide = 7 + 6.4 * len(number)
            yield (
                f'<g class="shield {edge.kind}-shield" transform="translate({x:g} {y:g})">'
                f'<rect x="{-wide / 2:g}" y="-7.5" width="{wide:g}" height="15" rx="3.5"/>'
                f'<text y="3.7">{number}</text></g>'
            )


def _legend(frame: Frame) -> str:
    """The compass, and how long a kilometre is."""
    for metres in (100, 200, 500, 1000, 2000, 5000, 10_000):
        if metres / frame.scale >= 60:
            break
    wide = metres / frame.scale
    told = f"{metres} m" if metres < 1000 else f"{metres // 1000} km"
    return (
        f'<g class="scale" transform="translate({WIDTH - 26} {HEIGHT - 20})">'
        f'<path d="M{-wide:.1f}-6V0H0V-6"/><text x="{-wide / 2:.1f}" y="-5">{told}</text></g>'
        f'<g class="compass" transform="translate({WIDTH - 52} 56)"><circle r="27"/><circle '
        f'r="22"/>'
        '<path class="minor" d="M0-16L3-3L16 0L3 3L0 16L-3 3L-16 0L-3-3Z" transform="rotate(45)"/>'
        '<path d="M0-25L5-5L25 0L5 5L0 25L-5 5L-25 0L-5-5Z"/>'
        '<path class="north" d="M0-25L5-5L0 0Z"/><text y="-29">N</text></g>'
    )
