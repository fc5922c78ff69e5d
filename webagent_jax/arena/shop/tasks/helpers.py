"""Sampling and navigation helpers for the tasks of the shop."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Generator
from typing import Any

from webagent_jax.arena.shop.product_catalog import categories
from webagent_jax.arena.task import Data, sample_row
from webagent_jax.expert_steps import (
    Moves,
    click,
    element_names,
    has_element,
    page_text,
    search,
)
from webagent_jax.types import Decision, Observation

SHOP = "__SHOPPING__"
AGENT_USER_ID = 1  # customer id of the user whose browser the agent controls

ORDER_ROW = r"(\d{6}) ([A-Z][a-z]{2} \d+, \d{4}) \$([\d,.]+) ([A-Z][a-z]+)"
"""Pattern of a row of the user's orders: number, date, total, status."""


# --- sampling ------------------------------------------------------------------------------------


def sample_product(data: Data, rng: random.Random, where: str = "stock > 20") -> Any:
    """Return a random product; None if it does not meet the SQL condition `where`."""
    sql = (
        "SELECT product.*, category.name AS category, category.slug AS category_slug,"
        " department.name AS department FROM product JOIN category ON category.id = category_id"
        f" JOIN department ON department.id = department_id WHERE product.id = ? AND {where}"
    )
    return data["shop"].execute(sql, [rng.randint(1, 2000)]).fetchone()


def sample_category(data: Data, rng: random.Random) -> Any:
    """Return a random category."""
    return sample_row(rng, data["shop"].execute("SELECT * FROM category").fetchall())


def sample_order(data: Data, rng: random.Random, where: str = "1") -> Any:
    """Return a random order of the user that meets the SQL condition `where`; None without one."""
    sql = f"SELECT * FROM purchase WHERE customer_id = {AGENT_USER_ID} AND {where} ORDER BY id DESC"
    return sample_row(rng, data["shop"].execute(sql).fetchall())


def format_dollars(cents: int) -> str:
    """Return an amount as on pages, without the dollar sign: 123450 gives 1,234.50."""
    return f"{cents / 100:,.2f}"


def dollar_formats(cents: int) -> str:
    """Return the formats in which an answer may write an amount, as one reference."""
    text = format_dollars(cents)
    texts = (text, text.replace(",", ""))
    # "$33" is $33.00.
    whole = [form.removesuffix(".00") for form in texts]
    return " |OR| ".join(dict.fromkeys((*texts, *whole)))


def parse_cents(text: str) -> int:
    """Return the cents of an amount in dollars: 1,234.50 gives 123450."""
    return round(float(text.replace(",", "")) * 100)


# --- navigation ----------------------------------------------------------------------------------


@functools.cache
def find_department(category: str) -> str:
    """Return the department of a category; experts use it as knowledge about the shop."""
    return next(entry.department for entry in categories() if entry.name == category)


def go_to_product(page: Observation, product: str) -> Moves:
    """Search for a product and open its page."""
    page = yield from search(
        page, "Search products", product, reason="The search finds a product by its name"
    )
    return (
        yield from click(
            page, product, "link", reason="It is among the results, so I open its page"
        )
    )


def go_to_reviews(page: Observation) -> Moves:
    """Open the reviews of a product from its page."""
    links = element_names(page, "link")
    link = next(name for name in links if re.fullmatch(r"\d+ reviews?", name))
    return (yield from click(page, link, "link", reason="The product has a page of reviews"))


def go_to_category(page: Observation, category: str) -> Moves:
    """Open a category by its department."""
    department = find_department(category)
    if not has_element(page, department, "link"):
        page = yield from click(
            page, "Departments", intent_phrase="", reason="The menu lists all departments"
        )
    page = yield from click(page, department, "link", reason=f"{category} belongs to {department}")
    return (yield from click(page, category, "link", reason="The department lists its categories"))


def go_to_orders(page: Observation) -> Moves:
    """Open the list of the user's orders."""
    page = yield from click(page, "Account", "link", intent_phrase="", reason="My orders are there")
    return (yield from click(page, "My Orders", "link", intent_phrase="", reason="It has them all"))


def go_to_order_row(
    page: Observation, number: str
) -> Generator[Decision, Observation, tuple[Observation, re.Match[str] | None]]:
    """Open the page of the list with an order; return it and the row, None without such a row."""
    page = yield from go_to_orders(page)
    while (row := _find_row(page, number)) is None and has_element(page, "Next", "link"):
        if min(map(int, _order_numbers(page))) < int(number):
            break
        page = yield from click(
            page, "Next", "link", reason=f"Order {number} is older than those on this page"
        )
    return page, row


def go_to_order(page: Observation, number: str) -> Moves:
    """Open one of the user's orders."""
    page, _ = yield from go_to_order_row(page, number)
    return (yield from click(page, number, "link", reason="Here it is, so I open it"))


def parse_order_rows(page: Observation) -> list[re.Match[str]]:
    """Return the rows of the user's orders on a page."""
    return list(re.finditer(ORDER_ROW, page_text(page)))


def _find_row(page: Observation, number: str) -> re.Match[str] | None:
    return next((row for row in parse_order_rows(page) if row[1] == number), None)


def _order_numbers(page: Observation) -> list[str]:
    return [name for name in element_names(page, "link") if re.fullmatch(r"\d{6}", name)]
