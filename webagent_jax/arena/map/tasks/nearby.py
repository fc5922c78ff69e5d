"""Questions about places of a category in a town or near another place."""

from __future__ import annotations

import random
import re

from webagent_jax.arena.map.tasks.helpers import (
    capitalize_plural,
    fetch_places,
    go_to_category,
    go_to_nearby,
    go_to_place,
    nearest_places,
    sample_category,
    sample_place,
)
from webagent_jax.arena.map.terrain import straight_distance
from webagent_jax.arena.task import Data, Slots, TaskInstance, TemplateRegistry, answer_includes
from webagent_jax.expert_steps import (
    Moves,
    answer,
    click,
    element_names_after,
    extract_text,
    scroll_until,
    select_option,
    set_checked,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("map", "map")


# --- places in a town ----------------------------------------------------------------------------


def _sample_count(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng)
    count = len(
        fetch_places(data, "category_id = ? AND town = ?", place["category_id"], place["town"])
    )
    slots = {"plural": place["plural"].lower(), "town": place["town"]}
    return (
        TaskInstance(slots, answer_includes(str(count))) if place["plural"] != "Fast Food" else None
    )


@tasks.add(
    "count",
    _sample_count,
    "How many {plural} are there in {town}?",
    "Count the {plural} of {town} that are on the map.",
    "Tell me the number of {plural} in {town}.",
    "In {town}, how many {plural} does the map show?",
    "I would like to know how many {plural} {town} has",
)
def count(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["plural"], slots["town"])
    number = extract_text(page, r"of (\d+) places?")
    yield from answer(number, evidence=f"of {number}", reason="The list tells how many there are")


def _sample_matching_places(data: Data, rng: random.Random, where: str) -> TaskInstance | None:
    """Return a task about the one to four places of a category and town that satisfy `where`.

    At least one place of the category in the town does not satisfy it.
    """
    place = sample_place(data, rng)
    town_sql = "category_id = ? AND town = ?"
    keys = place["category_id"], place["town"]
    matches = fetch_places(data, f"{town_sql} AND {where}", *keys)
    all_places = fetch_places(data, town_sql, *keys)
    if not 1 <= len(matches) <= 4 or len(all_places) == len(matches):
        return None
    slots = {"plural": place["plural"].lower(), "town": place["town"]}
    spec = answer_includes(
        *(match["name"] for match in matches), excluding=[row["name"] for row in all_places]
    )
    return TaskInstance(slots, spec)


def _sample_open_on(data: Data, rng: random.Random) -> TaskInstance | None:
    day = rng.choice(("Saturday", "Sunday"))
    instance = _sample_matching_places(data, rng, f"open_{day.lower()}")
    return instance and TaskInstance({**instance.slots, "day": day}, instance.eval)


@tasks.add(
    "open-on",
    _sample_open_on,
    "Which {plural} in {town} are open on {day}?",
    "Name all {plural} of {town} that open on a {day}.",
    "I am in {town} on {day}. Which {plural} will be open?",
    "List the {plural} in {town} that are open on {day}s",
    "Find out which {plural} are open on {day} in {town}, by name.",
)
def open_on(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["plural"], slots["town"])
    option = f"Open on {slots['day']}"
    page = yield from select_option(
        page, "Hours", option, intent_phrase=slots["day"], reason="A filter for the hours"
    )
    yield from _answer_with_names(page)


def _answer_with_names(page: Observation) -> Expert:
    names = element_names_after(page, "Wheelchair", "link")
    yield from answer(", ".join(names), reason="These are left in the list")


def _sample_accessible(data: Data, rng: random.Random) -> TaskInstance | None:
    return _sample_matching_places(data, rng, "accessible")


@tasks.add(
    "accessible",
    _sample_accessible,
    "Which {plural} in {town} are accessible by wheelchair?",
    "Name all {plural} of {town} that can be visited in a wheelchair.",
    "My aunt uses a wheelchair. Which {plural} in {town} can she go to?",
    "List the wheelchair accessible {plural} in {town}",
    "Find the {plural} in {town} with wheelchair access and tell me their names.",
)
def accessible(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["plural"], slots["town"])
    page = yield from set_checked(page, "Wheelchair", reason="A filter for wheelchair access")
    yield from _answer_with_names(page)


# --- places near another -------------------------------------------------------------------------


def _sample_nearest_place(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng)
    category = sample_category(rng, place["category"])
    first, *others = nearest_places(data, place, category)
    spec = answer_includes(first["name"], excluding=[other["name"] for other in others])
    return TaskInstance({"place": place["name"], "category": category.lower()}, spec)


@tasks.add(
    "nearest",
    _sample_nearest_place,
    "What is the {category} closest to {place}?",
    "Which {category} is nearest to {place} in a straight line?",
    "I am at {place}. Name the nearest {category}.",
    "Tell me the name of the closest {category} to {place}",
    "Find the {category} that is nearest to {place}.",
)
def nearest_place(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_nearby(page, slots["place"], slots["category"])
    name = element_names_after(page, "Hours", "link")[0]
    yield from answer(name, reason="The nearest one comes first")


def _sample_nearest_fact(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng)
    category = sample_category(rng, place["category"])
    first = nearest_places(data, place, category)[0]
    fact = rng.choice(("phone number", "street address"))
    answer_text = first["phone"] if fact == "phone number" else first["street"]
    slots = {"place": place["name"], "category": category.lower(), "fact": fact}
    return TaskInstance(slots, answer_includes(answer_text)) if answer_text else None


@tasks.add(
    "nearest-fact",
    _sample_nearest_fact,
    "What is the {fact} of the {category} closest to {place}?",
    "Tell me the {fact} of the {category} that is nearest to {place}.",
    "I am at {place} and need the {fact} of the nearest {category}",
    "Find the closest {category} to {place} and give me its {fact}.",
    "Which {fact} does the {category} nearest to {place} have?",
)
def nearest_fact(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_nearby(page, slots["place"], slots["category"])
    page = yield from _open_first(page)
    patterns = {"phone number": r"Phone (\d[\d-]+)", "street address": r"Address (.+?), "}
    answer_text = extract_text(page, patterns[slots["fact"]])
    yield from answer(answer_text, evidence=slots["fact"], reason="Its page tells it")


def _open_first(page: Observation) -> Moves:
    name = element_names_after(page, "Hours", "link")[0]
    return (
        yield from click(page, name, "link", intent_phrase="", reason="The nearest one comes first")
    )


def _sample_nearest_open(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng)
    category = sample_category(rng, place["category"])
    opening, column = rng.choice(
        (("now", "open_now"), ("on Saturday", "open_saturday"), ("on Sunday", "open_sunday"))
    )
    nearest_rows = nearest_places(data, place, category)
    open_rows = nearest_places(data, place, category, column)
    if not open_rows or open_rows[0]["id"] == nearest_rows[0]["id"]:
        return None
    slots = {"place": place["name"], "category": category.lower(), "when": opening}
    others = [row["name"] for row in (*nearest_rows, *open_rows)]
    return TaskInstance(slots, answer_includes(open_rows[0]["name"], excluding=others))


@tasks.add(
    "nearest-open",
    _sample_nearest_open,
    "What is the closest {category} to {place} that is open {when}?",
    "Which {category} near {place} is open {when}? Name the nearest one.",
    "I will be at {place}. Name the nearest {category} that is open {when}.",
    "Name the {category} nearest to {place} among those open {when}",
    "Find the nearest {category} to {place} that is open {when}.",
)
def nearest_open(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_nearby(page, slots["place"], slots["category"])
    option = f"Open {slots['when']}"
    page = yield from select_option(
        page, "Hours", option, intent_phrase=slots["when"], reason="It must be open"
    )
    name = element_names_after(page, "Hours", "link")[0]
    yield from answer(name, reason="The nearest one comes first")


def _sample_within_distance(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng)
    category = sample_category(rng, place["category"], "Fast Food Place", "Ice Cream Parlour")
    center = place["x"], place["y"]
    others = nearest_places(data, place, category)
    distances = [straight_distance(center, (other["x"], other["y"])) for other in others]
    reach = rng.choice((300, 400, 500, 600, 800))
    names = [
        other["name"] for other, distance in zip(others, distances, strict=True) if distance < reach
    ]
    is_clear = all(abs(distance - reach) > 15 for distance in distances)
    if not 1 <= len(names) <= 4 or not is_clear:
        return None
    slots = {
        "place": place["name"],
        "category": others[0]["plural"].lower(),
        "reach": str(reach),
    }
    return TaskInstance(
        slots, answer_includes(*names, excluding=[other["name"] for other in others])
    )


@tasks.add(
    "within",
    _sample_within_distance,
    "Which {category} are within {reach} m of {place} in a straight line?",
    "Name all {category} that are less than {reach} metres from {place}, as the crow flies.",
    "List the {category} within {reach} m around {place}",
    "I am at {place}. Which {category} are closer than {reach} m (straight line)?",
    "Tell me the names of all {category} in a circle of {reach} m around {place}.",
)
def within_distance(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_place(page, slots["place"])
    page = yield from click(
        page, "Nearby", "link", intent_phrase="", reason="It lists what is around"
    )
    option = slots["category"]
    page = yield from select_option(
        page, "Category", capitalize_plural(option), intent_phrase=option
    )
    nearby_names: list[str] = []
    for name in element_names_after(page, "Hours", "link"):
        row = rf"{re.escape(name)} [^:]+: ([\d.]+) (k?m)"
        page, match = yield from scroll_until(page, row)
        if match is None or match[2] == "km" or int(match[1]) > int(slots["reach"]):
            break
        nearby_names.append(name)
    yield from answer(", ".join(nearby_names), reason="The rest is farther away")
