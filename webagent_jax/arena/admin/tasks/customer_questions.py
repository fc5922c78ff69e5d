"""Questions about customers."""

from __future__ import annotations

import random

from webagent_jax.arena import common
from webagent_jax.arena.admin.customers import GROUPS
from webagent_jax.arena.admin.tasks.helpers import go_to_customer, sample_customer
from webagent_jax.arena.shop.data import NUM_CUSTOMERS
from webagent_jax.arena.shop.tasks.helpers import dollar_formats, format_dollars, parse_cents
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    date_formats,
    unachievable,
)
from webagent_jax.expert_steps import (
    answer,
    click,
    element_names_after,
    extract_text,
    give_up,
    scroll_until,
    search,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")

_FACTS = {
    "email address": r"(\S+@\S+\.example)",
    "phone number": r"(555-\d{3}-\d{4})",
    "lifetime sales": r"(\$[\d,.]+) lifetime sales",
    "number of orders": r" (\d+) orders",
    "town": r"\d{3}-\d{4} \d+ [^,]+, ([A-Z][A-Za-z ]+) \d{5}",
    "customer group": r"(General|Wholesale|Retailer) group",
    "day of registration": r"customer since ([A-Z][a-z]{2} \d+, \d{4})",
}
"""Facts on the page of a customer, and their patterns."""


def _order_totals(data: Data, customer: int) -> tuple[int, int]:
    """Return the number of orders, and the cents spent on those that were not canceled."""
    sql = (
        "SELECT count(*), coalesce(sum(total) FILTER (WHERE status != 'Cancelled'), 0)"
        " FROM purchase WHERE customer_id = ?"
    )
    orders, total_cents = data["shop"].execute(sql, [customer]).fetchone()
    return orders, total_cents


def _sample_customer_fact(data: Data, rng: random.Random) -> TaskInstance | None:
    customer, fact = sample_customer(data, rng), rng.choice(list(_FACTS))
    orders, total_cents = _order_totals(data, customer["id"])
    value = {
        "email address": customer["email"],
        "phone number": customer["phone"],
        "lifetime sales": dollar_formats(total_cents),
        "number of orders": str(orders),
        "town": customer["city"],
        "customer group": customer["customer_group"],
        "day of registration": date_formats(customer["joined"]),
    }[fact]
    spec = answer_includes(value, excluding=GROUPS if fact == "customer group" else ())
    return TaskInstance({"fact": fact, "customer": customer["name"]}, spec)


_CUSTOMER_FACT = (
    "What is the {fact} of our customer {customer}?",
    "Tell me the {fact} of {customer}.",
    "Look up the customer {customer} and give me the {fact}.",
    "I need the {fact} of {customer} from the customer list",
    "Find {customer} among the customers. What is the {fact}?",
)


@tasks.add("customer-fact", _sample_customer_fact, *_CUSTOMER_FACT)
def customer_fact(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_customer(page, slots["customer"])
    page, match = yield from scroll_until(page, _FACTS[slots["fact"]])
    assert match is not None
    yield from answer(match[1], reason="Their page tells it")


def _sample_caller(data: Data, rng: random.Random) -> TaskInstance | None:
    customer = sample_customer(data, rng)
    orders, _ = _order_totals(data, customer["id"])
    spec = answer_includes(customer["name"], str(orders))
    return TaskInstance({"phone": customer["phone"]}, spec) if orders else None


@tasks.add(
    "caller",
    _sample_caller,
    "Somebody called from {phone}. Which customer is that, and how many orders did they place?",
    "Who has the phone number {phone}, and how many orders are on that account?",
    "Find the customer with the phone number {phone}; tell me the name and the number of orders.",
    "Give me name and number of orders of the customer whose phone number is {phone}",
    "The number {phone} is on the display. Name the customer and count their orders.",
)
def caller(slots: Slots, page: Observation) -> Expert:
    page = yield from click(
        page, "Customers", "link", intent_phrase="", reason="Customers have a list"
    )
    page = yield from search(page, "Name, email or phone", slots["phone"])
    name = element_names_after(page, "Sort by", "link")[0]
    page = yield from click(page, name, "link", intent_phrase="", reason="It is the only one found")
    count = extract_text(page, _FACTS["number of orders"])
    yield from answer(f"{name}, {count} orders", reason="Their page tells it")


def _sample_no_such_customer(data: Data, rng: random.Random) -> TaskInstance | None:
    """Sample a person who is not a customer of the shop."""
    person = rng.choice(common.persons()[NUM_CUSTOMERS:])
    fact = rng.choice(("phone number", "email address", "customer group", "town"))
    slots = {"customer": person.name, "fact": fact}
    return TaskInstance(slots, unachievable("there is no such customer"))


@tasks.add("no-such-customer", _sample_no_such_customer, *_CUSTOMER_FACT)
def no_such_customer(slots: Slots, page: Observation) -> Expert:
    page = yield from click(
        page, "Customers", "link", intent_phrase="", reason="Customers have a list"
    )
    yield from search(page, "Name, email or phone", slots["customer"])
    yield from give_up(f"no customer {slots['customer']} is found")


def _sample_compare_customers(data: Data, rng: random.Random) -> TaskInstance | None:
    a, b = sample_customer(data, rng), sample_customer(data, rng)
    (_, first), (_, second) = (_order_totals(data, customer["id"]) for customer in (a, b))
    if first == second:
        return None
    spec = answer_includes(dollar_formats(abs(first - second)))
    return TaskInstance({"a": a["name"], "b": b["name"]}, spec)


@tasks.add(
    "compare-customers",
    _sample_compare_customers,
    "What is the difference between the lifetime sales of {a} and those of {b}?",
    "By how many dollars do the lifetime sales of {a} and {b} differ?",
    "Compare the lifetime sales of {a} and {b}: how far are they apart?",
    "Look up {a} and {b} and tell me the difference of their lifetime sales",
    "How much lies between {a} and {b} in lifetime sales? Give the amount.",
)
def compare_customers(slots: Slots, page: Observation) -> Expert:
    sales = []
    for name in (slots["a"], slots["b"]):
        page = yield from go_to_customer(page, name)
        sales.append(parse_cents(extract_text(page, r"\$([\d,.]+) lifetime sales")))
    text = f"${format_dollars(abs(sales[0] - sales[1]))}"
    sums = " and ".join(format_dollars(amount) for amount in sales)
    yield from answer(text, evidence=sums, reason="I take the difference")
