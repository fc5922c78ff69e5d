"""Questions about customers."""

from __future__ import annotations

import random
from collections.abc import Mapping

from webagent_jax.arena import common
from webagent_jax.arena.admin.tasks.helpers import a_customer, to_customer
from webagent_jax.arena.expert_steps import (
    answer,
    click,
    found,
    give_up,
    names_after,
    read_on,
    search,
)
from webagent_jax.arena.shop.data import CUSTOMERS
from webagent_jax.arena.shop.tasks.helpers import cents, dollars
from webagent_jax.arena.task import Data, Instance, Templates, answers, dates, unachievable
from webagent_jax.types import Expert, Observation

tasks = Templates("admin", "shopping_admin")

Slots = Mapping[str, str]


# --- questions -----------------------------------------------------------------------------------

_FACTS = {
    "email address": r"(\S+@\S+\.example)",
    "phone number": r"(555-\d{3}-\d{4})",
    "lifetime sales": r"(\$[\d,.]+) lifetime sales",
    "number of orders": r" (\d+) orders",
    "town": r"\d{3}-\d{4} \d+ [^,]+, ([A-Z][A-Za-z ]+) \d{5}",
    "customer group": r"(General|Wholesale|Retailer) group",
    "day of registration": r"customer since ([A-Z][a-z]{2} \d+, \d{4})",
}
"""What the page of a customer tells, and how it is written there."""


def _bought(data: Data, customer: int) -> tuple[int, int]:
    """Orders, and cents spent on those that were not cancelled."""
    sql = (
        "SELECT count(*), coalesce(sum(total) FILTER (WHERE status != 'Cancelled'), 0)"
        " FROM purchase WHERE customer_id = ?"
    )
    orders, spent = data["shop"].execute(sql, [customer]).fetchone()
    return orders, spent


def _fact(data: Data, rng: random.Random) -> Instance | None:
    customer, fact = a_customer(data, rng), rng.choice(list(_FACTS))
    orders, spent = _bought(data, customer["id"])
    value = {
        "email address": customer["email"],
        "phone number": customer["phone"],
        "lifetime sales": dollars(spent),
        "number of orders": str(orders),
        "town": customer["city"],
        "customer group": customer["customer_group"],
        "day of registration": dates(customer["joined"]),
    }[fact]
    return Instance({"fact": fact, "customer": customer["name"]}, answers(value))


_CUSTOMER_FACT = (
    "What is the {fact} of our customer {customer}?",
    "Tell me the {fact} of {customer}.",
    "Look up the customer {customer} and give me the {fact}.",
    "I need the {fact} of {customer} from the customer list",
    "Find {customer} among the customers. What is the {fact}?",
)


@tasks.add("customer-fact", _fact, *_CUSTOMER_FACT)
def customer_fact(slots: Slots, page: Observation) -> Expert:
    page = yield from to_customer(page, slots["customer"])
    page, match = yield from read_on(page, _FACTS[slots["fact"]])
    assert match is not None
    yield from answer(match[1], why="Their page tells it")


def _caller(data: Data, rng: random.Random) -> Instance | None:
    customer = a_customer(data, rng)
    orders, _ = _bought(data, customer["id"])
    wanted = answers(customer["name"], str(orders))
    return Instance({"phone": customer["phone"]}, wanted) if orders else None


@tasks.add(
    "caller",
    _caller,
    "Somebody called from {phone}. Which customer is that, and how many orders did they place?",
    "Who has the phone number {phone}, and how many orders are on that account?",
    "Find the customer with the phone number {phone}; tell me the name and the number of orders.",
    "Give me name and number of orders of the customer whose phone number is {phone}",
    "The number {phone} is on the display. Name the customer and count their orders.",
)
def caller(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Customers", "link", about="", why="Customers have a list")
    page = yield from search(page, "Name, email or phone", slots["phone"])
    name = names_after(page, "Sort by", "link")[0]
    page = yield from click(page, name, "link", about="", why="It is the only one found")
    count = found(page, _FACTS["number of orders"])
    yield from answer(f"{name}, {count} orders", why="Their page tells it")


def _unknown(data: Data, rng: random.Random) -> Instance | None:
    """Somebody who lives here and is no customer."""
    person = rng.choice(common.persons()[CUSTOMERS:])
    fact = rng.choice(("phone number", "email address", "customer group", "town"))
    slots = {"customer": person.name, "fact": fact}
    return Instance(slots, unachievable("there is no such customer"))


@tasks.add("no-such-customer", _unknown, *_CUSTOMER_FACT)
def no_such_customer(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Customers", "link", about="", why="Customers have a list")
    yield from search(page, "Name, email or phone", slots["customer"])
    yield from give_up(f"no customer {slots['customer']} is found")


def _pair(data: Data, rng: random.Random) -> Instance | None:
    a, b = a_customer(data, rng), a_customer(data, rng)
    (_, first), (_, second) = (_bought(data, each["id"]) for each in (a, b))
    if first == second:
        return None
    wanted = answers(dollars(abs(first - second)))
    return Instance({"a": a["name"], "b": b["name"]}, wanted)


@tasks.add(
    "compare-customers",
    _pair,
    "What is the difference between the lifetime sales of {a} and those of {b}?",
    "By how many dollars do the lifetime sales of {a} and {b} differ?",
    "Compare the lifetime sales of {a} and {b}: how far are they apart?",
    "Look up {a} and {b} and tell me the difference of their lifetime sales",
    "How much lies between {a} and {b} in lifetime sales? Give the amount.",
)
def compare_customers(slots: Slots, page: Observation) -> Expert:
    spent = []
    for name in (slots["a"], slots["b"]):
        page = yield from to_customer(page, name)
        spent.append(cents(found(page, r"\$([\d,.]+) lifetime sales")))
    text = f"${dollars(abs(spent[0] - spent[1]))}"
    sums = " and ".join(dollars(each) for each in spent)
    yield from answer(text, seen=sums, why="I take the difference")
