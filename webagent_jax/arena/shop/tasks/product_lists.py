"""Pages to bring up: categories, searches, sorted and narrowed lists."""

from __future__ import annotations

import random
from collections.abc import Mapping
from urllib.parse import urlencode

from webagent_jax.arena.expert_steps import (
    Moves,
    choose,
    click,
    done,
    names_after,
    search,
    type_text,
)
from webagent_jax.arena.shop.catalog import SORTS
from webagent_jax.arena.shop.tasks.helpers import (
    SHOP,
    a_category,
    a_product,
    to_category,
    to_product,
    to_reviews,
)
from webagent_jax.arena.task import Data, Instance, Templates, ends_at, pick
from webagent_jax.types import Expert, Observation

tasks = Templates("shop", "shopping")

Slots = Mapping[str, str]

_ORDERS = {
    "ascending price": "price-up",
    "descending price": "price-down",
    "customer rating": "rating",
    "newest first": "newest",
}


def _category(data: Data, rng: random.Random) -> Instance | None:
    row = a_category(data, rng)
    return Instance({"category": row["name"]}, ends_at(f"{SHOP}/category/{row['slug']}"))


@tasks.add(
    "category",
    _category,
    "Open the category {category}.",
    "Show me the {category} category.",
    "Go to {category}",
    "Bring up the page of the category {category}.",
    "I want to browse everything in {category}.",
)
def category(slots: Slots, page: Observation) -> Expert:
    yield from to_category(page, slots["category"])
    yield from done("The category is open")


def _sorted(data: Data, rng: random.Random) -> Instance | None:
    row, order = a_category(data, rng), rng.choice(list(_ORDERS))
    url = f"{SHOP}/category/{row['slug']}?sort={_ORDERS[order]}"
    return Instance({"category": row["name"], "order": order}, ends_at(url))


@tasks.add(
    "sorted",
    _sorted,
    "List the products of {category} by {order}.",
    "Show me the {category} category sorted by {order}.",
    'Show the "{category}" listing by {order}.',
    "Sort everything in {category} by {order}",
    "Open {category} and put the products in this order: {order}.",
)
def sorted_category(slots: Slots, page: Observation) -> Expert:
    page = yield from to_category(page, slots["category"])
    yield from _sort(page, slots["order"])
    yield from done("The list is in the wanted order")


def _search(data: Data, rng: random.Random) -> Instance | None:
    product = a_product(data, rng)
    if product is None:
        return None
    words = rng.choice((product["kind"], f"{product['brand']} {product['category']}")).lower()
    return Instance({"words": words}, ends_at(f"{SHOP}/search?{urlencode({'q': words})}"))


@tasks.add(
    "search",
    _search,
    'Search for "{words}".',
    'Look for "{words}" in the shop.',
    'Use the search to find "{words}"',
    'Show me the search results for "{words}".',
    'Enter "{words}" into the search and show what comes up.',
)
def search_words(slots: Slots, page: Observation) -> Expert:
    yield from search(page, "Search products", slots["words"])
    yield from done("These are the results")


def _search_sorted(data: Data, rng: random.Random) -> Instance | None:
    product, order = a_product(data, rng), rng.choice(list(_ORDERS))
    if product is None:
        return None
    words = product["kind"].lower()
    query = urlencode({"q": words, "sort": _ORDERS[order]})
    slots = {"words": words, "order": order}
    return Instance(slots, ends_at(f"{SHOP}/search?{query}"))


@tasks.add(
    "search-sorted",
    _search_sorted,
    'Search for "{words}" and sort the results by {order}.',
    'Show me the results for "{words}" by {order}.',
    'Look for "{words}", sorted by {order}',
    'Find "{words}" and list what you find by {order}.',
    'I am looking for "{words}". Put the results in this order: {order}.',
)
def search_sorted(slots: Slots, page: Observation) -> Expert:
    page = yield from search(page, "Search products", slots["words"])
    yield from _sort(page, slots["order"])
    yield from done("The results are in the wanted order")


def _under(data: Data, rng: random.Random) -> Instance | None:
    row, limit = a_category(data, rng), rng.choice((15, 20, 25, 30, 40, 50, 60, 75, 100))
    url = f"{SHOP}/category/{row['slug']}?to={limit}"
    return Instance({"category": row["name"], "limit": str(limit)}, ends_at(url))


@tasks.add(
    "under",
    _under,
    'Show me products up to ${limit} in the "{category}" category.',
    "In {category}, show only what costs at most {limit} dollars.",
    "Filter {category} by price: no more than ${limit}.",
    "I have ${limit}. Which products of {category} can I afford? Show the list.",
    "Open {category} and set the highest price to {limit}",
)
def under(slots: Slots, page: Observation) -> Expert:
    page = yield from to_category(page, slots["category"])
    page = yield from type_text(page, "Price to", slots["limit"])
    yield from click(page, "Apply", "button", about="", why="The filter has to be applied")
    yield from done("Only products within the limit are listed")


def _rated(data: Data, rng: random.Random) -> Instance | None:
    row, stars, order = a_category(data, rng), rng.choice("432"), rng.choice(list(_ORDERS))
    url = f"{SHOP}/category/{row['slug']}?sort={_ORDERS[order]}&stars={stars}"
    other = f"{SHOP}/category/{row['slug']}?stars={stars}&sort={_ORDERS[order]}"
    slots = {"category": row["name"], "stars": stars, "order": order}
    return Instance(slots, ends_at(url, other))


@tasks.add(
    "rated-sorted",
    _rated,
    "Show the products of {category} rated {stars} stars and up, by {order}.",
    "In {category}, list everything with {stars} or more stars, sorted by {order}.",
    "Filter {category} by a rating of {stars} and up and sort it by {order}.",
    "I want to see {category} with at least {stars} stars, in this order: {order}",
    "Open {category}, keep only products with {stars} stars and up, and sort by {order}.",
)
def rated_sorted(slots: Slots, page: Observation) -> Expert:
    page = yield from to_category(page, slots["category"])
    option = f"{slots['stars']} and up"
    page = yield from choose(page, "Rating", option, about=slots["stars"])
    page = yield from click(page, "Apply", "button", about="", why="The filter has to be applied")
    yield from _sort(page, slots["order"])
    yield from done("The list is narrowed down and sorted")


def _product(data: Data, rng: random.Random) -> Instance | None:
    product = a_product(data, rng)
    url = product and f"{SHOP}/product/{product['slug']}"
    return product and Instance({"product": product["name"]}, ends_at(url))


@tasks.add(
    "product",
    _product,
    "Open the page of the {product}.",
    "Show me the {product}.",
    "Go to the product page of the {product}",
    "Find the {product} and leave its page open.",
    "Bring up the {product}.",
)
def product(slots: Slots, page: Observation) -> Expert:
    yield from to_product(page, slots["product"])
    yield from done("The product is open")


def _end(data: Data, rng: random.Random) -> Instance | None:
    row = a_category(data, rng)
    end, sort = rng.choice(
        (("cheapest", "price"), ("most expensive", "price DESC"), ("newest", "added DESC"))
    )
    column = sort.split()[0]
    sql = f"SELECT slug, {column} FROM product WHERE category_id = ? ORDER BY {sort} LIMIT 2"
    first, second = data["shop"].execute(sql, [row["id"]]).fetchall()
    if first[1] == second[1]:
        return None
    slots = {"category": row["name"], "end": end}
    return Instance(slots, ends_at(f"{SHOP}/product/{first['slug']}"))


@tasks.add(
    "first-of-category",
    _end,
    "Open the {end} product of {category}.",
    "Show me the {end} product in the category {category}.",
    "Go to the page of the {end} product in {category}",
    "Find the {end} thing under {category} and open it.",
    "I am looking for the {end} product of {category}. Bring it up.",
)
def first_of_category(slots: Slots, page: Observation) -> Expert:
    page = yield from to_category(page, slots["category"])
    order = {
        "cheapest": "ascending price",
        "most expensive": "descending price",
        "newest": "newest first",
    }
    page = yield from _sort(page, order[slots["end"]], about=slots["end"])
    first = names_after(page, "Sort by", "link")[0]
    yield from click(page, first, "link", why="It is the first of the list")
    yield from done("The product is open")


def _reviews(data: Data, rng: random.Random) -> Instance | None:
    product = a_product(data, rng, "review_count > 3")
    if product is None:
        return None
    sql = (
        "SELECT DISTINCT stars FROM review"
        " WHERE product_id = ? AND stars > 1 AND status = 'Approved'"
    )
    stars = pick(rng, [str(n) for (n,) in data["shop"].execute(sql, [product["id"]])])
    url = f"{SHOP}/product/{product['slug']}/reviews?stars={stars}"
    return stars and Instance({"product": product["name"], "stars": stars}, ends_at(url))


@tasks.add(
    "reviews-with-stars",
    _reviews,
    "Show me only the {stars}-star reviews of the {product}.",
    "Open the reviews with {stars} stars of the {product}.",
    "List the reviews of the {product} that give {stars} stars",
    "I want to read what people say who gave {stars} stars to the {product}.",
    "Bring up the {stars}-star reviews for the {product}.",
)
def reviews_with_stars(slots: Slots, page: Observation) -> Expert:
    page = yield from to_product(page, slots["product"])
    page = yield from to_reviews(page)
    yield from choose(page, "Show", f"{slots['stars']} stars", about=slots["stars"])
    yield from done("These are the wanted reviews")


def _deals(data: Data, rng: random.Random) -> Instance | None:
    order = rng.choice(list(_ORDERS))
    return Instance({"order": order}, ends_at(f"{SHOP}/deals?sort={_ORDERS[order]}"))


@tasks.add(
    "deals",
    _deals,
    "Show me all reduced products by {order}.",
    "List the deals by {order}.",
    "Which products are on sale? Show them by {order}",
    "Open the deals and sort them by {order}.",
    "I want to see discounted items, sorted by {order}.",
)
def deals(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Deals", "link", why="The deals are the reduced products")
    yield from _sort(page, slots["order"])
    yield from done("The deals are in the wanted order")


def _sort(page: Observation, order: str, about: str = "") -> Moves:
    option = SORTS[_ORDERS[order]][0]
    return (yield from choose(page, "Sort by", option, about=about or order, why="I sort the list"))
