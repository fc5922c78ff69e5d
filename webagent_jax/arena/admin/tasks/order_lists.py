"""Questions about orders by status, month, total or customer, and lists to open."""

from __future__ import annotations

import random

from webagent_jax.arena.admin.orders import SORTS
from webagent_jax.arena.admin.tasks.helpers import (
    ADMIN,
    CUSTOMER_ORDER_ROW,
    ORDER_ROW,
    find_rows,
    first_and_last_day,
    go_to_customer,
    period_condition,
    sample_customer,
    sample_month,
)
from webagent_jax.arena.shop.policies import STATUSES
from webagent_jax.arena.shop.tasks.helpers import dollar_formats
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    date_formats,
    url_equals,
)
from webagent_jax.expert_steps import (
    answer,
    click,
    extract_text,
    finish,
    select_option,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")


def _sample_count_orders(data: Data, rng: random.Random) -> TaskInstance | None:
    month, status = sample_month(rng), rng.choice(("Complete", "Cancelled", "Refunded"))
    sql = f"SELECT count(*) FROM purchase WHERE status = ? AND {period_condition()}"
    (count,) = data["shop"].execute(sql, [status, *first_and_last_day(month)]).fetchone()
    slots = {"status": status.lower(), "month": month}
    return TaskInstance(slots, answer_includes(str(count))) if count > 1 else None


@tasks.add(
    "count-orders",
    _sample_count_orders,
    "How many orders placed in {month} are {status}?",
    "Count the {status} orders from {month}.",
    "Of the orders placed in {month}, how many have the status {status}?",
    "Tell me the number of {status} orders that were placed in {month}",
    "How many {status} orders does {month} have?",
)
def count_orders(slots: Slots, page: Observation) -> Expert:
    page = yield from click(
        page, "Orders", "link", intent_phrase="", reason="The list can be narrowed"
    )
    page = yield from select_option(
        page, "Status", slots["status"].capitalize(), intent_phrase=slots["status"]
    )
    first, last = first_and_last_day(slots["month"])
    page = yield from type_text(page, "From", first, reason="The month begins then")
    page = yield from type_text(page, "To", last, reason="The month ends then")
    page = yield from click(page, "Filter", "button", intent_phrase="")
    count = extract_text(page, r"of ([\d,]+) orders?")
    yield from answer(count, reason="The list counts them")


def _sample_largest_order(data: Data, rng: random.Random) -> TaskInstance | None:
    month, end = sample_month(rng), rng.choice(("highest", "lowest"))
    order = "DESC" if end == "highest" else "ASC"
    sql = f"SELECT name, total FROM purchase WHERE {period_condition()} ORDER BY total {order}"
    first, second = data["shop"].execute(sql, first_and_last_day(month)).fetchmany(2)
    if first["total"] == second["total"]:
        return None
    spec = answer_includes(first["name"], dollar_formats(first["total"]))
    return TaskInstance({"end": end, "month": month}, spec)


@tasks.add(
    "largest-order",
    _sample_largest_order,
    "Who placed the order with the {end} total of {month}, and what was the total?",
    "Of all orders of {month}, which customer's has the {end} total? Tell me the total as well.",
    "Find the order of {month} with the {end} total: customer and total, please.",
    "Name the customer and the amount of the order with the {end} total in {month}",
    "Whatever its status, which order from {month} has the {end} total? Give customer and total.",
)
def largest_order(slots: Slots, page: Observation) -> Expert:
    page = yield from click(
        page, "Orders", "link", intent_phrase="", reason="The list can be narrowed"
    )
    first, last = first_and_last_day(slots["month"])
    page = yield from type_text(page, "From", first, reason="The month begins then")
    page = yield from type_text(page, "To", last, reason="The month ends then")
    page = yield from click(page, "Filter", "button", intent_phrase="")
    option = f"{slots['end'].capitalize()} total first"
    page = yield from select_option(page, "Sort by", option, intent_phrase=slots["end"])
    page, rows = yield from find_rows(page, ORDER_ROW)
    yield from answer(f"{rows[0][3]}, ${rows[0][4]}", evidence=rows[0][1], reason="It comes first")


def _sample_latest_order(data: Data, rng: random.Random) -> TaskInstance | None:
    customer, fact = sample_customer(data, rng), rng.choice(("date", "total", "status"))
    sql = "SELECT * FROM purchase WHERE customer_id = ? ORDER BY id DESC"
    order = data["shop"].execute(sql, [customer["id"]]).fetchone()
    if order is None:
        return None
    value = {
        "date": date_formats(order["placed"]),
        "total": dollar_formats(order["total"]),
        "status": order["status"],
    }[fact]
    spec = answer_includes(value, excluding=STATUSES if fact == "status" else ())
    return TaskInstance({"fact": fact, "customer": customer["name"]}, spec)


@tasks.add(
    "latest-order",
    _sample_latest_order,
    "What is the {fact} of the latest order of {customer}?",
    "Tell me the {fact} of the most recent order that {customer} placed.",
    "{customer} is on the phone about the last order. What is its {fact}?",
    "Give me the {fact} of the newest order by {customer}",
    "Look up {customer}: what is the {fact} of the latest order?",
)
def latest_order(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_customer(page, slots["customer"])
    page, rows = yield from find_rows(page, CUSTOMER_ORDER_ROW)
    _, date, total, status = rows[0].groups()
    text = {"date": date, "total": f"${total}", "status": status}[slots["fact"]]
    yield from answer(text, evidence=rows[0][1], reason="The newest order comes first")


def _sample_open_latest_order(data: Data, rng: random.Random) -> TaskInstance | None:
    customer = sample_customer(data, rng)
    sql = "SELECT max(id) FROM purchase WHERE customer_id = ?"
    (number,) = data["shop"].execute(sql, [customer["id"]]).fetchone()
    url = f"{ADMIN}/orders/{number}"
    return TaskInstance({"customer": customer["name"]}, url_equals(url)) if number else None


@tasks.add(
    "open-latest-order",
    _sample_open_latest_order,
    "Open the latest order of {customer}.",
    "Show me the most recent order that {customer} placed.",
    "Go to the newest order of the customer {customer}",
    "Bring up what {customer} ordered last; leave the order open.",
    "I want to see the last order by {customer}.",
)
def open_latest_order(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_customer(page, slots["customer"])
    page, rows = yield from find_rows(page, CUSTOMER_ORDER_ROW)
    yield from click(
        page, rows[0][1], "link", intent_phrase="", reason="The newest order comes first"
    )
    yield from finish("The order is open")


_ORDERS = {"newest first": "", **{SORTS[key][0].lower(): key for key in SORTS if key}}


def _sample_list_orders(data: Data, rng: random.Random) -> TaskInstance | None:
    status, order = (
        rng.choice([name for name in STATUSES if name != "On Hold"]),
        rng.choice(list(_ORDERS)),
    )
    query = f"status={status}" + (f"&sort={_ORDERS[order]}" if _ORDERS[order] else "")
    slots = {"status": status.lower(), "order": order}
    return TaskInstance(slots, url_equals(f"{ADMIN}/orders?{query}"))


@tasks.add(
    "list-orders",
    _sample_list_orders,
    "List all orders that are {status}, {order}.",
    "Show me the orders with the status {status}, {order}.",
    "Filter the orders by the status {status} and sort them {order}",
    "I want to see every order that is {status}, in this order: {order}",
    "Bring up the {status} orders, {order}, and leave the list open.",
)
def list_orders(slots: Slots, page: Observation) -> Expert:
    page = yield from click(
        page, "Orders", "link", intent_phrase="", reason="The list can be narrowed"
    )
    status = next(name for name in STATUSES if name.lower() == slots["status"])
    page = yield from select_option(page, "Status", status, intent_phrase=slots["status"])
    page = yield from click(page, "Filter", "button", intent_phrase="")
    if _ORDERS[slots["order"]]:
        option = SORTS[_ORDERS[slots["order"]]][0]
        page = yield from select_option(page, "Sort by", option, intent_phrase=slots["order"])
    yield from finish("The orders are listed")
