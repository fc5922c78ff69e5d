"""Roads as a graph: junctions, and the pieces of roads between them."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from webagent_jax.arena.map.terrain import Point, between

Kind = Literal["motorway", "road", "main", "street", "square", "path", "trail"]
Mode = Literal["car", "bike", "foot"]

MODES: tuple[Mode, ...] = ("car", "bike", "foot")

SPEEDS: dict[Kind, dict[Mode, float]] = {
    "motorway": {"car": 110},
    "road": {"car": 72, "bike": 17, "foot": 4.8},
    "main": {"car": 38, "bike": 16, "foot": 4.8},
    "street": {"car": 24, "bike": 15, "foot": 4.8},
    "square": {"bike": 10, "foot": 4.8},
    "path": {"bike": 11, "foot": 4.8},
    "trail": {"bike": 15, "foot": 4.8},
}
"""Kilometres an hour; who is not named may not go there."""

_CELL = 500  # metres, of the net that finds the roads near a point


@dataclass(frozen=True, slots=True)
class Edge:
    """A piece of a road from one junction to the next."""

    id: int
    a: int
    b: int
    name: str
    town: str  # the nearer one outside of towns
    kind: Kind
    line: tuple[Point, ...]  # from a to b
    length: int  # metres
    start: int  # metres from the beginning of the road to a: house numbers go by it


@dataclass
class Network:
    nodes: list[Point] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    centres: dict[str, int] = field(default_factory=dict)  # town: node
    greens: list[tuple[tuple[Point, ...], int]] = field(default_factory=list)  # parks, an edge each
    cells: dict[Point, list[Edge]] = field(default_factory=lambda: defaultdict(list))
    open: set[int] = field(default_factory=set)  # edges that everybody reaches, by any means

    def add(
        self, a: int, b: int, *, name: str, town: str, kind: Kind, start: int, via: Sequence[Point]
    ) -> int:
        """Returns its length."""
        line = (self.nodes[a], *via, self.nodes[b])
        length = max(1, round(sum(map(between, line, line[1:]))))
        edge = Edge(len(self.edges), a, b, name, town, kind, line, length, start)
        self.edges.append(edge)
        for cell in _cells(line):
            self.cells[cell].append(edge)
        return length

    def at(self, edge: Edge, along: int) -> Point:
        """The point so many metres behind the beginning of an edge."""
        left = float(along)
        for a, b in itertools.pairwise(edge.line):
            piece = between(a, b)
            if left <= piece and piece:
                part = left / piece
                return round(a[0] + part * (b[0] - a[0])), round(a[1] + part * (b[1] - a[1]))
            left -= piece
        return edge.line[-1]

    def inside(self, low: Point, high: Point) -> list[Edge]:
        """The edges that are, or may be, in a rectangle."""
        columns = range(low[0] // _CELL, high[0] // _CELL + 1)
        rows = range(low[1] // _CELL, high[1] // _CELL + 1)
        cells = (self.cells.get((i, j), ()) for i in columns for j in rows)
        found = {edge.id: edge for cell in cells for edge in cell}
        return [found[number] for number in sorted(found)]

    def nearest(self, point: Point) -> tuple[Edge, int, int]:
        """The open road nearest to a point: it, metres along it, metres to it."""
        x, y = point[0] // _CELL, point[1] // _CELL
        for ring in (1, 3, 8, 20, 60, 200):
            near = {
                edge.id: edge
                for i in range(x - ring, x + ring + 1)
                for j in range(y - ring, y + ring + 1)
                for edge in self.cells.get((i, j), ())
                if edge.id in self.open
            }
            if near:
                found = ((_foot(edge, point), edge) for edge in near.values())
                (away, along), edge = min(found, key=lambda each: (each[0], each[1].id))
                return edge, along, away
        raise ValueError(f"{point} is off the map")


def _cells(line: Sequence[Point]) -> set[Point]:
    """Those that a line goes through."""
    cells: set[Point] = set()
    for (ax, ay), (bx, by) in itertools.pairwise(line):
        steps = 1 + int(max(abs(bx - ax), abs(by - ay)) // 100)
        for step in range(steps + 1):
            x, y = ax + (bx - ax) * step // steps, ay + (by - ay) * step // steps
            cells.add((x // _CELL, y // _CELL))
    return cells


def _foot(edge: Edge, point: Point) -> tuple[int, int]:
    """Metres from a point to an edge, and metres along it to where it is nearest."""
    best, passed = (10**9, 0), 0.0
    for a, b in itertools.pairwise(edge.line):
        piece = between(a, b)
        dx, dy = b[0] - a[0], b[1] - a[1]
        dot = (point[0] - a[0]) * dx + (point[1] - a[1]) * dy
        part = min(max(dot / (piece * piece), 0.0), 1.0) if piece else 0.0
        away = math.hypot(a[0] + part * dx - point[0], a[1] + part * dy - point[1])
        best = min(best, (round(away), round(passed + part * piece)))
        passed += piece
    return best
