"""Layout of the roads: streets of the towns, and motorways, roads and trails between them.

The roads are generated once, from the towns and the terrain, and are the same in every process and
world. No task changes them, so they are not stored in the database.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from webagent_jax.arena import common, random_data
from webagent_jax.arena.common import City
from webagent_jax.arena.map.network import MODES, SPEEDS, Edge, Mode, Network, RoadKind
from webagent_jax.arena.map.terrain import Point, crosses, straight_distance, terrain


@functools.cache
def network() -> Network:
    net = Network()
    mains: dict[str, list[int]] = {}  # junctions of main streets, by town
    for city in common.cities():
        mains[city.name] = _add_town(net, city)
    layout: Any = random_data.read_json("map_ground")
    for name, start, end in layout["roads"]:
        _add_road(net, mains, (start, end), name=name, kind="road", bend=0.06)
    for motorway in layout["motorways"]:
        for ends in itertools.pairwise(motorway["towns"]):
            _add_road(net, mains, ends, name=motorway["name"], kind="motorway", bend=0.03)
    for name, start, end in layout["trails"]:
        _add_road(net, mains, (start, end), name=name, kind="trail", bend=0.02)
    shared_nodes = set(range(len(net.nodes)))
    for mode in MODES:
        shared_nodes &= _reachable_nodes(net.edges, net.center_nodes["Alder Falls"], mode)
    shared_kinds = [kind for kind, speeds in SPEEDS.items() if len(speeds) == len(MODES)]
    net.open_edge_ids = {
        edge.id for edge in net.edges if edge.kind in shared_kinds and edge.a in shared_nodes
    }
    return net


def _reachable_nodes(edges: Sequence[Edge], start: int, mode: Mode) -> set[int]:
    """Return the junctions reachable from `start` in a mode."""
    neighbors: dict[int, list[int]] = defaultdict(list)
    for edge in edges:
        if mode in SPEEDS[edge.kind]:
            neighbors[edge.a].append(edge.b)
            neighbors[edge.b].append(edge.a)
    component, stack = {start}, [start]
    while stack:
        for node in neighbors[stack.pop()]:
            if node not in component:
                component.add(node)
                stack.append(node)
    return component


# --- a town --------------------------------------------------------------------------------------


@dataclass
class _Grid:
    """Grid of the streets of a town."""

    size: int
    points: dict[Point, Point]  # position in meters by column and row
    columns: list[str]
    rows: list[str]

    @property
    def middle(self) -> int:
        return self.size // 2

    def is_main(self, line: int) -> bool:
        return (line - self.middle) % 4 == 0


def _add_town(net: Network, city: City) -> list[int]:
    """Add a town to the network and return the junctions of its main streets."""
    rng = random_data.random_stream("map", "town", city.name)
    grid = _sample_grid(rng, city)
    pieces = list(_sample_pieces(rng, grid))
    component = _connected_spots(pieces, (grid.middle, grid.middle))
    ids: dict[Point, int] = {}
    for spot in sorted(component):
        ids[spot] = len(net.nodes)
        net.nodes.append(grid.points[spot])
    net.center_nodes[city.name] = ids[grid.middle, grid.middle]
    offsets: dict[str, int] = defaultdict(int)
    for a, b, name, kind in pieces:
        if a in component:
            length = net.add_edge(
                *(ids[a], ids[b]),
                name=name,
                town=city.name,
                kind=kind,
                start=offsets[name],
                via=(),
            )
            offsets[name] += length
    _add_parks(net, rng, city, grid, ids)
    return [ids[i, j] for i, j in sorted(component) if grid.is_main(i) or grid.is_main(j)]


def _sample_grid(rng: random.Random, city: City) -> _Grid:
    """Return a rotated and bent grid without corners, because no town is a perfect square."""
    size = round(5 + 2.64 * math.log(city.population / 4200))
    layout: Any = random_data.read_json("map_ground")
    fixed_names = list(layout["known_streets"].get(city.name, ()))
    mains = rng.sample(layout["main_streets"][1:], 4)
    other_names = [
        name
        for name in random_data.read_lines("streets")
        if name not in (*fixed_names, *layout["main_streets"])
    ]
    names = ["Main Street", *mains, *fixed_names, *rng.sample(other_names, 2 * size)]
    steps = [[rng.randint(135, 215) for _ in range(size)] for _ in range(2)]
    turn, *shifts = rng.uniform(-0.45, 0.45), rng.uniform(0, 6), rng.uniform(0, 6)
    center = round(city.x * 1000), round(city.y * 1000)
    middle = size // 2
    x_offsets, y_offsets = (
        [sum(line[:i]) - sum(line[:middle]) for i in range(size)] for line in steps
    )
    reach = max(x_offsets[-1], y_offsets[-1], -x_offsets[0], -y_offsets[0]) * 1.02
    points: dict[Point, Point] = {}
    for i, u in enumerate(x_offsets):
        for j, v in enumerate(y_offsets):
            bent_u = u + 28 * math.sin(v / 330 + shifts[0])
            bent_v = v + 28 * math.sin(u / 300 + shifts[1])
            x = center[0] + bent_u * math.cos(turn) - bent_v * math.sin(turn)
            y = center[1] + bent_u * math.sin(turn) + bent_v * math.cos(turn)
            corner = abs(u / reach) ** 2.4 + abs(v / reach) ** 2.4
            if corner < 1.15 + rng.uniform(-0.25, 0.1) and not terrain().is_water(
                (round(x), round(y))
            ):
                points[i, j] = (round(x), round(y))
    order = _lines_from_middle(size)
    rows = {line: names.pop(0) for line in order if (line - middle) % 4 == 0}
    columns = {line: names.pop(0) for line in order if (line - middle) % 4 == 0}
    rows |= {line: names.pop(0) for line in order if line not in rows}
    columns |= {line: names.pop(0) for line in order if line not in columns}
    return _Grid(size, points, [columns[i] for i in range(size)], [rows[i] for i in range(size)])


def _lines_from_middle(size: int) -> list[int]:
    """Return the lines of a grid from its middle outwards."""
    return sorted(range(size), key=lambda line: (abs(line - size // 2), line))


def _sample_pieces(rng: random.Random, grid: _Grid) -> Iterator[tuple[Point, Point, str, RoadKind]]:
    """Yield the pieces of all streets by house number; only main streets cross a river."""
    rivers = [river.line for river in terrain().rivers]
    middle = grid.points[grid.middle, grid.middle]
    nearby_rivers = [
        line for line in rivers if any(straight_distance(point, middle) < 5000 for point in line)
    ]
    for name_of, step in ((grid.rows, (1, 0)), (grid.columns, (0, 1))):
        for line in range(grid.size):
            for position in range(grid.size - 1):
                a = (position, line) if step == (1, 0) else (line, position)
                b = (a[0] + step[0], a[1] + step[1])
                is_missing = not grid.is_main(line) and rng.random() < 0.07
                if a not in grid.points or b not in grid.points or is_missing:
                    continue
                ends = grid.points[a], grid.points[b]
                is_bridge = any(crosses(*ends, river) for river in nearby_rivers)
                if is_bridge and not grid.is_main(line):
                    continue
                is_central = line == grid.middle and position in (grid.middle - 1, grid.middle)
                is_square = is_central and step == (1, 0) and grid.size > 6 and not is_bridge
                kind: RoadKind = "main" if grid.is_main(line) else "street"
                yield a, b, name_of[line], "square" if is_square else kind


def _connected_spots(
    pieces: Sequence[tuple[Point, Point, str, RoadKind]], start: Point
) -> set[Point]:
    """Return the junctions reachable from `start`."""
    neighbors: dict[Point, list[Point]] = defaultdict(list)
    for a, b, *_ in pieces:
        neighbors[a].append(b)
        neighbors[b].append(a)
    component, stack = {start}, [start]
    while stack:
        for spot in neighbors[stack.pop()]:
            if spot not in component:
                component.add(spot)
                stack.append(spot)
    return component


def _add_parks(
    net: Network, rng: random.Random, city: City, grid: _Grid, ids: dict[Point, int]
) -> None:
    """Add parks between streets, each with a path across."""
    names = list(random_data.read_json("map_ground")["walks"])
    rng.shuffle(names)
    spots = [spot for spot in sorted(ids) if max(spot) < grid.size - 1]
    for spot in rng.sample(spots, min(2 + grid.size // 2, len(spots))):
        corners = [(spot[0] + i, spot[1] + j) for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))]
        if not all(corner in ids for corner in corners) or not names:
            continue
        shape = tuple(grid.points[corner] for corner in corners)
        corner_ids = {ids[corner] for corner in corners}
        sides = [edge.id for edge in net.edges if {edge.a, edge.b} < corner_ids]
        if not sides:
            continue
        net.parks.append((shape, sides[0]))
        net.add_edge(
            *(ids[corners[0]], ids[corners[2]]),
            name=names.pop(),
            town=city.name,
            kind="path",
            start=0,
            via=(),
        )


# --- between towns -------------------------------------------------------------------------------


def _add_road(
    net: Network,
    mains: dict[str, list[int]],
    towns: Sequence[str],
    *,
    name: str,
    kind: RoadKind,
    bend: float,
) -> None:
    """Add a winding road from one town to another, with three junctions on it."""
    rng = random_data.random_stream("map", "road", name, *towns)
    start, end = towns
    gates = _find_gate(net, mains[start], start, end), _find_gate(net, mains[end], end, start)
    line = next(
        line
        for line in (
            _sample_line(rng, net.nodes[gates[0]], net.nodes[gates[1]], bend) for _ in range(99)
        )
        if not any(map(terrain().is_water, line))
    )
    stops = [0, *(len(line) * quarter // 4 for quarter in (1, 2, 3)), len(line) - 1]
    ids = [gates[0]]
    for stop in stops[1:-1]:
        ids.append(len(net.nodes))
        net.nodes.append(line[stop])
    ids.append(gates[1])
    offset = 0
    for i, (a, b) in enumerate(itertools.pairwise(stops)):
        via = line[a + 1 : b]
        town = start if i < 2 else end
        offset += net.add_edge(
            *(ids[i], ids[i + 1]), name=name, town=town, kind=kind, start=offset, via=via
        )


def _find_gate(net: Network, junctions: Sequence[int], town: str, target: str) -> int:
    """Return the junction at which the road to another town starts."""
    (x, y), (to_x, to_y) = (net.nodes[net.center_nodes[name]] for name in (town, target))
    return max(
        junctions,
        key=lambda node: (
            (net.nodes[node][0] - x) * (to_x - x) + (net.nodes[node][1] - y) * (to_y - y)
        ),
    )


def _sample_line(rng: random.Random, a: Point, b: Point, bend: float) -> list[Point]:
    dx, dy = b[0] - a[0], b[1] - a[1]
    waves = [rng.uniform(-bend, bend) / n for n in (1, 2, 3, 5)]
    pieces = max(16, round(straight_distance(a, b) / 900))
    line: list[Point] = []
    for step in range(pieces + 1):
        t = step / pieces
        offset = sum(
            wave * math.sin(n * math.pi * t) for n, wave in zip((1, 2, 3, 5), waves, strict=True)
        )
        line.append((round(a[0] + t * dx - offset * dy), round(a[1] + t * dy + offset * dx)))
    return line
