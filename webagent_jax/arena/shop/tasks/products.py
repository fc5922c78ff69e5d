"""Questions about a product and its reviews."""

from __future__ import annotations

import random
import re

from webagent_jax.arena.shop.tasks.helpers import (
    dollar_formats,
    format_dollars,
    go_to_product,
    go_to_reviews,
    parse_cents,
    sample_product,
)
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    unachievable,
)
from webagent_jax.expert_steps import (
    answer,
    click,
    extract_text,
    give_up,
    has_element,
    page_text,
    scroll_through,
    search,
    select_option,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("shop", "shopping")


# --- one product ---------------------------------------------------------------------------------


def _sample_price(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng)
    return product and TaskInstance(
        {"product": product["name"]}, answer_includes(dollar_formats(product["price"]))
    )


@tasks.add(
    "price",
    _sample_price,
    "How much is the {product}?",
    "What does the {product} cost?",
    "Tell me the price of the {product}.",
    "I am thinking of buying the {product}. What is its price now?",
    "Look up the current price of the {product}",
)
def price(slots: Slots, page: Observation) -> Expert:
    page = yield from search(
        page, "Search products", slots["product"], reason="I look it up by name"
    )
    price = extract_text(page, rf"{re.escape(slots['product'])} \$([\d,.]+)")
    yield from answer(
        f"${price}", evidence=slots["product"], reason="The price stands below the name"
    )


def _sample_sku(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng)
    return product and TaskInstance({"product": product["name"]}, answer_includes(product["sku"]))


@tasks.add(
    "sku",
    _sample_sku,
    "What is the SKU of the {product}?",
    "Tell me the article number (SKU) of the {product}.",
    "I need the SKU of the {product} for a list",
    "Find the {product} and give me its SKU.",
    "Which SKU does the {product} have?",
)
def sku(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    yield from answer(
        extract_text(page, r"SKU (\w+)"), evidence="SKU", reason="It is among the details"
    )


def _sample_material(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(
        data, rng, "department.name NOT IN ('Food & Drink', 'Beauty & Health')"
    )
    return product and TaskInstance(
        {"product": product["name"]}, answer_includes(product["material"])
    )


@tasks.add(
    "material",
    _sample_material,
    "What is the {product} made of?",
    "Tell me the material of the {product}.",
    "Which material is the {product} made from?",
    "I am allergic to some materials. What does the page of the {product} say about its material?",
    "Look up the material of the {product}",
)
def material(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    yield from answer(
        extract_text(page, r"Material (.+?) SKU"), evidence="Material", reason="See the details"
    )


def _sample_price_difference(data: Data, rng: random.Random) -> TaskInstance | None:
    dear, cheap = sample_product(data, rng), sample_product(data, rng)
    if dear is None or cheap is None or dear["price"] <= cheap["price"]:
        return None
    slots = {"dear": dear["name"], "cheap": cheap["name"]}
    return TaskInstance(slots, answer_includes(dollar_formats(dear["price"] - cheap["price"])))


@tasks.add(
    "price-difference",
    _sample_price_difference,
    "How much more expensive is the {dear} than the {cheap}?",
    "What is the price difference between the {dear} and the {cheap}?",
    "By how many dollars does the {dear} cost more than the {cheap}?",
    "Compare prices: how much do I save if I take the {cheap} instead of the {dear}? "
    "Start with the {dear}.",
    "I hesitate between the {dear} and the {cheap}. How far apart are their prices?",
)
def price_difference(slots: Slots, page: Observation) -> Expert:
    prices: list[int] = []
    for product in (slots["dear"], slots["cheap"]):
        page = yield from search(page, "Search products", product, reason="I need both prices")
        prices.append(parse_cents(extract_text(page, rf"{re.escape(product)} \$([\d,.]+)")))
    dear, cheap = prices
    difference = f"{format_dollars(dear)} - {format_dollars(cheap)}"
    yield from answer(
        f"${format_dollars(dear - cheap)}", evidence=difference, reason="Now I can subtract"
    )


def _sample_product_missing(data: Data, rng: random.Random) -> TaskInstance | None:
    product, other = sample_product(data, rng), sample_product(data, rng)
    if product is None or other is None:
        return None
    name = f"{product['brand']} {other['name'].removeprefix(other['brand']).strip()}"
    sql = "SELECT 1 FROM product WHERE name = ?"
    if product["brand"] == other["brand"] or data["shop"].execute(sql, [name]).fetchone():
        return None
    return TaskInstance({"product": name}, unachievable("the shop does not sell such a product"))


@tasks.add(
    "product-missing",
    _sample_product_missing,
    "How much is the {product}?",
    "What does the {product} cost?",
    "Add the {product} to my wish list.",
    "Put one {product} into my cart",
    "Tell me the SKU of the {product}.",
)
def product_missing(slots: Slots, page: Observation) -> Expert:
    yield from search(page, "Search products", slots["product"], reason="I look it up by name")
    yield from give_up("No products found")


# --- reviews -------------------------------------------------------------------------------------

_APPROVED = "SELECT * FROM review WHERE product_id = ? AND status = 'Approved' ORDER BY id DESC"


def _sample_latest_reviewer(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng, "review_count > 1")
    if product is None:
        return None
    sql = f"{_APPROVED.rpartition(' ORDER')[0]} ORDER BY written DESC, id DESC"
    reviews = data["shop"].execute(sql, [product["id"]])
    first, *others = (review["nickname"].rstrip(".") for review in reviews)
    return TaskInstance({"product": product["name"]}, answer_includes(first, excluding=others))


@tasks.add(
    "latest-reviewer",
    _sample_latest_reviewer,
    "Who wrote the latest review of the {product}?",
    "Tell me the name of the person who reviewed the {product} last.",
    "Look at the {product}: who is the author of its newest review?",
    "Whose review of the {product} is the most recent one?",
    "Find the nickname of the last reviewer of the {product}",
)
def latest_reviewer(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    name = extract_text(page, r"Latest review \d .+? by ([^,]+),")
    yield from answer(name, evidence="by", reason="The product page shows the latest review")


def _sample_star_count(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng, "review_count > 4")
    if product is None:
        return None
    ratings = [row["stars"] for row in data["shop"].execute(_APPROVED, [product["id"]])]
    stars = rng.choice(sorted(set(ratings)))
    slots = {"product": product["name"], "stars": str(stars)}
    return TaskInstance(slots, answer_includes(str(ratings.count(stars)))) if stars > 1 else None


@tasks.add(
    "star-count",
    _sample_star_count,
    "How many {stars}-star reviews does the {product} have?",
    "Count the reviews with {stars} stars of the {product}.",
    "How many people gave the {product} exactly {stars} stars?",
    "Tell me how often the {product} was rated with {stars} stars.",
    "Of the reviews of the {product}, how many have {stars} stars?",
)
def star_count(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    page = yield from go_to_reviews(page)
    option = f"{slots['stars']} stars"
    page = yield from select_option(
        page, "Show", option, intent_phrase=slots["stars"], reason="One rating only"
    )
    yield from answer(
        extract_text(page, r"(\d+) reviews?,"), reason="The page tells how many there are"
    )


def _sample_reviewers_who_say(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng, "review_count > 4")
    if product is None:
        return None
    reviews = data["shop"].execute(_APPROVED, [product["id"]]).fetchall()
    match = re.search(r": ([^:]+?)\.", rng.choice(reviews)["body"])
    if match is None:
        return None
    authors = {row["nickname"].rstrip(".") for row in reviews if match[1] in row["body"]}
    slots = {"product": product["name"], "phrase": match[1]}
    spec = answer_includes(
        *sorted(authors), excluding=[row["nickname"].rstrip(".") for row in reviews]
    )
    return TaskInstance(slots, spec) if len(authors) < 4 else None


@tasks.add(
    "reviewers-who-say",
    _sample_reviewers_who_say,
    'Which reviewers of the {product} say "{phrase}"?',
    'List the people whose review of the {product} contains "{phrase}".',
    'Who writes "{phrase}" about the {product}? Give me all names.',
    'Go through the reviews of the {product} and name everybody who says "{phrase}".',
    'Find all reviewers of the {product} who mention "{phrase}"',
)
def reviewers_who_say(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    page = yield from go_to_reviews(page)
    authors: list[str] = []
    while True:
        page, views = yield from scroll_through(page)
        for view in views:
            for review in re.finditer(
                r"by ([^,]+), [A-Z][a-z]{2} \d+, \d{4} (.+?)(?= \d |$)", page_text(view)
            ):
                if slots["phrase"] in review[2] and review[1] not in authors:
                    authors.append(review[1])
        if not has_element(page, "Next", "link"):
            break
        page = yield from click(page, "Next", "link", reason="There are more reviews")
    yield from answer(", ".join(authors), reason="I have read all of them")
