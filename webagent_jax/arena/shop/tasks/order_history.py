"""Questions about my orders by when they were made and what is in them, and orders to find."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Mapping
from typing import Any

from webagent_jax.arena.expert_steps import Moves, answer, click, done, found, go_back, has, names
from webagent_jax.arena.shop.tasks.helpers import (
    ME,
    SHOP,
    an_order,
    cents,
    dollars,
    order_rows,
    to_orders,
)
from webagent_jax.arena.task import Data, Instance, Templates, answers, dates, ends_at
from webagent_jax.types import Expert, Observation

tasks = Templates("shop", "shopping")

Slots = Mapping[str, str]


_PLACES = {"latest": 0, "second latest": 1, "third latest": 2, "fourth latest": 3}
_FACTS = {"number": "id", "date": "placed", "total": "total", "status": "status"}


def _written(fact: str, value: Any) -> str:
    """The reference for a fact of an order."""
    match fact:
        case "date":
            return dates(value)
        case "total":
            return dollars(value)
    return str(value)


def _recent_order(data: Data, rng: random.Random) -> Instance | None:
    place, fact = rng.choice(list(_PLACES)), rng.choice(list(_FACTS))
    sql = f"SELECT * FROM purchase WHERE customer_id = {ME} ORDER BY id DESC LIMIT 4"
    value = data["shop"].execute(sql).fetchall()[_PLACES[place]][_FACTS[fact]]
    return Instance({"place": place, "fact": fact}, answers(_written(fact, value)))


@tasks.add(
    "recent-order",
    _recent_order,
    "What is the {fact} of my {place} order?",
    "Tell me the {fact} of my {place} order.",
    "Look at my {place} order: what is its {fact}?",
    "I need the {fact} of the {place} order I placed",
    "Find my {place} order and give me its {fact}.",
)
def recent_order(slots: Slots, page: Observation) -> Expert:
    page = yield from to_orders(page)
    row = order_rows(page)[_PLACES[slots["place"]]]
    yield from answer(_fact(row, slots["fact"]), seen=row[0], why="The newest orders come first")


def _first_order(data: Data, rng: random.Random) -> Instance | None:
    fact = rng.choice(list(_FACTS))
    sql = f"SELECT * FROM purchase WHERE customer_id = {ME} ORDER BY id LIMIT 1"
    value = data["shop"].execute(sql).fetchone()[_FACTS[fact]]
    return Instance({"fact": fact}, answers(_written(fact, value)))


@tasks.add(
    "first-order",
    _first_order,
    "What is the {fact} of the very first order I made here?",
    "Tell me the {fact} of my first order at Marigold.",
    "Look up the oldest order in my account and give me its {fact}.",
    "What was the {fact} of my first purchase on this site?",
    "I would like to know the {fact} of my oldest order",
)
def first_order(slots: Slots, page: Observation) -> Expert:
    page = yield from to_orders(page)
    while has(page, "Next", "link"):
        page = yield from click(page, "Next", "link", why="The first order is on the last page")
    row = order_rows(page)[-1]
    yield from answer(
        _fact(row, slots["fact"]), seen=row[0], why="The last row is the oldest order"
    )


def _fact(row: re.Match[str], fact: str) -> str:
    number, date, total, status = row.groups()
    return {"number": number, "date": date, "total": f"${total}", "status": status}[fact]


def _month(data: Data, rng: random.Random) -> tuple[str, list[tuple[int, str]]] | None:
    """A month, and total and status of my orders of it; none of them refunded."""
    order = an_order(data, rng)
    sql = f"SELECT total, status FROM purchase WHERE customer_id = {ME} AND placed LIKE ?"
    rows = [tuple(row) for row in data["shop"].execute(sql, [f"{order['placed'][:7]}-%"])]
    month = f"{datetime.date.fromisoformat(order['placed'][:10]):%B %Y}"
    return None if any(status == "Refunded" for _, status in rows) else (month, rows)


def _spent(data: Data, rng: random.Random) -> Instance | None:
    drawn = _month(data, rng)
    if drawn is None:
        return None
    total = sum(total for total, status in drawn[1] if status != "Cancelled")
    return Instance({"month": drawn[0]}, answers(dollars(total))) if total else None


@tasks.add(
    "spent-in-month",
    _spent,
    "How much did I spend at Marigold in {month}? Cancelled orders do not count.",
    "What is the sum of all orders I placed in {month}, without cancelled ones?",
    "Add up the totals of my orders from {month}, leaving out those that were cancelled.",
    "Tell me how much money I spent here in {month} (not counting cancelled orders)",
    "For my budget: what did my orders of {month} cost altogether, cancelled ones left out?",
)
def spent_in_month(slots: Slots, page: Observation) -> Expert:
    page = yield from to_orders(page)
    totals: list[int] = []
    month = datetime.datetime.strptime(slots["month"], "%B %Y")
    while True:
        rows = order_rows(page)
        ordered = [(datetime.datetime.strptime(row[2], "%b %d, %Y"), row) for row in rows]
        of_month = [
            row for date, row in ordered if (date.year, date.month) == (month.year, month.month)
        ]
        totals += [cents(row[3]) for row in of_month if row[4] != "Cancelled"]
        if ordered[-1][0] < month or not has(page, "Next", "link"):
            break
        page = yield from click(page, "Next", "link", why=f"Older orders of {slots['month']}")
    sums = " + ".join(dollars(total) for total in totals)
    text = f"${dollars(sum(totals))}"
    yield from answer(text, seen=sums, why="These are the orders of the month")


def _count(data: Data, rng: random.Random) -> Instance | None:
    order = an_order(data, rng)
    month = f"{datetime.date.fromisoformat(order['placed'][:10]):%B %Y}"
    sql = f"SELECT count(*) FROM purchase WHERE customer_id = {ME} AND placed LIKE ?"
    (count,) = data["shop"].execute(sql, [f"{order['placed'][:7]}-%"]).fetchone()
    return Instance({"month": month}, answers(str(count)))


@tasks.add(
    "orders-in-month",
    _count,
    "How many orders did I place in {month}?",
    "Tell me the number of orders I made in {month}.",
    "Count my orders from {month}, whatever became of them.",
    "In {month}, how often did I order something at Marigold?",
    "How many times did I order here in {month}?",
)
def orders_in_month(slots: Slots, page: Observation) -> Expert:
    page = yield from to_orders(page)
    month = datetime.datetime.strptime(slots["month"], "%B %Y")
    counted: list[str] = []
    while True:
        rows = order_rows(page)
        ordered = [(datetime.datetime.strptime(row[2], "%b %d, %Y"), row[1]) for row in rows]
        counted += [
            n for date, n in ordered if (date.year, date.month) == (month.year, month.month)
        ]
        if ordered[-1][0] < month or not has(page, "Next", "link"):
            break
        page = yield from click(page, "Next", "link", why=f"Older orders of {slots['month']}")
    yield from answer(str(len(counted)), seen=", ".join(counted), why="I count them")


# --- the order that holds a product --------------------------------------------------------------


def _ordered_product(data: Data, rng: random.Random) -> tuple[str, str, str] | None:
    """A product of one of my latest six orders and of no other: name, number, moment."""
    sql = (
        "SELECT product.name, purchase.id, placed FROM purchase"
        " JOIN purchase_item ON purchase_id = purchase.id"
        f" JOIN product ON product.id = product_id WHERE customer_id = {ME} ORDER BY purchase.id "
        f"DESC"
    )
    rows = [tuple(row) for row in data["shop"].execute(sql)]
    latest = list(dict.fromkeys(number for _, number, _ in rows))[:6]
    product, number, placed = rng.choice([row for row in rows if row[1] in latest])
    if sum(row[0] == product for row in rows) > 1:
        return None
    return product, str(number), placed


def _ordered_when(data: Data, rng: random.Random) -> Instance | None:
    drawn = _ordered_product(data, rng)
    return drawn and Instance({"product": drawn[0]}, answers(dates(drawn[2])))


@tasks.add(
    "ordered-when",
    _ordered_when,
    "When did I order the {product}?",
    "On which day did I buy the {product}? It was one of my latest orders.",
    "Tell me the date of the order with the {product}.",
    "I bought a {product} not long ago. What was the date of that order?",
    "Find out when I last ordered my {product}",
)
def ordered_when(slots: Slots, page: Observation) -> Expert:
    page = yield from _to_order_with(slots["product"], page)
    date = found(page, r"Placed ([A-Z][a-z]{2} \d+, \d{4})")
    yield from answer(date, seen="Placed", why=f"This order holds the {slots['product']}")


def _order_page(data: Data, rng: random.Random) -> Instance | None:
    drawn = _ordered_product(data, rng)
    return drawn and Instance({"product": drawn[0]}, ends_at(f"{SHOP}/account/orders/{drawn[1]}"))


@tasks.add(
    "order-with-product",
    _order_page,
    "Open the order in which I bought the {product}.",
    "Show me the order with the {product}; it is one of my latest.",
    "Go to the page of the order that contains the {product}",
    "I recently ordered a {product}. Bring up that order.",
    "Find the order that has the {product} in it and leave it open.",
)
def order_with_product(slots: Slots, page: Observation) -> Expert:
    yield from _to_order_with(slots["product"], page)
    yield from done(f"This order holds the {slots['product']}")


def _to_order_with(product: str, page: Observation) -> Moves:
    page = yield from to_orders(page)
    for row in order_rows(page):
        page = yield from click(page, row[1], "link", why=f"It may hold the {product}")
        if product in names(page, "link"):
            return page
        page = yield from go_back(f"There is no {product} in it, so I look at the next one")
    raise LookupError(f"no order with {product}")


def _status_order(data: Data, rng: random.Random) -> Instance | None:
    status = rng.choice(("Complete", "Cancelled", "Refunded", "Processing", "Pending", "Shipped"))
    sql = f"SELECT max(id) FROM purchase WHERE customer_id = {ME} AND status = ?"
    (number,) = data["shop"].execute(sql, [status]).fetchone()
    url = f"{SHOP}/account/orders/{number}"
    return Instance({"status": status.lower()}, ends_at(url)) if number else None


@tasks.add(
    "latest-with-status",
    _status_order,
    "Show me my most recent {status} order.",
    "Open the page of my latest {status} order.",
    "Go to my newest order that is {status}",
    "Find the most recent of my {status} orders and open it.",
    "Bring up the last order of mine with the status {status}.",
)
def latest_with_status(slots: Slots, page: Observation) -> Expert:
    page = yield from to_orders(page)
    while True:
        fitting = [row for row in order_rows(page) if row[4].lower() == slots["status"]]
        if fitting:
            break
        page = yield from click(page, "Next", "link", why="None on this page has this status")
    yield from click(page, fitting[0][1], "link", why="It is the newest with this status")
    yield from done()
