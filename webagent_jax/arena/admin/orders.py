"""Views of orders: the list, an order, and the steps to its completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.data import CARRIERS, REFUND_REASONS
from webagent_jax.arena.admin.staff_views import ROWS_PER_PAGE, StaffViews, staff_name, optional_choice, add_date_range, redirect_to_canonical
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import WhereClause, paginate
from webagent_jax.arena.site import NotFound, RequestContext, format_money

views = StaffViews()

STATUSES = (
    "Pending",
    "Processing",
    "On Hold",
    "Shipped",
    "Complete",
    "Cancelled",
    "Refunded",
)

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

_QUANTITY_SQL = (
    "(SELECT sum(quantity) FROM purchase_item WHERE product_id = product.id AND purchase_id = ?)"
)
_WHERE_IN_ORDER = "WHERE id IN (SELECT product_id FROM purchase_item WHERE purchase_id = ?)"


@views.get("/orders")
def orders(visit: RequestContext) -> Response:
    if redirect := redirect_to_canonical(visit, "q", "status", "from", "to", "sort"):
        return redirect
    form, condition = Form(visit.query), WhereClause()
    condition.add_words("id || ' ' || name", form.text("q", required=False))
    if status := optional_choice(form, "status", STATUSES):
        condition.add("status = ?", status)
    add_date_range(form, condition, "placed")
    order = SORTS.get(form.values.get("sort", ""), SORTS[""])[1]
    rest = f"FROM purchase WHERE {condition.sql} ORDER BY {order}"
    pagination = paginate(
        visit, "id, placed, name, total, status", rest, condition.arguments, size=ROWS_PER_PAGE
    )
    return visit.render(
        "orders.html.j2",
        form=form,
        found=pagination,
        statuses=STATUSES,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
    )


@views.get("/orders/{number:int}")
def order(visit: RequestContext, number: int) -> Response:
    return _order_page(visit, number, Form())


def _order_page(visit: RequestContext, number: int, form: Form, status: int = 200) -> Response:
    order_row = _find_order(visit, number)
    return visit.render(
        "order.html.j2",
        status,
        order=order_row,
        form=form,
        items=visit.rows(
            "SELECT purchase_item.*, name, sku FROM purchase_item"
            " JOIN product ON product.id = product_id WHERE purchase_id = ?",
            number,
        ),
        shipment=visit.rows("SELECT * FROM shipment WHERE purchase_id = ?", number),
        refund=visit.rows("SELECT * FROM refund WHERE purchase_id = ?", number),
        remarks=visit.rows("SELECT * FROM remark WHERE purchase_id = ? ORDER BY id DESC", number),
        steps={key: step.text for key, step in STEPS.items() if order_row["status"] in step.source_statuses},
        pages={key: text for key, (text, before) in FORM_STEPS.items() if order_row["status"] in before},
    )


@views.post("/orders/{number:int}/remarks")
def add_remark(visit: RequestContext, number: int) -> Response:
    _find_order(visit, number)
    form = Form(visit.form)
    body = form.text("body", max_chars=500)
    if form.errors:
        return _order_page(visit, number, form, 422)
    _add_remark(visit, number, body, is_notified=form.is_checked("notify"))
    return visit.redirect(f"/orders/{number}", "The comment was added.")


@views.get("/orders/{number:int}/{step}")
def step_form(visit: RequestContext, number: int, step: str) -> Response:
    if step not in FORM_STEPS:
        raise NotFound
    order_row = _find_order(visit, number)
    if order_row["status"] not in FORM_STEPS[step][1]:
        return _reject(visit, order_row)
    return _step_page(visit, order_row, step, Form())


def _step_page(visit: RequestContext, order: Any, step: str, form: Form) -> Response:
    choices = {"carriers": tuple(CARRIERS), "refunds": REFUND_REASONS, "reasons": CANCEL_REASONS}
    status = 422 if form.errors else 200
    return visit.render(f"{step}.html.j2", status, order=order, form=form, **choices)


@views.post("/orders/{number:int}/ship")
def ship(visit: RequestContext, number: int) -> Response:
    order_row, form = _find_order(visit, number), Form(visit.form)
    if order_row["status"] not in FORM_STEPS["ship"][1]:
        return _reject(visit, order_row)
    carrier = form.choice("carrier", CARRIERS)
    tracking = form.text("tracking", max_chars=20, min_chars=6)
    if form.errors:
        return _step_page(visit, order_row, "ship", form)
    visit.execute(
        "INSERT INTO shipment VALUES (?, ?, ?, ?)", *(number, carrier, tracking, visit.today)
    )
    remark = f"Shipped by {carrier}, tracking number {tracking}."
    return _set_status(visit, number, "Shipped", remark, is_notified=form.is_checked("notify"))


@views.post("/orders/{number:int}/refund")
def refund(visit: RequestContext, number: int) -> Response:
    order_row, form = _find_order(visit, number), Form(visit.form)
    if order_row["status"] not in FORM_STEPS["refund"][1]:
        return _reject(visit, order_row)
    amount = form.cents("amount", max_cents=order_row["total"])
    if not amount and "amount" not in form.errors:
        form.errors["amount"] = "Enter an amount above zero."
    reason = form.choice("reason", REFUND_REASONS)
    if form.errors:
        return _step_page(visit, order_row, "refund", form)
    visit.execute("INSERT INTO refund VALUES (?, ?, ?, ?)", *(number, amount, reason, visit.today))
    if form.is_checked("restock"):
        _restock(visit, number)
    return _set_status(visit, number, "Refunded", f"Refunded {format_money(amount)}: {reason}.")


@views.post("/orders/{number:int}/cancel")
def cancel(visit: RequestContext, number: int) -> Response:
    order_row, form = _find_order(visit, number), Form(visit.form)
    if order_row["status"] not in FORM_STEPS["cancel"][1]:
        return _reject(visit, order_row)
    reason = form.choice("reason", CANCEL_REASONS)
    if form.errors:
        return _step_page(visit, order_row, "cancel", form)
    _restock(visit, number)
    visit.execute(f"UPDATE product SET sold = max(sold - {_QUANTITY_SQL}, 0) {_WHERE_IN_ORDER}", number, number)
    return _set_status(visit, number, "Cancelled", f"Cancelled: {reason}.")


@views.post("/orders/{number:int}/{step}")
def apply_step(visit: RequestContext, number: int, step: str) -> Response:
    if step not in STEPS:
        raise NotFound
    order_row = _find_order(visit, number)
    if order_row["status"] not in STEPS[step].source_statuses:
        return _reject(visit, order_row)
    return _set_status(visit, number, STEPS[step].target_status, STEPS[step].remark)


def _find_order(visit: RequestContext, number: int) -> Any:
    return visit.row(
        "SELECT purchase.*, email, customer_group FROM purchase"
        " JOIN customer ON customer.id = customer_id WHERE purchase.id = ?",
        number,
    )


def _reject(visit: RequestContext, order: Any) -> Response:
    message = f"This cannot be done: the order is {order['status'].lower()}."
    return visit.redirect(f"/orders/{order['id']}", message)


def _set_status(
    visit: RequestContext, number: int, status: str, remark: str, *, is_notified: bool = False
) -> Response:
    visit.execute("UPDATE purchase SET status = ? WHERE id = ?", status, number)
    _add_remark(visit, number, remark, is_notified=is_notified)
    return visit.redirect(f"/orders/{number}", remark)


def _add_remark(visit: RequestContext, number: int, body: str, *, is_notified: bool) -> None:
    visit.execute(
        "INSERT INTO remark (purchase_id, written, author, body, notified) VALUES (?, ?, ?, ?, ?)",
        *(number, visit.now, staff_name(visit), body, int(is_notified)),
    )


def _restock(visit: RequestContext, number: int) -> None:
    visit.execute(f"UPDATE product SET stock = stock + {_QUANTITY_SQL} {_WHERE_IN_ORDER}", number, number)
