"""Questions about categories, brands and the shop: cheapest, best, number of products."""

from __future__ import annotations

import random
import re

from webagent_jax.arena.shop.tasks.helpers import (
    dollar_formats,
    go_to_category,
    sample_category,
    sample_product,
)
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    sample_row,
)
from webagent_jax.expert_steps import (
    answer,
    click,
    element_names_after,
    extract_text,
    search,
    select_option,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("shop", "shopping")


def _sample_cheapest(data: Data, rng: random.Random) -> TaskInstance | None:
    category = sample_category(data, rng)
    end = rng.choice(("cheapest", "most expensive"))
    order = "price" if end == "cheapest" else "price DESC"
    sql = f"SELECT name, price FROM product WHERE category_id = ? ORDER BY {order} LIMIT 2"
    first, second = data["shop"].execute(sql, [category["id"]]).fetchall()
    slots = {"category": category["name"], "end": end}
    return (
        TaskInstance(slots, answer_includes(first["name"]))
        if first["price"] != second["price"]
        else None
    )


@tasks.add(
    "cheapest",
    _sample_cheapest,
    "What is the {end} product in the category {category}?",
    "Which product of {category} is the {end} one?",
    "Tell me the name of the {end} product under {category}.",
    "Find the {end} item in {category} and give me its name.",
    "In the {category} category, name the {end} product",
)
def cheapest(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["category"])
    option = {"cheapest": "Price: low to high", "most expensive": "Price: high to low"}
    page = yield from select_option(
        page,
        "Sort by",
        option[slots["end"]],
        intent_phrase=slots["end"],
        reason="Then it stands first",
    )
    yield from answer(
        element_names_after(page, "Sort by", "link")[0], reason="It is the first of the list"
    )


def _sample_count_between(data: Data, rng: random.Random) -> TaskInstance | None:
    category = sample_category(data, rng)
    sql = "SELECT price FROM product WHERE category_id = ? ORDER BY price"
    prices = [price for (price,) in data["shop"].execute(sql, [category["id"]])]
    low, high = (
        5 * round(price / 500)
        for price in (prices[rng.randint(3, 20)], prices[rng.randint(25, 45)])
    )
    # A product may cost exactly one of the limits, which "between" may include or exclude.
    counts = (
        sum(100 * low <= price <= 100 * high for price in prices),
        sum(100 * low < price < 100 * high for price in prices),
    )
    if low >= high or low < 5:
        return None
    slots = {"category": category["name"], "low": str(low), "high": str(high)}
    return TaskInstance(slots, answer_includes(" |OR| ".join(map(str, dict.fromkeys(counts)))))


@tasks.add(
    "count-between",
    _sample_count_between,
    "How many products of the category {category} cost between ${low} and ${high}?",
    "Count the products in {category} with a price from ${low} to ${high}.",
    "In {category}, how many products are priced between {low} and {high} dollars?",
    "Tell me the number of {category} products for ${low} to ${high}.",
    "How large is the choice in {category} if I want to spend {low} to {high} dollars?",
)
def count_between(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["category"])
    page = yield from type_text(
        page, "Price from", slots["low"], reason="The filter narrows it down"
    )
    page = yield from type_text(page, "Price to", slots["high"])
    page = yield from click(page, "Apply", "button", intent_phrase="")
    count = extract_text(page, r"of (\d+) products?")
    yield from answer(count, evidence="of", reason="The list tells how many products it has")


def _sample_price_range(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng)
    if product is None:
        return None
    sql = (
        "SELECT min(price), max(price), count(*) FROM product WHERE brand = ? AND category_id = ?"
        " AND instr(words, lower(?))"
    )
    brand, category = product["brand"], product["category"]
    values = [brand, product["category_id"], category]
    low, high, count = data["shop"].execute(sql, values).fetchone()
    condition = " AND ".join("instr(words, ?)" for _ in f"{brand} {category}".lower().split())
    (num_results,) = (
        data["shop"]
        .execute(
            f"SELECT count(*) FROM product WHERE {condition}", f"{brand} {category}".lower().split()
        )
        .fetchone()
    )
    if not 2 <= count == num_results:
        return None
    return TaskInstance(
        {"brand": brand, "category": category},
        answer_includes(dollar_formats(low), dollar_formats(high)),
    )


@tasks.add(
    "price-range",
    _sample_price_range,
    "What is the price range of {brand} products in {category}?",
    "From what to what price does {brand} sell {category}?",
    "Tell me the lowest and the highest price of {brand} products in the category {category}.",
    "Search for {brand} {category} and tell me what the cheapest and the dearest cost",
    "What are the minimum and the maximum price of {brand} in {category}?",
)
def price_range(slots: Slots, page: Observation) -> Expert:
    words = f"{slots['brand']} {slots['category']}"
    page = yield from search(page, "Search products", words, reason="Brand and category at once")
    limits: list[str] = []
    for option in ("Price: low to high", "Price: high to low"):
        page = yield from select_option(
            page, "Sort by", option, intent_phrase="", reason="The end stands first"
        )
        first = element_names_after(page, "Sort by", "link")[0]
        limits.append(extract_text(page, rf"{re.escape(first)} \$([\d,.]+)"))
    yield from answer(f"${limits[0]} to ${limits[1]}", reason="Both ends of the range are known")


def _sample_best_rated(data: Data, rng: random.Random) -> TaskInstance | None:
    category, limit = sample_category(data, rng), rng.choice((20, 30, 40, 50, 60, 80, 100, 150))
    sql = (
        "SELECT name, stars_sum * 1.0 / max(review_count, 1) AS rating FROM product"
        " WHERE category_id = ? AND price <= ? ORDER BY rating DESC LIMIT 2"
    )
    rows = data["shop"].execute(sql, [category["id"], 100 * limit]).fetchall()
    if len(rows) < 2 or rows[0]["rating"] == rows[1]["rating"]:
        return None
    slots = {"category": category["name"], "limit": str(limit)}
    return TaskInstance(slots, answer_includes(rows[0]["name"]))


@tasks.add(
    "best-rated",
    _sample_best_rated,
    "Which product in {category} for at most ${limit} has the best rating?",
    "What is the best-rated product of {category} that costs no more than ${limit}?",
    "Name the product with the highest customer rating in {category} up to ${limit}.",
    "I want the best-rated thing in {category} within a budget of {limit} dollars. Which is it?",
    "Among the {category} products under ${limit}, which one do customers rate highest?",
)
def best_rated(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["category"])
    page = yield from type_text(page, "Price to", slots["limit"], reason="The budget is a filter")
    page = yield from click(page, "Apply", "button", intent_phrase="")
    page = yield from select_option(
        page,
        "Sort by",
        "Customer rating",
        intent_phrase="",
        reason="The best rating stands first then",
    )
    yield from answer(
        element_names_after(page, "Sort by", "link")[0], reason="It is the first of the list"
    )


_FACTS = {
    "the phone number of customer service": "555-010-2233",
    "how many days I have to return something": "30",
    "how many years of warranty there are on electronics": "2",
    "from how many dollars standard delivery is free": "75",
}


def _sample_help_desk(data: Data, rng: random.Random) -> TaskInstance | None:
    question = sample_row(rng, list(_FACTS))
    return TaskInstance({"question": question}, answer_includes(_FACTS[question]))


@tasks.add(
    "help",
    _sample_help_desk,
    "Find out {question}.",
    "Tell me {question} at Marigold.",
    "I would like to know {question}",
    "Look into the help of the shop and tell me {question}.",
    "Please check {question} here.",
)
def help_desk(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Help", "link", reason="Such things are in the help")
    patterns = {
        "the phone number of customer service": r"(555-\d{3}-\d{4})",
        "how many days I have to return something": r"within (\d+) days",
        "how many years of warranty there are on electronics": r"warranty of (\d+) years",
        "from how many dollars standard delivery is free": r"free from \$(\d+)",
    }
    yield from answer(extract_text(page, patterns[slots["question"]]), reason="Here it says so")
