"""Tasks that need the map and the back office of the shop or the forum."""

from __future__ import annotations

import random
from typing import Any

from webagent_jax.arena import common
from webagent_jax.arena.admin.tasks.helpers import go_to_customer, go_to_order
from webagent_jax.arena.forum.tasks.helpers import (
    FORUM,
    NEXT_POST_ID,
    go_to_community,
    go_to_member,
    submit_post,
)
from webagent_jax.arena.map.data import AGENT_USER_ID
from webagent_jax.arena.map.routes import format_distance
from webagent_jax.arena.map.tasks.helpers import (
    MAP,
    distance_references,
    duration_references,
    fetch_places,
    find_quickest_route,
    go_to_place,
    go_to_route,
    read_distance,
    read_duration,
    sample_place,
)
from webagent_jax.arena.map.tasks.saved_lists import keep
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    page_includes,
    sample_row,
)
from webagent_jax.expert_steps import answer, extract_text, finish, scroll_until, switch_tab
from webagent_jax.types import Expert, Observation

from_admin = TemplateRegistry("across", "shopping_admin", "map")
from_forum = TemplateRegistry("across", "reddit", "map")

_TOWN = r"\d+ [A-Z][A-Za-z ]+, ([A-Z][a-z]+(?: [A-Z][a-z]+)?) \d{5}\b"
"""Pattern of the town in an address of the back office."""


def _find_place(data: Data, name: str) -> Any:
    return fetch_places(data, "place.name = ?", name)[0]


def _sample_town(data: Data, rng: random.Random) -> str:
    return rng.choice(common.cities()).name


# --- starting in the back office -----------------------------------------------------------------


def _sample_delivery_drive(data: Data, rng: random.Random) -> TaskInstance | None:
    number, start = rng.randint(300_001, 305_000), _sample_town(data, rng)
    (town,) = data["shop"].execute("SELECT city FROM purchase WHERE id = ?", [number]).fetchone()
    if town == start:
        return None
    time = find_quickest_route(_find_place(data, start), _find_place(data, town), "car").minutes
    slots = {"number": str(number), "start": start}
    return TaskInstance(slots, answer_includes(*duration_references(time)))


@from_admin.add(
    "delivery-drive",
    _sample_delivery_drive,
    "How long is the drive from {start} to the town that order {number} is delivered to?",
    "Order {number} goes to some town. How long does it take to get there by car from {start}?",
    "Look up in which town the customer of order {number} wants it, and on the map how long one "
    "drives there from {start}.",
    "Our van is in {start}. How much time does it need to the town in the address of order "
    "{number}?",
    "Tell me the driving time from {start} to the town of order {number}",
)
def delivery_drive(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    page, town = yield from scroll_until(page, _TOWN)
    assert town is not None
    page = yield from switch_tab(1, f"It goes to {town[1]}; the map tells the way")
    page = yield from go_to_route(page, slots["start"], town[1], "by car")
    yield from answer(
        read_duration(page), evidence=town[1], reason="The route tells how long it takes"
    )


def _sample_customer_town(data: Data, rng: random.Random) -> TaskInstance | None:
    customer = sample_row(
        rng,
        data["shop"]
        .execute(
            "SELECT first || ' ' || last AS name, city FROM customer JOIN address"
            " ON customer_id = customer.id AND is_default WHERE customer.id > 1 ORDER BY "
            "customer.id"
        )
        .fetchall(),
    )
    lists = (
        data["map"]
        .execute(f"SELECT * FROM list WHERE person_id = {AGENT_USER_ID} ORDER BY id")
        .fetchall()
    )
    target_list = sample_row(rng, lists)
    kind = rng.choice(("Town Hall", "Railway Station", "Bus Station", "Farmers Market"))
    slots = {"customer": customer["name"], "what": kind, "list": target_list["name"]}
    name = f"{customer['city']} {kind}"
    return TaskInstance(slots, page_includes(f"{MAP}/lists/{target_list['id']}", "ol.saved", name))


@from_admin.add(
    "customer-town",
    _sample_customer_town,
    "Save the {what} of the town where our customer {customer} lives to my list {list} on the map.",
    "In which town does the customer {customer} live? Put its {what} on my list {list} of the map.",
    "Look up the town of customer {customer}, find its {what} on the map and save it to {list}",
    "I will visit our customer {customer}. Keep the {what} of their town in my map list {list}.",
    "Add the {what} of the home town of customer {customer} to the list {list} on the map.",
)
def customer_town(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_customer(page, slots["customer"])
    page, town = yield from scroll_until(page, _TOWN)
    assert town is not None
    page = yield from switch_tab(1, f"They live in {town[1]}")
    page = yield from go_to_place(page, f"{town[1]} {slots['what']}")
    yield from keep(page, slots["list"])
    yield from finish("It is in the list")


# --- starting in the forum -----------------------------------------------------------------------


def _sample_member_distance(data: Data, rng: random.Random) -> TaskInstance | None:
    members = data["forum"].execute(
        "SELECT username, town FROM member WHERE town != '' AND id > 1 ORDER BY id"
    )
    member, start = sample_row(rng, members.fetchall()), _sample_town(data, rng)
    if member["town"] == start or not fetch_places(data, "place.name = ?", member["town"]):
        return None
    distance_text = format_distance(
        find_quickest_route(
            _find_place(data, start), _find_place(data, member["town"]), "car"
        ).meters
    )
    return TaskInstance(
        {"member": member["username"], "start": start},
        answer_includes(*distance_references(distance_text)),
    )


@from_forum.add(
    "member-distance",
    _sample_member_distance,
    "How far is it by car from {start} to the town where the forum member {member} lives?",
    "The profile of {member} in the forum names a town. What distance does one drive there from "
    "{start}?",
    "Look up where {member} of the forum lives and tell me how many kilometres it is by car from "
    "{start}.",
    "I am in {start} and want to visit {member} from the forum. How far do I have to drive to that "
    "town?",
    "Tell me the driving distance between {start} and the home town of {member} (see the forum)",
)
def member_distance(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_member(page, slots["member"])
    town = extract_text(
        page, r"member since [A-Z][a-z]{2} \d+, \d{4}, ([A-Z][a-z]+(?: [A-Z][a-z]+)?)\b"
    )
    town = next(city.name for city in common.cities() if town.startswith(city.name))
    page = yield from switch_tab(1, f"{slots['member']} lives in {town}")
    page = yield from go_to_route(page, slots["start"], town, "by car")
    yield from answer(read_distance(page), evidence=town, reason="The route tells how far it is")


def _sample_post_travel_time(data: Data, rng: random.Random) -> TaskInstance | None:
    mode = rng.choice(("by car", "by bike"))
    start, end = sample_place(data, rng), sample_place(data, rng)
    if start["town"] == end["town"]:
        return None
    time = find_quickest_route(start, end, "car" if mode == "by car" else "bike").minutes
    title = f"Getting to {end['name']}"
    slots = {"town": end["town"], "start": start["name"], "end": end["name"]}
    slots |= {"mode": mode, "title": title}
    url = f"{FORUM}/c/{end['town'].lower().replace(' ', '-')}/{NEXT_POST_ID}"
    return TaskInstance(slots, page_includes(url, "#post", title, *duration_references(time)))


@from_forum.add(
    "post-travel-time",
    _sample_post_travel_time,
    "Find out on the map how long it takes {mode} from {start} to {end}, and post that time in the "
    'community {town}, with the title "{title}".',
    'Post in the forum community {town}, titled "{title}", how long one needs {mode} from {start} '
    "to {end} according to the map.",
    'Write a post "{title}" in the community {town} that tells the travel time {mode} from {start} '
    "to {end}.",
    'Create a post with the title "{title}" in {town}. Its text is the time that the map gives '
    "{mode} from {start} to {end}",
    "People in the community {town} ask how long it is {mode} from {start} to {end}. Look it up on "
    'the map and post it as "{title}".',
)
def post_travel_time(slots: Slots, page: Observation) -> Expert:
    page = yield from switch_tab(1, "First I need the time, which the map knows")
    page = yield from go_to_route(page, slots["start"], slots["end"], slots["mode"])
    time = read_duration(page)
    page = yield from switch_tab(0, f"It takes {time}; now the post")
    page = yield from go_to_community(page, slots["town"])
    yield from submit_post(page, slots["title"], body=time)
    yield from finish("The post is there")


tasks = (*from_admin, *from_forum)
