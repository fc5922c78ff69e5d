"""Views of reports: sales, bestsellers, customers, coupons, low stock and search terms.

No report counts canceled orders.
"""

from __future__ import annotations

import datetime
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.staff_views import (
    ROWS_PER_PAGE,
    add_date_range,
    optional_choice,
    redirect_to_canonical,
)
from webagent_jax.arena.common import TODAY
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import WhereClause, paginate, paginate_rows
from webagent_jax.arena.site import RequestContext, ViewRegistry, format_day

views = ViewRegistry(signed_in=True)

LOW_STOCK_LIMIT = 10  # stock below this number of pieces is low
NUM_BESTSELLERS = 5  # per interval

INTERVAL_LENGTHS = {"month": 7, "day": 10, "year": 4}
"""Number of leading characters shared by the ISO days of an interval, by interval length."""


def format_interval(iso: str) -> str:
    """Return an interval as text: 2022, 2023-01, 2023-01-31 give 2022, Jan 2023, Jan 31, 2023."""
    if len(iso) == INTERVAL_LENGTHS["month"]:
        return f"{datetime.date.fromisoformat(iso + '-01'):%b %Y}"
    return format_day(iso) if len(iso) == INTERVAL_LENGTHS["day"] else iso


@views.get("/reports")
def reports(request: RequestContext) -> Response:
    return request.render("reports.html.j2")


@views.get("/reports/bestsellers")
def bestsellers(request: RequestContext) -> Response:
    if redirect := redirect_to_canonical(request, "period", "from", "to"):
        return redirect
    form, condition, interval_length = _read_query(request)
    rows = _find_bestsellers(request, condition, interval_length) if interval_length else []
    return request.render(
        "bestsellers.html.j2",
        form=form,
        interval_length=interval_length,
        pagination=paginate_rows(request, rows, size=ROWS_PER_PAGE),
    )


def _find_bestsellers(
    request: RequestContext, condition: WhereClause, interval_length: int
) -> list[Any]:
    """Return the products that sold the most pieces in each interval."""
    return request.rows(
        "SELECT product.id, name, product.price, best.* FROM ("
        "  SELECT *, row_number() OVER"
        "    (PARTITION BY interval ORDER BY pieces DESC, product_id) AS place FROM ("
        f"     SELECT substr(placed, 1, {interval_length}) AS interval, product_id,"
        " sum(quantity) AS pieces"
        "      FROM purchase JOIN purchase_item ON purchase_id = purchase.id"
        f"     WHERE status != 'Cancelled' AND {condition.sql} GROUP BY interval, product_id)"
        f") AS best JOIN product ON product.id = product_id WHERE place <= {NUM_BESTSELLERS}"
        " ORDER BY interval, place",
        *condition.arguments,
    )


def bestsellers_since(request: RequestContext, days: int) -> list[Any]:
    """Return the bestsellers of the last `days` days, as one interval."""
    condition = WhereClause()
    condition.add("placed >= ?", (TODAY - datetime.timedelta(days)).isoformat())
    return _find_bestsellers(request, condition, 0)


@views.get("/reports/sales")
def sales(request: RequestContext) -> Response:
    if redirect := redirect_to_canonical(request, "period", "from", "to"):
        return redirect
    form, condition, interval_length = _read_query(request)
    rows = (
        _find_sales(request, condition, f"substr(placed, 1, {interval_length})")
        if interval_length
        else []
    )
    return request.render(
        "sales.html.j2",
        form=form,
        interval_length=interval_length,
        pagination=paginate_rows(request, rows, size=ROWS_PER_PAGE),
        totals=_find_sales(request, condition, "'Total'") if rows else [],
        bars=rows if 1 < len(rows) < 200 else [],
    )


def _find_sales(request: RequestContext, condition: WhereClause, interval_sql: str) -> list[Any]:
    return request.rows(
        f"SELECT {interval_sql} AS interval, count(*) AS orders, sum(discount) AS discounts,"
        " coalesce(sum(amount), 0) AS refunds, sum(total) AS revenue"
        " FROM purchase LEFT JOIN refund ON purchase_id = purchase.id"
        f" WHERE status != 'Cancelled' AND {condition.sql} GROUP BY 1 ORDER BY 1",
        *condition.arguments,
    )


def _read_query(request: RequestContext) -> tuple[Form, WhereClause, int]:
    """Return form, condition, and number of characters of an interval; 0 without a valid query."""
    form, condition = Form(request.query), WhereClause()
    if not request.query:
        return form, condition, 0
    interval = form.choice("period", INTERVAL_LENGTHS)
    add_date_range(form, condition, "placed", required=True)
    return form, condition, 0 if form.errors else INTERVAL_LENGTHS[interval]


@views.get("/reports/customers")
def customers(request: RequestContext) -> Response:
    if redirect := redirect_to_canonical(request, "from", "to", "sort"):
        return redirect
    form, condition = Form(request.query), WhereClause()
    add_date_range(form, condition, "placed")
    order = "orders DESC, spent DESC"
    if optional_choice(form, "sort", ("spent",)):
        order = "spent DESC, orders DESC"
    rows = request.rows(
        "SELECT customer.id, first || ' ' || last AS name, bought.* FROM ("
        "  SELECT customer_id, count(*) AS orders, sum(total) AS spent FROM purchase"
        f"  WHERE status != 'Cancelled' AND {condition.sql} GROUP BY customer_id"
        f") AS bought JOIN customer ON customer.id = customer_id ORDER BY {order}, customer.id"
        " LIMIT 40",
        *condition.arguments,
    )
    return request.render(
        "best_customers.html.j2",
        form=form,
        pagination=paginate_rows(request, rows, size=ROWS_PER_PAGE),
    )


@views.get("/reports/coupons")
def coupons(request: RequestContext) -> Response:
    if redirect := redirect_to_canonical(request, "from", "to"):
        return redirect
    form, condition = Form(request.query), WhereClause()
    add_date_range(form, condition, "placed")
    rows = request.rows(
        "SELECT coupon, count(*) AS uses, sum(discount) AS discounts, sum(total) AS revenue"
        f" FROM purchase WHERE status != 'Cancelled' AND coupon != '' AND {condition.sql}"
        " GROUP BY coupon ORDER BY uses DESC, coupon",
        *condition.arguments,
    )
    return request.render(
        "coupons.html.j2", form=form, pagination=paginate_rows(request, rows, size=ROWS_PER_PAGE)
    )


@views.get("/reports/low-stock")
def low_stock(request: RequestContext) -> Response:
    if redirect := redirect_to_canonical(request, "below"):
        return redirect
    form = Form({"below": str(LOW_STOCK_LIMIT), **request.query})
    limit = form.integer("below", 1, 9999)
    from_clause = "FROM product WHERE active AND stock < ? ORDER BY stock, name"
    pagination = paginate(
        request, "id, name, sku, stock, sold", from_clause, [limit], size=ROWS_PER_PAGE
    )
    return request.render("low_stock.html.j2", form=form, limit=limit, pagination=pagination)


@views.get("/reports/search-terms")
def search_terms(request: RequestContext) -> Response:
    if redirect := redirect_to_canonical(request, "sort"):
        return redirect
    order = "results, uses DESC" if request.query.get("sort") == "results" else "uses DESC, term"
    pagination = paginate(request, "*", f"FROM search_term ORDER BY {order}", size=ROWS_PER_PAGE)
    return request.render("search_terms.html.j2", form=Form(request.query), pagination=pagination)
