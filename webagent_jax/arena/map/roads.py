"""Lays out the roads: a grid of streets in each town, and motorways, roads and trails between them.

They are drawn once, from the towns and the ground, and are the same in every process and world:
nobody builds roads in the arena, so they are no tables of the database.
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
from webagent_jax.arena.map.network import MODES, SPEEDS, Edge, Kind, Mode, Network
from webagent_jax.arena.map.terrain import Point, between, crosses, ground


@functools.cache
def network() -> Network:
    net = Network()
    mains: dict[str, list[int]] = {}  # junctions of main streets, by town
    for city in common.cities():
        mains[city.name] = _town(net, city)
    told: Any = random_data.table("map_ground")
    for name, start, end in told["roads"]:
        _overland(net, mains, (start, end), name=name, kind="road", bend=0.06)
    for each in told["motorways"]:
        for ends in itertools.pairwise(each["towns"]):
            _overland(net, mains, ends, name=each["name"], kind="motorway", bend=0.03)
    for name, start, end in told["trails"]:
        _overland(net, mains, (start, end), name=name, kind="trail", bend=0.02)
    reached = set(range(len(net.nodes)))
    for mode in MODES:
        reached &= _component(net.edges, net.centres["Alder Falls"], mode)
    shared = [kind for kind, speeds in SPEEDS.items() if len(speeds) == len(MODES)]
    net.open = {edge.id for edge in net.edges if edge.kind in shared and edge.a in reached}
    return net


def _component(edges: Sequence[Edge], start: int, mode: Mode) -> set[int]:
    """The junctions that can be reached."""
    ways: dict[int, list[int]] = defaultdict(list)
    for edge in edges:
        if mode in SPEEDS[edge.kind]:
            ways[edge.a].append(edge.b)
            ways[edge.b].append(edge.a)
    reached, left = {start}, [start]
    while left:
        for node in ways[left.pop()]:
            if node not in reached:
                reached.add(node)
                left.append(node)
    return reached


# --- a town --------------------------------------------------------------------------------------


@dataclass
class _Grid:
    """Streets that cross: where, and what they are called."""

    size: int
    points: dict[Point, Point]  # column and row: metres
    columns: list[str]
    rows: list[str]

    @property
    def middle(self) -> int:
        return self.size // 2

    def is_main(self, line: int) -> bool:
        return (line - self.middle) % 4 == 0


def _town(net: Network, city: City) -> list[int]:
    """Lays out a town; returns the junctions of its main streets."""
    rng = random_data.stream("map", "town", city.name)
    grid = _grid(rng, city)
    pieces = list(_pieces(rng, grid))
    kept = _largest(pieces, (grid.middle, grid.middle))
    ids: dict[Point, int] = {}
    for spot in sorted(kept):
        ids[spot] = len(net.nodes)
        net.nodes.append(grid.points[spot])
    net.centres[city.name] = ids[grid.middle, grid.middle]
    passed: dict[str, int] = defaultdict(int)
    for a, b, name, kind in pieces:
        if a in kept:
            length = net.add(
                *(ids[a], ids[b]),
                name=name,
                town=city.name,
                kind=kind,
                start=passed[name],
                via=(),
            )
            passed[name] += length
    _greens(net, rng, city, grid, ids)
    return [ids[i, j] for i, j in sorted(kept) if grid.is_main(i) or grid.is_main(j)]


def _grid(rng: random.Random, city: City) -> _Grid:
    """Bent, turned, and without corners, as no town is a square."""
    size = round(5 + 2.64 * math.log(city.population / 4200))
    told: Any = random_data.table("map_ground")
    known = list(told["known_streets"].get(city.name, ()))
    mains = rng.sample(told["main_streets"][1:], 4)
    others = [
        name for name in random_data.lines("streets") if name not in (*known, *told["main_streets"])
    ]
    names = ["Main Street", *mains, *known, *rng.sample(others, 2 * size)]
    steps = [[rng.randint(135, 215) for _ in range(size)] for _ in range(2)]
    turn, *shifts = rng.uniform(-0.45, 0.45), rng.uniform(0, 6), rng.uniform(0, 6)
    centre = round(city.x * 1000), round(city.y * 1000)
    middle = size // 2
    across, up = ([sum(line[:i]) - sum(line[:middle]) for i in range(size)] for line in steps)
    reach = max(across[-1], up[-1], -across[0], -up[0]) * 1.02
    points: dict[Point, Point] = {}
    for i, u in enumerate(across):
        for j, v in enumerate(up):
            bent_u = u + 28 * math.sin(v / 330 + shifts[0])
            bent_v = v + 28 * math.sin(u / 300 + shifts[1])
            x = centre[0] + bent_u * math.cos(turn) - bent_v * math.sin(turn)
            y = centre[1] + bent_u * math.sin(turn) + bent_v * math.cos(turn)
            corner = abs(u / reach) ** 2.4 + abs(v / reach) ** 2.4
            if corner < 1.15 + rng.uniform(-0.25, 0.1) and not ground().wet((round(x), round(y))):
                points[i, j] = (round(x), round(y))
    order = _main_first(size)
    rows = {line: names.pop(0) for line in order if (line - middle) % 4 == 0}
    columns = {line: names.pop(0) for line in order if (line - middle) % 4 == 0}
    rows |= {line: names.pop(0) for line in order if line not in rows}
    columns |= {line: names.pop(0) for line in order if line not in columns}
    return _Grid(size, points, [columns[i] for i in range(size)], [rows[i] for i in range(size)])


def _main_first(size: int) -> list[int]:
    """The lines of a grid from its middle outwards."""
    return sorted(range(size), key=lambda line: (abs(line - size // 2), line))


def _pieces(rng: random.Random, grid: _Grid) -> Iterator[tuple[Point, Point, str, Kind]]:
    """Of all streets, in the order of their house numbers. Only main streets cross a river."""
    rivers = [river.line for river in ground().rivers]
    middle = grid.points[grid.middle, grid.middle]
    near = [line for line in rivers if any(between(point, middle) < 5000 for point in line)]
    for name_of, step in ((grid.rows, (1, 0)), (grid.columns, (0, 1))):
        for line in range(grid.size):
            for at in range(grid.size - 1):
                a = (at, line) if step == (1, 0) else (line, at)
                b = (a[0] + step[0], a[1] + step[1])
                gone = not grid.is_main(line) and rng.random() < 0.07
                if a not in grid.points or b not in grid.points or gone:
                    continue
                ends = grid.points[a], grid.points[b]
                bridge = any(crosses(*ends, river) for river in near)
                if bridge and not grid.is_main(line):
                    continue
                central = line == grid.middle and at in (grid.middle - 1, grid.middle)
                is_square = central and step == (1, 0) and grid.size > 6 and not bridge
                kind: Kind = "main" if grid.is_main(line) else "street"
                yield a, b, name_of[line], "square" if is_square else kind


def _largest(pieces: Sequence[tuple[Point, Point, str, Kind]], start: Point) -> set[Point]:
    """The junctions that can be reached from one."""
    ways: dict[Point, list[Point]] = defaultdict(list)
    for a, b, *_ in pieces:
        ways[a].append(b)
        ways[b].append(a)
    reached, left = {start}, [start]
    while left:
        for spot in ways[left.pop()]:
            if spot not in reached:
                reached.add(spot)
                left.append(spot)
    return reached


def _greens(
    net: Network, rng: random.Random, city: City, grid: _Grid, ids: dict[Point, int]
) -> None:
    """Parks between streets, each with a path across."""
    names = list(random_data.table("map_ground")["walks"])
    rng.shuffle(names)
    spots = [spot for spot in sorted(ids) if max(spot) < grid.size - 1]
    for spot in rng.sample(spots, min(2 + grid.size // 2, len(spots))):
        corners = [(spot[0] + i, spot[1] + j) for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))]
        if not all(corner in ids for corner in corners) or not names:
            continue
        shape = tuple(grid.points[corner] for corner in corners)
        beside = {ids[corner] for corner in corners}
        sides = [edge.id for edge in net.edges if {edge.a, edge.b} < beside]
        if not sides:
            continue
        net.greens.append((shape, sides[0]))
        net.add(
            *(ids[corners[0]], ids[corners[2]]),
            name=names.pop(),
            town=city.name,
            kind="path",
            start=0,
            via=(),
        )


# --- between towns -------------------------------------------------------------------------------


def _overland(
    net: Network,
    mains: dict[str, list[int]],
    towns: Sequence[str],
    *,
    name: str,
    kind: Kind,
    bend: float,
) -> None:
    """A winding road from one town to another, with three junctions on its way."""
    rng = random_data.stream("map", "road", name, *towns)
    start, end = towns
    gates = _gate(net, mains[start], start, end), _gate(net, mains[end], end, start)
    line = next(
        line
        for line in (
            _winding(rng, net.nodes[gates[0]], net.nodes[gates[1]], bend) for _ in range(99)
        )
        if not any(map(ground().wet, line))
    )
    stops = [0, *(len(line) * part // 4 for part in (1, 2, 3)), len(line) - 1]
    ids = [gates[0]]
    for stop in stops[1:-1]:
        ids.append(len(net.nodes))
        net.nodes.append(line[stop])
    ids.append(gates[1])
    passed = 0
    for i, (a, b) in enumerate(itertools.pairwise(stops)):
        via = line[a + 1 : b]
        town = start if i < 2 else end
        passed += net.add(
            *(ids[i], ids[i + 1]), name=name, town=town, kind=kind, start=passed, via=via
        )


def _gate(net: Network, junctions: Sequence[int], town: str, towards: str) -> int:
    """Where one leaves a town for another."""
    (x, y), (to_x, to_y) = (net.nodes[net.centres[each]] for each in (town, towards))
    return max(
        junctions,
        key=lambda node: (
            (net.nodes[node][0] - x) * (to_x - x) + (net.nodes[node][1] - y) * (to_y - y)
        ),
    )


def _winding(rng: random.Random, a: Point, b: Point, bend: float) -> list[Point]:
    across, up = b[0] - a[0], b[1] - a[1]
    waves = [rng.uniform(-bend, bend) / n for n in (1, 2, 3, 5)]
    pieces = max(16, round(between(a, b) / 900))
    line: list[Point] = []
    for step in range(pieces + 1):
        t = step / pieces
        aside = sum(
            wave * math.sin(n * math.pi * t) for n, wave in zip((1, 2, 3, 5), waves, strict=True)
        )
        line.append((round(a[0] + t * across - aside * up), round(a[1] + t * up + aside * across)))
    return line
