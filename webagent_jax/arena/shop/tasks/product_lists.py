"""Pages to open: categories, searches, and lists with an order and filters."""

from __future__ import annotations

import random
from urllib.parse import urlencode

from webagent_jax.arena.shop.catalog import SORTS
from webagent_jax.arena.shop.tasks.helpers import (
    SHOP,
    go_to_category,
    go_to_product,
    go_to_reviews,
    sample_category,
    sample_product,
)
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    sample_row,
    url_equals,
)
from webagent_jax.expert_steps import (
    Moves,
    click,
    element_names_after,
    finish,
    search,
    select_option,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("shop", "shopping")

_ORDERS = {
    "ascending price": "price-up",
    "descending price": "price-down",
    "customer rating": "rating",
    "date, newest first": "newest",
}


def _sample_category_page(data: Data, rng: random.Random) -> TaskInstance | None:
    row = sample_category(data, rng)
    return TaskInstance({"category": row["name"]}, url_equals(f"{SHOP}/category/{row['slug']}"))


@tasks.add(
    "category",
    _sample_category_page,
    "Open the category {category}.",
    "Show me the {category} category.",
    "Go to {category}",
    "Bring up the page of the category {category}.",
    "I want to browse everything in {category}.",
)
def category(slots: Slots, page: Observation) -> Expert:
    yield from go_to_category(page, slots["category"])
    yield from finish("The category is open")


def _sample_sorted_category(data: Data, rng: random.Random) -> TaskInstance | None:
    row, order = sample_category(data, rng), rng.choice(list(_ORDERS))
    url = f"{SHOP}/category/{row['slug']}?sort={_ORDERS[order]}"
    return TaskInstance({"category": row["name"], "order": order}, url_equals(url))


@tasks.add(
    "sorted",
    _sample_sorted_category,
    "List the products of {category} by {order}.",
    "Show me the {category} category sorted by {order}.",
    'Show the "{category}" listing by {order}.',
    "Sort everything in {category} by {order}",
    "Open {category} and put the products in this order: {order}.",
)
def sorted_category(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["category"])
    yield from _sort(page, slots["order"])
    yield from finish("The list is in the wanted order")


def _sample_search_words(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng)
    if product is None:
        return None
    words = rng.choice((product["kind"], f"{product['brand']} {product['category']}")).lower()
    return TaskInstance({"words": words}, url_equals(f"{SHOP}/search?{urlencode({'q': words})}"))


@tasks.add(
    "search",
    _sample_search_words,
    'Search for "{words}".',
    'Look for "{words}" in the shop.',
    'Use the search to find "{words}"',
    'Show me the search results for "{words}".',
    'Enter "{words}" into the search and show what comes up.',
)
def search_words(slots: Slots, page: Observation) -> Expert:
    yield from search(page, "Search products", slots["words"])
    yield from finish("These are the results")


def _sample_search_sorted(data: Data, rng: random.Random) -> TaskInstance | None:
    product, order = sample_product(data, rng), rng.choice(list(_ORDERS))
    if product is None:
        return None
    words = product["kind"].lower()
    query = urlencode({"q": words, "sort": _ORDERS[order]})
    slots = {"words": words, "order": order}
    return TaskInstance(slots, url_equals(f"{SHOP}/search?{query}"))


@tasks.add(
    "search-sorted",
    _sample_search_sorted,
    'Search for "{words}" and sort the results by {order}.',
    'Show me the results for "{words}" by {order}.',
    'Look for "{words}", sorted by {order}',
    'Find "{words}" and list what you find by {order}.',
    'I am looking for "{words}". Put the results in this order: {order}.',
)
def search_sorted(slots: Slots, page: Observation) -> Expert:
    page = yield from search(page, "Search products", slots["words"])
    yield from _sort(page, slots["order"])
    yield from finish("The results are in the wanted order")


def _sample_price_limit(data: Data, rng: random.Random) -> TaskInstance | None:
    row, limit = sample_category(data, rng), rng.choice((15, 20, 25, 30, 40, 50, 60, 75, 100))
    url = f"{SHOP}/category/{row['slug']}?to="
    # The field accepts all of these amounts; %24 is a dollar sign.
    urls = [f"{url}{sign}{limit}{cents}" for cents in ("", ".00") for sign in ("", "%24")]
    return TaskInstance({"category": row["name"], "limit": str(limit)}, url_equals(*urls))


@tasks.add(
    "under",
    _sample_price_limit,
    'Show me products up to ${limit} in the "{category}" category.',
    "In {category}, show only what costs at most {limit} dollars.",
    "Filter {category} by price: no more than ${limit}.",
    "I have ${limit}. Which products of {category} can I afford? Show the list.",
    "Open {category} and set the highest price to {limit}",
)
def price_limit(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["category"])
    page = yield from type_text(page, "Price to", slots["limit"])
    yield from click(
        page, "Apply", "button", intent_phrase="", reason="The filter has to be applied"
    )
    yield from finish("Only products within the limit are listed")


def _sample_rated_sorted(data: Data, rng: random.Random) -> TaskInstance | None:
    row, stars, order = sample_category(data, rng), rng.choice("432"), rng.choice(list(_ORDERS))
    url = f"{SHOP}/category/{row['slug']}?sort={_ORDERS[order]}&stars={stars}"
    other = f"{SHOP}/category/{row['slug']}?stars={stars}&sort={_ORDERS[order]}"
    slots = {"category": row["name"], "stars": stars, "order": order}
    return TaskInstance(slots, url_equals(url, other))


@tasks.add(
    "rated-sorted",
    _sample_rated_sorted,
    "Show the products of {category} rated {stars} stars and up, by {order}.",
    "In {category}, list everything with {stars} or more stars, sorted by {order}.",
    "Filter {category} by a rating of {stars} and up and sort it by {order}.",
    "I want to see {category} with at least {stars} stars, in this order: {order}",
    "Open {category}, keep only products with {stars} stars and up, and sort by {order}.",
)
def rated_sorted(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["category"])
    option = f"{slots['stars']} and up"
    page = yield from select_option(page, "Rating", option, intent_phrase=slots["stars"])
    page = yield from click(
        page, "Apply", "button", intent_phrase="", reason="The filter has to be applied"
    )
    yield from _sort(page, slots["order"])
    yield from finish("The list is narrowed down and sorted")


def _sample_product_page(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng)
    url = product and f"{SHOP}/product/{product['slug']}"
    return product and TaskInstance({"product": product["name"]}, url_equals(url))


@tasks.add(
    "product",
    _sample_product_page,
    "Open the page of the {product}.",
    "Show me the {product}.",
    "Go to the product page of the {product}",
    "Find the {product} and leave its page open.",
    "Bring up the {product}.",
)
def product(slots: Slots, page: Observation) -> Expert:
    yield from go_to_product(page, slots["product"])
    yield from finish("The product is open")


def _sample_first_of_category(data: Data, rng: random.Random) -> TaskInstance | None:
    row = sample_category(data, rng)
    end, sort = rng.choice(
        (("cheapest", "price"), ("most expensive", "price DESC"), ("newest", "added DESC"))
    )
    column = sort.split()[0]
    sql = f"SELECT slug, {column} FROM product WHERE category_id = ? ORDER BY {sort} LIMIT 2"
    first, second = data["shop"].execute(sql, [row["id"]]).fetchall()
    if first[1] == second[1]:
        return None
    slots = {"category": row["name"], "end": end}
    return TaskInstance(slots, url_equals(f"{SHOP}/product/{first['slug']}"))


@tasks.add(
    "first-of-category",
    _sample_first_of_category,
    "Open the {end} product of {category}.",
    "Show me the {end} product in the category {category}.",
    "Go to the page of the {end} product in {category}",
    "Find the {end} thing under {category} and open it.",
    "I am looking for the {end} product of {category}. Bring it up.",
)
def first_of_category(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["category"])
    order = {
        "cheapest": "ascending price",
        "most expensive": "descending price",
        "newest": "date, newest first",
    }
    page = yield from _sort(page, order[slots["end"]], intent_phrase=slots["end"])
    first = element_names_after(page, "Sort by", "link")[0]
    yield from click(page, first, "link", reason="It is the first of the list")
    yield from finish("The product is open")


def _sample_reviews_with_stars(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng, "review_count > 3")
    if product is None:
        return None
    sql = (
        "SELECT DISTINCT stars FROM review"
        " WHERE product_id = ? AND stars > 1 AND status = 'Approved'"
    )
    stars = sample_row(rng, [str(n) for (n,) in data["shop"].execute(sql, [product["id"]])])
    url = f"{SHOP}/product/{product['slug']}/reviews?stars={stars}"
    return stars and TaskInstance({"product": product["name"], "stars": stars}, url_equals(url))


@tasks.add(
    "reviews-with-stars",
    _sample_reviews_with_stars,
    "Show me only the {stars}-star reviews of the {product}.",
    "Open the reviews with {stars} stars of the {product}.",
    "List the reviews of the {product} that give {stars} stars",
    "I want to read what people say who gave {stars} stars to the {product}.",
    "Bring up the {stars}-star reviews for the {product}.",
)
def reviews_with_stars(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    page = yield from go_to_reviews(page)
    yield from select_option(page, "Show", f"{slots['stars']} stars", intent_phrase=slots["stars"])
    yield from finish("These are the wanted reviews")


def _sample_deals(data: Data, rng: random.Random) -> TaskInstance | None:
    order = rng.choice(list(_ORDERS))
    return TaskInstance({"order": order}, url_equals(f"{SHOP}/deals?sort={_ORDERS[order]}"))


@tasks.add(
    "deals",
    _sample_deals,
    "Show me all reduced products by {order}.",
    "List the deals by {order}.",
    "Which products are on sale? Show them by {order}",
    "Open the deals and sort them by {order}.",
    "I want to see discounted items, sorted by {order}.",
)
def deals(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Deals", "link", reason="The deals are the reduced products")
    yield from _sort(page, slots["order"])
    yield from finish("The deals are in the wanted order")


def _sort(page: Observation, order: str, intent_phrase: str = "") -> Moves:
    option = SORTS[_ORDERS[order]][0]
    return (
        yield from select_option(
            page, "Sort by", option, intent_phrase=intent_phrase or order, reason="I sort the list"
        )
    )
