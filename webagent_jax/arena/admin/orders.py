"""Views of orders: the list, an order, and its steps from invoice to completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.data import CARRIERS, REFUND_REASONS
from webagent_jax.arena.admin.staff_views import (
    ROWS_PER_PAGE,
    add_date_range,
    optional_choice,
    redirect_to_canonical,
    staff_name,
)
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import WhereClause, paginate
from webagent_jax.arena.shop.policies import STATUSES
from webagent_jax.arena.shop.stock import restock, return_products
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry, format_money

views = ViewRegistry(signed_in=True)

SORTS = {
    "": ("Newest first", "id DESC"),
    "oldest": ("Oldest first", "id"),
    "total-down": ("Highest total first", "total DESC, id DESC"),
    "total-up": ("Lowest total first", "total, id DESC"),
}

CANCEL_REASONS = ("Customer's request", "Out of stock", "Payment failed", "Suspected fraud")


@dataclass(frozen=True, slots=True)
class Step:
    """Step of an order that needs one click."""

    text: str  # text of the button
    source_statuses: tuple[str, ...]  # statuses in which the step is possible
    target_status: str  # status after the step
    remark: str  # entry in the history of the order


STEPS: Mapping[str, Step] = {
    "invoice": Step("Invoice", ("Pending",), "Processing", "The invoice was created."),
    "hold": Step("Hold", ("Pending", "Processing"), "On Hold", "The order was put on hold."),
    "release": Step("Release", ("On Hold",), "Processing", "The order was released."),
    "complete": Step("Complete", ("Shipped",), "Complete", "The order is complete."),
}

FORM_STEPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ship": ("Ship", ("Processing",)),
    "refund": ("Refund", ("Shipped", "Complete")),
    "cancel": ("Cancel", ("Pending", "Processing", "On Hold")),
}
"""Steps that need a form: text of the link, and statuses in which the step is possible."""


@views.get("/orders")
def orders(request: RequestContext) -> Response:
    if redirect := redirect_to_canonical(request, "q", "status", "from", "to", "sort"):
        return redirect
    form, condition = Form(request.query), WhereClause()
    condition.add_words("id || ' ' || name", form.text("q", required=False))
    if status := optional_choice(form, "status", STATUSES):
        condition.add("status = ?", status)
    add_date_range(form, condition, "placed")
    order = SORTS.get(form.values.get("sort", ""), SORTS[""])[1]
    from_clause = f"FROM purchase WHERE {condition.sql} ORDER BY {order}"
    pagination = paginate(
        request,
        "id, placed, name, total, status",
        from_clause,
        condition.arguments,
        size=ROWS_PER_PAGE,
    )
    return request.render(
        "orders.html.j2",
        form=form,
        pagination=pagination,
        statuses=STATUSES,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
    )


@views.get("/orders/{number:int}")
def order(request: RequestContext, number: int) -> Response:
    return _order_page(request, number, Form())


def _order_page(request: RequestContext, number: int, form: Form, status: int = 200) -> Response:
    order_row = _find_order(request, number)
    return request.render(
        "order.html.j2",
        status,
        order=order_row,
        form=form,
        items=request.rows(
            "SELECT purchase_item.*, name, sku FROM purchase_item"
            " JOIN product ON product.id = product_id WHERE purchase_id = ?",
            number,
        ),
        shipment=request.rows("SELECT * FROM shipment WHERE purchase_id = ?", number),
        refund=request.rows("SELECT * FROM refund WHERE purchase_id = ?", number),
        remarks=request.rows("SELECT * FROM remark WHERE purchase_id = ? ORDER BY id DESC", number),
        steps={
            key: step.text
            for key, step in STEPS.items()
            if order_row["status"] in step.source_statuses
        },
        pages={
            key: text
            for key, (text, statuses) in FORM_STEPS.items()
            if order_row["status"] in statuses
        },
    )


@views.post("/orders/{number:int}/remarks")
def add_remark(request: RequestContext, number: int) -> Response:
    _find_order(request, number)
    form = Form(request.form)
    body = form.text("body", max_chars=500)
    if form.errors:
        return _order_page(request, number, form, 422)
    _add_remark(request, number, body, is_notified=form.is_checked("notify"))
    return request.redirect(f"/orders/{number}", "The comment was added.")


@views.get("/orders/{number:int}/{step}")
def step_form(request: RequestContext, number: int, step: str) -> Response:
    if step not in FORM_STEPS:
        raise NotFound
    order_row = _find_order(request, number)
    if order_row["status"] not in FORM_STEPS[step][1]:
        return _reject(request, order_row)
    return _step_page(request, order_row, step, Form())


def _step_page(request: RequestContext, order: Any, step: str, form: Form) -> Response:
    choices = {"carriers": tuple(CARRIERS), "refunds": REFUND_REASONS, "reasons": CANCEL_REASONS}
    status = 422 if form.errors else 200
    return request.render(f"{step}.html.j2", status, order=order, form=form, **choices)


@views.post("/orders/{number:int}/ship")
def ship(request: RequestContext, number: int) -> Response:
    order_row, form = _find_order(request, number), Form(request.form)
    if order_row["status"] not in FORM_STEPS["ship"][1]:
        return _reject(request, order_row)
    carrier = form.choice("carrier", CARRIERS)
    tracking = form.text("tracking", max_chars=20, min_chars=6)
    if form.errors:
        return _step_page(request, order_row, "ship", form)
    request.execute(
        "INSERT INTO shipment VALUES (?, ?, ?, ?)", *(number, carrier, tracking, request.today)
    )
    remark = f"Shipped by {carrier}, tracking number {tracking}."
    return _set_status(request, number, "Shipped", remark, is_notified=form.is_checked("notify"))


@views.post("/orders/{number:int}/refund")
def refund(request: RequestContext, number: int) -> Response:
    order_row, form = _find_order(request, number), Form(request.form)
    if order_row["status"] not in FORM_STEPS["refund"][1]:
        return _reject(request, order_row)
    amount = form.cents("amount", max_cents=order_row["total"])
    if not amount and "amount" not in form.errors:
        form.errors["amount"] = "Enter an amount above zero."
    reason = form.choice("reason", REFUND_REASONS)
    if form.errors:
        return _step_page(request, order_row, "refund", form)
    request.execute(
        "INSERT INTO refund VALUES (?, ?, ?, ?)", *(number, amount, reason, request.today)
    )
    if form.is_checked("restock"):
        restock(request, number)
    return _set_status(request, number, "Refunded", f"Refunded {format_money(amount)}: {reason}.")


@views.post("/orders/{number:int}/cancel")
def cancel(request: RequestContext, number: int) -> Response:
    order_row, form = _find_order(request, number), Form(request.form)
    if order_row["status"] not in FORM_STEPS["cancel"][1]:
        return _reject(request, order_row)
    reason = form.choice("reason", CANCEL_REASONS)
    if form.errors:
        return _step_page(request, order_row, "cancel", form)
    return_products(request, number)
    return _set_status(request, number, "Cancelled", f"Cancelled: {reason}.")


@views.post("/orders/{number:int}/{step}")
def apply_step(request: RequestContext, number: int, step: str) -> Response:
    if step not in STEPS:
        raise NotFound
    order_row = _find_order(request, number)
    if order_row["status"] not in STEPS[step].source_statuses:
        return _reject(request, order_row)
    return _set_status(request, number, STEPS[step].target_status, STEPS[step].remark)


def _find_order(request: RequestContext, number: int) -> Any:
    return request.row(
        "SELECT purchase.*, email, customer_group FROM purchase"
        " JOIN customer ON customer.id = customer_id WHERE purchase.id = ?",
        number,
    )


def _reject(request: RequestContext, order: Any) -> Response:
    message = f"This cannot be done: the order is {order['status'].lower()}."
    return request.redirect(f"/orders/{order['id']}", message)


def _set_status(
    request: RequestContext, number: int, status: str, remark: str, *, is_notified: bool = False
) -> Response:
    request.execute("UPDATE purchase SET status = ? WHERE id = ?", status, number)
    _add_remark(request, number, remark, is_notified=is_notified)
    return request.redirect(f"/orders/{number}", remark)


def _add_remark(request: RequestContext, number: int, body: str, *, is_notified: bool) -> None:
    request.execute(
        "INSERT INTO remark (purchase_id, written, author, body, notified) VALUES (?, ?, ?, ?, ?)",
        *(number, request.now, staff_name(request), body, int(is_notified)),
    )
