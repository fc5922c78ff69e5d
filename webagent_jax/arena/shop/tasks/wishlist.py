"""Products to put on the wish list, take off it, and lay side by side."""

from __future__ import annotations

import random
from collections.abc import Mapping

from webagent_jax.arena.expert_steps import choose, click, done, names_after
from webagent_jax.arena.shop.tasks.helpers import (
    ME,
    SHOP,
    a_category,
    a_product,
    to_category,
    to_product,
)
from webagent_jax.arena.task import Data, Instance, Templates, page_has, page_is, pick
from webagent_jax.types import Expert, Observation

tasks = Templates("shop", "shopping")

Slots = Mapping[str, str]


def _wish(data: Data, rng: random.Random) -> Instance | None:
    product = a_product(
        data, rng, f"product.id NOT IN (SELECT product_id FROM wish WHERE customer_id = {ME})"
    )
    spec = product and page_has(f"{SHOP}/wishlist", "#wishes a", product["name"])
    return product and Instance({"product": product["name"]}, spec)


@tasks.add(
    "wish",
    _wish,
    "Add the {product} to my wish list.",
    "Put the {product} on my wish list.",
    "I want to remember the {product}: add it to my wish list",
    "Save the {product} to the wish list for later.",
    "Find the {product} and wish for it.",
)
def wish(slots: Slots, page: Observation) -> Expert:
    page = yield from to_product(page, slots["product"])
    yield from click(page, "Add to Wish List", "button", about="")
    yield from done("It is on the wish list")


def _wish_end(data: Data, rng: random.Random) -> Instance | None:
    category = a_category(data, rng)
    end, sort = rng.choice((("cheapest", "price"), ("most expensive", "price DESC")))
    sql = f"SELECT id, name, price FROM product WHERE category_id = ? ORDER BY {sort} LIMIT 2"
    first, second = data["shop"].execute(sql, [category["id"]]).fetchall()
    if first["price"] == second["price"] or _wished(data, first["id"]):
        return None
    spec = page_has(f"{SHOP}/wishlist", "#wishes a", first["name"])
    return Instance({"category": category["name"], "end": end}, spec)


def _wished(data: Data, product: int) -> bool:
    sql = f"SELECT 1 FROM wish WHERE customer_id = {ME} AND product_id = ?"
    return data["shop"].execute(sql, [product]).fetchone() is not None


@tasks.add(
    "wish-end",
    _wish_end,
    "Add the {end} product of {category} to my wish list.",
    "Put the {end} thing in {category} on my wish list.",
    "Find the {end} product in the category {category} and save it to my wish list",
    "I wish for the {end} item of {category}: add it to the list.",
    "Look for the {end} {category} product and add it to the wish list.",
)
def wish_end(slots: Slots, page: Observation) -> Expert:
    page = yield from to_category(page, slots["category"])
    option = {"cheapest": "Price: low to high", "most expensive": "Price: high to low"}
    page = yield from choose(page, "Sort by", option[slots["end"]], about=slots["end"])
    first = names_after(page, "Sort by", "link")[0]
    page = yield from click(page, first, "link", why="It is the first of the list")
    yield from click(page, "Add to Wish List", "button", about="")
    yield from done("It is on the wish list")


def _unwish(data: Data, rng: random.Random) -> Instance | None:
    sql = (
        "SELECT name FROM wish JOIN product ON product.id = product_id"
        f" WHERE customer_id = {ME} ORDER BY wish.id"
    )
    wished = [name for (name,) in data["shop"].execute(sql)]
    gone = pick(rng, wished)
    left = " ; ".join(name for name in wished if name != gone)
    return Instance({"product": gone}, page_is(f"{SHOP}/wishlist", "#wishes a", left))


@tasks.add(
    "unwish",
    _unwish,
    "Remove the {product} from my wish list.",
    "Take the {product} off my wish list.",
    "I no longer want the {product}: delete it from the wish list",
    "My wish list has a {product} on it. Remove that.",
    "Delete the {product} from the list of my wishes.",
)
def unwish(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Wish List", "link")
    yield from click(page, f"Remove {slots['product']}", "button", about=slots["product"])
    yield from done("It is off the list")


def _compare(data: Data, rng: random.Random) -> Instance | None:
    first, second = a_product(data, rng), a_product(data, rng)
    if first is None or second is None or first["id"] == second["id"]:
        return None
    spec = page_has(f"{SHOP}/compare", ".grid", first["name"], second["name"])
    return Instance({"first": first["name"], "second": second["name"]}, spec)


@tasks.add(
    "compare",
    _compare,
    "Compare the {first} with the {second}.",
    "Put the {first} and the {second} on the comparison list.",
    "I want to see the {first} and the {second} side by side: add both to the comparison",
    "Add the {first} to the comparison, and then the {second}.",
    "Help me decide between the {first} and the {second} by comparing them on the site.",
)
def compare(slots: Slots, page: Observation) -> Expert:
    for product in (slots["first"], slots["second"]):
        page = yield from to_product(page, product)
        page = yield from click(page, "Compare", "button", about="")
    yield from done("Both are on the comparison list")
