"""How one gets about on the map, and what its tasks are drawn from and answered by."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from typing import Any

from webagent_jax.arena.expert_steps import Moves, choose, click, found, search, type_text
from webagent_jax.arena.map.data import categories
from webagent_jax.arena.map.network import Mode
from webagent_jax.arena.map.routes import Route, Spot, route
from webagent_jax.arena.task import Data
from webagent_jax.types import Observation

MAP = "__MAP__"
ME = 1  # person id of whose browser it is

MODES: Mapping[str, Mode] = {"by car": "car", "by bike": "bike", "on foot": "foot"}

_FIRST, _LAST = 19, 2018  # ids of places; towns and homes come before them

_SELECT = (
    "SELECT place.*, category.name AS category, category.plural, category.section,"
    " category.slug AS category_slug FROM place JOIN category ON category.id = category_id"
)


# --- drawing -------------------------------------------------------------------------------------


def a_place(data: Data, rng: random.Random, where: str = "1") -> Any:
    """A row of place; None when the drawn one is not as it must be."""
    number = rng.randint(_FIRST, _LAST)
    return data["map"].execute(f"{_SELECT} WHERE place.id = ? AND {where}", [number]).fetchone()


def places(data: Data, where: str, *arguments: object) -> list[Any]:
    return data["map"].execute(f"{_SELECT} WHERE {where}", arguments).fetchall()


def in_town(data: Data, rng: random.Random, count: int) -> list[Any]:
    """Different places of one town."""
    first = a_place(data, rng)
    others = places(data, "town = ? AND listed ORDER BY place.id", first["town"])
    return rng.sample(others, count)


def nearest(data: Data, place: Any, category: str, where: str = "1") -> list[Any]:
    """The places of a category in the order of their straight distance."""
    away = "(x - ?) * (x - ?) + (y - ?) * (y - ?)"
    x, y = place["x"], place["y"]
    return places(
        data,
        f"category.name = ? AND place.id != ? AND {where} ORDER BY {away}, place.id LIMIT 12",
        *(category, place["id"], x, x, y, y),
    )


def a_category(rng: random.Random, *but: str) -> str:
    """The name of one with enough places."""
    return rng.choice(
        [kind.name for kind in categories() if kind.count >= 14 and kind.name not in but]
    )


def way(start: Any, end: Any, mode: Mode) -> Route:
    spots = [Spot(each["edge"], each["along"]) for each in (start, end)]
    return route(spots[0], spots[1], mode)


# --- references ----------------------------------------------------------------------------------


def minutes_told(minutes: int) -> tuple[str, ...]:
    """A time in the ways an answer may write it, as references."""
    if minutes < 60:
        return str(minutes), "min |OR| mins |OR| minutes |OR| minute"
    hours, rest = divmod(minutes, 60)
    unit = "hour" if hours == 1 else "hours"
    forms = (
        f"{hours} h {rest} min",
        f"{hours} {unit} {rest} min",
        f"{hours} {unit} and {rest} min",
    )
    return (" |OR| ".join((*forms, f"{hours}h {rest}", f"{minutes} min")),)


def metres_told(told: str) -> tuple[str, ...]:
    """ "12.4 km" in the ways an answer may write it."""
    number, unit = told.split()
    units = {"km": "km |OR| kilometres |OR| kilometers", "m": "m |OR| metres |OR| meters"}
    return number, units[unit]


# --- ways ----------------------------------------------------------------------------------------


@functools.cache
def plural(category: str) -> str:
    """As lists and menus call it: known to who knows the map."""
    return next(kind.plural for kind in categories() if kind.name.lower() == category.lower())


@functools.cache
def section_of(plural: str) -> str:
    return next(kind.section for kind in categories() if kind.plural.lower() == plural.lower())


@functools.cache
def title(plural: str) -> str:
    """With its capitals."""
    return next(kind.plural for kind in categories() if kind.plural.lower() == plural.lower())


def to_place(page: Observation, name: str) -> Moves:
    page = yield from search(page, "Search the map", name, why="The search finds a place by name")
    return (yield from click(page, name, "link", why="It is among the results, so I open it"))


def to_nearby(page: Observation, name: str, category: str) -> Moves:
    """The places of a category around another, the nearest first."""
    page = yield from to_place(page, name)
    page = yield from click(page, "Nearby", "link", about="", why="It lists what is around")
    return (
        yield from choose(
            page, "Category", plural(category), about=category, why="Only these count"
        )
    )


def to_category(page: Observation, plural: str, town: str) -> Moves:
    page = yield from click(page, "Browse", about="", why="The menu lists all sections")
    section = section_of(plural)
    page = yield from click(page, section, "link", about="", why=f"{plural} belong to {section}")
    page = yield from click(page, title(plural), "link", why="The section lists its categories")
    return (yield from choose(page, "Town", town, why="Only this town counts"))


def to_route(page: Observation, start: str, end: str, mode: str) -> Moves:
    """`mode` is "by car", "by bike" or "on foot"."""
    page = yield from click(page, "Directions", "link", about="", why="Directions tell the way")
    page = yield from type_text(page, "From", start)
    page = yield from type_text(page, "To", end)
    if mode != "by car":
        page = yield from choose(page, "By", OPTIONS[mode], about=mode, why="Car is chosen already")
    return (yield from click(page, "Get Directions", "button", about=""))


OPTIONS = {"by car": "Car", "by bike": "Bike", "on foot": "Foot"}


def time_read(page: Observation) -> str:
    """Of the page of a route: 1 h 24 min."""
    return found(page, r"By (?:car|bike|foot): ((?:\d+ h )?\d+ min), ")


def length_read(page: Observation) -> str:
    return found(page, r"By (?:car|bike|foot): .*? min, ([\d.]+ k?m)")


def minutes(told: str) -> int:
    """1 h 24 min -> 84"""
    hours, _, rest = told.rpartition(" h ")
    return 60 * int(hours or 0) + int(rest.removesuffix(" min"))
