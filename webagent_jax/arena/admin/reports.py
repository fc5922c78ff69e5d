"""Reports: what was sold, to whom, with which coupons; what runs out; what is searched for.

Cancelled orders are left out of all of them.
"""

from __future__ import annotations

import datetime
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.staff_views import ROWS, StaffViews, one_of, sliced, span, tidied
from webagent_jax.arena.common import TODAY
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import Condition, listing
from webagent_jax.arena.site import Visit, day

views = StaffViews()

LOW_STOCK = 10  # pieces from which a product does not count as running out
BEST = 5  # products of each interval

PERIODS = {"month": 7, "day": 10, "year": 4}
"""Lengths of an interval, and how much of an ISO day they share."""


def interval(iso: str) -> str:
    """2022 -> 2022; 2023-01 -> Jan 2023; 2023-01-31 -> Jan 31, 2023"""
    if len(iso) == PERIODS["month"]:
        return f"{datetime.date.fromisoformat(iso + '-01'):%b %Y}"
    return day(iso) if len(iso) == PERIODS["day"] else iso


@views.get("/reports")
def reports(visit: Visit) -> Response:
    return visit.page("reports.html.j2")


@views.get("/reports/bestsellers")
def bestsellers(visit: Visit) -> Response:
    if away := tidied(visit, "period", "from", "to"):
        return away
    form, condition, size = _asked(visit)
    rows = _bestsellers(visit, condition, size) if size else []
    return visit.page("bestsellers.html.j2", form=form, asked=size, found=sliced(visit, rows))


def _bestsellers(visit: Visit, condition: Condition, size: int) -> list[Any]:
    """The first products of each interval, by pieces."""
    return visit.rows(
        "SELECT product.id, name, product.price, best.* FROM ("
        "  SELECT *, row_number() OVER"
        "    (PARTITION BY interval ORDER BY pieces DESC, product_id) AS place FROM ("
        f"     SELECT substr(placed, 1, {size}) AS interval, product_id, sum(quantity) AS pieces"
        "      FROM purchase JOIN purchase_item ON purchase_id = purchase.id"
        f"     WHERE status != 'Cancelled' AND {condition.sql} GROUP BY interval, product_id)"
        f") AS best JOIN product ON product.id = product_id WHERE place <= {BEST}"
        " ORDER BY interval, place",
        *condition.arguments,
    )


def bestsellers_since(visit: Visit, days: int) -> list[Any]:
    """Of the last so many days, in one interval."""
    condition = Condition()
    condition.add("placed >= ?", (TODAY - datetime.timedelta(days)).isoformat())
    return _bestsellers(visit, condition, 0)


@views.get("/reports/sales")
def sales(visit: Visit) -> Response:
    if away := tidied(visit, "period", "from", "to"):
        return away
    form, condition, size = _asked(visit)
    rows = _sales(visit, condition, f"substr(placed, 1, {size})") if size else []
    return visit.page(
        "sales.html.j2",
        form=form,
        asked=size,
        found=sliced(visit, rows),
        totals=_sales(visit, condition, "'Total'") if rows else [],
        bars=rows if 1 < len(rows) < 200 else [],
    )


def _sales(visit: Visit, condition: Condition, interval: str) -> list[Any]:
    return visit.rows(
        f"SELECT {interval} AS interval, count(*) AS orders, sum(discount) AS discounts,"
        " coalesce(sum(amount), 0) AS refunds, sum(total) AS revenue"
        " FROM purchase LEFT JOIN refund ON purchase_id = purchase.id"
        f" WHERE status != 'Cancelled' AND {condition.sql} GROUP BY 1 ORDER BY 1",
        *condition.arguments,
    )


def _asked(visit: Visit) -> tuple[Form, Condition, int]:
    """Form and condition, and how much of a day an interval shares; 0 while nothing is asked."""
    form, condition = Form(visit.query), Condition()
    if not visit.query:
        return form, condition, 0
    period = form.choice("period", PERIODS)
    span(form, condition, "placed", required=True)
    return form, condition, 0 if form.errors else PERIODS[period]


@views.get("/reports/customers")
def customers(visit: Visit) -> Response:
    if away := tidied(visit, "from", "to", "sort"):
        return away
    form, condition = Form(visit.query), Condition()
    span(form, condition, "placed")
    order = "orders DESC, spent DESC"
    if one_of(form, "sort", ("spent",)):
        order = "spent DESC, orders DESC"
    rows = visit.rows(
        "SELECT customer.id, first || ' ' || last AS name, bought.* FROM ("
        "  SELECT customer_id, count(*) AS orders, sum(total) AS spent FROM purchase"
        f"  WHERE status != 'Cancelled' AND {condition.sql} GROUP BY customer_id"
        f") AS bought JOIN customer ON customer.id = customer_id ORDER BY {order}, customer.id"
        " LIMIT 40",
        *condition.arguments,
    )
    return visit.page("best_customers.html.j2", form=form, found=sliced(visit, rows))


@views.get("/reports/coupons")
def coupons(visit: Visit) -> Response:
    if away := tidied(visit, "from", "to"):
        return away
    form, condition = Form(visit.query), Condition()
    span(form, condition, "placed")
    rows = visit.rows(
        "SELECT coupon, count(*) AS uses, sum(discount) AS discounts, sum(total) AS revenue"
        f" FROM purchase WHERE status != 'Cancelled' AND coupon != '' AND {condition.sql}"
        " GROUP BY coupon ORDER BY uses DESC, coupon",
        *condition.arguments,
    )
    return visit.page("coupons.html.j2", form=form, found=sliced(visit, rows))


@views.get("/reports/low-stock")
def low_stock(visit: Visit) -> Response:
    if away := tidied(visit, "below"):
        return away
    form = Form({"below": str(LOW_STOCK), **visit.query})
    below = form.whole("below", 1, 9999)
    rest = "FROM product WHERE active AND stock < ? ORDER BY stock, name"
    found = listing(visit, "id, name, sku, stock, sold", rest, [below], size=ROWS)
    return visit.page("low_stock.html.j2", form=form, below=below, found=found)


@views.get("/reports/search-terms")
def search_terms(visit: Visit) -> Response:
    if away := tidied(visit, "sort"):
        return away
    order = "results, uses DESC" if visit.query.get("sort") == "results" else "uses DESC, term"
    found = listing(visit, "*", f"FROM search_term ORDER BY {order}", size=ROWS)
    return visit.page("search_terms.html.j2", form=Form(visit.query), found=found)
