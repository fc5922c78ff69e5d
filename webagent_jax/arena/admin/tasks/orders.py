"""Questions about an order, by its number."""

from __future__ import annotations

import random
import re

from webagent_jax.arena.admin.tasks.helpers import find_orders, go_to_order, sample_order
from webagent_jax.arena.shop.data import FIRST_ORDER_NUMBER, NUM_PURCHASES
from webagent_jax.arena.shop.policies import DELIVERIES, PAYMENTS
from webagent_jax.arena.shop.tasks.helpers import dollar_formats
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
    element_names_after,
    extract_text,
    give_up,
    scroll_until,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")

_FACTS = {
    "payment method": r"Payment (Credit card|Bank transfer|Cash on delivery),",
    "delivery method": r"Delivery .*? (Standard|Express|Pick-up point) ",
    "email address": r"(\S+@\S+\.example)",
    "phone number": r"(555-\d{3}-\d{4})",
    "total": r"Shipping \$[\d,.]+ Total (\$[\d,.]+)",
    "shipping cost": r"Shipping (\$[\d,.]+)",
    "zip code": r" (\d{5}), 555-",
}
"""Facts on the page of an order, and their patterns."""


def _sample_order_fact(data: Data, rng: random.Random) -> TaskInstance | None:
    order, fact = sample_order(data, rng), rng.choice(list(_FACTS))
    sql = "SELECT email FROM customer WHERE id = ?"
    (email,) = data["shop"].execute(sql, [order["customer_id"]]).fetchone()
    value = {
        "payment method": order["payment"],
        "delivery method": order["delivery"],
        "email address": email,
        "phone number": order["phone"],
        "total": dollar_formats(order["total"]),
        "shipping cost": dollar_formats(order["shipping"]),
        "zip code": order["zip_code"],
    }[fact]
    options = {"payment method": PAYMENTS, "delivery method": tuple(DELIVERIES)}
    spec = answer_includes(value, excluding=options.get(fact, ()))
    return TaskInstance({"fact": fact, "number": str(order["id"])}, spec)


@tasks.add(
    "order-fact",
    _sample_order_fact,
    "What is the {fact} of order {number}?",
    "Tell me the {fact} on order {number}.",
    "Look into order {number} and give me its {fact}.",
    "I need the {fact} that belongs to order {number}",
    "A colleague asks for the {fact} of the order with the number {number}. What is it?",
)
def order_fact(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    page, match = yield from scroll_until(page, _FACTS[slots["fact"]])
    assert match is not None
    yield from answer(match[1], reason="The page of the order tells it")


def _sample_tracking(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng, "id > 304000 AND status IN ('Shipped', 'Complete')")
    sql = "SELECT carrier, tracking FROM shipment WHERE purchase_id = ?"
    carrier, tracking = data["shop"].execute(sql, [order["id"]]).fetchone()
    return TaskInstance({"number": str(order["id"])}, answer_includes(carrier, tracking))


_TRACKING = (
    "Who carries the parcel of order {number}, and what is its tracking number?",
    "Give me carrier and tracking number of order {number}.",
    "A customer asks for the parcel of order {number}: name the carrier and the tracking number.",
    "Look up the shipment of order {number}. Carrier and tracking number, please",
    "Which carrier has order {number}, and under which tracking number?",
)


@tasks.add("tracking", _sample_tracking, *_TRACKING)
def tracking(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    pattern = r"by ([A-Z][\w ]+, tracking number [A-Z]{2}\d+)"
    page, match = yield from scroll_until(page, pattern)
    assert match is not None
    yield from answer(match[1], reason="The order tells who carries it")


def _sample_not_shipped(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng, "status IN ('Pending', 'Cancelled') AND id > 303000")
    return TaskInstance({"number": str(order["id"])}, unachievable("the order was not shipped"))


@tasks.add("not-shipped", _sample_not_shipped, *_TRACKING)
def not_shipped(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    status = extract_text(page, r"Order \d{6} (Pending|Cancelled)")
    yield from give_up(f"the order is {status.lower()} and was never shipped")


def _sample_no_such_order(data: Data, rng: random.Random) -> TaskInstance | None:
    number = FIRST_ORDER_NUMBER + NUM_PURCHASES + rng.randint(100, 4000)
    return TaskInstance({"number": str(number)}, unachievable("there is no order with this number"))


@tasks.add(
    "no-such-order",
    _sample_no_such_order,
    "What is the total of order {number}?",
    "Which customer placed order {number}?",
    "Tell me the status of order {number}.",
    "How was order {number} paid?",
    "Look up order {number} and tell me when it was placed",
)
def no_such_order(slots: Slots, page: Observation) -> Expert:
    page = yield from find_orders(page, slots["number"])
    yield from give_up(f"no order {slots['number']} is found")


def _sample_refund_reason(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng, "status = 'Refunded'")
    sql = "SELECT amount, reason FROM refund WHERE purchase_id = ?"
    amount, reason = data["shop"].execute(sql, [order["id"]]).fetchone()
    return TaskInstance(
        {"number": str(order["id"])}, answer_includes(dollar_formats(amount), reason)
    )


@tasks.add(
    "refund-reason",
    _sample_refund_reason,
    "Why was order {number} refunded, and how much was paid back?",
    "How much was refunded for order {number}, and for what reason?",
    "Give me the amount and the reason of the refund for order {number}.",
    "Order {number} was refunded. Tell me the reason and the amount",
    "For the books: what was paid back on order {number}, and why?",
)
def refund_reason(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    pattern = r"Refunded (\$[\d,.]+) on [A-Z][a-z]{2} \d+, \d{4}: ([A-Z][a-z ]+)"
    page, match = yield from scroll_until(page, pattern)
    assert match is not None
    yield from answer(f"{match[2].strip()}, {match[1]}", reason="The order tells its refund")


def _sample_order_products(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng)
    sql = (
        "SELECT DISTINCT name FROM purchase_item JOIN product ON product.id = product_id"
        " WHERE purchase_id = ?"
    )
    names = [name for (name,) in data["shop"].execute(sql, [order["id"]])]
    return (
        TaskInstance({"number": str(order["id"])}, answer_includes(*names))
        if len(names) > 1
        else None
    )


@tasks.add(
    "order-products",
    _sample_order_products,
    "Which products were bought with order {number}?",
    "List the names of all products in order {number}.",
    "What did the customer of order {number} buy? Name all products.",
    "Tell me every product that order {number} contains",
    "The warehouse asks what belongs into the parcel of order {number}. Name the products.",
)
def order_products(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    names = element_names_after(page, "Nora Whitfield", "link")
    end = next(i for i, name in enumerate(names) if re.fullmatch(r"[A-Z]\w+ [A-Z]\w+", name))
    products = [name for name in names[:end] if name not in ("Cancel", "Ship", "Refund")]
    yield from answer(", ".join(products), reason="These are the rows of the order")
