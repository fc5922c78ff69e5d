"""The quickest way from one spot to another, and how to tell it: A* over the road network."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from webagent_jax.arena.map.network import SPEEDS, Edge, Mode
from webagent_jax.arena.map.roads import network
from webagent_jax.arena.map.terrain import Point, between

_TURN: Mapping[Mode, float] = {"car": 9.0, "bike": 5.0, "foot": 3.0}
"""Seconds that it takes to turn into another road."""

_WINDS = ("east", "north-east", "north", "north-west", "west", "south-west", "south", "south-east")

_Leg = tuple[Edge, bool]  # an edge, and whether it is gone along its line


@dataclass(frozen=True, slots=True)
class Spot:
    """A point of the network."""

    edge: int
    along: int  # metres from the beginning of the edge


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the directions."""

    text: str
    road: str  # "" on arrival
    metres: int


@dataclass(frozen=True, slots=True)
class Route:
    metres: int
    seconds: float
    steps: tuple[Step, ...]
    line: tuple[Point, ...]

    @property
    def minutes(self) -> int:
        return max(1, round(self.seconds / 60))


@functools.lru_cache(maxsize=8192)
def route(start: Spot, end: Spot, mode: Mode) -> Route:
    """The quickest. Spots are on open roads, so there is always one."""
    edges = network().edges
    if start.edge == end.edge:
        legs: list[_Leg] = [(edges[start.edge], start.along <= end.along)]
    else:
        legs = _quickest(start, end, mode)
    first, last = _parts(legs, start, end)
    pieces = [(edge, forward, edge.length) for edge, forward in legs]
    pieces[0] = (*legs[0], first)
    if len(legs) > 1:
        pieces[-1] = (*legs[-1], last)
    runs = [list(run) for _, run in itertools.groupby(pieces, key=lambda p: (p[0].name, p[0].kind))]
    seconds = sum(metres / _pace(edge, mode) for edge, _, metres in pieces)
    return Route(
        metres=sum(metres for *_, metres in pieces),
        seconds=seconds + _TURN[mode] * (len(runs) - 1),
        steps=tuple(_steps([[piece[:2] for piece in run] for run in runs], _lengths(runs))),
        line=_line(legs, start, end),
    )


def _pace(edge: Edge, mode: Mode) -> float:
    """Metres a second."""
    return SPEEDS[edge.kind][mode] / 3.6


def _parts(legs: Sequence[_Leg], start: Spot, end: Spot) -> tuple[int, int]:
    """Metres on the first and on the last edge."""
    if len(legs) == 1:
        return abs(end.along - start.along), 0
    (first, forward), (last, onward) = legs[0], legs[-1]
    return (
        first.length - start.along if forward else start.along,
        end.along if onward else last.length - end.along,
    )


# --- the search ----------------------------------------------------------------------------------


@functools.cache
def _ways(mode: Mode) -> Mapping[int, Sequence[tuple[int, Edge, bool, float]]]:
    """From each junction: the next one, the edge there, its direction, and seconds."""
    ways: dict[int, list[tuple[int, Edge, bool, float]]] = {}
    for edge in network().edges:
        if mode in SPEEDS[edge.kind]:
            seconds = edge.length / _pace(edge, mode)
            ways.setdefault(edge.a, []).append((edge.b, edge, True, seconds))
            ways.setdefault(edge.b, []).append((edge.a, edge, False, seconds))
    return ways


def _quickest(start: Spot, end: Spot, mode: Mode) -> list[_Leg]:
    """A* over pairs of a junction and the road by which it was reached, for turns take time."""
    net, ways, turn = network(), _ways(mode), _TURN[mode]
    first, last = net.edges[start.edge], net.edges[end.edge]
    goal = net.at(last, end.along)
    fastest = max(speeds.get(mode, 0) for speeds in SPEEDS.values()) / 3.6
    ends = {
        last.a: end.along / _pace(last, mode),
        last.b: (last.length - end.along) / _pace(last, mode),
    }
    came: dict[tuple[int, str], tuple[tuple[int, str] | None, _Leg]] = {}
    done: set[tuple[int, str]] = set()
    count = itertools.count()
    # Entries: seconds at best in all, a number against ties, seconds so far, state, its origin.
    queue: list[tuple[float, int, float, tuple[int, str], tuple[int, str] | None, _Leg]] = []

    def push(
        so_far: float, state: tuple[int, str], origin: tuple[int, str] | None, leg: _Leg
    ) -> None:
        if state not in done:
            rest = between(net.nodes[state[0]], goal) / fastest if state[0] >= 0 else 0.0
            heapq.heappush(queue, (so_far + rest, next(count), so_far, state, origin, leg))

    pace = _pace(first, mode)
    push((first.length - start.along) / pace, (first.b, first.name), None, (first, True))
    push(start.along / pace, (first.a, first.name), None, (first, False))
    while queue:
        _, _, so_far, state, origin, leg = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        came[state] = origin, leg
        node, name = state
        if node < 0:
            return list(_back(came, state))
        if node in ends:
            more = ends[node] + (turn if last.name != name else 0)
            push(so_far + more, (-1, ""), state, (last, node == last.a))
        for other, edge, forward, seconds in ways[node]:
            more = seconds + (turn if edge.name != name else 0)
            push(so_far + more, (other, edge.name), state, (edge, forward))
    raise ValueError(f"no way from {start} to {end} by {mode}")


def _back(
    came: Mapping[tuple[int, str], tuple[tuple[int, str] | None, _Leg]], state: tuple[int, str]
) -> Iterator[_Leg]:
    legs: list[_Leg] = []
    at: tuple[int, str] | None = state
    while at is not None:
        at, leg = came[at]
        legs.append(leg)
    yield from reversed(legs)


# --- how it is told ------------------------------------------------------------------------------


def _lengths(runs: Sequence[Sequence[tuple[Edge, bool, int]]]) -> list[int]:
    return [sum(metres for *_, metres in run) for run in runs]


def _steps(runs: Sequence[Sequence[_Leg]], lengths: Sequence[int]) -> Iterator[Step]:
    """One for each road in turn."""
    towards = 0.0
    for i, (run, metres) in enumerate(zip(runs, lengths, strict=True)):
        edge, forward = run[0]
        line = edge.line if forward else edge.line[::-1]
        heading = _heading(line[0], line[1])
        if i == 0:
            wind = _WINDS[round(heading / (math.pi / 4)) % 8]
            text = f"Head {wind} on {edge.name}"
        else:
            text = f"{_turn(heading - towards)} {edge.name}"
        yield Step(text, edge.name, metres)
        edge, forward = run[-1]
        line = edge.line if forward else edge.line[::-1]
        towards = _heading(line[-2], line[-1])


def _heading(a: Point, b: Point) -> float:
    """The angle to the east."""
    return math.atan2(b[1] - a[1], b[0] - a[0])


def _turn(change: float) -> str:
    change = (change + math.pi) % math.tau - math.pi
    if abs(change) < 0.45:
        return "Continue onto"
    return "Turn left onto" if change > 0 else "Turn right onto"


def _line(legs: Sequence[_Leg], start: Spot, end: Spot) -> tuple[Point, ...]:
    net = network()
    points: list[Point] = []
    for edge, forward in legs:
        points += edge.line if forward else edge.line[::-1]
    first, last = net.at(net.edges[start.edge], start.along), net.at(net.edges[end.edge], end.along)
    if len(legs) == 1:
        return _cut(legs[0][0], start.along, end.along)
    head = _cut(legs[0][0], start.along, legs[0][0].length if legs[0][1] else 0)
    tail = _cut(legs[-1][0], 0 if legs[-1][1] else legs[-1][0].length, end.along)
    inner = points[len(legs[0][0].line) : len(points) - len(legs[-1][0].line)]
    return (first, *head[1:], *inner, *tail[:-1], last)


def _cut(edge: Edge, start: int, end: int) -> tuple[Point, ...]:
    """The part of an edge between two distances from its beginning."""
    net, passed = network(), 0.0
    low, high = min(start, end), max(start, end)
    inner: list[Point] = []
    for a, b in itertools.pairwise(edge.line):
        passed += between(a, b)
        if low < passed < high:
            inner.append(b)
    line = (net.at(edge, low), *inner, net.at(edge, high))
    return line if start <= end else line[::-1]


# --- how numbers are written ---------------------------------------------------------------------


def distance(metres: float) -> str:
    """850 m, 12.4 km; tens of metres below a kilometre."""
    if metres < 995:
        return f"{round(metres / 10) * 10} m"
    return f"{metres / 1000:.1f} km"


def duration(minutes: int) -> str:
    """18 min, 1 h 24 min"""
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"
