"""How one gets about in the back office, and what tasks of it are drawn from."""

from __future__ import annotations

import calendar
import datetime
import random
import re
from collections.abc import Generator, Sequence
from typing import Any

from webagent_jax.arena.expert_steps import Moves, choose, click, flat, read_all, search, type_text
from webagent_jax.arena.task import Data, Spec, page_is, pick
from webagent_jax.types import Decision, Observation

ADMIN = "__SHOPPING_ADMIN__"

ORDER_ROW = (
    r"(\d{6}) ([A-Z][a-z]{2} \d+, \d{4}) ([^$\d]+) \$([\d,.]+)"
    r" (Pending|Processing|On Hold|Shipped|Complete|Cancelled|Refunded)"
)
"""Of the list of orders: number, date, customer, total, status."""

OWN_ORDER_ROW = (
    r"(\d{6}) ([A-Z][a-z]{2} \d+, \d{4}) \$([\d,.]+)"
    r" (Pending|Processing|On Hold|Shipped|Complete|Cancelled|Refunded)"
)
"""Of the page of a customer: number, date, total, status."""


# --- drawing -------------------------------------------------------------------------------------


def an_order(data: Data, rng: random.Random, where: str = "1") -> Any:
    return pick(
        rng, data["shop"].execute(f"SELECT * FROM purchase WHERE {where} ORDER BY id").fetchall()
    )


def a_product(data: Data, rng: random.Random, where: str = "1") -> Any:
    """None when the drawn one is not as it must be."""
    sql = f"SELECT * FROM product WHERE id = ? AND {where}"
    return data["shop"].execute(sql, [rng.randint(1, 2000)]).fetchone()


def a_customer(data: Data, rng: random.Random, where: str = "1") -> Any:
    """With "name", and address and note where there are such."""
    sql = (
        "SELECT customer.*, first || ' ' || last AS name, street, city, body AS note FROM customer"
        " LEFT JOIN address ON address.customer_id = customer.id AND is_default"
        " LEFT JOIN customer_note ON customer_note.customer_id = customer.id"
        f" WHERE customer.id > 1 AND {where} ORDER BY customer.id"
    )
    return pick(rng, data["shop"].execute(sql).fetchall())


MONTHS = tuple(f"{year}-{month:02}" for year in (2022, 2023) for month in range(1, 13))[:17]
"""Those that are over."""

LONGER = (
    *(f"the {quarter} quarter of 2022" for quarter in ("first", "second", "third", "fourth")),
    "the first quarter of 2023",
    "the first half of 2022",
    "the second half of 2022",
    "2022",
)
"""Periods of more than a month."""

_ORDINALS = ("first", "second", "third", "fourth")


def a_month(rng: random.Random) -> str:
    """January 2023"""
    return month_name(rng.choice(MONTHS))


def month_name(month: str, form: str = "%B %Y") -> str:
    return f"{datetime.date.fromisoformat(month + '-01'):{form}}"


def days_of(period: str) -> tuple[str, str]:
    """First and last day of what is said: Jan 2023, the first quarter of 2023, 2022."""
    *words, year = period.split()
    first, last = 1, 12
    if "quarter" in words:
        last = 3 * _ORDINALS.index(words[1]) + 3
        first = last - 2
    elif "half" in words:
        last = 6 * _ORDINALS.index(words[1]) + 6
        first = last - 5
    elif words:
        first = last = datetime.datetime.strptime(words[0][:3], "%b").month
    end = calendar.monthrange(int(year), last)[1]
    return f"{year}-{first:02}-01", f"{year}-{last:02}-{end}"


def during(column: str = "placed") -> str:
    """SQL for what lies in a period; its question marks stand for `days_of`."""
    return f"{column} >= ? AND {column} < date(?, '+1 day')"


def row_is(sku: str, column: int, text: str) -> Spec:
    """What the list says of a product: 1 name, 3 price, 4 stock, 5 whether it is disabled."""
    return page_is(f"{ADMIN}/products?q={sku}", f"td:nth-child({column})", text)


# --- ways ----------------------------------------------------------------------------------------


def find_orders(page: Observation, asked: str) -> Moves:
    page = yield from click(page, "Orders", "link", about="", why="The list of orders has them all")
    return (yield from search(page, "Number or name", asked))


def to_order(page: Observation, number: str) -> Moves:
    page = yield from find_orders(page, number)
    return (yield from click(page, number, "link", why="Here it is, so I open it"))


def to_customer(page: Observation, name: str) -> Moves:
    page = yield from click(page, "Customers", "link", about="", why="Customers have a list")
    page = yield from search(page, "Name, email or phone", name)
    return (yield from click(page, name, "link", why="Here they are, so I open their page"))


def to_product(page: Observation, name: str) -> Moves:
    page = yield from click(page, "Products", "link", about="", why="Products are edited there")
    page = yield from search(page, "Name or SKU", name)
    return (yield from click(page, name, "link", why="It was found, so I open it"))


def save_product(page: Observation) -> Moves:
    return (yield from click(page, "Save Product", "button", about=""))


def to_report(page: Observation, report: str, why: str) -> Moves:
    page = yield from click(page, "Reports", "link", about="", why="This is told by a report")
    return (yield from click(page, report, "link", about="", why=why))


def between(page: Observation, days: Sequence[str], period: str = "") -> Moves:
    """Fills in the days of a report and shows it."""
    if period and shown(page, "Period") != period:
        page = yield from choose(page, "Period", period, about="")
    page = yield from type_text(page, "From", days[0], why="That is the first day")
    page = yield from type_text(page, "To", days[1], why="That is the last day")
    return (yield from click(page, "Show Report", "button", about=""))


def shown(page: Observation, name: str) -> str:
    """The value of a field."""
    return next((each.value for each in page.elements.values() if each.name == name), "")


def rows_of(
    page: Observation, pattern: str
) -> Generator[Decision, Observation, tuple[Observation, list[re.Match[str]]]]:
    """All rows of the page that are like the pattern, each once."""
    page, views = yield from read_all(page)
    found = {m[0]: m for view in views for m in re.finditer(pattern, flat(view))}
    return page, list(found.values())
