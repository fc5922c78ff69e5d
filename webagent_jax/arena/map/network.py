"""Road graph: junctions, and the pieces of roads between them."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from webagent_jax.arena.map.terrain import Point, straight_distance

RoadKind = Literal["motorway", "road", "main", "street", "square", "path", "trail"]
Mode = Literal["car", "bike", "foot"]

MODES: tuple[Mode, ...] = ("car", "bike", "foot")

SPEEDS: dict[RoadKind, dict[Mode, float]] = {
    "motorway": {"car": 110},
    "road": {"car": 72, "bike": 17, "foot": 4.8},
    "main": {"car": 38, "bike": 16, "foot": 4.8},
    "street": {"car": 24, "bike": 15, "foot": 4.8},
    "square": {"bike": 10, "foot": 4.8},
    "path": {"bike": 11, "foot": 4.8},
    "trail": {"bike": 15, "foot": 4.8},
}
"""Speed in km/h by kind of road and mode; a missing mode is not allowed."""

_CELL = 500  # cell size in meters of the spatial index of edges


@dataclass(frozen=True, slots=True)
class Edge:
    """A piece of a road from one junction to the next."""

    id: int
    a: int
    b: int
    name: str
    town: str  # town of the edge; the nearer town for an edge outside towns
    kind: RoadKind
    line: tuple[Point, ...]  # points from a to b
    length: int  # length in meters
    start: int  # meters from the beginning of the road to a, for house numbers


@dataclass
class Network:
    nodes: list[Point] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    center_nodes: dict[str, int] = field(default_factory=dict)  # central node by town
    # parks: shape, and id of an adjacent edge
    parks: list[tuple[tuple[Point, ...], int]] = field(default_factory=list)
    cells: dict[Point, list[Edge]] = field(default_factory=lambda: defaultdict(list))
    open_edge_ids: set[int] = field(default_factory=set)  # ids of edges reachable in every mode

    def add_edge(
        self,
        a: int,
        b: int,
        *,
        name: str,
        town: str,
        kind: RoadKind,
        start: int,
        via: Sequence[Point],
    ) -> int:
        """Add an edge and return its length in meters.

        Args:
            a: first node.
            b: last node.
            name: name of the road.
            town: town of the edge; the nearer town for an edge outside towns.
            kind: kind of the road.
            start: meters from the beginning of the road to `a`.
            via: points between the nodes.
        """
        line = (self.nodes[a], *via, self.nodes[b])
        length = max(1, round(sum(map(straight_distance, line, line[1:]))))
        edge = Edge(len(self.edges), a, b, name, town, kind, line, length, start)
        self.edges.append(edge)
        for cell in _cells_of_line(line):
            self.cells[cell].append(edge)
        return length

    def point_at(self, edge: Edge, offset: int) -> Point:
        """Return the point `offset` meters from the beginning of an edge."""
        remaining = float(offset)
        for a, b in itertools.pairwise(edge.line):
            piece = straight_distance(a, b)
            if remaining <= piece and piece:
                fraction = remaining / piece
                return round(a[0] + fraction * (b[0] - a[0])), round(
                    a[1] + fraction * (b[1] - a[1])
                )
            remaining -= piece
        return edge.line[-1]

    def edges_in_box(self, low: Point, high: Point) -> list[Edge]:
        """Return the edges that may be in a rectangle."""
        columns = range(low[0] // _CELL, high[0] // _CELL + 1)
        rows = range(low[1] // _CELL, high[1] // _CELL + 1)
        cells = (self.cells.get((i, j), ()) for i in columns for j in rows)
        edges_by_id = {edge.id: edge for cell in cells for edge in cell}
        return [edges_by_id[number] for number in sorted(edges_by_id)]

    def nearest_edge(self, point: Point) -> tuple[Edge, int, int]:
        """Return the open edge nearest to a point, the meters along it and the meters to it.

        Raises:
            ValueError: the point is off the map.
        """
        x, y = point[0] // _CELL, point[1] // _CELL
        for ring in (1, 3, 8, 20, 60, 200):
            nearby_edges = {
                edge.id: edge
                for i in range(x - ring, x + ring + 1)
                for j in range(y - ring, y + ring + 1)
                for edge in self.cells.get((i, j), ())
                if edge.id in self.open_edge_ids
            }
            if nearby_edges:
                candidates = ((_project_point(edge, point), edge) for edge in nearby_edges.values())
                (distance, offset), edge = min(candidates, key=lambda pair: (pair[0], pair[1].id))
                return edge, offset, distance
        raise ValueError(f"{point} is off the map")


def _cells_of_line(line: Sequence[Point]) -> set[Point]:
    """Return the cells that a line crosses."""
    cells: set[Point] = set()
    for (start_x, start_y), (end_x, end_y) in itertools.pairwise(line):
        steps = 1 + int(max(abs(end_x - start_x), abs(end_y - start_y)) // 100)
        for step in range(steps + 1):
            x, y = (
                start_x + (end_x - start_x) * step // steps,
                start_y + (end_y - start_y) * step // steps,
            )
            cells.add((x // _CELL, y // _CELL))
    return cells


def _project_point(edge: Edge, point: Point) -> tuple[int, int]:
    """Return the meters from a point to an edge, and the meters along it to the nearest point."""
    best, offset = (10**9, 0), 0.0
    for a, b in itertools.pairwise(edge.line):
        piece = straight_distance(a, b)
        dx, dy = b[0] - a[0], b[1] - a[1]
        dot = (point[0] - a[0]) * dx + (point[1] - a[1]) * dy
        fraction = min(max(dot / (piece * piece), 0.0), 1.0) if piece else 0.0
        distance = math.hypot(a[0] + fraction * dx - point[0], a[1] + fraction * dy - point[1])
        best = min(best, (round(distance), round(offset + fraction * piece)))
        offset += piece
    return best
