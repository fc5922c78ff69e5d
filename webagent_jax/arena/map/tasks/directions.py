"""Questions about routes, and tasks that end on a route or a list."""

from __future__ import annotations

import random
import re
from typing import Any

from webagent_jax.arena.map.routes import format_distance, format_duration
from webagent_jax.arena.map.tasks.helpers import (
    MAP,
    MODE_OPTIONS,
    MODES,
    distance_references,
    duration_references,
    find_quickest_route,
    go_to_category,
    go_to_nearby,
    go_to_route,
    nearest_places,
    parse_minutes,
    read_distance,
    read_duration,
    sample_category,
    sample_place,
    sample_places_in_town,
)
from webagent_jax.arena.map.terrain import straight_distance
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    url_equals,
)
from webagent_jax.expert_steps import (
    answer,
    click,
    element_names_after,
    extract_text,
    finish,
    page_text,
    scroll_through,
    select_option,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("map", "map")


def _sample_two_places(data: Data, rng: random.Random, mode: str) -> tuple[Any, Any]:
    """Return two places: in different towns by car, in one town on foot, and either by bike."""
    if mode == "on foot" or (mode == "by bike" and rng.random() < 0.5):
        first, second = sample_places_in_town(data, rng, 2)
        return first, second
    while True:
        first, second = sample_place(data, rng), sample_place(data, rng)
        if first["town"] != second["town"]:
            return first, second


# --- one route -----------------------------------------------------------------------------------


def _sample_travel_time(data: Data, rng: random.Random) -> TaskInstance | None:
    mode = rng.choice(list(MODES))
    first, second = _sample_two_places(data, rng, mode)
    slots = {"start": first["name"], "end": second["name"], "mode": mode}
    return TaskInstance(
        slots,
        answer_includes(
            *duration_references(find_quickest_route(first, second, MODES[mode]).minutes)
        ),
    )


@tasks.add(
    "travel-time",
    _sample_travel_time,
    "How long does it take to get from {start} to {end} {mode}?",
    "What is the travel time from {start} to {end} {mode}?",
    "I want to go {mode} from {start} to {end}. How much time do I need?",
    "Tell me how long I am on my way {mode} from {start} to {end}",
    "Find the quickest way {mode} from {start} to {end}: how long does it take?",
)
def travel_time(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_route(page, slots["start"], slots["end"], slots["mode"])
    yield from answer(
        read_duration(page), evidence=slots["mode"], reason="The route tells how long it takes"
    )


def _sample_travel_distance(data: Data, rng: random.Random) -> TaskInstance | None:
    mode = rng.choice(list(MODES))
    first, second = _sample_two_places(data, rng, mode)
    slots = {"start": first["name"], "end": second["name"], "mode": mode}
    distance_text = format_distance(find_quickest_route(first, second, MODES[mode]).meters)
    return TaskInstance(slots, answer_includes(*distance_references(distance_text)))


@tasks.add(
    "travel-distance",
    _sample_travel_distance,
    "How far is it from {start} to {end} {mode}?",
    "What is the distance {mode} between {start} and {end}? Start at the former.",
    "How long is the way {mode} from {start} to {end}, in distance?",
    "Tell me the length of the quickest route {mode} from {start} to {end}",
    "I am going {mode} from {start} to {end}. What distance will I cover?",
)
def travel_distance(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_route(page, slots["start"], slots["end"], slots["mode"])
    yield from answer(
        read_distance(page), evidence=slots["mode"], reason="The route tells how far it is"
    )


def _sample_straight(data: Data, rng: random.Random) -> TaskInstance | None:
    first, second = _sample_two_places(data, rng, rng.choice(list(MODES)))
    distance_text = format_distance(
        straight_distance((first["x"], first["y"]), (second["x"], second["y"]))
    )
    if distance_text == format_distance(find_quickest_route(first, second, "car").meters):
        return None
    slots = {"start": first["name"], "end": second["name"]}
    return TaskInstance(slots, answer_includes(*distance_references(distance_text)))


@tasks.add(
    "straight",
    _sample_straight,
    "How far is {start} from {end} in a straight line?",
    "What is the distance as the crow flies from {start} to {end}?",
    "Tell me how far a bird has to fly from {start} to {end}.",
    "Measure the straight-line distance between {start} and {end}",
    "In a straight line, how far apart are {start} and {end}?",
)
def straight(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_route(page, slots["start"], slots["end"], "by car")
    distance_text = extract_text(page, r"In a straight line: ([\d.]+ k?m)")
    yield from answer(
        distance_text, evidence="In a straight line", reason="It stands below the route"
    )


def _sample_longest_stretch(data: Data, rng: random.Random) -> TaskInstance | None:
    mode = rng.choice(list(MODES))
    first, second = _sample_two_places(data, rng, mode)
    steps = sorted(
        find_quickest_route(first, second, MODES[mode]).steps, key=lambda step: -step.meters
    )
    if len(steps) < 3 or steps[0].meters < 1.2 * steps[1].meters or steps[0].road == steps[1].road:
        return None
    slots = {"start": first["name"], "end": second["name"], "mode": mode}
    # A place may have the name of its street.
    places = f"{first['name']} {second['name']}"
    other_roads = [step.road for step in steps if step.road not in places]
    return TaskInstance(slots, answer_includes(steps[0].road, excluding=other_roads))


@tasks.add(
    "longest-stretch",
    _sample_longest_stretch,
    "Going {mode} from {start} to {end}, on which road do I stay the longest distance?",
    "What is the road with the longest stretch on the way {mode} from {start} to {end}?",
    "I travel {mode} from {start} to {end}. Which road or street is the longest part of it?",
    "Look at the directions {mode} from {start} to {end}: name the road of the longest step.",
    "Name the road I follow the farthest on the route {mode} from {start} to {end}",
)
def longest_stretch(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_route(page, slots["start"], slots["end"], slots["mode"])
    page, views = yield from scroll_through(page)
    steps = [step for view in views for step in _parse_steps(view)]
    length, road = max(steps)
    yield from answer(
        road, evidence=f"{length} m", reason="It is the longest step of the directions"
    )


def _parse_steps(page: Observation) -> list[tuple[int, str]]:
    """Return the meters and the road of each step."""
    words = r"(?:Head [a-z-]+ on|Turn left onto|Turn right onto|Continue onto)"
    matches = re.findall(rf"{words} (.+?) (\d+(?:\.\d+)?) (k?m)\b", page_text(page))
    return [
        (round(float(number) * (1000 if unit == "km" else 1)), road)
        for road, number, unit in matches
    ]


# --- several routes ------------------------------------------------------------------------------


def _sample_mode_difference(data: Data, rng: random.Random) -> TaskInstance | None:
    first, second = sample_places_in_town(data, rng, 2)
    foot_minutes, bike_minutes = (
        find_quickest_route(first, second, mode).minutes for mode in ("foot", "bike")
    )
    slots = {"start": first["name"], "end": second["name"]}
    return (
        TaskInstance(slots, answer_includes(*duration_references(foot_minutes - bike_minutes)))
        if foot_minutes - bike_minutes > 3
        else None
    )


@tasks.add(
    "mode-difference",
    _sample_mode_difference,
    "How much longer does it take to walk from {start} to {end} than to go by bike?",
    "How many minutes do I save from {start} to {end} if I cycle instead of walking?",
    "Compare walking and cycling from {start} to {end}: what is the difference in time?",
    "By how much is the bike faster than walking from {start} to {end}",
    "I can walk or take the bike from {start} to {end}. How much time is between the two?",
)
def mode_difference(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_route(page, slots["start"], slots["end"], "on foot")
    foot_minutes = parse_minutes(read_duration(page))
    page = yield from select_option(
        page, "By", "Bike", intent_phrase="bike", reason="Now the same way by bike"
    )
    bike_minutes = parse_minutes(read_duration(page))
    duration_text = format_duration(foot_minutes - bike_minutes)
    yield from answer(
        duration_text,
        evidence=f"{foot_minutes} - {bike_minutes}",
        reason="I subtract the two times",
    )


def _sample_via(data: Data, rng: random.Random) -> TaskInstance | None:
    mode = rng.choice(list(MODES))
    is_near = mode == "on foot"
    stops = (
        sample_places_in_town(data, rng, 3)
        if is_near
        else [sample_place(data, rng) for _ in range(3)]
    )
    if len({stop["id"] for stop in stops}) < 3:
        return None
    first, middle, last = stops
    total = (
        find_quickest_route(first, middle, MODES[mode]).minutes
        + find_quickest_route(middle, last, MODES[mode]).minutes
    )
    slots = {
        "start": first["name"],
        "middle": middle["name"],
        "end": last["name"],
        "mode": mode,
    }
    return TaskInstance(slots, answer_includes(*duration_references(total)))


@tasks.add(
    "via",
    _sample_via,
    "How long does it take in all to go {mode} from {start} to {middle} and then on to {end}?",
    "What is the total travel time {mode} from {start} to {end} if I go by way of {middle}?",
    "I go {mode} from {start} to {middle}, and from there to {end}. How long am I on my way?",
    "Add up the time {mode} from {start} to {middle} and from {middle} to {end}.",
    "Tell me how long the trip {start}, {middle}, {end} takes {mode}, without the stop in between",
)
def via(slots: Slots, page: Observation) -> Expert:
    parts: list[int] = []
    for start, end in ((slots["start"], slots["middle"]), (slots["middle"], slots["end"])):
        page = yield from go_to_route(page, start, end, slots["mode"])
        parts.append(parse_minutes(read_duration(page)))
    duration_text = format_duration(sum(parts))
    yield from answer(
        duration_text, evidence=f"{parts[0]} + {parts[1]} min", reason="I add up both parts"
    )


def _sample_quickest_of_three(data: Data, rng: random.Random) -> TaskInstance | None:
    mode = rng.choice(("by car", "by bike"))
    start = sample_place(data, rng)
    ends = [sample_place(data, rng) for _ in range(3)]
    if len({place["town"] for place in (start, *ends)}) < 4:
        return None
    times = [find_quickest_route(start, end, MODES[mode]).minutes for end in ends]
    best = min(times)
    slots = {"start": start["name"], "mode": mode}
    slots |= {f"end{i}": end["name"] for i, end in enumerate(ends, 1)}
    if times.count(best) > 1:
        return None
    names = [end["name"] for end in ends]
    return TaskInstance(slots, answer_includes(names[times.index(best)], excluding=names))


@tasks.add(
    "quickest-of-three",
    _sample_quickest_of_three,
    "Which can I reach quickest {mode} from {start}: {end1}, {end2} or {end3}?",
    "I am at {start}. Which of {end1}, {end2} and {end3} takes the least time {mode}?",
    "Starting at {start}, is {end1}, {end2} or {end3} the quickest to get to {mode}?",
    "Compare the travel times {mode} from {start} to {end1}, {end2} and {end3}. Which is shortest?",
    "Name the one of {end1}, {end2}, {end3} that is fastest to reach {mode} from {start}",
)
def quickest_of_three(slots: Slots, page: Observation) -> Expert:
    times: dict[str, int] = {}
    for end in (slots["end1"], slots["end2"], slots["end3"]):
        page = yield from go_to_route(page, slots["start"], end, slots["mode"])
        times[end] = parse_minutes(read_duration(page))
    best = min(times, key=lambda end: times[end])
    times_text = ", ".join(f"{time} min" for time in times.values())
    yield from answer(best, evidence=times_text, reason="I take the shortest of the three times")


def _sample_in_time(data: Data, rng: random.Random) -> TaskInstance | None:
    mode = rng.choice(list(MODES))
    first, second = _sample_two_places(data, rng, mode)
    needed_minutes = find_quickest_route(first, second, MODES[mode]).minutes
    limit = max(5, round(needed_minutes * rng.choice((0.7, 0.8, 1.25, 1.4)) / 5) * 5)
    if limit == needed_minutes:
        return None
    slots = {"start": first["name"], "end": second["name"], "mode": mode, "limit": str(limit)}
    verdict = "yes" if needed_minutes < limit else "no"
    texts = (verdict, *duration_references(needed_minutes))
    return TaskInstance(slots, answer_includes(*texts, excluding=("yes", "no")))


@tasks.add(
    "in-time",
    _sample_in_time,
    "Can I get from {start} to {end} {mode} within {limit} minutes? Say yes or no, and how long it "
    "takes.",
    "Is {end} reachable from {start} {mode} in at most {limit} minutes? Yes or no, and the time it "
    "takes.",
    "I have {limit} minutes to go {mode} from {start} to {end}. Is that enough (yes or no), and "
    "what is the travel time?",
    "Are {limit} minutes enough to go {mode} from {start} to {end}? Answer yes or no with the time "
    "needed.",
    "Does it take less than {limit} minutes {mode} from {start} to {end}? Yes or no, with the "
    "exact "
    "travel time",
)
def in_time(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_route(page, slots["start"], slots["end"], slots["mode"])
    duration_text = read_duration(page)
    verdict = "Yes" if parse_minutes(duration_text) <= int(slots["limit"]) else "No"
    yield from answer(
        f"{verdict}, {duration_text}",
        evidence=duration_text,
        reason=f"I compare with {slots['limit']} min",
    )


def _sample_time_to_nearest(data: Data, rng: random.Random) -> TaskInstance | None:
    mode, place = rng.choice(list(MODES)), sample_place(data, rng)
    category = sample_category(rng, place["category"])
    first = nearest_places(data, place, category)[0]
    if first["edge"] == place["edge"]:
        return None
    slots = {"place": place["name"], "category": category.lower(), "mode": mode}
    return TaskInstance(
        slots,
        answer_includes(
            *duration_references(find_quickest_route(place, first, MODES[mode]).minutes)
        ),
    )


@tasks.add(
    "time-to-nearest",
    _sample_time_to_nearest,
    "How long does it take {mode} from {place} to the closest {category}?",
    "I am at {place}. How many minutes is it {mode} to the nearest {category}?",
    "Find the {category} nearest to {place}. How long does it take to get there {mode}?",
    "What is the travel time {mode} from {place} to the {category} closest to it?",
    "Tell me how long I need {mode} from {place} to the nearest {category}",
)
def time_to_nearest(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_nearby(page, slots["place"], slots["category"])
    name = element_names_after(page, "Hours", "link")[0]
    page = yield from click(
        page, name, "link", intent_phrase="", reason="The nearest one comes first"
    )
    page = yield from click(page, "Directions to Here", "link", intent_phrase="")
    page = yield from type_text(page, "From", slots["place"])
    if slots["mode"] != "by car":
        option = MODE_OPTIONS[slots["mode"]]
        page = yield from select_option(page, "By", option, intent_phrase=slots["mode"])
    page = yield from click(page, "Get Directions", "button", intent_phrase="")
    yield from answer(
        read_duration(page), evidence=slots["mode"], reason="The route tells how long it takes"
    )


# --- pages to open -------------------------------------------------------------------------------


def _sample_show_route(data: Data, rng: random.Random) -> TaskInstance | None:
    mode = rng.choice(list(MODES))
    first, second = _sample_two_places(data, rng, mode)
    slots = {"start": first["name"], "end": second["name"], "mode": mode}
    url = f"{MAP}/route/{MODES[mode]}/{first['slug']}/{second['slug']}"
    return TaskInstance(slots, url_equals(url))


@tasks.add(
    "show-route",
    _sample_show_route,
    "Show me the way {mode} from {start} to {end}.",
    "Give me directions {mode} from {start} to {end}.",
    "Bring up the route {mode} from {start} to {end}",
    "I want to see how to get {mode} from {start} to {end}.",
    "Plan a trip {mode}, from {start} to {end}, and leave the directions open.",
)
def show_route(slots: Slots, page: Observation) -> Expert:
    yield from go_to_route(page, slots["start"], slots["end"], slots["mode"])
    yield from finish("The directions are open")


def _sample_show_category(data: Data, rng: random.Random) -> TaskInstance | None:
    place = sample_place(data, rng)
    town = place["town"].replace(" ", "+")
    slots = {"plural": place["plural"].lower(), "town": place["town"]}
    return TaskInstance(slots, url_equals(f"{MAP}/category/{place['category_slug']}?town={town}"))


@tasks.add(
    "show-category",
    _sample_show_category,
    "Show me all {plural} in {town}.",
    "List the {plural} of {town}.",
    "Bring up the {plural} in {town} on the map",
    "Browse the {plural}, but only those in {town}.",
    "I want to look through the category {plural} for {town}.",
)
def show_category(slots: Slots, page: Observation) -> Expert:
    yield from go_to_category(page, slots["plural"], slots["town"])
    yield from finish("The list is narrowed down to the town")


def _sample_show_nearby(data: Data, rng: random.Random) -> TaskInstance | None:
    place, category = sample_place(data, rng), sample_category(rng)
    plural = nearest_places(data, place, category)[0]["category_slug"]
    slots = {"place": place["name"], "category": category.lower()}
    return TaskInstance(slots, url_equals(f"{MAP}/place/{place['slug']}/nearby?category={plural}"))


@tasks.add(
    "show-nearby",
    _sample_show_nearby,
    "Show me every {category} near {place}, the nearest first.",
    "Open the list of what is near {place}, narrowed down to the category {category}.",
    "Bring up the nearby places of {place} of the kind {category}",
    "I am at {place}. Show the places of the category {category} around me.",
    "Look around {place} for places of the kind {category} and leave the list open.",
)
def show_nearby(slots: Slots, page: Observation) -> Expert:
    yield from go_to_nearby(page, slots["place"], slots["category"])
    yield from finish("The list has them in the order of their distance")
