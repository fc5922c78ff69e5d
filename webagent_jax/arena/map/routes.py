"""Quickest route between two spots by A* over the road network, and its directions."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from webagent_jax.arena.map.network import SPEEDS, Edge, Mode
from webagent_jax.arena.map.roads import network
from webagent_jax.arena.map.terrain import Point, straight_distance

_TURN: Mapping[Mode, float] = {"car": 9.0, "bike": 5.0, "foot": 3.0}
"""Seconds per turn into another road."""

_WINDS = ("east", "north-east", "north", "north-west", "west", "south-west", "south", "south-east")

_Leg = tuple[Edge, bool]  # edge, and whether the route follows the direction of its line


@dataclass(frozen=True, slots=True)
class Spot:
    """A point of the network."""

    edge: int
    offset: int  # meters from the beginning of the edge


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the directions."""

    text: str
    road: str  # name of the road, "" on arrival
    meters: int


@dataclass(frozen=True, slots=True)
class Route:
    meters: int
    seconds: float
    steps: tuple[Step, ...]
    line: tuple[Point, ...]

    @property
    def minutes(self) -> int:
        return max(1, round(self.seconds / 60))


@functools.lru_cache(maxsize=8192)
def find_route(start: Spot, end: Spot, mode: Mode) -> Route:
    """Return the quickest route, which exists because spots are on open roads."""
    edges = network().edges
    if start.edge == end.edge:
        legs: list[_Leg] = [(edges[start.edge], start.offset <= end.offset)]
    else:
        legs = _search(start, end, mode)
    first, last = _end_lengths(legs, start, end)
    pieces = [(edge, forward, edge.length) for edge, forward in legs]
    pieces[0] = (*legs[0], first)
    if len(legs) > 1:
        pieces[-1] = (*legs[-1], last)
    runs = [list(run) for _, run in itertools.groupby(pieces, key=lambda p: (p[0].name, p[0].kind))]
    seconds = sum(meters / _speed(edge, mode) for edge, _, meters in pieces)
    return Route(
        meters=sum(meters for *_, meters in pieces),
        seconds=seconds + _TURN[mode] * (len(runs) - 1),
        steps=tuple(_steps([[piece[:2] for piece in run] for run in runs], _run_lengths(runs))),
        line=_route_line(legs, start, end),
    )


def _speed(edge: Edge, mode: Mode) -> float:
    """Return the speed in meters per second."""
    return SPEEDS[edge.kind][mode] / 3.6


def _end_lengths(legs: Sequence[_Leg], start: Spot, end: Spot) -> tuple[int, int]:
    """Return the meters on the first and on the last edge."""
    if len(legs) == 1:
        return abs(end.offset - start.offset), 0
    (first, forward), (last, onward) = legs[0], legs[-1]
    return (
        first.length - start.offset if forward else start.offset,
        end.offset if onward else last.length - end.offset,
    )


# --- the search ----------------------------------------------------------------------------------


@functools.cache
def _neighbors(mode: Mode) -> Mapping[int, Sequence[tuple[int, Edge, bool, float]]]:
    """Return the neighbors of each junction, with edge, direction and seconds."""
    neighbors: dict[int, list[tuple[int, Edge, bool, float]]] = {}
    for edge in network().edges:
        if mode in SPEEDS[edge.kind]:
            seconds = edge.length / _speed(edge, mode)
            neighbors.setdefault(edge.a, []).append((edge.b, edge, True, seconds))
            neighbors.setdefault(edge.b, []).append((edge.a, edge, False, seconds))
    return neighbors


def _search(start: Spot, end: Spot, mode: Mode) -> list[_Leg]:
    """Search with A* over pairs of junction and incoming road, because turns take time."""
    net, neighbors, turn = network(), _neighbors(mode), _TURN[mode]
    first, last = net.edges[start.edge], net.edges[end.edge]
    goal = net.point_at(last, end.offset)
    fastest = max(speeds.get(mode, 0) for speeds in SPEEDS.values()) / 3.6
    ends = {
        last.a: end.offset / _speed(last, mode),
        last.b: (last.length - end.offset) / _speed(last, mode),
    }
    origins: dict[tuple[int, str], tuple[tuple[int, str] | None, _Leg]] = {}
    expanded: set[tuple[int, str]] = set()
    count = itertools.count()
    # Entry: lower bound of total seconds, tie-breaker, seconds so far, state, previous state, leg.
    queue: list[tuple[float, int, float, tuple[int, str], tuple[int, str] | None, _Leg]] = []

    def push(
        so_far: float, state: tuple[int, str], origin: tuple[int, str] | None, leg: _Leg
    ) -> None:
        if state not in expanded:
            rest = straight_distance(net.nodes[state[0]], goal) / fastest if state[0] >= 0 else 0.0
            heapq.heappush(queue, (so_far + rest, next(count), so_far, state, origin, leg))

    pace = _speed(first, mode)
    push((first.length - start.offset) / pace, (first.b, first.name), None, (first, True))
    push(start.offset / pace, (first.a, first.name), None, (first, False))
    while queue:
        _, _, so_far, state, origin, leg = heapq.heappop(queue)
        if state in expanded:
            continue
        expanded.add(state)
        origins[state] = origin, leg
        node, name = state
        if node < 0:
            return list(_trace_back(origins, state))
        if node in ends:
            extra_seconds = ends[node] + (turn if last.name != name else 0)
            push(so_far + extra_seconds, (-1, ""), state, (last, node == last.a))
        for other, edge, forward, seconds in neighbors[node]:
            extra_seconds = seconds + (turn if edge.name != name else 0)
            push(so_far + extra_seconds, (other, edge.name), state, (edge, forward))
    raise ValueError(f"no way from {start} to {end} by {mode}")


def _trace_back(
    origins: Mapping[tuple[int, str], tuple[tuple[int, str] | None, _Leg]], state: tuple[int, str]
) -> Iterator[_Leg]:
    legs: list[_Leg] = []
    cursor: tuple[int, str] | None = state
    while cursor is not None:
        cursor, leg = origins[cursor]
        legs.append(leg)
    yield from reversed(legs)


# --- directions ----------------------------------------------------------------------------------


def _run_lengths(runs: Sequence[Sequence[tuple[Edge, bool, int]]]) -> list[int]:
    return [sum(meters for *_, meters in run) for run in runs]


def _steps(runs: Sequence[Sequence[_Leg]], lengths: Sequence[int]) -> Iterator[Step]:
    """Yield a step for each road."""
    last_heading = 0.0
    for i, (run, meters) in enumerate(zip(runs, lengths, strict=True)):
        edge, forward = run[0]
        line = edge.line if forward else edge.line[::-1]
        heading = _heading(line[0], line[1])
        if i == 0:
            wind = _WINDS[round(heading / (math.pi / 4)) % 8]
            text = f"Head {wind} on {edge.name}"
        else:
            text = f"{_turn_text(heading - last_heading)} {edge.name}"
        yield Step(text, edge.name, meters)
        edge, forward = run[-1]
        line = edge.line if forward else edge.line[::-1]
        last_heading = _heading(line[-2], line[-1])


def _heading(a: Point, b: Point) -> float:
    """Return the heading from `a` to `b`: radians counterclockwise from east."""
    return math.atan2(b[1] - a[1], b[0] - a[0])


def _turn_text(change: float) -> str:
    change = (change + math.pi) % math.tau - math.pi
    if abs(change) < 0.45:
        return "Continue onto"
    return "Turn left onto" if change > 0 else "Turn right onto"


def _route_line(legs: Sequence[_Leg], start: Spot, end: Spot) -> tuple[Point, ...]:
    net = network()
    points: list[Point] = []
    for edge, forward in legs:
        points += edge.line if forward else edge.line[::-1]
    first, last = (
        net.point_at(net.edges[start.edge], start.offset),
        net.point_at(net.edges[end.edge], end.offset),
    )
    if len(legs) == 1:
        return _clip(legs[0][0], start.offset, end.offset)
    head = _clip(legs[0][0], start.offset, legs[0][0].length if legs[0][1] else 0)
    tail = _clip(legs[-1][0], 0 if legs[-1][1] else legs[-1][0].length, end.offset)
    inner = points[len(legs[0][0].line) : len(points) - len(legs[-1][0].line)]
    return (first, *head[1:], *inner, *tail[:-1], last)


def _clip(edge: Edge, start: int, end: int) -> tuple[Point, ...]:
    """Return the part of an edge between two distances from its beginning."""
    net, offset = network(), 0.0
    low, high = min(start, end), max(start, end)
    inner: list[Point] = []
    for a, b in itertools.pairwise(edge.line):
        offset += straight_distance(a, b)
        if low < offset < high:
            inner.append(b)
    line = (net.point_at(edge, low), *inner, net.point_at(edge, high))
    return line if start <= end else line[::-1]


# --- number formats ------------------------------------------------------------------------------


def format_distance(meters: float) -> str:
    """Return a distance as text: "850 m" in tens of meters below a kilometer, else "12.4 km"."""
    if meters < 995:
        return f"{round(meters / 10) * 10} m"
    return f"{meters / 1000:.1f} km"


def format_duration(minutes: int) -> str:
    """Return a duration as text: "18 min", "1 h 24 min"."""
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"
