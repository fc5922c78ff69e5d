"""Questions about a place, by name or by coordinates."""

from __future__ import annotations

import random
import re

from webagent_jax.arena.map.places import DAY_NAMES
from webagent_jax.arena.map.roads import network
from webagent_jax.arena.map.tasks.helpers import fetch_places, go_to_place, sample_place
from webagent_jax.arena.map.terrain import straight_distance, to_degrees, to_point
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    unachievable,
)
from webagent_jax.expert_steps import (
    Moves,
    answer,
    click,
    element_names_after,
    extract_text,
    give_up,
    page_text,
    search,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("map", "map")

_WEEK = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# --- one place -----------------------------------------------------------------------------------


def _sample_phone(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng, "phone != ''")
    return place and TaskInstance(
        {"place": place["name"], "town": place["town"]}, answer_includes(place["phone"])
    )


_PHONE = (
    "What is the phone number of {place} in {town}?",
    "Tell me how I can call {place}, {town}.",
    "I need the phone number of {place} in {town}",
    "Look up {place} ({town}) on the map and give me its phone number.",
    "Find the number to ring for {place} in {town}.",
)


@tasks.add("phone", _sample_phone, *_PHONE)
def phone(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_place(page, slots["place"])
    yield from answer(
        extract_text(page, r"Phone (\d[\d-]+)"), evidence="Phone", reason="Its page tells it"
    )


def _sample_address(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng)
    return place and TaskInstance(
        {"place": place["name"]}, answer_includes(place["street"], place["town"], place["zip_code"])
    )


@tasks.add(
    "address",
    _sample_address,
    "What is the full address of {place}, with the zip code?",
    "Give me the complete address (street, town, zip code) of {place}.",
    "Where exactly is {place}? I need street, number, town and zip code.",
    "Tell me the address of {place} including its zip code",
    "I want to send a letter to {place}. What is the whole address?",
)
def address(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_place(page, slots["place"])
    address_text = extract_text(page, r"Address (.+? \d{5})")
    yield from answer(address_text, evidence="Address", reason="Its page tells it")


# Texts between the times in an answer. \u2013 is a dash.
_HOURS_MARKS = (
    *("-", " - ", "\u2013", " \u2013 ", " to ", " until ", " till ", " and "),
    *(" and closes at ", ", closes at "),
)


def _sample_hours(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng, "hours != '' AND hours NOT LIKE '%00:00-24:00%'")
    day = rng.randrange(7)
    hours = place["hours"].split(";")[day] if place else ""
    if not hours:
        return None
    start, end = hours.split("-")
    reference = " |OR| ".join(f"{start}{mark}{end}" for mark in _HOURS_MARKS)
    return TaskInstance({"place": place["name"], "day": _WEEK[day]}, answer_includes(reference))


@tasks.add(
    "hours",
    _sample_hours,
    "What are the opening hours of {place} on {day}?",
    "From when to when is {place} open on a {day}?",
    "I want to visit {place} on {day}. When is it open?",
    "Tell me the {day} hours of {place}.",
    "Look up when {place} opens and closes on {day}",
)
def hours(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_place(page, slots["place"])
    hours_text = _parse_hours(page)[slots["day"]]
    yield from answer(hours_text, evidence=slots["day"], reason="The hours are told by day")


def _parse_hours(page: Observation) -> dict[str, str]:
    day_pattern = "|".join(DAY_NAMES)
    week: dict[str, str] = {}
    for first, last, hours_text in re.findall(
        rf"({day_pattern})(?:-({day_pattern}))? (closed|\d\d:\d\d-\d\d:\d\d)", page_text(page)
    ):
        for day in range(DAY_NAMES.index(first), DAY_NAMES.index(last or first) + 1):
            week.setdefault(_WEEK[day], hours_text)
    return week


def _sample_closes_later(data: Data, rng: random.Random) -> TaskInstance | None:
    first = sample_place(data, rng, "hours != '' AND hours NOT LIKE '%00:00-24:00%'")
    others = first and fetch_places(
        data,
        "category_id = ? AND town = ? AND place.id != ? AND hours != '' ORDER BY place.id",
        *(first["category_id"], first["town"], first["id"]),
    )
    if not others:
        return None
    second, day = rng.choice(others), rng.randrange(7)
    ends = [place["hours"].split(";")[day][6:] for place in (first, second)]
    if not all(ends) or ends[0] == ends[1]:
        return None
    slots = {"first": first["name"], "second": second["name"], "day": _WEEK[day]}
    later, other = (first, second) if ends[0] > ends[1] else (second, first)
    return TaskInstance(slots, answer_includes(later["name"], excluding=[other["name"]]))


@tasks.add(
    "closes-later",
    _sample_closes_later,
    "Which closes later on {day}: {first} or {second}?",
    "On {day}, is {first} or {second} open until later? Name the one.",
    "I am late on {day}. Which of {first} and {second} shuts later?",
    "Compare the {day} hours of {first} and {second}: which one closes last?",
    "Of {first} and {second}, which stays open longer in the evening on {day}?",
)
def closes_later(slots: Slots, page: Observation) -> Expert:
    ends: dict[str, str] = {}
    for name in (slots["first"], slots["second"]):
        page = yield from go_to_place(page, name)
        week = _parse_hours(page)
        hours_text = week.get(slots["day"], "00:00-24:00")
        ends[name] = hours_text[6:]
    latest = max(ends, key=lambda name: ends[name])
    yield from answer(latest, evidence=", ".join(ends.values()), reason="I compare when they close")


def _sample_coordinates(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng)
    latitude, longitude = to_degrees((place["x"], place["y"]))
    return TaskInstance(
        {"place": place["name"]}, answer_includes(f"{latitude:.4f}", f"{longitude:.4f}")
    )


@tasks.add(
    "coordinates",
    _sample_coordinates,
    "What are the coordinates of {place}, in degrees?",
    "Tell me latitude and longitude of {place}.",
    "I need the coordinates of {place} for my navigation device",
    "At which latitude and longitude is {place}?",
    "Look up {place} and give me its position as latitude, longitude.",
)
def coordinates(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_place(page, slots["place"])
    coordinates_text = extract_text(page, r"Coordinates (-?\d+\.\d+, -?\d+\.\d+)")
    yield from answer(coordinates_text, evidence="Coordinates", reason="Its page tells them")


def _sample_place_missing(data: Data, rng: random.Random) -> TaskInstance | None:
    place, other = sample_place(data, rng), sample_place(data, rng)
    if place["category_id"] == other["category_id"] or " " not in place["name"]:
        return None
    name = f"{other['name'].split()[0]} {place['name'].split(' ', 1)[1]}"
    words = " AND ".join("instr(words, ?)" for _ in name.split())
    if "'" in name or "&" in name or fetch_places(data, words, *name.lower().split()):
        return None
    return TaskInstance({"place": name}, unachievable("there is no such place on the map"))


@tasks.add(
    "place-missing",
    _sample_place_missing,
    "What is the phone number of {place}?",
    "Tell me the full address of {place}.",
    "At which coordinates is {place}?",
    "How long does it take to drive from Alder Falls to {place}?",
    "Look up the opening hours of {place} on Friday",
)
def place_missing(slots: Slots, page: Observation) -> Expert:
    yield from search(page, "Search the map", slots["place"], reason="I look it up by its name")
    yield from give_up("No places found")


def _sample_no_phone(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng, "phone = ''")
    why = "the map knows no phone number of this place"
    return place and TaskInstance(
        {"place": place["name"], "town": place["town"]}, unachievable(why)
    )


@tasks.add("no-phone", _sample_no_phone, *_PHONE)
def no_phone(slots: Slots, page: Observation) -> Expert:
    yield from go_to_place(page, slots["place"])
    yield from give_up("Phone none")


# --- by coordinates ------------------------------------------------------------------------------


def _sample_coordinates_of_place(
    data: Data, rng: random.Random
) -> tuple[dict[str, str], tuple[int, int]]:
    """Return the coordinates of a place, and their point."""
    place = sample_place(data, rng)
    latitude, longitude = to_degrees((place["x"], place["y"]))
    slots = {"lat": f"{latitude:.4f}", "lon": f"{longitude:.4f}"}
    return slots, to_point(latitude, longitude)


def _sample_street_at(data: Data, rng: random.Random) -> TaskInstance | None:
    slots, point = _sample_coordinates_of_place(data, rng)
    edge, _, _ = network().nearest_edge(point)
    return TaskInstance(slots, answer_includes(edge.name, edge.town))


@tasks.add(
    "street-at",
    _sample_street_at,
    "Which street and town are at latitude {lat}, longitude {lon}?",
    "On which road is the point {lat}, {lon}, and in which town?",
    "My phone says {lat}, {lon}. Tell me the street and the town.",
    "Look up the coordinates {lat}, {lon}: what street is it, in what town?",
    "I found a key at {lat} (latitude), {lon} (longitude). In which street of which town was it",
)
def street_at(slots: Slots, page: Observation) -> Expert:
    page = yield from _look_up_point(slots, page)
    heading = extract_text(page, r"Look Up (.+? \d{5})")
    yield from answer(heading, reason="The heading tells the street and the town")


def _look_up_point(slots: Slots, page: Observation) -> Moves:
    page = yield from click(
        page, "Coordinates", "link", intent_phrase="", reason="There one can look them up"
    )
    page = yield from type_text(page, "Latitude", slots["lat"])
    page = yield from type_text(page, "Longitude", slots["lon"])
    return (yield from click(page, "Look Up", "button", intent_phrase=""))


def _sample_place_at(data: Data, rng: random.Random) -> TaskInstance | None:
    slots, (x, y) = _sample_coordinates_of_place(data, rng)
    distance_sql = "(x - ?) * (x - ?) + (y - ?) * (y - ?)"
    # The page lists five places.
    first, *others = fetch_places(
        data, f"listed ORDER BY {distance_sql}, place.id LIMIT 5", x, x, y, y
    )
    distances = [
        straight_distance((x, y), (place["x"], place["y"])) for place in (first, others[0])
    ]
    spec = answer_includes(first["name"], excluding=[other["name"] for other in others])
    return TaskInstance(slots, spec) if distances[1] - distances[0] > 15 else None


@tasks.add(
    "place-at",
    _sample_place_at,
    "What place is at latitude {lat}, longitude {lon}?",
    "Which place is closest to the point {lat}, {lon}?",
    "A friend sent me the coordinates {lat}, {lon}. What is there?",
    "Look up {lat}, {lon} on the map and name the place there.",
    "Tell me the name of the place at {lat} (latitude) and {lon} (longitude)",
)
def place_at(slots: Slots, page: Observation) -> Expert:
    page = yield from _look_up_point(slots, page)
    name = element_names_after(page, "Look Up", "link")[0]
    yield from answer(name, reason="The nearest place comes first")
