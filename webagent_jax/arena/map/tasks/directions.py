"""Questions about the way from one place to another, and routes and lists to bring up."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from webagent_jax.arena.expert_steps import (
    answer,
    choose,
    click,
    done,
    flat,
    found,
    names_after,
    read_all,
    type_text,
)
from webagent_jax.arena.map.routes import distance, duration
from webagent_jax.arena.map.tasks.helpers import (
    MAP,
    MODES,
    OPTIONS,
    a_category,
    a_place,
    in_town,
    length_read,
    metres_told,
    minutes,
    minutes_told,
    nearest,
    time_read,
    to_category,
    to_nearby,
    to_route,
    way,
)
from webagent_jax.arena.map.terrain import between
from webagent_jax.arena.task import Data, Instance, Templates, answers, ends_at
from webagent_jax.types import Expert, Observation

tasks = Templates("map", "map")

Slots = Mapping[str, str]


def _two(data: Data, rng: random.Random, mode: str) -> tuple[Any, Any]:
    """Far apart for a car, in one town for those who walk, either for a bike."""
    if mode == "on foot" or (mode == "by bike" and rng.random() < 0.5):
        first, second = in_town(data, rng, 2)
        return first, second
    while True:
        first, second = a_place(data, rng), a_place(data, rng)
        if first["town"] != second["town"]:
            return first, second


# --- one way -------------------------------------------------------------------------------------


def _time(data: Data, rng: random.Random) -> Instance | None:
    mode = rng.choice(list(MODES))
    first, second = _two(data, rng, mode)
    slots = {"start": first["name"], "end": second["name"], "mode": mode}
    return Instance(slots, answers(*minutes_told(way(first, second, MODES[mode]).minutes)))


@tasks.add(
    "travel-time",
    _time,
    "How long does it take to get from {start} to {end} {mode}?",
    "What is the travel time from {start} to {end} {mode}?",
    "I want to go {mode} from {start} to {end}. How much time do I need?",
    "Tell me how long I am on my way {mode} from {start} to {end}",
    "Find the quickest way {mode} from {start} to {end}: how long does it take?",
)
def travel_time(slots: Slots, page: Observation) -> Expert:
    page = yield from to_route(page, slots["start"], slots["end"], slots["mode"])
    yield from answer(time_read(page), seen=slots["mode"], why="The route tells how long it takes")


def _length(data: Data, rng: random.Random) -> Instance | None:
    mode = rng.choice(list(MODES))
    first, second = _two(data, rng, mode)
    slots = {"start": first["name"], "end": second["name"], "mode": mode}
    told = distance(way(first, second, MODES[mode]).metres)
    return Instance(slots, answers(*metres_told(told)))


@tasks.add(
    "travel-distance",
    _length,
    "How far is it from {start} to {end} {mode}?",
    "What is the distance {mode} between {start} and {end}? Start at the former.",
    "How long is the way {mode} from {start} to {end}, in distance?",
    "Tell me the length of the quickest route {mode} from {start} to {end}",
    "I am going {mode} from {start} to {end}. What distance will I cover?",
)
def travel_distance(slots: Slots, page: Observation) -> Expert:
    page = yield from to_route(page, slots["start"], slots["end"], slots["mode"])
    yield from answer(length_read(page), seen=slots["mode"], why="The route tells how far it is")


def _straight(data: Data, rng: random.Random) -> Instance | None:
    first, second = _two(data, rng, rng.choice(list(MODES)))
    told = distance(between((first["x"], first["y"]), (second["x"], second["y"])))
    if told == distance(way(first, second, "car").metres):
        return None
    slots = {"start": first["name"], "end": second["name"]}
    return Instance(slots, answers(*metres_told(told)))


@tasks.add(
    "straight",
    _straight,
    "How far is {start} from {end} in a straight line?",
    "What is the distance as the crow flies from {start} to {end}?",
    "Tell me how far a bird has to fly from {start} to {end}.",
    "Measure the straight-line distance between {start} and {end}",
    "In a straight line, how far apart are {start} and {end}?",
)
def straight(slots: Slots, page: Observation) -> Expert:
    page = yield from to_route(page, slots["start"], slots["end"], "by car")
    told = found(page, r"In a straight line: ([\d.]+ k?m)")
    yield from answer(told, seen="In a straight line", why="It stands below the route")


def _longest(data: Data, rng: random.Random) -> Instance | None:
    mode = rng.choice(list(MODES))
    first, second = _two(data, rng, mode)
    steps = sorted(way(first, second, MODES[mode]).steps, key=lambda step: -step.metres)
    if len(steps) < 3 or steps[0].metres < 1.2 * steps[1].metres or steps[0].road == steps[1].road:
        return None
    slots = {"start": first["name"], "end": second["name"], "mode": mode}
    return Instance(slots, answers(steps[0].road))


@tasks.add(
    "longest-stretch",
    _longest,
    "Going {mode} from {start} to {end}, on which road do I stay the longest distance?",
    "What is the road with the longest stretch on the way {mode} from {start} to {end}?",
    "I travel {mode} from {start} to {end}. Which road or street is the longest part of it?",
    "Look at the directions {mode} from {start} to {end}: name the road of the longest step.",
    "Name the road I follow the farthest on the route {mode} from {start} to {end}",
)
def longest_stretch(slots: Slots, page: Observation) -> Expert:
    page = yield from to_route(page, slots["start"], slots["end"], slots["mode"])
    page, views = yield from read_all(page)
    steps = [step for view in views for step in _steps(view)]
    length, road = max(steps)
    yield from answer(road, seen=f"{length} m", why="It is the longest step of the directions")


def _steps(page: Observation) -> list[tuple[int, str]]:
    """Metres and road of each."""
    words = r"(?:Head [a-z-]+ on|Turn left onto|Turn right onto|Continue onto)"
    told = re.findall(rf"{words} (.+?) (\d+(?:\.\d+)?) (k?m)\b", flat(page))
    return [
        (round(float(number) * (1000 if unit == "km" else 1)), road) for road, number, unit in told
    ]


# --- several ways --------------------------------------------------------------------------------


def _difference(data: Data, rng: random.Random) -> Instance | None:
    first, second = in_town(data, rng, 2)
    slow, fast = (way(first, second, mode).minutes for mode in ("foot", "bike"))
    slots = {"start": first["name"], "end": second["name"]}
    return Instance(slots, answers(*minutes_told(slow - fast))) if slow - fast > 3 else None


@tasks.add(
    "mode-difference",
    _difference,
    "How much longer does it take to walk from {start} to {end} than to go by bike?",
    "How many minutes do I save from {start} to {end} if I cycle instead of walking?",
    "Compare walking and cycling from {start} to {end}: what is the difference in time?",
    "By how much is the bike faster than walking from {start} to {end}",
    "I can walk or take the bike from {start} to {end}. How much time is between the two?",
)
def mode_difference(slots: Slots, page: Observation) -> Expert:
    page = yield from to_route(page, slots["start"], slots["end"], "on foot")
    slow = minutes(time_read(page))
    page = yield from choose(page, "By", "Bike", about="bike", why="Now the same way by bike")
    fast = minutes(time_read(page))
    told = duration(slow - fast)
    yield from answer(told, seen=f"{slow} - {fast}", why="I subtract the two times")


def _via(data: Data, rng: random.Random) -> Instance | None:
    mode = rng.choice(list(MODES))
    near = mode == "on foot"
    stops = in_town(data, rng, 3) if near else [a_place(data, rng) for _ in range(3)]
    if len({stop["id"] for stop in stops}) < 3:
        return None
    first, middle, last = stops
    total = way(first, middle, MODES[mode]).minutes + way(middle, last, MODES[mode]).minutes
    slots = {
        "start": first["name"],
        "middle": middle["name"],
        "end": last["name"],
        "mode": mode,
    }
    return Instance(slots, answers(*minutes_told(total)))


@tasks.add(
    "via",
    _via,
    "How long does it take in all to go {mode} from {start} to {middle} and then on to {end}?",
    "What is the total travel time {mode} from {start} to {end} if I go by way of {middle}?",
    "I go {mode} from {start} to {middle}, and from there to {end}. How long am I on my way?",
    "Add up the time {mode} from {start} to {middle} and from {middle} to {end}.",
    "Tell me how long the trip {start}, {middle}, {end} takes {mode}, without the stop in between",
)
def via(slots: Slots, page: Observation) -> Expert:
    parts: list[int] = []
    for start, end in ((slots["start"], slots["middle"]), (slots["middle"], slots["end"])):
        page = yield from to_route(page, start, end, slots["mode"])
        parts.append(minutes(time_read(page)))
    told = duration(sum(parts))
    yield from answer(told, seen=f"{parts[0]} + {parts[1]} min", why="I add up both parts")


def _quickest(data: Data, rng: random.Random) -> Instance | None:
    mode = rng.choice(("by car", "by bike"))
    start = a_place(data, rng)
    ends = [a_place(data, rng) for _ in range(3)]
    if len({place["town"] for place in (start, *ends)}) < 4:
        return None
    times = [way(start, end, MODES[mode]).minutes for end in ends]
    best = min(times)
    slots = {"start": start["name"], "mode": mode}
    slots |= {f"end{i}": end["name"] for i, end in enumerate(ends, 1)}
    if times.count(best) > 1:
        return None
    return Instance(slots, answers(ends[times.index(best)]["name"]))


@tasks.add(
    "quickest-of-three",
    _quickest,
    "Which can I reach quickest {mode} from {start}: {end1}, {end2} or {end3}?",
    "I am at {start}. Which of {end1}, {end2} and {end3} takes the least time {mode}?",
    "Starting at {start}, is {end1}, {end2} or {end3} the quickest to get to {mode}?",
    "Compare the travel times {mode} from {start} to {end1}, {end2} and {end3}. Which is shortest?",
    "Name the one of {end1}, {end2}, {end3} that is fastest to reach {mode} from {start}",
)
def quickest_of_three(slots: Slots, page: Observation) -> Expert:
    times: dict[str, int] = {}
    for end in (slots["end1"], slots["end2"], slots["end3"]):
        page = yield from to_route(page, slots["start"], end, slots["mode"])
        times[end] = minutes(time_read(page))
    best = min(times, key=lambda end: times[end])
    told = ", ".join(f"{time} min" for time in times.values())
    yield from answer(best, seen=told, why="I take the shortest of the three times")


def _in_time(data: Data, rng: random.Random) -> Instance | None:
    mode = rng.choice(list(MODES))
    first, second = _two(data, rng, mode)
    needed = way(first, second, MODES[mode]).minutes
    limit = max(5, round(needed * rng.choice((0.7, 0.8, 1.25, 1.4)) / 5) * 5)
    if limit == needed:
        return None
    slots = {"start": first["name"], "end": second["name"], "mode": mode, "limit": str(limit)}
    verdict = "yes" if needed < limit else "no"
    return Instance(slots, answers(verdict, *minutes_told(needed)))


@tasks.add(
    "in-time",
    _in_time,
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
    page = yield from to_route(page, slots["start"], slots["end"], slots["mode"])
    told = time_read(page)
    verdict = "Yes" if minutes(told) <= int(slots["limit"]) else "No"
    yield from answer(f"{verdict}, {told}", seen=told, why=f"I compare with {slots['limit']} min")


def _nearest_walk(data: Data, rng: random.Random) -> Instance | None:
    mode, place = rng.choice(list(MODES)), a_place(data, rng)
    category = a_category(rng, place["category"])
    first = nearest(data, place, category)[0]
    if first["edge"] == place["edge"]:
        return None
    slots = {"place": place["name"], "category": category.lower(), "mode": mode}
    return Instance(slots, answers(*minutes_told(way(place, first, MODES[mode]).minutes)))


@tasks.add(
    "time-to-nearest",
    _nearest_walk,
    "How long does it take {mode} from {place} to the closest {category}?",
    "I am at {place}. How many minutes is it {mode} to the nearest {category}?",
    "Find the {category} nearest to {place}. How long does it take to get there {mode}?",
    "What is the travel time {mode} from {place} to the {category} closest to it?",
    "Tell me how long I need {mode} from {place} to the nearest {category}",
)
def time_to_nearest(slots: Slots, page: Observation) -> Expert:
    page = yield from to_nearby(page, slots["place"], slots["category"])
    name = names_after(page, "Hours", "link")[0]
    page = yield from click(page, name, "link", about="", why="The nearest one comes first")
    page = yield from click(page, "Directions to Here", "link", about="")
    page = yield from type_text(page, "From", slots["place"])
    if slots["mode"] != "by car":
        option = OPTIONS[slots["mode"]]
        page = yield from choose(page, "By", option, about=slots["mode"])
    page = yield from click(page, "Get Directions", "button", about="")
    yield from answer(time_read(page), seen=slots["mode"], why="The route tells how long it takes")


# --- pages to bring up ---------------------------------------------------------------------------


def _route(data: Data, rng: random.Random) -> Instance | None:
    mode = rng.choice(list(MODES))
    first, second = _two(data, rng, mode)
    slots = {"start": first["name"], "end": second["name"], "mode": mode}
    url = f"{MAP}/route/{MODES[mode]}/{first['slug']}/{second['slug']}"
    return Instance(slots, ends_at(url))


@tasks.add(
    "show-route",
    _route,
    "Show me the way {mode} from {start} to {end}.",
    "Give me directions {mode} from {start} to {end}.",
    "Bring up the route {mode} from {start} to {end}",
    "I want to see how to get {mode} from {start} to {end}.",
    "Plan a trip {mode}, from {start} to {end}, and leave the directions open.",
)
def show_route(slots: Slots, page: Observation) -> Expert:
    yield from to_route(page, slots["start"], slots["end"], slots["mode"])
    yield from done("The directions are open")


def _listed(data: Data, rng: random.Random) -> Instance | None:
    place = a_place(data, rng)
    town = place["town"].replace(" ", "+")
    slots = {"plural": place["plural"].lower(), "town": place["town"]}
    return Instance(slots, ends_at(f"{MAP}/category/{place['category_slug']}?town={town}"))


@tasks.add(
    "show-category",
    _listed,
    "Show me all {plural} in {town}.",
    "List the {plural} of {town}.",
    "Bring up the {plural} in {town} on the map",
    "Browse the {plural}, but only those in {town}.",
    "I want to look through the category {plural} for {town}.",
)
def show_category(slots: Slots, page: Observation) -> Expert:
    yield from to_category(page, slots["plural"], slots["town"])
    yield from done("The list is narrowed down to the town")


def _around(data: Data, rng: random.Random) -> Instance | None:
    place, category = a_place(data, rng), a_category(rng)
    plural = nearest(data, place, category)[0]["category_slug"]
    slots = {"place": place["name"], "category": category.lower()}
    return Instance(slots, ends_at(f"{MAP}/place/{place['slug']}/nearby?category={plural}"))


@tasks.add(
    "show-nearby",
    _around,
    "Show me every {category} near {place}, the nearest first.",
    "Open the list of what is near {place}, narrowed down to the category {category}.",
    "Bring up the nearby places of {place} of the kind {category}",
    "I am at {place}. Show the places of the category {category} around me.",
    "Look around {place} for a {category} and leave the list of them open.",
)
def show_nearby(slots: Slots, page: Observation) -> Expert:
    yield from to_nearby(page, slots["place"], slots["category"])
    yield from done("The list has them in the order of their distance")
