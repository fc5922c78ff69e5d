"""Sampling, navigation and answer helpers for the tasks of the map."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from typing import Any

from webagent_jax.arena.map.data import categories
from webagent_jax.arena.map.network import Mode
from webagent_jax.arena.map.routes import Route, Spot, find_route
from webagent_jax.arena.task import Data
from webagent_jax.expert_steps import (
    Moves,
    click,
    extract_text,
    search,
    select_option,
    type_text,
)
from webagent_jax.types import Observation

MAP = "__MAP__"

MODES: Mapping[str, Mode] = {"by car": "car", "by bike": "bike", "on foot": "foot"}

_FIRST_PLACE_ID, _LAST_PLACE_ID = 19, 2018  # range of place ids; towns and homes have smaller ids

_PLACE_QUERY = (
    "SELECT place.*, category.name AS category, category.plural, category.section,"
    " category.slug AS category_slug FROM place JOIN category ON category.id = category_id"
)


# --- sampling ------------------------------------------------------------------------------------


def sample_place(data: Data, rng: random.Random, where: str = "1") -> Any:
    """Return the row of a random place; None if it does not satisfy `where`."""
    number = rng.randint(_FIRST_PLACE_ID, _LAST_PLACE_ID)
    return (
        data["map"].execute(f"{_PLACE_QUERY} WHERE place.id = ? AND {where}", [number]).fetchone()
    )


def fetch_places(data: Data, where: str, *arguments: object) -> list[Any]:
    return data["map"].execute(f"{_PLACE_QUERY} WHERE {where}", arguments).fetchall()


def sample_places_in_town(data: Data, rng: random.Random, count: int) -> list[Any]:
    """Return distinct places of a town."""
    first = sample_place(data, rng)
    others = fetch_places(data, "town = ? AND listed ORDER BY place.id", first["town"])
    return rng.sample(others, count)


def nearest_places(data: Data, place: Any, category: str, where: str = "1") -> list[Any]:
    """Return the places of a category by straight-line distance from a place, at most twelve."""
    distance = "(x - ?) * (x - ?) + (y - ?) * (y - ?)"
    x, y = place["x"], place["y"]
    return fetch_places(
        data,
        f"category.name = ? AND place.id != ? AND {where} ORDER BY {distance}, place.id LIMIT 12",
        *(category, place["id"], x, x, y, y),
    )


def sample_category(rng: random.Random, *excluded: str) -> str:
    """Return the name of a category with enough places that is not in `excluded`."""
    return rng.choice(
        [kind.name for kind in categories() if kind.count >= 14 and kind.name not in excluded]
    )


def find_quickest_route(start: Any, end: Any, mode: Mode) -> Route:
    spots = [Spot(place["edge"], place["along"]) for place in (start, end)]
    return find_route(spots[0], spots[1], mode)


# --- answer references ---------------------------------------------------------------------------


def duration_references(minutes: int) -> tuple[str, ...]:
    """Return references for a duration, with the forms that an answer may use."""
    if minutes < 60:
        return _number_with_unit(str(minutes), "min", "mins", "minutes", "minute")
    hours, remainder = divmod(minutes, 60)
    unit = "hour" if hours == 1 else "hours"
    forms = (
        f"{hours} h {remainder} min",
        f"{hours}h {remainder} min",
        f"{hours}h {remainder}min",
        f"{hours}h{remainder}min",
        f"{hours} h {remainder}min",
        f"{hours} {unit} {remainder} min",
        f"{hours} {unit}, {remainder} min",
        f"{hours} {unit} and {remainder} min",
        f"{hours} hr {remainder} min",
        f"{hours}h {remainder}m",
        f"{minutes} min",
        f"{minutes}min",
    )
    return (" |OR| ".join(forms),)


def distance_references(distance: str) -> tuple[str, ...]:
    """Return references for a distance such as "12.4 km", with the forms that an answer may use."""
    number, unit = distance.split()
    units = {"km": ("km", "kilometres", "kilometers"), "m": ("m", "metres", "meters")}
    return _number_with_unit(number, *units[unit])


def _number_with_unit(number: str, *units: str) -> tuple[str, str]:
    """Return references for a number and its unit, also for "27min", which is one word.

    Args:
        number: number of the answer.
        *units: names of the unit.
    """
    word = f"{number}{units[0]}"
    return f"{number} |OR| {word}", " |OR| ".join((*units, word))


# --- navigation ----------------------------------------------------------------------------------


@functools.cache
def find_plural(category: str) -> str:
    """Return the plural of a category, its name in lists and menus."""
    return next(kind.plural for kind in categories() if kind.name.lower() == category.lower())


@functools.cache
def find_section(plural: str) -> str:
    return next(kind.section for kind in categories() if kind.plural.lower() == plural.lower())


@functools.cache
def capitalize_plural(plural: str) -> str:
    """Return the plural of a category as pages capitalize it."""
    return next(kind.plural for kind in categories() if kind.plural.lower() == plural.lower())


def go_to_place(page: Observation, name: str) -> Moves:
    page = yield from search(
        page, "Search the map", name, reason="The search finds a place by name"
    )
    return (yield from click(page, name, "link", reason="It is among the results, so I open it"))


def go_to_nearby(page: Observation, name: str, category: str) -> Moves:
    """Open the places of a category near a place, the nearest first."""
    page = yield from go_to_place(page, name)
    page = yield from click(
        page, "Nearby", "link", intent_phrase="", reason="It lists what is around"
    )
    return (
        yield from select_option(
            page,
            "Category",
            find_plural(category),
            intent_phrase=category,
            reason="Only these count",
        )
    )


def go_to_category(page: Observation, plural: str, town: str) -> Moves:
    page = yield from click(page, "Browse", intent_phrase="", reason="The menu lists all sections")
    section = find_section(plural)
    page = yield from click(
        page, section, "link", intent_phrase="", reason=f"{plural} belong to {section}"
    )
    page = yield from click(
        page, capitalize_plural(plural), "link", reason="The section lists its categories"
    )
    return (yield from select_option(page, "Town", town, reason="Only this town counts"))


def go_to_route(page: Observation, start: str, end: str, mode: str) -> Moves:
    """Open the route between two places; `mode` is "by car", "by bike" or "on foot"."""
    page = yield from click(
        page, "Directions", "link", intent_phrase="", reason="Directions tell the way"
    )
    page = yield from type_text(page, "From", start)
    page = yield from type_text(page, "To", end)
    if mode != "by car":
        page = yield from select_option(
            page, "By", MODE_OPTIONS[mode], intent_phrase=mode, reason="Car is chosen already"
        )
    return (yield from click(page, "Get Directions", "button", intent_phrase=""))


MODE_OPTIONS = {"by car": "Car", "by bike": "Bike", "on foot": "Foot"}


def read_duration(page: Observation) -> str:
    """Return the duration on the page of a route, such as "1 h 24 min"."""
    return extract_text(page, r"By (?:car|bike|foot): ((?:\d+ h )?\d+ min), ")


def read_distance(page: Observation) -> str:
    return extract_text(page, r"By (?:car|bike|foot): .*? min, ([\d.]+ k?m)")


def parse_minutes(duration: str) -> int:
    """Return the minutes of a duration: "1 h 24 min" gives 84."""
    hours, _, minutes = duration.rpartition(" h ")
    return 60 * int(hours or 0) + int(minutes.removesuffix(" min"))
