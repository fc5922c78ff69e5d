"""Changes to promotions: create, edit, disable."""

from __future__ import annotations

import datetime
import random
from typing import Any

from webagent_jax.arena.admin.tasks.helpers import ADMIN
from webagent_jax.arena.common import TODAY
from webagent_jax.arena.shop.tasks.helpers import format_dollars
from webagent_jax.arena.site import format_day
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    page_equals,
    page_includes,
    sample_row,
)
from webagent_jax.expert_steps import Moves, click, finish, has_element, type_text
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")


def _sample_promotion(data: Data, rng: random.Random, where: str = "1") -> Any:
    return sample_row(
        rng, data["shop"].execute(f"SELECT * FROM promotion WHERE {where}").fetchall()
    )


def _go_to_promotion(page: Observation, name: str) -> Moves:
    page = yield from click(
        page, "Promotions", "link", intent_phrase="", reason="Promotions have a list"
    )
    while not has_element(page, name, "link") and has_element(page, "Next", "link"):
        page = yield from click(
            page, "Next", "link", intent_phrase="", reason="It is not among these"
        )
    return (yield from click(page, name, "link"))


_OCCASIONS = (
    ("Summer sale", "SUNNY"),
    ("Father's day", "DAD"),
    ("Garden party", "PARTY"),
    ("Weekend deal", "WEEKEND"),
    ("Neighbours' week", "NEXTDOOR"),
    ("Late summer", "LATE"),
    ("Members only", "MEMBER"),
    ("Autumn opening", "AUTUMN"),
)


def _sample_new_promotion(data: Data, rng: random.Random) -> TaskInstance | None:
    name, word = rng.choice(_OCCASIONS)
    percent, minimum = (
        rng.choice((5, 10, 12, 15, 20, 25, 30)),
        rng.choice((20, 30, 40, 50, 80, 100)),
    )
    starts = TODAY + datetime.timedelta(rng.randint(1, 60))
    ends = starts + datetime.timedelta(rng.choice((6, 13, 20, 30)))
    slots = {
        "name": name,
        "code": f"{word}{percent}",
        "percent": str(percent),
        "minimum": str(minimum),
        "starts": starts.isoformat(),
        "ends": ends.isoformat(),
    }
    days = f"{format_day(slots['starts'])}\t{format_day(slots['ends'])}"
    row = (
        f"{name}\t{slots['code']}\t{percent}%\t${format_dollars(minimum * 100)}\t{days}\tScheduled"
    )
    return TaskInstance(slots, page_includes(f"{ADMIN}/promotions", "table", row))


@tasks.add(
    "new-promotion",
    _sample_new_promotion,
    'Create a promotion "{name}" with the coupon {code}: {percent}% off from a subtotal of '
    "${minimum}, from {starts} to {ends}.",
    'Set up the coupon {code} ("{name}"): {percent} percent off orders of at least ${minimum}, '
    "valid {starts} to {ends}.",
    'We plan "{name}": with the code {code} customers get {percent}% off if they spend ${minimum}. '
    "It starts {starts} and ends {ends}. Add it",
    'Add a promotion. Name: "{name}". Code: {code}. Discount: {percent}%. Minimum: ${minimum}. '
    "First day: {starts}. Last day: {ends}.",
    'Enter "{name}" as a promotion from {starts} until {ends}, coupon code {code}, discount '
    "{percent}%, minimum subtotal ${minimum}.",
)
def new_promotion(slots: Slots, page: Observation) -> Expert:
    page = yield from click(
        page, "Promotions", "link", intent_phrase="", reason="Promotions have a list"
    )
    page = yield from click(page, "Add Promotion", "link", intent_phrase="")
    page = yield from type_text(page, "Name", slots["name"])
    page = yield from type_text(page, "Coupon code", slots["code"])
    page = yield from type_text(page, "Discount in percent", slots["percent"])
    page = yield from type_text(page, "Minimum subtotal", slots["minimum"])
    page = yield from type_text(page, "Starts", slots["starts"])
    page = yield from type_text(page, "Ends", slots["ends"])
    yield from click(page, "Save Promotion", "button", intent_phrase="")
    yield from finish("The promotion is saved")


def _sample_disable_promotion(data: Data, rng: random.Random) -> TaskInstance | None:
    row = _sample_promotion(data, rng, "active")
    spec = page_equals(f"{ADMIN}/promotions/{row['id']}", "h1 .status", "Disabled")
    return TaskInstance({"name": row["name"]}, spec)


@tasks.add(
    "disable-promotion",
    _sample_disable_promotion,
    'Disable the promotion "{name}".',
    'End the promotion "{name}" at once: disable it.',
    'Customers should not use "{name}" any more. Disable this promotion',
    'Switch the promotion "{name}" off, but do not delete it.',
    'Please disable "{name}" among the promotions.',
)
def disable_promotion(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_promotion(page, slots["name"])
    yield from click(page, "Disable", "button", intent_phrase="disable")
    yield from finish("The promotion is disabled")


def _sample_change_promotion(data: Data, rng: random.Random) -> TaskInstance | None:
    row, percent = _sample_promotion(data, rng, "active"), rng.randint(6, 33)
    ends = (TODAY + datetime.timedelta(rng.randint(30, 180))).isoformat()
    if row["percent"] == percent or row["starts"] > ends:
        return None
    start_of_row = f"{row['name']}\t{row['code']}\t{percent}%\t${format_dollars(row['minimum'])}"
    days = f"\t{format_day(row['starts'])}\t{format_day(ends)}\t"
    number = 1 if row["id"] > 6 else 2
    spec = page_includes(f"{ADMIN}/promotions?page={number}", "table", start_of_row + days)
    return TaskInstance({"name": row["name"], "percent": str(percent), "ends": ends}, spec)


@tasks.add(
    "change-promotion",
    _sample_change_promotion,
    'Change the promotion "{name}": {percent}% off, until {ends}.',
    'Let the promotion "{name}" last until {ends}, with a discount of {percent} percent.',
    'The discount of "{name}" should be {percent}% and its last day {ends}. Change the promotion',
    'Edit "{name}" among the promotions: discount {percent}%, ends {ends}.',
    'Set the promotion "{name}" to {percent} percent and move its end to {ends}.',
)
def change_promotion(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_promotion(page, slots["name"])
    page = yield from type_text(page, "Discount in percent", slots["percent"])
    page = yield from type_text(page, "Ends", slots["ends"])
    yield from click(page, "Save Promotion", "button", intent_phrase="")
    yield from finish("The promotion is changed")
