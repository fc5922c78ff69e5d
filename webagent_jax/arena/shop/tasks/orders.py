"""Questions about an order of the user, by its number."""

from __future__ import annotations

import random
import re

from webagent_jax.arena.shop.policies import DELIVERIES, PAYMENTS, STATUSES
from webagent_jax.arena.shop.tasks.helpers import (
    AGENT_USER_ID,
    dollar_formats,
    go_to_order,
    go_to_order_row,
    sample_order,
)
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    sample_row,
    unachievable,
)
from webagent_jax.expert_steps import answer, extract_text, give_up
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("shop", "shopping")


def _sample_order_status(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng)
    spec = answer_includes(order["status"], excluding=STATUSES)
    return TaskInstance({"number": str(order["id"])}, spec)


@tasks.add(
    "order-status",
    _sample_order_status,
    "What is the status of my order {number}?",
    "Tell me the status of order {number}.",
    "Check how far my order number {number} has come. What does its status say?",
    "I want to know the current status of my order {number}",
    "Look up order {number} in my account and report its status.",
)
def order_status(slots: Slots, page: Observation) -> Expert:
    page, row = yield from go_to_order_row(page, slots["number"])
    assert row is not None
    yield from answer(row[4], evidence=row[0], reason="The row of the order ends with its status")


def _sample_order_total(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng)
    return TaskInstance(
        {"number": str(order["id"])}, answer_includes(dollar_formats(order["total"]))
    )


@tasks.add(
    "order-total",
    _sample_order_total,
    "How much did I pay for order {number}?",
    "What was the total of my order {number}?",
    "Tell me the total cost of order number {number}, delivery included.",
    "What is the grand total of order {number}?",
    "Find my order {number} and tell me how much it cost in all",
)
def order_total(slots: Slots, page: Observation) -> Expert:
    page, row = yield from go_to_order_row(page, slots["number"])
    assert row is not None
    yield from answer(f"${row[3]}", evidence=f"{row[1]} {row[2]}", reason="Its row tells the total")


def _sample_order_delivery(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng)
    spec = answer_includes(order["delivery"], excluding=tuple(DELIVERIES))
    return TaskInstance({"number": str(order["id"])}, spec)


@tasks.add(
    "order-delivery",
    _sample_order_delivery,
    "Which kind of delivery did I choose for order {number}?",
    "How was order {number} delivered: Standard, Express or Pick-up point?",
    "What delivery method did I take for my order {number}?",
    "Tell me the delivery method of order {number}.",
    "Look into order {number}: which delivery option did I pick?",
)
def order_delivery(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    method = extract_text(page, r"(Standard|Express|Pick-up point) delivery")
    yield from answer(method, reason="The order says how it was delivered")


_SHORT_PAYMENTS = {"Credit card": "card", "Cash on delivery": "cash"}


def _sample_order_payment(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng)
    payment = order["payment"]
    short_name = _SHORT_PAYMENTS.get(payment)
    reference = f"{payment} |OR| {short_name}" if short_name else payment
    spec = answer_includes(reference, excluding=[*PAYMENTS, *_SHORT_PAYMENTS.values()])
    return TaskInstance({"number": str(order["id"])}, spec)


@tasks.add(
    "order-payment",
    _sample_order_payment,
    "How did I pay for order {number}?",
    "What was the payment method of order {number}?",
    "Tell me which payment method I used for my order {number}.",
    "Did I pay order {number} by card, bank transfer or in cash? Name the method.",
    "Find out how order number {number} was paid",
)
def order_payment(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    method = extract_text(page, r"\d{4}\. (Credit card|Bank transfer|Cash on delivery),")
    yield from answer(method, reason="The order says how it was paid")


def _sample_order_choice(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng)
    items = (
        data["shop"]
        .execute(
            "SELECT name, option_name, option_values, choice FROM purchase_item JOIN product"
            " ON product.id = product_id WHERE purchase_id = ?",
            [order["id"]],
        )
        .fetchall()
    )
    item = sample_row(rng, items)
    # A product that was ordered in two options has two right answers.
    if sum(other["name"] == item["name"] for other in items) > 1:
        return None
    slots = {
        "number": str(order["id"]),
        "product": item["name"],
        "option": item["option_name"].lower(),
    }
    # An answer may contain the name of the product, and with it the name of another option.
    options = [
        option
        for option in item["option_values"].split(", ")
        if f" {option} ".lower() not in f" {item['name']} ".lower()
    ]
    return TaskInstance(slots, answer_includes(item["choice"], excluding=options))


@tasks.add(
    "order-choice",
    _sample_order_choice,
    "Which {option} did I choose for the {product} in order {number}?",
    "What {option} is the {product} that I bought with order {number}?",
    "My order {number} contains the {product}. In which {option}?",
    "Tell me the {option} of the {product} from order {number}.",
    "I want to buy the {product} of order {number} again. Which {option} was it?",
)
def order_choice(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    choice = extract_text(page, rf"{re.escape(slots['product'])} (.+?) \d+ \$[\d,.]+")
    yield from answer(
        choice, evidence=slots["product"], reason="The choice stands behind the product"
    )


def _sample_order_missing(data: Data, rng: random.Random) -> TaskInstance | None:
    number = str(rng.randint(300_400, 304_900))
    sql = f"SELECT 1 FROM purchase WHERE id = {number} AND customer_id = {AGENT_USER_ID}"
    if data["shop"].execute(sql).fetchone():
        return None
    return TaskInstance(
        {"number": number}, unachievable("the customer has no order with this number")
    )


@tasks.add(
    "order-missing",
    _sample_order_missing,
    "What is the status of my order {number}?",
    "Tell me the status of order {number}.",
    "Which products are in my order {number}?",
    "I want to know the current status of my order {number}",
    "How much did I pay for order {number}?",
)
def order_missing(slots: Slots, page: Observation) -> Expert:
    yield from go_to_order_row(page, slots["number"])
    yield from give_up(f"there is no order {slots['number']}")
