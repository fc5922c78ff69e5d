"""Tasks that need the shop as well: what people ask about it in the forum, and what it says."""

from __future__ import annotations

import random
import re
from typing import Any

from webagent_jax.arena.expert_steps import answer, click, done, found, search, switch, type_text
from webagent_jax.arena.forum.tasks.helpers import (
    FORUM,
    NEXT_POST,
    Slots,
    a_post,
    next_comment,
    submit,
    to_community,
    to_post,
)
from webagent_jax.arena.shop.tasks.helpers import SHOP, a_product, dollars, to_product
from webagent_jax.arena.task import Data, Instance, Templates, answers, page_has
from webagent_jax.types import Expert, Observation

from_forum = Templates("across", "reddit", "shopping")
from_shop = Templates("across", "shopping", "reddit")

_ASKED = r"(?:looking at|in mind is|swears by) the (.+?) at Marigold"
"""How posts name a product of the shop."""


def _asked(data: Data, rng: random.Random) -> tuple[Any, Any] | None:
    """A post about a product, and the product."""
    post = a_post(data, rng, "body LIKE '%at Marigold%' AND author_id != 1")
    named = post and re.search(_ASKED, post["body"])
    if not named:
        return None
    sql = "SELECT * FROM product WHERE name = ?"
    product = data["shop"].execute(sql, [named[1]]).fetchone()
    return (post, product) if product else None


# --- starting in the forum -----------------------------------------------------------------------


def _price(data: Data, rng: random.Random) -> Instance | None:
    asked = _asked(data, rng)
    return asked and Instance({"title": asked[0]["title"]}, answers(dollars(asked[1]["price"])))


@from_forum.add(
    "price-of-asked",
    _price,
    'How much is the product that the forum post "{title}" is about at Marigold?',
    'Somebody asks on Fencepost: "{title}". What does the product in the post cost at Marigold?',
    'Look up the price of what "{title}" on the forum talks about in the shop.',
    'Read the post "{title}" and tell me what Marigold takes for the product named there',
    'The post "{title}" names a product of Marigold. What is its price?',
)
def price_of_asked(slots: Slots, page: Observation) -> Expert:
    page = yield from to_post(page, slots["title"])
    product = found(page, _ASKED)
    page = yield from switch(1, "The shop is open in the other tab")
    page = yield from search(page, "Search products", product, why="I look it up by name")
    price = found(page, rf"{re.escape(product)} \$([\d,.]+)")
    yield from answer(f"${price}", seen=product, why="The price stands below the name")


def _reply(data: Data, rng: random.Random) -> Instance | None:
    asked = _asked(data, rng)
    if asked is None:
        return None
    post, product = asked
    number = next_comment(data)
    selector = f"#post h1, #c{number} .body"
    price = dollars(product["price"])
    spec = page_has(f"{FORUM}/comment/{number}", selector, post["title"], price)
    return Instance({"title": post["title"]}, spec)


@from_forum.add(
    "reply-with-price",
    _reply,
    'Comment on the forum post "{title}" with the price of the product at Marigold.',
    'The post "{title}" is about a product of Marigold. Look up its price and tell it in a '
    "comment there.",
    'Find out what the product in "{title}" costs at Marigold, and write that under the post',
    'Help the author of "{title}": look up the price at Marigold and leave it as a comment.',
    'Under the post "{title}", comment what Marigold asks for the product in question.',
)
def reply_with_price(slots: Slots, page: Observation) -> Expert:
    page = yield from to_post(page, slots["title"])
    product = found(page, _ASKED)
    page = yield from switch(1, "The shop is open in the other tab")
    page = yield from search(page, "Search products", product, why="I look it up by name")
    price = found(page, rf"{re.escape(product)} \$([\d,.]+)")
    page = yield from switch(0, "The post is in the first tab")
    page = yield from type_text(page, "Your comment", f"It costs ${price} at Marigold.")
    yield from click(page, "Comment", "button", about="")
    yield from done("The price is told")


def _wish(data: Data, rng: random.Random) -> Instance | None:
    asked = _asked(data, rng)
    sql = "SELECT 1 FROM wish WHERE customer_id = 1 AND product_id = ?"
    if asked is None or data["shop"].execute(sql, [asked[1]["id"]]).fetchone():
        return None
    spec = page_has(f"{SHOP}/wishlist", "#wishes a", asked[1]["name"])
    return Instance({"title": asked[0]["title"]}, spec)


@from_forum.add(
    "wish-for-asked",
    _wish,
    'Put the product that the forum post "{title}" is about on my wish list at Marigold.',
    'Add what "{title}" on Fencepost talks about to my wish list in the shop.',
    'The post "{title}" names a product of Marigold. I want it on my wish list there',
    'Read the post "{title}", find its product at Marigold and wish for it.',
    'Save the product from the forum post "{title}" to my Marigold wish list.',
)
def wish_for_asked(slots: Slots, page: Observation) -> Expert:
    page = yield from to_post(page, slots["title"])
    product = found(page, _ASKED)
    page = yield from switch(1, "The shop is open in the other tab")
    page = yield from to_product(page, product)
    yield from click(page, "Add to Wish List", "button", about="wish list")
    yield from done("It is on the wish list")


# --- starting in the shop ------------------------------------------------------------------------


def _tell(data: Data, rng: random.Random) -> Instance | None:
    product = a_product(data, rng)
    if product is None:
        return None
    fact, value = rng.choice(
        (
            ("price", dollars(product["price"])),
            ("SKU", product["sku"]),
            ("material", product["material"]),
        )
    )
    url = f"{FORUM}/c/worthit/{NEXT_POST}"
    slots = {"product": product["name"], "fact": fact}
    return Instance(slots, page_has(url, "#post", product["name"], value))


@from_shop.add(
    "tell-forum",
    _tell,
    "Look up the {fact} of the {product} at Marigold. Then create a post in the forum's \"Worth "
    'It?" community that names the product and tells its {fact}.',
    'In the "Worth It?" community of Fencepost, post the name and the {fact} of the {product}, as '
    "Marigold gives it.",
    'Find the {fact} of the {product} in the shop and write a post with both in "Worth It?" on '
    "the forum",
    'Tell the members of "Worth It?" in a new post what the {fact} of the {product} at Marigold '
    "is. Name the product.",
    'Post in "Worth It?": the name of the {product} and the {fact} that Marigold states for it.',
)
def tell_forum(slots: Slots, page: Observation) -> Expert:
    product = slots["product"]
    page = yield from to_product(page, product)
    patterns = {
        "price": rf"{re.escape(product)} (\$[\d,.]+)",
        "SKU": r"SKU (\w+)",
        "material": r"Material (.+?) SKU",
    }
    value = found(page, patterns[slots["fact"]])
    page = yield from switch(1, "The forum is open in the other tab")
    page = yield from to_community(page, "Worth It?")
    page = yield from submit(page, product, body=f"Its {slots['fact']} is {value}.")
    yield from done("The forum knows")


tasks = (*from_forum, *from_shop)
