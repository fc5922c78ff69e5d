"""Orders: the list, one order, and the steps it goes through until it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.data import CARRIERS, REFUND_REASONS
from webagent_jax.arena.admin.staff_views import ROWS, StaffViews, author, one_of, span, tidied
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import Condition, listing
from webagent_jax.arena.site import Missing, Visit, money

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
    """What can be done with an order by one click."""

    text: str  # of the button
    before: tuple[str, ...]  # the order has one of these
    after: str
    remark: str  # what its history tells


STEPS: Mapping[str, Step] = {
    "invoice": Step("Invoice", ("Pending",), "Processing", "The invoice was created."),
    "hold": Step("Hold", ("Pending", "Processing"), "On Hold", "The order was put on hold."),
    "release": Step("Release", ("On Hold",), "Processing", "The order was released."),
    "complete": Step("Complete", ("Shipped",), "Complete", "The order is complete."),
}

PAGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ship": ("Ship", ("Processing",)),
    "refund": ("Refund", ("Shipped", "Complete")),
    "cancel": ("Cancel", ("Pending", "Processing", "On Hold")),
}
"""Steps that ask something first: the text of their links, and what the order must be."""

_PIECES = (
    "(SELECT sum(quantity) FROM purchase_item WHERE product_id = product.id AND purchase_id = ?)"
)
_OF_ORDER = "WHERE id IN (SELECT product_id FROM purchase_item WHERE purchase_id = ?)"


@views.get("/orders")
def orders(visit: Visit) -> Response:
    if away := tidied(visit, "q", "status", "from", "to", "sort"):
        return away
    form, condition = Form(visit.query), Condition()
    condition.words("id || ' ' || name", form.text("q", required=False))
    if status := one_of(form, "status", STATUSES):
        condition.add("status = ?", status)
    span(form, condition, "placed")
    order = SORTS.get(form.values.get("sort", ""), SORTS[""])[1]
    rest = f"FROM purchase WHERE {condition.sql} ORDER BY {order}"
    found = listing(visit, "id, placed, name, total, status", rest, condition.arguments, size=ROWS)
    return visit.page(
        "orders.html.j2",
        form=form,
        found=found,
        statuses=STATUSES,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
    )


@views.get("/orders/{number:int}")
def order(visit: Visit, number: int) -> Response:
    return _order_page(visit, number, Form())


def _order_page(visit: Visit, number: int, form: Form, status: int = 200) -> Response:
    here = _order(visit, number)
    return visit.page(
        "order.html.j2",
        status,
        order=here,
        form=form,
        items=visit.rows(
            "SELECT purchase_item.*, name, sku FROM purchase_item"
            " JOIN product ON product.id = product_id WHERE purchase_id = ?",
            number,
        ),
        shipment=visit.rows("SELECT * FROM shipment WHERE purchase_id = ?", number),
        refund=visit.rows("SELECT * FROM refund WHERE purchase_id = ?", number),
        remarks=visit.rows("SELECT * FROM remark WHERE purchase_id = ? ORDER BY id DESC", number),
        steps={key: step.text for key, step in STEPS.items() if here["status"] in step.before},
        pages={key: text for key, (text, before) in PAGES.items() if here["status"] in before},
    )


@views.post("/orders/{number:int}/remarks")
def add_remark(visit: Visit, number: int) -> Response:
    _order(visit, number)
    form = Form(visit.form)
    body = form.text("body", most=500)
    if form.errors:
        return _order_page(visit, number, form, 422)
    _remark(visit, number, body, notified=form.ticked("notify"))
    return visit.redirect(f"/orders/{number}", "The comment was added.")


@views.get("/orders/{number:int}/{step}")
def step_form(visit: Visit, number: int, step: str) -> Response:
    if step not in PAGES:
        raise Missing
    here = _order(visit, number)
    if here["status"] not in PAGES[step][1]:
        return _refused(visit, here)
    return _step_page(visit, here, step, Form())


def _step_page(visit: Visit, order: Any, step: str, form: Form) -> Response:
    choices = {"carriers": tuple(CARRIERS), "refunds": REFUND_REASONS, "reasons": CANCEL_REASONS}
    status = 422 if form.errors else 200
    return visit.page(f"{step}.html.j2", status, order=order, form=form, **choices)


@views.post("/orders/{number:int}/ship")
def ship(visit: Visit, number: int) -> Response:
    here, form = _order(visit, number), Form(visit.form)
    if here["status"] not in PAGES["ship"][1]:
        return _refused(visit, here)
    carrier = form.choice("carrier", CARRIERS)
    tracking = form.text("tracking", most=20, least=6)
    if form.errors:
        return _step_page(visit, here, "ship", form)
    visit.do("INSERT INTO shipment VALUES (?, ?, ?, ?)", *(number, carrier, tracking, visit.today))
    told = f"Shipped by {carrier}, tracking number {tracking}."
    return _become(visit, number, "Shipped", told, notified=form.ticked("notify"))


@views.post("/orders/{number:int}/refund")
def refund(visit: Visit, number: int) -> Response:
    here, form = _order(visit, number), Form(visit.form)
    if here["status"] not in PAGES["refund"][1]:
        return _refused(visit, here)
    amount = form.cents("amount", most=here["total"])
    if not amount and "amount" not in form.errors:
        form.errors["amount"] = "Enter an amount above zero."
    reason = form.choice("reason", REFUND_REASONS)
    if form.errors:
        return _step_page(visit, here, "refund", form)
    visit.do("INSERT INTO refund VALUES (?, ?, ?, ?)", *(number, amount, reason, visit.today))
    if form.ticked("restock"):
        _restock(visit, number)
    return _become(visit, number, "Refunded", f"Refunded {money(amount)}: {reason}.")


@views.post("/orders/{number:int}/cancel")
def cancel(visit: Visit, number: int) -> Response:
    here, form = _order(visit, number), Form(visit.form)
    if here["status"] not in PAGES["cancel"][1]:
        return _refused(visit, here)
    reason = form.choice("reason", CANCEL_REASONS)
    if form.errors:
        return _step_page(visit, here, "cancel", form)
    _restock(visit, number)
    visit.do(f"UPDATE product SET sold = max(sold - {_PIECES}, 0) {_OF_ORDER}", number, number)
    return _become(visit, number, "Cancelled", f"Cancelled: {reason}.")


@views.post("/orders/{number:int}/{step}")
def go_through(visit: Visit, number: int, step: str) -> Response:
    if step not in STEPS:
        raise Missing
    here = _order(visit, number)
    if here["status"] not in STEPS[step].before:
        return _refused(visit, here)
    return _become(visit, number, STEPS[step].after, STEPS[step].remark)


def _order(visit: Visit, number: int) -> Any:
    return visit.row(
        "SELECT purchase.*, email, customer_group FROM purchase"
        " JOIN customer ON customer.id = customer_id WHERE purchase.id = ?",
        number,
    )


def _refused(visit: Visit, order: Any) -> Response:
    told = f"This cannot be done: the order is {order['status'].lower()}."
    return visit.redirect(f"/orders/{order['id']}", told)


def _become(
    visit: Visit, number: int, status: str, remark: str, *, notified: bool = False
) -> Response:
    visit.do("UPDATE purchase SET status = ? WHERE id = ?", status, number)
    _remark(visit, number, remark, notified=notified)
    return visit.redirect(f"/orders/{number}", remark)


def _remark(visit: Visit, number: int, body: str, *, notified: bool) -> None:
    visit.do(
        "INSERT INTO remark (purchase_id, written, author, body, notified) VALUES (?, ?, ?, ?, ?)",
        *(number, visit.now, author(visit), body, int(notified)),
    )


def _restock(visit: Visit, number: int) -> None:
    visit.do(f"UPDATE product SET stock = stock + {_PIECES} {_OF_ORDER}", number, number)
