"""Questions about several places: those of a category in a town, and those around another."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from webagent_jax.arena.expert_steps import (
    Moves,
    answer,
    choose,
    click,
    found,
    names_after,
    read_on,
    tick,
)
from webagent_jax.arena.map.tasks.helpers import (
    a_category,
    a_place,
    nearest,
    places,
    title,
    to_category,
    to_nearby,
    to_place,
)
from webagent_jax.arena.map.terrain import between
from webagent_jax.arena.task import Data, Instance, Templates, answers
from webagent_jax.types import Expert, Observation

tasks = Templates("map", "map")

Slots = Mapping[str, str]


# --- those of a town -----------------------------------------------------------------------------


def _count(data: Data, rng: random.Random) -> Instance | None:
    place = a_place(data, rng)
    count = len(places(data, "category_id = ? AND town = ?", place["category_id"], place["town"]))
    slots = {"plural": place["plural"].lower(), "town": place["town"]}
    return Instance(slots, answers(str(count))) if place["plural"] != "Fast Food" else None


@tasks.add(
    "count",
    _count,
    "How many {plural} are there in {town}?",
    "Count the {plural} of {town} that are on the map.",
    "Tell me the number of {plural} in {town}.",
    "In {town}, how many {plural} does the map show?",
    "I would like to know how many {plural} {town} has",
)
def count(slots: Slots, page: Observation) -> Expert:
    page = yield from to_category(page, slots["plural"], slots["town"])
    number = found(page, r"of (\d+) places?")
    yield from answer(number, seen=f"of {number}", why="The list tells how many there are")


def _few(data: Data, rng: random.Random, where: str) -> Instance | None:
    """One to four of a category and a town that are as they should be, of more than those."""
    place = a_place(data, rng)
    of_town = "category_id = ? AND town = ?"
    keys = place["category_id"], place["town"]
    fitting = places(data, f"{of_town} AND {where}", *keys)
    if not 1 <= len(fitting) <= 4 or len(places(data, of_town, *keys)) == len(fitting):
        return None
    slots = {"plural": place["plural"].lower(), "town": place["town"]}
    return Instance(slots, answers(*(each["name"] for each in fitting)))


def _sunday(data: Data, rng: random.Random) -> Instance | None:
    day = rng.choice(("Saturday", "Sunday"))
    instance = _few(data, rng, f"open_{day.lower()}")
    return instance and Instance({**instance.slots, "day": day}, instance.eval)


@tasks.add(
    "open-on",
    _sunday,
    "Which {plural} in {town} are open on {day}?",
    "Name all {plural} of {town} that open on a {day}.",
    "I am in {town} on {day}. Which {plural} will be open?",
    "List the {plural} in {town} that are open on {day}s",
    "Find out which {plural} are open on {day} in {town}, by name.",
)
def open_on(slots: Slots, page: Observation) -> Expert:
    page = yield from to_category(page, slots["plural"], slots["town"])
    option = f"Open on {slots['day']}"
    page = yield from choose(
        page, "Hours", option, about=slots["day"], why="A filter for the hours"
    )
    yield from _all_named(page)


def _all_named(page: Observation) -> Expert:
    listed = names_after(page, "Wheelchair", "link")
    yield from answer(", ".join(listed), why="These are left in the list")


def _accessible(data: Data, rng: random.Random) -> Instance | None:
    return _few(data, rng, "accessible")


@tasks.add(
    "accessible",
    _accessible,
    "Which {plural} in {town} are accessible by wheelchair?",
    "Name all {plural} of {town} that can be visited in a wheelchair.",
    "My aunt uses a wheelchair. Which {plural} in {town} can she go to?",
    "List the wheelchair accessible {plural} in {town}",
    "Find the {plural} in {town} with wheelchair access and tell me their names.",
)
def accessible(slots: Slots, page: Observation) -> Expert:
    page = yield from to_category(page, slots["plural"], slots["town"])
    page = yield from tick(page, "Wheelchair", why="A filter for wheelchair access")
    yield from _all_named(page)


# --- those around another ------------------------------------------------------------------------


def _nearest(data: Data, rng: random.Random) -> Instance | None:
    place = a_place(data, rng)
    category = a_category(rng, place["category"])
    first = nearest(data, place, category)[0]
    return Instance({"place": place["name"], "category": category.lower()}, answers(first["name"]))


@tasks.add(
    "nearest",
    _nearest,
    "What is the {category} closest to {place}?",
    "Which {category} is nearest to {place} in a straight line?",
    "I am at {place}. Name the nearest {category}.",
    "Tell me the name of the closest {category} to {place}",
    "Find the {category} that is nearest to {place}.",
)
def nearest_place(slots: Slots, page: Observation) -> Expert:
    page = yield from to_nearby(page, slots["place"], slots["category"])
    name = names_after(page, "Hours", "link")[0]
    yield from answer(name, why="The nearest one comes first")


def _nearest_fact(data: Data, rng: random.Random) -> Instance | None:
    place = a_place(data, rng)
    category = a_category(rng, place["category"])
    first = nearest(data, place, category)[0]
    fact = rng.choice(("phone number", "street address"))
    told = first["phone"] if fact == "phone number" else first["street"]
    slots = {"place": place["name"], "category": category.lower(), "fact": fact}
    return Instance(slots, answers(told)) if told else None


@tasks.add(
    "nearest-fact",
    _nearest_fact,
    "What is the {fact} of the {category} closest to {place}?",
    "Tell me the {fact} of the {category} that is nearest to {place}.",
    "I am at {place} and need the {fact} of the nearest {category}",
    "Find the closest {category} to {place} and give me its {fact}.",
    "Which {fact} does the {category} nearest to {place} have?",
)
def nearest_fact(slots: Slots, page: Observation) -> Expert:
    page = yield from to_nearby(page, slots["place"], slots["category"])
    page = yield from _to_first(page)
    patterns = {"phone number": r"Phone (\d[\d-]+)", "street address": r"Address (.+?), "}
    told = found(page, patterns[slots["fact"]])
    yield from answer(told, seen=slots["fact"], why="Its page tells it")


def _to_first(page: Observation) -> Moves:
    name = names_after(page, "Hours", "link")[0]
    return (yield from click(page, name, "link", about="", why="The nearest one comes first"))


def _nearest_open(data: Data, rng: random.Random) -> Instance | None:
    place = a_place(data, rng)
    category = a_category(rng, place["category"])
    told, column = rng.choice(
        (("now", "open_now"), ("on Saturday", "open_saturday"), ("on Sunday", "open_sunday"))
    )
    all_of_them = nearest(data, place, category)
    fitting = nearest(data, place, category, column)
    if not fitting or fitting[0]["id"] == all_of_them[0]["id"]:
        return None
    slots = {"place": place["name"], "category": category.lower(), "when": told}
    return Instance(slots, answers(fitting[0]["name"]))


@tasks.add(
    "nearest-open",
    _nearest_open,
    "What is the closest {category} to {place} that is open {when}?",
    "Which {category} near {place} is open {when}? Name the nearest one.",
    "I will be at {place} and need a {category} that is open {when}. Which is the nearest?",
    "Name the {category} nearest to {place} among those open {when}",
    "Find the nearest {category} to {place} that is open {when}.",
)
def nearest_open(slots: Slots, page: Observation) -> Expert:
    page = yield from to_nearby(page, slots["place"], slots["category"])
    option = f"Open {slots['when']}"
    page = yield from choose(page, "Hours", option, about=slots["when"], why="It must be open")
    name = names_after(page, "Hours", "link")[0]
    yield from answer(name, why="The nearest one comes first")


def _within(data: Data, rng: random.Random) -> Instance | None:
    place = a_place(data, rng)
    category = a_category(rng, place["category"], "Fast Food Place", "Ice Cream Parlour")
    here = place["x"], place["y"]
    others = nearest(data, place, category)
    away = [between(here, (each["x"], each["y"])) for each in others]
    reach = rng.choice((300, 400, 500, 600, 800))
    inside = [each["name"] for each, far in zip(others, away, strict=True) if far < reach]
    clear = all(abs(far - reach) > 15 for far in away)
    if not 1 <= len(inside) <= 4 or not clear:
        return None
    slots = {"place": place["name"], "category": others[0]["plural"].lower(), "reach": str(reach)}
    return Instance(slots, answers(*inside))


@tasks.add(
    "within",
    _within,
    "Which {category} are within {reach} m of {place} in a straight line?",
    "Name all {category} that are less than {reach} metres from {place}, as the crow flies.",
    "List the {category} within {reach} m around {place}",
    "I am at {place}. Which {category} are closer than {reach} m (straight line)?",
    "Tell me the names of all {category} in a circle of {reach} m around {place}.",
)
def within(slots: Slots, page: Observation) -> Expert:
    page = yield from to_place(page, slots["place"])
    page = yield from click(page, "Nearby", "link", about="", why="It lists what is around")
    option = slots["category"]
    page = yield from choose(page, "Category", title(option), about=option)
    near: list[str] = []
    for name in names_after(page, "Hours", "link"):
        row = rf"{re.escape(name)} [^:]+: ([\d.]+) (k?m)"
        page, match = yield from read_on(page, row)
        if match is None or match[2] == "km" or int(match[1]) > int(slots["reach"]):
            break
        near.append(name)
    yield from answer(", ".join(near), why="The rest is farther away")
