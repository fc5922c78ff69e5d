"""How one gets about in the shop, and what tasks of it are drawn from."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Generator
from typing import Any

from webagent_jax.arena.expert_steps import Moves, click, flat, has, names, search
from webagent_jax.arena.shop.product_catalog import categories
from webagent_jax.arena.task import Data, pick
from webagent_jax.types import Decision, Observation

SHOP = "__SHOPPING__"
ME = 1  # customer id of whose browser it is

ORDER_ROW = r"(\d{6}) ([A-Z][a-z]{2} \d+, \d{4}) \$([\d,.]+) ([A-Z][a-z]+)"
"""On the page of orders: number, date, total, status."""


# --- drawing -------------------------------------------------------------------------------------


def a_product(data: Data, rng: random.Random, where: str = "stock > 20") -> Any:
    """A row of product; None when the drawn one is not as it must be."""
    sql = (
        "SELECT product.*, category.name AS category, category.slug AS category_slug,"
        " department.name AS department FROM product JOIN category ON category.id = category_id"
        f" JOIN department ON department.id = department_id WHERE product.id = ? AND {where}"
    )
    return data["shop"].execute(sql, [rng.randint(1, 2000)]).fetchone()


def a_category(data: Data, rng: random.Random) -> Any:
    return pick(rng, data["shop"].execute("SELECT * FROM category").fetchall())


def an_order(data: Data, rng: random.Random, where: str = "1") -> Any:
    """One of my own."""
    sql = f"SELECT * FROM purchase WHERE customer_id = {ME} AND {where} ORDER BY id DESC"
    return pick(rng, data["shop"].execute(sql).fetchall())


def dollars(cents: int) -> str:
    """As pages write it, without the sign: 123450 -> 1,234.50"""
    return f"{cents / 100:,.2f}"


def cents(text: str) -> int:
    """1,234.50 -> 123450"""
    return round(float(text.replace(",", "")) * 100)


# --- ways ----------------------------------------------------------------------------------------


@functools.cache
def department_of(category: str) -> str:
    """Where a visitor would look for it: known to who knows the shop."""
    return next(each.department for each in categories() if each.name == category)


def to_product(page: Observation, product: str) -> Moves:
    page = yield from search(
        page, "Search products", product, why="The search finds a product by its name"
    )
    return (
        yield from click(page, product, "link", why="It is among the results, so I open its page")
    )


def to_reviews(page: Observation) -> Moves:
    """From the page of a product."""
    links = names(page, "link")
    link = next(name for name in links if re.fullmatch(r"\d+ reviews?", name))
    return (yield from click(page, link, "link", why="The product has a page of reviews"))


def to_category(page: Observation, category: str) -> Moves:
    department = department_of(category)
    if not has(page, department, "link"):
        page = yield from click(page, "Departments", about="", why="The menu lists all departments")
    page = yield from click(page, department, "link", why=f"{category} belongs to {department}")
    return (yield from click(page, category, "link", why="The department lists its categories"))


def to_orders(page: Observation) -> Moves:
    page = yield from click(page, "Account", "link", about="", why="My orders are there")
    return (yield from click(page, "My Orders", "link", about="", why="It has them all"))


def to_order_row(
    page: Observation, number: str
) -> Generator[Decision, Observation, tuple[Observation, re.Match[str] | None]]:
    """The page of orders that lists it, and its row; None when I have no such order."""
    page = yield from to_orders(page)
    while (row := _row(page, number)) is None and has(page, "Next", "link"):
        if min(map(int, _numbers(page))) < int(number):
            break
        page = yield from click(
            page, "Next", "link", why=f"Order {number} is older than those on this page"
        )
    return page, row


def to_order(page: Observation, number: str) -> Moves:
    page, _ = yield from to_order_row(page, number)
    return (yield from click(page, number, "link", why="Here it is, so I open it"))


def order_rows(page: Observation) -> list[re.Match[str]]:
    return list(re.finditer(ORDER_ROW, flat(page)))


def _row(page: Observation, number: str) -> re.Match[str] | None:
    return next((row for row in order_rows(page) if row[1] == number), None)


def _numbers(page: Observation) -> list[str]:
    return [name for name in names(page, "link") if re.fullmatch(r"\d{6}", name)]
