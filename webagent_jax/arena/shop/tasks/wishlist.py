"""Changes to the wish list and the comparison."""

from __future__ import annotations

import random

from webagent_jax.arena.shop.tasks.helpers import (
    AGENT_USER_ID,
    SHOP,
    go_to_category,
    go_to_product,
    sample_category,
    sample_product,
)
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    page_equals,
    page_includes,
    sample_row,
)
from webagent_jax.expert_steps import click, element_names_after, finish, select_option
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("shop", "shopping")


def _sample_wish(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(
        data,
        rng,
        f"product.id NOT IN (SELECT product_id FROM wish WHERE customer_id = {AGENT_USER_ID})",
    )
    spec = product and page_includes(f"{SHOP}/wishlist", "#wishes a", product["name"])
    return product and TaskInstance({"product": product["name"]}, spec)


@tasks.add(
    "wish",
    _sample_wish,
    "Add the {product} to my wish list.",
    "Put the {product} on my wish list.",
    "I want to remember the {product}: add it to my wish list",
    "Save the {product} to the wish list for later.",
    "Find the {product} and wish for it.",
)
def wish(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    yield from click(page, "Add to Wish List", "button", intent_phrase="")
    yield from finish("It is on the wish list")


def _sample_wish_end(data: Data, rng: random.Random) -> TaskInstance | None:
    category = sample_category(data, rng)
    end, sort = rng.choice((("cheapest", "price"), ("most expensive", "price DESC")))
    sql = f"SELECT id, name, price FROM product WHERE category_id = ? ORDER BY {sort} LIMIT 2"
    first, second = data["shop"].execute(sql, [category["id"]]).fetchall()
    if first["price"] == second["price"] or _is_on_wish_list(data, first["id"]):
        return None
    spec = page_includes(f"{SHOP}/wishlist", "#wishes a", first["name"])
    return TaskInstance({"category": category["name"], "end": end}, spec)


def _is_on_wish_list(data: Data, product: int) -> bool:
    sql = f"SELECT 1 FROM wish WHERE customer_id = {AGENT_USER_ID} AND product_id = ?"
    return data["shop"].execute(sql, [product]).fetchone() is not None


@tasks.add(
    "wish-end",
    _sample_wish_end,
    "Add the {end} product of {category} to my wish list.",
    "Put the {end} thing in {category} on my wish list.",
    "Find the {end} product in the category {category} and save it to my wish list",
    "I wish for the {end} item of {category}: add it to the list.",
    "Look for the {end} {category} product and add it to the wish list.",
)
def wish_end(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["category"])
    option = {"cheapest": "Price: low to high", "most expensive": "Price: high to low"}
    page = yield from select_option(
        page, "Sort by", option[slots["end"]], intent_phrase=slots["end"]
    )
    first = element_names_after(page, "Sort by", "link")[0]
    page = yield from click(page, first, "link", reason="It is the first of the list")
    yield from click(page, "Add to Wish List", "button", intent_phrase="")
    yield from finish("It is on the wish list")


def _sample_unwish(data: Data, rng: random.Random) -> TaskInstance | None:
    sql = (
        "SELECT name FROM wish JOIN product ON product.id = product_id"
        f" WHERE customer_id = {AGENT_USER_ID} ORDER BY wish.id"
    )
    wishes = [name for (name,) in data["shop"].execute(sql)]
    product = sample_row(rng, wishes)
    expected = " ; ".join(name for name in wishes if name != product)
    return TaskInstance(
        {"product": product}, page_equals(f"{SHOP}/wishlist", "#wishes a", expected)
    )


@tasks.add(
    "unwish",
    _sample_unwish,
    "Remove the {product} from my wish list.",
    "Take the {product} off my wish list.",
    "I no longer want the {product}: delete it from the wish list",
    "The {product} is on my wish list. Remove it.",
    "Delete the {product} from the list of my wishes.",
)
def unwish(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Wish List", "link")
    yield from click(page, f"Remove {slots['product']}", "button", intent_phrase=slots["product"])
    yield from finish("It is off the list")


def _sample_compare(data: Data, rng: random.Random) -> TaskInstance | None:
    first, second = sample_product(data, rng), sample_product(data, rng)
    if first is None or second is None or first["id"] == second["id"]:
        return None
    spec = page_includes(f"{SHOP}/compare", ".grid", first["name"], second["name"])
    return TaskInstance({"first": first["name"], "second": second["name"]}, spec)


@tasks.add(
    "compare",
    _sample_compare,
    "Compare the {first} with the {second}.",
    "Put the {first} and the {second} on the comparison list.",
    "I want to see the {first} and the {second} side by side: add both to the comparison",
    "Add the {first} to the comparison, and then the {second}.",
    "Help me decide between the {first} and the {second} by comparing them on the site.",
)
def compare(slots: Slots, page: Observation) -> Expert:
    for product in (slots["first"], slots["second"]):
        page = yield from go_to_product(page, product)
        page = yield from click(page, "Compare", "button", intent_phrase="")
    yield from finish("Both are on the comparison list")
