"""Changes to the cart, and orders."""

from __future__ import annotations

import random

from webagent_jax.arena.shop.data import FIRST_ORDER_NUMBER, NUM_PURCHASES
from webagent_jax.arena.shop.policies import DELIVERIES, PAYMENTS
from webagent_jax.arena.shop.tasks.helpers import (
    SHOP,
    format_dollars,
    go_to_category,
    go_to_order,
    go_to_product,
    sample_category,
    sample_order,
    sample_product,
)
from webagent_jax.arena.task import (
    Data,
    EvalSpec,
    Slots,
    TaskInstance,
    TemplateRegistry,
    page_equals,
    page_includes,
    page_lists,
    unachievable,
)
from webagent_jax.expert_steps import (
    Moves,
    click,
    element_names_after,
    extract_text,
    finish,
    give_up,
    search,
    select_option,
    set_checked,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("shop", "shopping")

NEXT_ORDER = FIRST_ORDER_NUMBER + NUM_PURCHASES  # number of the first order in a new world


def cart_holds(*lines: str) -> EvalSpec:
    """Require lines in the cart, such as "Tilda Nordic Wok, 28 cm, 2"."""
    return page_lists(f"{SHOP}/cart", "tr.line", "a, td:nth-child(2), input.few", *lines)


# --- cart ----------------------------------------------------------------------------------------


def _sample_cart_line(data: Data, rng: random.Random) -> tuple[dict[str, str], str] | None:
    """Return the slots of a product to buy, and its line in the cart."""
    product = sample_product(data, rng)
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


def _sample_add_to_cart(data: Data, rng: random.Random) -> TaskInstance | None:
    sample = _sample_cart_line(data, rng)
    return sample and TaskInstance(sample[0], cart_holds(sample[1]))


@tasks.add(
    "add-to-cart",
    _sample_add_to_cart,
    "Add {quantity} of the {product} ({option} {choice}) to my cart.",
    "Put the {product} into the cart: {option} {choice}, quantity {quantity}.",
    "I need {quantity} x {product}, {option} {choice}. Add it to the cart, but do not order yet",
    "Get {quantity} {product} in {option} {choice} into my shopping cart.",
    "Place {quantity} of the {product} with {option} {choice} in my cart.",
)
def add_to_cart(slots: Slots, page: Observation) -> Expert:
    page = yield from _add_product(slots, page)
    yield from finish("It is in the cart")


def _add_product(slots: Slots, page: Observation) -> Moves:
    """Add the product of the slots to the cart, from any page."""
    page = yield from go_to_product(page, slots["product"])
    option = slots["option"].capitalize()
    page = yield from select_option(page, option, slots["choice"], reason="The choice comes first")
    if slots["quantity"] != "1":
        page = yield from type_text(page, "Quantity", slots["quantity"])
    return (yield from click(page, "Add to Cart", "button", intent_phrase=""))


def _sample_coupon(data: Data, rng: random.Random) -> TaskInstance | None:
    code, minimum = rng.choice((("SPRING10", 5_000), ("GARDEN15", 8_000), ("WELCOME5", 0)))
    product = sample_product(data, rng, f"stock > 20 AND price >= {minimum}")
    if product is None:
        return None
    percent = int(code[-2:]) if code[-2:].isdecimal() else int(code[-1])
    discount = product["price"] * percent // 100
    spec = page_includes(f"{SHOP}/cart", "table", product["name"], f"-${format_dollars(discount)}")
    return TaskInstance({"product": product["name"], "code": code}, spec)


_COUPON = (
    "Put one {product} into my cart and apply the coupon {code}.",
    "Add the {product} to the cart, then use the coupon code {code} there.",
    "I have the coupon {code}. Add the {product} to my cart and redeem it, without ordering",
    "Get the {product} into the cart and enter {code} as the coupon code.",
    "Apply {code} to a cart with one {product}. Do not check out.",
)


@tasks.add("coupon", _sample_coupon, *_COUPON)
def coupon(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    page = yield from click(page, "Add to Cart", "button", intent_phrase="")
    page = yield from _go_to_cart(page)
    page = yield from type_text(page, "Coupon code", slots["code"])
    yield from click(page, "Apply Coupon", "button", intent_phrase="")
    yield from finish("The discount is there")


def _sample_coupon_expired(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng, "stock > 20 AND price >= 10000")
    code = rng.choice(("WINTER20", "HOLIDAY10", "SUMMER12"))
    if product is None:
        return None
    slots = {"product": product["name"], "code": code}
    return TaskInstance(slots, unachievable("the coupon has expired"))


@tasks.add("coupon-expired", _sample_coupon_expired, *_COUPON)
def coupon_expired(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    page = yield from click(page, "Add to Cart", "button", intent_phrase="")
    page = yield from _go_to_cart(page)
    page = yield from type_text(page, "Coupon code", slots["code"])
    yield from click(page, "Apply Coupon", "button", intent_phrase="")
    yield from give_up("The coupon code is not valid")


def _go_to_cart(page: Observation) -> Moves:
    cart = extract_text(page, r"Wish List (Cart \d+)")
    return (
        yield from click(
            page, cart, "link", intent_phrase="cart", reason="The next step is in the cart"
        )
    )


# --- orders --------------------------------------------------------------------------------------


def _sample_buy(data: Data, rng: random.Random) -> TaskInstance | None:
    sample = _sample_cart_line(data, rng)
    if sample is None:
        return None
    delivery, payment = rng.choice(list(DELIVERIES)), rng.choice(PAYMENTS)
    slots = sample[0] | {"delivery": delivery, "payment": payment.lower()}
    return TaskInstance(slots, _order_includes(sample[0], f"{payment}, {delivery} delivery"))


def _order_includes(slots: Slots, *terms: str) -> EvalSpec:
    # The sign of the price ends the quantity: 1 must not match 15.
    line = "\t".join((slots["product"], slots["choice"], slots["quantity"], "$"))
    return page_includes(f"{SHOP}/account/orders/{NEXT_ORDER}", "main", line, *terms)


@tasks.add(
    "buy",
    _sample_buy,
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
    page = yield from _add_product(slots, page)
    page = yield from _check_out(page, slots["delivery"], slots["payment"].capitalize())
    yield from finish("The order is placed")


def _check_out(page: Observation, delivery: str = "", payment: str = "") -> Moves:
    """Order the products in the cart, from any page; "" keeps the default delivery or payment."""
    page = yield from _go_to_cart(page)
    page = yield from click(page, "Proceed to Checkout", "link", intent_phrase="")
    page = yield from click(
        page, "Continue to Delivery", "button", intent_phrase="", reason="The address is right"
    )
    if delivery:
        (radio,) = [
            e.name
            for e in page.elements.values()
            if e.kind == "radio" and e.name.startswith(delivery)
        ]
        page = yield from set_checked(page, radio)
    page = yield from click(page, "Continue to Payment", "button", intent_phrase="")
    if payment:
        page = yield from set_checked(page, payment)
    return (yield from click(page, "Place Order", "button", intent_phrase=""))


def _sample_buy_best(data: Data, rng: random.Random) -> TaskInstance | None:
    category, limit = sample_category(data, rng), rng.choice((20, 30, 40, 50, 80, 100))
    sql = (
        "SELECT name, stock, stars_sum * 1.0 / max(review_count, 1) AS rating FROM product"
        " WHERE category_id = ? AND price <= ? ORDER BY rating DESC LIMIT 2"
    )
    rows = data["shop"].execute(sql, [category["id"], 100 * limit]).fetchall()
    if len(rows) < 2 or rows[0]["rating"] == rows[1]["rating"] or not rows[0]["stock"]:
        return None
    spec = page_includes(f"{SHOP}/account/orders/{NEXT_ORDER}", "main", rows[0]["name"])
    return TaskInstance({"category": category["name"], "limit": str(limit)}, spec)


@tasks.add(
    "buy-best",
    _sample_buy_best,
    "Buy the highest rated product from {category} within a budget of ${limit}.",
    "Order the best-rated product of {category} that costs at most ${limit}.",
    "In {category}, find the product with the best rating for up to {limit} dollars and buy it",
    "I have ${limit} for something from {category}. Order what customers rate highest.",
    "Purchase the best product of {category} by customer rating, for no more than ${limit}.",
)
def buy_best(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_category(page, slots["category"])
    page = yield from type_text(page, "Price to", slots["limit"])
    page = yield from click(page, "Apply", "button", intent_phrase="")
    page = yield from select_option(page, "Sort by", "Customer rating", intent_phrase="")
    first = element_names_after(page, "Sort by", "link")[0]
    page = yield from click(page, first, "link", reason="It is the first of the list")
    page = yield from click(page, "Add to Cart", "button", intent_phrase="")
    yield from _check_out(page)
    yield from finish("The order is placed")


def _sample_reorder(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng)
    sql = (
        "SELECT name, choice, quantity FROM purchase_item JOIN product ON product.id = product_id"
        " WHERE purchase_id = ?"
    )
    rows = [tuple(row) for row in data["shop"].execute(sql, [order["id"]])]
    if len({row[:2] for row in rows}) < len(rows):
        return None
    lines = [", ".join(map(str, row)) for row in rows]
    return TaskInstance({"number": str(order["id"])}, cart_holds(*lines))


@tasks.add(
    "reorder",
    _sample_reorder,
    "Put everything from my order {number} into the cart again.",
    "Reorder the products of order {number}, but only fill the cart.",
    "I want the same things as in order {number}. Get them into my cart",
    "Fill my cart with the products of my order {number}.",
    "Use the reorder function for my order {number}. Do not check out.",
)
def reorder(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    yield from click(page, "Reorder", "button", intent_phrase="", reason="It fills the cart")
    yield from finish("Everything is in the cart")


def _sample_cheapest_of_brand(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng)
    if product is None:
        return None
    sql = (
        "SELECT name, price, stock FROM product WHERE brand = ? AND kind = ? ORDER BY price LIMIT 2"
    )
    rows = data["shop"].execute(sql, [product["brand"], product["kind"]]).fetchall()
    words = f"{product['brand']} {product['kind']}"
    condition = " AND ".join("instr(words, ?)" for _ in words.split())
    (num_results,) = (
        data["shop"]
        .execute(f"SELECT count(*) FROM product WHERE {condition}", words.lower().split())
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
    if len(rows) < 2 or num_results != count or rows[0]["price"] == rows[1]["price"]:
        return None
    # Nothing else is in the cart.
    spec = page_equals(f"{SHOP}/cart", "tr.line a", rows[0]["name"])
    return TaskInstance({"words": words}, spec) if rows[0]["stock"] > 3 else None


@tasks.add(
    "cheapest-of-brand",
    _sample_cheapest_of_brand,
    "Put the cheapest {words} into my cart.",
    "Find the least expensive {words} and add it to the cart.",
    "I want the cheapest {words} there is. Add it to my cart",
    "Look for {words} and put the one with the lowest price into my cart.",
    "Add the {words} that costs least to the cart.",
)
def cheapest_of_brand(slots: Slots, page: Observation) -> Expert:
    page = yield from search(page, "Search products", slots["words"])
    page = yield from select_option(page, "Sort by", "Price: low to high", intent_phrase="")
    first = element_names_after(page, "Sort by", "link")[0]
    page = yield from click(page, first, "link", reason="It is the first of the list")
    yield from click(page, "Add to Cart", "button", intent_phrase="")
    yield from finish("It is in the cart")
