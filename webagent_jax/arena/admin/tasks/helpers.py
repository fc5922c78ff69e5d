"""Sampling and navigation helpers for the tasks of the back office."""

from __future__ import annotations

import calendar
import datetime
import random
import re
from collections.abc import Generator, Sequence
from typing import Any

from webagent_jax.arena.task import Data, EvalSpec, page_equals, sample_row
from webagent_jax.expert_steps import (
    Moves,
    click,
    page_text,
    scroll_through,
    search,
    select_option,
    type_text,
)
from webagent_jax.types import Decision, Observation

ADMIN = "__SHOPPING_ADMIN__"

ORDER_ROW = (
    r"(\d{6}) ([A-Z][a-z]{2} \d+, \d{4}) ([^$\d]+) \$([\d,.]+)"
    r" (Pending|Processing|On Hold|Shipped|Complete|Cancelled|Refunded)"
)
"""Pattern of a row in the list of orders: number, date, customer, total, status."""

CUSTOMER_ORDER_ROW = (
    r"(\d{6}) ([A-Z][a-z]{2} \d+, \d{4}) \$([\d,.]+)"
    r" (Pending|Processing|On Hold|Shipped|Complete|Cancelled|Refunded)"
)
"""Pattern of an order on the page of a customer: number, date, total, status."""


# --- sampling ------------------------------------------------------------------------------------


def sample_order(data: Data, rng: random.Random, where: str = "1") -> Any:
    """Return a random order that meets the SQL condition `where`; None without one."""
    return sample_row(
        rng, data["shop"].execute(f"SELECT * FROM purchase WHERE {where} ORDER BY id").fetchall()
    )


def sample_product(data: Data, rng: random.Random, where: str = "1") -> Any:
    """Return a random product; None if it does not meet the SQL condition `where`."""
    sql = f"SELECT * FROM product WHERE id = ? AND {where}"
    return data["shop"].execute(sql, [rng.randint(1, 2000)]).fetchone()


def sample_customer(data: Data, rng: random.Random, where: str = "1") -> Any:
    """Return a random customer that meets the SQL condition `where`; None without one.

    The row has the full "name", and the default address and the note if they exist.
    """
    sql = (
        "SELECT customer.*, first || ' ' || last AS name, street, city, body AS note FROM customer"
        " LEFT JOIN address ON address.customer_id = customer.id AND is_default"
        " LEFT JOIN customer_note ON customer_note.customer_id = customer.id"
        f" WHERE customer.id > 1 AND {where} ORDER BY customer.id"
    )
    return sample_row(rng, data["shop"].execute(sql).fetchall())


MONTHS = tuple(f"{year}-{month:02}" for year in (2022, 2023) for month in range(1, 13))[:17]
"""Months of the data that are complete."""

LONG_PERIODS = (
    *(f"the {quarter} quarter of 2022" for quarter in ("first", "second", "third", "fourth")),
    "the first quarter of 2023",
    "the first half of 2022",
    "the second half of 2022",
    "2022",
)
"""Periods of more than a month."""

_ORDINALS = ("first", "second", "third", "fourth")


def sample_month(rng: random.Random) -> str:
    """Return the name of a random complete month: January 2023."""
    return month_name(rng.choice(MONTHS))


def month_name(month: str, date_format: str = "%B %Y") -> str:
    """Return the name of a month: 2023-01 gives January 2023."""
    return f"{datetime.date.fromisoformat(month + '-01'):{date_format}}"


def first_and_last_day(period: str) -> tuple[str, str]:
    """Return the first and the last day of Jan 2023, the first quarter of 2023, or 2022."""
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


def period_condition(column: str = "placed") -> str:
    """Return SQL that selects a period; its placeholders are the first and the last day."""
    return f"{column} >= ? AND {column} < date(?, '+1 day')"


def product_field_equals(sku: str, column: int, text: str) -> EvalSpec:
    """Require a text in a column of a product's row: 1 name, 2 SKU, 3 price, 4 stock, 5 status."""
    return page_equals(f"{ADMIN}/products?q={sku}", f"td:nth-child({column})", text)


# --- navigation ----------------------------------------------------------------------------------


def find_orders(page: Observation, query: str) -> Moves:
    """Open the list of orders that match a query."""
    page = yield from click(
        page, "Orders", "link", intent_phrase="", reason="The list of orders has them all"
    )
    return (yield from search(page, "Number or name", query))


def go_to_order(page: Observation, number: str) -> Moves:
    """Open an order."""
    page = yield from find_orders(page, number)
    return (yield from click(page, number, "link", reason="Here it is, so I open it"))


def go_to_customer(page: Observation, name: str) -> Moves:
    """Open the page of a customer."""
    page = yield from click(
        page, "Customers", "link", intent_phrase="", reason="Customers have a list"
    )
    page = yield from search(page, "Name, email or phone", name)
    return (yield from click(page, name, "link", reason="Here they are, so I open their page"))


def go_to_product(page: Observation, name: str) -> Moves:
    """Open the page of a product."""
    page = yield from click(
        page, "Products", "link", intent_phrase="", reason="Products are edited there"
    )
    page = yield from search(page, "Name or SKU", name)
    return (yield from click(page, name, "link", reason="It was found, so I open it"))


def save_product(page: Observation) -> Moves:
    """Save the form of a product."""
    return (yield from click(page, "Save Product", "button", intent_phrase=""))


def go_to_report(page: Observation, report: str, reason: str) -> Moves:
    """Open a report; `reason` is the reason in the thought."""
    page = yield from click(
        page, "Reports", "link", intent_phrase="", reason="This is told by a report"
    )
    return (yield from click(page, report, "link", intent_phrase="", reason=reason))


def submit_report_form(page: Observation, days: Sequence[str], interval: str = "") -> Moves:
    """Fill in the days of a report, and the interval unless it is "", and show the report."""
    if interval and field_value(page, "Period") != interval:
        page = yield from select_option(page, "Period", interval, intent_phrase="")
    page = yield from type_text(page, "From", days[0], reason="That is the first day")
    page = yield from type_text(page, "To", days[1], reason="That is the last day")
    return (yield from click(page, "Show Report", "button", intent_phrase=""))


def field_value(page: Observation, name: str) -> str:
    """Return the value of a field; "" without such a field."""
    return next((element.value for element in page.elements.values() if element.name == name), "")


def find_rows(
    page: Observation, pattern: str
) -> Generator[Decision, Observation, tuple[Observation, list[re.Match[str]]]]:
    """Scroll to the end; return the page and all matches of the pattern, without duplicates."""
    page, views = yield from scroll_through(page)
    matches = {match[0]: match for view in views for match in re.finditer(pattern, page_text(view))}
    return page, list(matches.values())
