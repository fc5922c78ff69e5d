"""Tasks that need the forum and the shop."""

from __future__ import annotations

import random
import re
from typing import Any

from webagent_jax.arena.forum.tasks.helpers import (
    FORUM,
    NEXT_POST_ID,
    go_to_community,
    go_to_post,
    next_comment_id,
    sample_post,
    submit_post,
)
from webagent_jax.arena.shop.tasks.helpers import (
    SHOP,
    dollar_formats,
    go_to_product,
    sample_product,
)
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    page_includes,
)
from webagent_jax.expert_steps import (
    answer,
    click,
    extract_text,
    finish,
    search,
    switch_tab,
    type_text,
)
from webagent_jax.types import Expert, Observation

from_forum = TemplateRegistry("across", "reddit", "shopping")
from_shop = TemplateRegistry("across", "shopping", "reddit")

_PRODUCT_PATTERN = r"(?:looking at|in mind is|swears by) the (.+?) at Marigold"
"""Pattern of the name of a shop product in a post."""


def _sample_post_and_product(data: Data, rng: random.Random) -> tuple[Any, Any] | None:
    """Return a post about a product, and the product."""
    post = sample_post(data, rng, "body LIKE '%at Marigold%' AND author_id != 1")
    match = post and re.search(_PRODUCT_PATTERN, post["body"])
    if not match:
        return None
    sql = "SELECT * FROM product WHERE name = ?"
    product = data["shop"].execute(sql, [match[1]]).fetchone()
    return (post, product) if product else None


# --- starting in the forum -----------------------------------------------------------------------


def _sample_price_of_post_product(data: Data, rng: random.Random) -> TaskInstance | None:
    pair = _sample_post_and_product(data, rng)
    return pair and TaskInstance(
        {"title": pair[0]["title"]}, answer_includes(dollar_formats(pair[1]["price"]))
    )


@from_forum.add(
    "price-of-asked",
    _sample_price_of_post_product,
    'How much is the product that the forum post "{title}" is about at Marigold?',
    'Somebody asks on Fencepost: "{title}". What does the product in the post cost at Marigold?',
    'Look up the price of what "{title}" on the forum talks about in the shop.',
    'Read the post "{title}" and tell me what Marigold takes for the product named there',
    'The post "{title}" names a product of Marigold. What is its price?',
)
def price_of_post_product(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    product = extract_text(page, _PRODUCT_PATTERN)
    page = yield from switch_tab(1, "The shop is open in the other tab")
    page = yield from search(page, "Search products", product, reason="I look it up by name")
    price = extract_text(page, rf"{re.escape(product)} \$([\d,.]+)")
    yield from answer(f"${price}", evidence=product, reason="The price stands below the name")


def _sample_reply_with_price(data: Data, rng: random.Random) -> TaskInstance | None:
    pair = _sample_post_and_product(data, rng)
    if pair is None:
        return None
    post, product = pair
    number = next_comment_id(data)
    selector = f"#post h1, #c{number} .body"
    price = dollar_formats(product["price"])
    spec = page_includes(f"{FORUM}/comment/{number}", selector, post["title"], price)
    return TaskInstance({"title": post["title"]}, spec)


@from_forum.add(
    "reply-with-price",
    _sample_reply_with_price,
    'Comment on the forum post "{title}" with the price of the product at Marigold.',
    'The post "{title}" is about a product of Marigold. Look up its price and tell it in a '
    "comment there.",
    'Find out what the product in "{title}" costs at Marigold, and write that under the post',
    'Help the author of "{title}": look up the price at Marigold and leave it as a comment.',
    'Under the post "{title}", comment what Marigold asks for the product in question.',
)
def reply_with_price(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    product = extract_text(page, _PRODUCT_PATTERN)
    page = yield from switch_tab(1, "The shop is open in the other tab")
    page = yield from search(page, "Search products", product, reason="I look it up by name")
    price = extract_text(page, rf"{re.escape(product)} \$([\d,.]+)")
    page = yield from switch_tab(0, "The post is in the first tab")
    page = yield from type_text(page, "Your comment", f"It costs ${price} at Marigold.")
    yield from click(page, "Comment", "button", intent_phrase="")
    yield from finish("The price is told")


def _sample_wish_for_post_product(data: Data, rng: random.Random) -> TaskInstance | None:
    pair = _sample_post_and_product(data, rng)
    sql = "SELECT 1 FROM wish WHERE customer_id = 1 AND product_id = ?"
    if pair is None or data["shop"].execute(sql, [pair[1]["id"]]).fetchone():
        return None
    spec = page_includes(f"{SHOP}/wishlist", "#wishes a", pair[1]["name"])
    return TaskInstance({"title": pair[0]["title"]}, spec)


@from_forum.add(
    "wish-for-asked",
    _sample_wish_for_post_product,
    'Put the product that the forum post "{title}" is about on my wish list at Marigold.',
    'Add what "{title}" on Fencepost talks about to my wish list in the shop.',
    'The post "{title}" names a product of Marigold. I want it on my wish list there',
    'Read the post "{title}", find its product at Marigold and wish for it.',
    'Save the product from the forum post "{title}" to my Marigold wish list.',
)
def wish_for_post_product(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    product = extract_text(page, _PRODUCT_PATTERN)
    page = yield from switch_tab(1, "The shop is open in the other tab")
    page = yield from go_to_product(page, product)
    yield from click(page, "Add to Wish List", "button", intent_phrase="wish list")
    yield from finish("It is on the wish list")


# --- starting in the shop ------------------------------------------------------------------------


def _sample_tell_forum(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng)
    if product is None:
        return None
    fact, value = rng.choice(
        (
            ("price", dollar_formats(product["price"])),
            ("SKU", product["sku"]),
            ("material", product["material"]),
        )
    )
    url = f"{FORUM}/c/worthit/{NEXT_POST_ID}"
    slots = {"product": product["name"], "fact": fact}
    return TaskInstance(slots, page_includes(url, "#post", product["name"], value))


@from_shop.add(
    "tell-forum",
    _sample_tell_forum,
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
    page = yield from go_to_product(page, product)
    patterns = {
        "price": rf"{re.escape(product)} (\$[\d,.]+)",
        "SKU": r"SKU (\w+)",
        "material": r"Material (.+?) SKU",
    }
    value = extract_text(page, patterns[slots["fact"]])
    page = yield from switch_tab(1, "The forum is open in the other tab")
    page = yield from go_to_community(page, "Worth It?")
    page = yield from submit_post(page, product, body=f"Its {slots['fact']} is {value}.")
    yield from finish("The forum knows")


tasks = (*from_forum, *from_shop)
