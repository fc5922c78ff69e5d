"""Questions about the user's orders by date and content, and orders to open."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Sequence
from typing import Any

from webagent_jax.arena.shop.policies import STATUSES
from webagent_jax.arena.shop.tasks.helpers import (
    AGENT_USER_ID,
    SHOP,
    dollar_formats,
    format_dollars,
    go_to_orders,
    parse_cents,
    parse_order_rows,
    sample_order,
)
from webagent_jax.arena.site import format_day
from webagent_jax.arena.task import (
    Data,
    EvalSpec,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    date_formats,
    url_equals,
)
from webagent_jax.expert_steps import (
    Moves,
    answer,
    click,
    element_names,
    extract_text,
    finish,
    go_back,
    has_element,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("shop", "shopping")

_INDICES = {"latest": 0, "second latest": 1, "third latest": 2, "fourth latest": 3}
_FACTS = {"number": "id", "date": "placed", "total": "total", "status": "status"}


def _require_fact(fact: str, value: Any, other_values: Sequence[Any] = ()) -> EvalSpec:
    """Require an answer with a fact of an order, and without that of other orders."""
    match fact:
        case "date":
            return answer_includes(
                date_formats(value), excluding=list(map(format_day, other_values))
            )
        case "total":
            return answer_includes(
                dollar_formats(value), excluding=list(map(format_dollars, other_values))
            )
        case "status":
            return answer_includes(value, excluding=STATUSES)
    return answer_includes(str(value), excluding=list(map(str, other_values)))


def _sample_recent_order(data: Data, rng: random.Random) -> TaskInstance | None:
    place, fact = rng.choice(list(_INDICES)), rng.choice(list(_FACTS))
    sql = f"SELECT * FROM purchase WHERE customer_id = {AGENT_USER_ID} ORDER BY id DESC LIMIT 4"
    values = [row[_FACTS[fact]] for row in data["shop"].execute(sql)]
    spec = _require_fact(fact, values[_INDICES[place]], values)
    return TaskInstance({"place": place, "fact": fact}, spec)


@tasks.add(
    "recent-order",
    _sample_recent_order,
    "What is the {fact} of my {place} order?",
    "Tell me the {fact} of my {place} order.",
    "Look at my {place} order: what is its {fact}?",
    "I need the {fact} of the {place} order I placed",
    "Find my {place} order and give me its {fact}.",
)
def recent_order(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_orders(page)
    row = parse_order_rows(page)[_INDICES[slots["place"]]]
    yield from answer(
        _read_fact(row, slots["fact"]), evidence=row[0], reason="The newest orders come first"
    )


def _sample_first_order(data: Data, rng: random.Random) -> TaskInstance | None:
    fact = rng.choice(list(_FACTS))
    sql = f"SELECT * FROM purchase WHERE customer_id = {AGENT_USER_ID} ORDER BY id LIMIT 1"
    value = data["shop"].execute(sql).fetchone()[_FACTS[fact]]
    return TaskInstance({"fact": fact}, _require_fact(fact, value))


@tasks.add(
    "first-order",
    _sample_first_order,
    "What is the {fact} of the very first order I made here?",
    "Tell me the {fact} of my first order at Marigold.",
    "Look up the oldest order in my account and give me its {fact}.",
    "What was the {fact} of my first purchase on this site?",
    "I would like to know the {fact} of my oldest order",
)
def first_order(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_orders(page)
    while has_element(page, "Next", "link"):
        page = yield from click(page, "Next", "link", reason="The first order is on the last page")
    row = parse_order_rows(page)[-1]
    yield from answer(
        _read_fact(row, slots["fact"]), evidence=row[0], reason="The last row is the oldest order"
    )


def _read_fact(row: re.Match[str], fact: str) -> str:
    number, date, total, status = row.groups()
    return {"number": number, "date": date, "total": f"${total}", "status": status}[fact]


def _sample_month(data: Data, rng: random.Random) -> tuple[str, list[tuple[int, str]]] | None:
    """Return a month, and total and status of each order in it; None if one is refunded."""
    order = sample_order(data, rng)
    sql = (
        f"SELECT total, status FROM purchase WHERE customer_id = {AGENT_USER_ID} AND placed LIKE ?"
    )
    rows = [tuple(row) for row in data["shop"].execute(sql, [f"{order['placed'][:7]}-%"])]
    month = f"{datetime.date.fromisoformat(order['placed'][:10]):%B %Y}"
    return None if any(status == "Refunded" for _, status in rows) else (month, rows)


def _sample_monthly_spending(data: Data, rng: random.Random) -> TaskInstance | None:
    sample = _sample_month(data, rng)
    if sample is None:
        return None
    total = sum(total for total, status in sample[1] if status != "Cancelled")
    return (
        TaskInstance({"month": sample[0]}, answer_includes(dollar_formats(total)))
        if total
        else None
    )


@tasks.add(
    "spent-in-month",
    _sample_monthly_spending,
    "How much did I spend at Marigold in {month}? Cancelled orders do not count.",
    "What is the sum of all orders I placed in {month}, without cancelled ones?",
    "Add up the totals of my orders from {month}, leaving out those that were cancelled.",
    "Tell me how much money I spent here in {month} (not counting cancelled orders)",
    "For my budget: what did my orders of {month} cost altogether, cancelled ones left out?",
)
def monthly_spending(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_orders(page)
    totals: list[int] = []
    month = datetime.datetime.strptime(slots["month"], "%B %Y")
    while True:
        rows = parse_order_rows(page)
        dated_rows = [(datetime.datetime.strptime(row[2], "%b %d, %Y"), row) for row in rows]
        month_rows = [
            row for date, row in dated_rows if (date.year, date.month) == (month.year, month.month)
        ]
        totals += [parse_cents(row[3]) for row in month_rows if row[4] != "Cancelled"]
        if dated_rows[-1][0] < month or not has_element(page, "Next", "link"):
            break
        page = yield from click(page, "Next", "link", reason=f"Older orders of {slots['month']}")
    sums = " + ".join(format_dollars(total) for total in totals)
    text = f"${format_dollars(sum(totals))}"
    yield from answer(text, evidence=sums, reason="These are the orders of the month")


def _sample_orders_in_month(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng)
    month = f"{datetime.date.fromisoformat(order['placed'][:10]):%B %Y}"
    sql = f"SELECT count(*) FROM purchase WHERE customer_id = {AGENT_USER_ID} AND placed LIKE ?"
    (count,) = data["shop"].execute(sql, [f"{order['placed'][:7]}-%"]).fetchone()
    return TaskInstance({"month": month}, answer_includes(str(count)))


@tasks.add(
    "orders-in-month",
    _sample_orders_in_month,
    "How many orders did I place in {month}?",
    "Tell me the number of orders I made in {month}.",
    "Count my orders from {month}, whatever became of them.",
    "In {month}, how often did I order something at Marigold?",
    "How many times did I order here in {month}?",
)
def orders_in_month(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_orders(page)
    month = datetime.datetime.strptime(slots["month"], "%B %Y")
    numbers: list[str] = []
    while True:
        rows = parse_order_rows(page)
        dated_numbers = [(datetime.datetime.strptime(row[2], "%b %d, %Y"), row[1]) for row in rows]
        numbers += [
            n for date, n in dated_numbers if (date.year, date.month) == (month.year, month.month)
        ]
        if dated_numbers[-1][0] < month or not has_element(page, "Next", "link"):
            break
        page = yield from click(page, "Next", "link", reason=f"Older orders of {slots['month']}")
    yield from answer(str(len(numbers)), evidence=", ".join(numbers), reason="I count them")


# --- orders by product ---------------------------------------------------------------------------


def _sample_product_of_order(data: Data, rng: random.Random) -> tuple[str, str, str] | None:
    """Return name, order number and time of a recent product; None if ordered more than once.

    The product is in one of the latest six orders.
    """
    sql = (
        "SELECT product.name, purchase.id, placed FROM purchase"
        " JOIN purchase_item ON purchase_id = purchase.id"
        f" JOIN product ON product.id = product_id WHERE customer_id = {AGENT_USER_ID}"
        " ORDER BY purchase.id DESC"
    )
    rows = [tuple(row) for row in data["shop"].execute(sql)]
    latest_numbers = list(dict.fromkeys(number for _, number, _ in rows))[:6]
    product, number, time = rng.choice([row for row in rows if row[1] in latest_numbers])
    if sum(row[0] == product for row in rows) > 1:
        return None
    return product, str(number), time


def _sample_ordered_when(data: Data, rng: random.Random) -> TaskInstance | None:
    sample = _sample_product_of_order(data, rng)
    return sample and TaskInstance({"product": sample[0]}, answer_includes(date_formats(sample[2])))


@tasks.add(
    "ordered-when",
    _sample_ordered_when,
    "When did I order the {product}?",
    "On which day did I buy the {product}? It was one of my latest orders.",
    "Tell me the date of the order with the {product}.",
    "I bought the {product} not long ago. What was the date of that order?",
    "Find out when I last ordered my {product}",
)
def ordered_when(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_order_with(slots["product"], page)
    date = extract_text(page, r"Placed ([A-Z][a-z]{2} \d+, \d{4})")
    yield from answer(date, evidence="Placed", reason=f"This order holds the {slots['product']}")


def _sample_order_with_product(data: Data, rng: random.Random) -> TaskInstance | None:
    sample = _sample_product_of_order(data, rng)
    return sample and TaskInstance(
        {"product": sample[0]}, url_equals(f"{SHOP}/account/orders/{sample[1]}")
    )


@tasks.add(
    "order-with-product",
    _sample_order_with_product,
    "Open the order in which I bought the {product}.",
    "Show me the order with the {product}; it is one of my latest.",
    "Go to the page of the order that contains the {product}",
    "I recently ordered the {product}. Bring up that order.",
    "Find the order that has the {product} in it and leave it open.",
)
def order_with_product(slots: Slots, page: Observation) -> Expert:
    yield from _go_to_order_with(slots["product"], page)
    yield from finish(f"This order holds the {slots['product']}")


def _go_to_order_with(product: str, page: Observation) -> Moves:
    page = yield from go_to_orders(page)
    for row in parse_order_rows(page):
        page = yield from click(page, row[1], "link", reason=f"It may hold the {product}")
        if product in element_names(page, "link"):
            return page
        page = yield from go_back(f"There is no {product} in it, so I look at the next one")
    raise LookupError(f"no order with {product}")


def _sample_latest_with_status(data: Data, rng: random.Random) -> TaskInstance | None:
    status = rng.choice(("Complete", "Cancelled", "Refunded", "Processing", "Pending", "Shipped"))
    sql = f"SELECT max(id) FROM purchase WHERE customer_id = {AGENT_USER_ID} AND status = ?"
    (number,) = data["shop"].execute(sql, [status]).fetchone()
    url = f"{SHOP}/account/orders/{number}"
    return TaskInstance({"status": status.lower()}, url_equals(url)) if number else None


@tasks.add(
    "latest-with-status",
    _sample_latest_with_status,
    "Show me my most recent {status} order.",
    "Open the page of my latest {status} order.",
    "Go to my newest order that is {status}",
    "Find the most recent of my {status} orders and open it.",
    "Bring up the last order of mine with the status {status}.",
)
def latest_with_status(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_orders(page)
    while True:
        matches = [row for row in parse_order_rows(page) if row[4].lower() == slots["status"]]
        if matches:
            break
        page = yield from click(page, "Next", "link", reason="None on this page has this status")
    yield from click(page, matches[0][1], "link", reason="It is the newest with this status")
    yield from finish()
