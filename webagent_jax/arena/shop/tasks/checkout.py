"""Products to put into the cart, and to order."""

from __future__ import annotations

import random
from collections.abc import Mapping

from webagent_jax.arena.expert_steps import (
    Moves,
    choose,
    click,
    done,
    found,
    give_up,
    names_after,
    search,
    tick,
    type_text,
)
from webagent_jax.arena.shop.data import FIRST_NUMBER, PURCHASES
from webagent_jax.arena.shop.policies import DELIVERIES, PAYMENTS
from webagent_jax.arena.shop.tasks.helpers import (
    SHOP,
    a_category,
    a_product,
    an_order,
    dollars,
    to_category,
    to_order,
    to_product,
)
from webagent_jax.arena.task import (
    Data,
    Instance,
    Spec,
    Templates,
    page_has,
    page_lists,
    unachievable,
)
from webagent_jax.types import Expert, Observation

tasks = Templates("shop", "shopping")

Slots = Mapping[str, str]

NEXT_ORDER = FIRST_NUMBER + PURCHASES  # number of the first order of a world


def cart_holds(*lines: str) -> Spec:
    """Lines such as "Tilda Nordic Wok, 28 cm, 2"."""
    return page_lists(f"{SHOP}/cart", "tr.line", "a, td:nth-child(2), input.few", *lines)


# --- cart ----------------------------------------------------------------------------------------


def _choice(data: Data, rng: random.Random) -> tuple[dict[str, str], str] | None:
    """Slots of a product to buy, and its line in the cart."""
    product = a_product(data, rng)
    if product is None:
        return None
    choice = rng.choice(product["option_values"].split(", "))
    quantity = str(rng.choice((1, 1, 2, 3, 4)))
    slots = {
        "product": product["name"],
        "option": product["option_name"].lower(),
        "choice": choice,
        "quantity": quantity,
    }
    return slots, f"{product['name']}, {choice}, {quantity}"


def _add(data: Data, rng: random.Random) -> Instance | None:
    drawn = _choice(data, rng)
    return drawn and Instance(drawn[0], cart_holds(drawn[1]))


@tasks.add(
    "add-to-cart",
    _add,
    "Add {quantity} of the {product} ({option} {choice}) to my cart.",
    "Put the {product} into the cart: {option} {choice}, quantity {quantity}.",
    "I need {quantity} x {product}, {option} {choice}. Add it to the cart, but do not order yet",
    "Get {quantity} {product} in {option} {choice} into my shopping cart.",
    "Place {quantity} piece(s) of the {product} with {option} {choice} in my cart.",
)
def add_to_cart(slots: Slots, page: Observation) -> Expert:
    page = yield from _into_cart(slots, page)
    yield from done("It is in the cart")


def _into_cart(slots: Slots, page: Observation) -> Moves:
    """The product as the slots want it, from anywhere."""
    page = yield from to_product(page, slots["product"])
    option = slots["option"].capitalize()
    page = yield from choose(page, option, slots["choice"], why="The choice comes first")
    if slots["quantity"] != "1":
        page = yield from type_text(page, "Quantity", slots["quantity"])
    return (yield from click(page, "Add to Cart", "button", about=""))


def _coupon(data: Data, rng: random.Random) -> Instance | None:
    code, minimum = rng.choice((("SPRING10", 5_000), ("GARDEN15", 8_000), ("WELCOME5", 0)))
    product = a_product(data, rng, f"stock > 20 AND price >= {minimum}")
    if product is None:
        return None
    percent = int(code[-2:]) if code[-2:].isdecimal() else int(code[-1])
    discount = product["price"] * percent // 100
    spec = page_has(f"{SHOP}/cart", "table", product["name"], f"-${dollars(discount)}")
    return Instance({"product": product["name"], "code": code}, spec)


_COUPON = (
    "Put one {product} into my cart and apply the coupon {code}.",
    "Add the {product} to the cart, then use the coupon code {code} there.",
    "I have the coupon {code}. Add a {product} to my cart and redeem it, without ordering",
    "Get the {product} into the cart and enter {code} as the coupon code.",
    "Apply {code} to a cart with one {product}. Do not check out.",
)


@tasks.add("coupon", _coupon, *_COUPON)
def coupon(slots: Slots, page: Observation) -> Expert:
    page = yield from to_product(page, slots["product"])
    page = yield from click(page, "Add to Cart", "button", about="")
    page = yield from _to_cart(page)
    page = yield from type_text(page, "Coupon code", slots["code"])
    yield from click(page, "Apply Coupon", "button", about="")
    yield from done("The discount is there")


def _expired(data: Data, rng: random.Random) -> Instance | None:
    product = a_product(data, rng, "stock > 20 AND price >= 10000")
    code = rng.choice(("WINTER20", "HOLIDAY10", "SUMMER12"))
    if product is None:
        return None
    slots = {"product": product["name"], "code": code}
    return Instance(slots, unachievable("the coupon has expired"))


@tasks.add("coupon-expired", _expired, *_COUPON)
def coupon_expired(slots: Slots, page: Observation) -> Expert:
    page = yield from to_product(page, slots["product"])
    page = yield from click(page, "Add to Cart", "button", about="")
    page = yield from _to_cart(page)
    page = yield from type_text(page, "Coupon code", slots["code"])
    yield from click(page, "Apply Coupon", "button", about="")
    yield from give_up("The coupon code is not valid")


def _to_cart(page: Observation) -> Moves:
    cart = found(page, r"Wish List (Cart \d+)")
    return (yield from click(page, cart, "link", about="cart", why="The next step is in the cart"))


# --- buying --------------------------------------------------------------------------------------


def _buy(data: Data, rng: random.Random) -> Instance | None:
    drawn = _choice(data, rng)
    if drawn is None:
        return None
    delivery, payment = rng.choice(list(DELIVERIES)), rng.choice(PAYMENTS)
    slots = drawn[0] | {"delivery": delivery, "payment": payment.lower()}
    return Instance(slots, _ordered(drawn[0], f"{payment}, {delivery} delivery"))


def _ordered(slots: Slots, *terms: str) -> Spec:
    line = "\t".join((slots["product"], slots["choice"], slots["quantity"]))
    return page_has(f"{SHOP}/account/orders/{NEXT_ORDER}", "main", line, *terms)


@tasks.add(
    "buy",
    _buy,
    "Buy {quantity} of the {product} ({option} {choice}) with {delivery} delivery and pay by "
    "{payment}.",
    "Order {quantity} {product}, {option} {choice}. Delivery: {delivery}, payment: {payment}.",
    "I want {quantity} x {product} in {option} {choice}. Order it with {delivery} delivery, "
    "{payment}",
    "Place an order for {quantity} {product} with {option} {choice}, delivered by {delivery}, "
    "paid by {payment}.",
    "Purchase the {product} ({option} {choice}, quantity {quantity}) and choose {delivery} and "
    "{payment}.",
)
def buy(slots: Slots, page: Observation) -> Expert:
    page = yield from _into_cart(slots, page)
    page = yield from _check_out(page, slots["delivery"], slots["payment"].capitalize())
    yield from done("The order is placed")


def _check_out(page: Observation, delivery: str = "", payment: str = "") -> Moves:
    """From anywhere, with something in the cart; what is not told stays as it is."""
    page = yield from _to_cart(page)
    page = yield from click(page, "Proceed to Checkout", "link", about="")
    page = yield from click(
        page, "Continue to Delivery", "button", about="", why="The address is right"
    )
    if delivery:
        (radio,) = [
            e.name
            for e in page.elements.values()
            if e.kind == "radio" and e.name.startswith(delivery)
        ]
        page = yield from tick(page, radio)
    page = yield from click(page, "Continue to Payment", "button", about="")
    if payment:
        page = yield from tick(page, payment)
    return (yield from click(page, "Place Order", "button", about=""))


def _buy_best(data: Data, rng: random.Random) -> Instance | None:
    category, limit = a_category(data, rng), rng.choice((20, 30, 40, 50, 80, 100))
    sql = (
        "SELECT name, stock, stars_sum * 1.0 / max(review_count, 1) AS rating FROM product"
        " WHERE category_id = ? AND price <= ? ORDER BY rating DESC LIMIT 2"
    )
    rows = data["shop"].execute(sql, [category["id"], 100 * limit]).fetchall()
    if len(rows) < 2 or rows[0]["rating"] == rows[1]["rating"] or not rows[0]["stock"]:
        return None
    spec = page_has(f"{SHOP}/account/orders/{NEXT_ORDER}", "main", rows[0]["name"])
    return Instance({"category": category["name"], "limit": str(limit)}, spec)


@tasks.add(
    "buy-best",
    _buy_best,
    "Buy the highest rated product from {category} within a budget of ${limit}.",
    "Order the best-rated product of {category} that costs at most ${limit}.",
    "In {category}, find the product with the best rating for up to {limit} dollars and buy it",
    "I have ${limit} for something from {category}. Order what customers rate highest.",
    "Purchase the best product of {category} by customer rating, for no more than ${limit}.",
)
def buy_best(slots: Slots, page: Observation) -> Expert:
    page = yield from to_category(page, slots["category"])
    page = yield from type_text(page, "Price to", slots["limit"])
    page = yield from click(page, "Apply", "button", about="")
    page = yield from choose(page, "Sort by", "Customer rating", about="")
    first = names_after(page, "Sort by", "link")[0]
    page = yield from click(page, first, "link", why="It is the first of the list")
    page = yield from click(page, "Add to Cart", "button", about="")
    yield from _check_out(page)
    yield from done("The order is placed")


def _reorder(data: Data, rng: random.Random) -> Instance | None:
    order = an_order(data, rng)
    sql = (
        "SELECT name, choice, quantity FROM purchase_item JOIN product ON product.id = product_id"
        " WHERE purchase_id = ?"
    )
    rows = [tuple(row) for row in data["shop"].execute(sql, [order["id"]])]
    if len({row[:2] for row in rows}) < len(rows):
        return None
    lines = [", ".join(map(str, row)) for row in rows]
    return Instance({"number": str(order["id"])}, cart_holds(*lines))


@tasks.add(
    "reorder",
    _reorder,
    "Put everything from my order {number} into the cart again.",
    "Reorder the products of order {number}, but only fill the cart.",
    "I want the same things as in order {number}. Get them into my cart",
    "Fill my cart with the products of my order {number}.",
    "Use the reorder function for my order {number}. Do not check out.",
)
def reorder(slots: Slots, page: Observation) -> Expert:
    page = yield from to_order(page, slots["number"])
    yield from click(page, "Reorder", "button", about="", why="It fills the cart")
    yield from done("Everything is in the cart")


def _search_buy(data: Data, rng: random.Random) -> Instance | None:
    product = a_product(data, rng)
    if product is None:
        return None
    sql = (
        "SELECT name, price, stock FROM product WHERE brand = ? AND kind = ? ORDER BY price LIMIT 2"
    )
    rows = data["shop"].execute(sql, [product["brand"], product["kind"]]).fetchall()
    words = f"{product['brand']} {product['kind']}"
    every = " AND ".join("instr(words, ?)" for _ in words.split())
    (listed,) = (
        data["shop"]
        .execute(f"SELECT count(*) FROM product WHERE {every}", words.lower().split())
        .fetchone()
    )
    (count,) = (
        data["shop"]
        .execute(
            "SELECT count(*) FROM product WHERE brand = ? AND kind = ?",
            [product["brand"], product["kind"]],
        )
        .fetchone()
    )
    if len(rows) < 2 or listed != count or rows[0]["price"] == rows[1]["price"]:
        return None
    spec = page_has(f"{SHOP}/cart", "tr.line", rows[0]["name"])
    return Instance({"words": words}, spec) if rows[0]["stock"] > 3 else None


@tasks.add(
    "cheapest-of-brand",
    _search_buy,
    "Put the cheapest {words} into my cart.",
    "Find the least expensive {words} and add it to the cart.",
    "I want a {words}, the cheapest there is. Add it to my cart",
    "Look for {words} and put the one with the lowest price into my cart.",
    "Add the {words} that costs least to the cart.",
)
def cheapest_of_brand(slots: Slots, page: Observation) -> Expert:
    page = yield from search(page, "Search products", slots["words"])
    page = yield from choose(page, "Sort by", "Price: low to high", about="")
    first = names_after(page, "Sort by", "link")[0]
    page = yield from click(page, first, "link", why="It is the first of the list")
    yield from click(page, "Add to Cart", "button", about="")
    yield from done("It is in the cart")
