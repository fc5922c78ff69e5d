"""Changes to orders: invoice, ship, complete, hold, cancel, refund, comment."""

from __future__ import annotations

import random

from webagent_jax.arena import random_data
from webagent_jax.arena.admin.data import CARRIERS, REFUND_REASONS
from webagent_jax.arena.admin.orders import CANCEL_REASONS
from webagent_jax.arena.admin.tasks.helpers import (
    ADMIN,
    ORDER_ROW,
    find_orders,
    find_rows,
    go_to_order,
    sample_order,
)
from webagent_jax.arena.shop.tasks.helpers import format_dollars
from webagent_jax.arena.task import (
    Data,
    EvalSpec,
    Slots,
    TaskInstance,
    TemplateRegistry,
    all_of,
    page_equals,
    page_includes,
)
from webagent_jax.expert_steps import (
    Moves,
    click,
    finish,
    has_element,
    select_option,
    set_checked,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")


def order_is(number: int, status: str, *facts: str) -> EvalSpec:
    """Require the status of an order, and further facts on its page."""
    url = f"{ADMIN}/orders/{number}"
    specs = [page_equals(url, "h1 .status", status)]
    return all_of(*specs, page_includes(url, ".columns", *facts)) if facts else specs[0]


def _sample_parcel(rng: random.Random) -> dict[str, str]:
    """Return a random carrier and one of its tracking numbers."""
    carrier = rng.choice(list(CARRIERS))
    return {
        "carrier": carrier,
        "tracking": f"{CARRIERS[carrier]}{rng.randint(10_000_000, 99_999_999)}",
    }


def _ship_order(page: Observation, slots: Slots) -> Moves:
    page = yield from click(page, "Ship", "link", intent_phrase="ship")
    if slots["carrier"] != next(iter(CARRIERS)):
        page = yield from select_option(page, "Carrier", slots["carrier"])
    page = yield from type_text(page, "Tracking number", slots["tracking"])
    return (yield from click(page, "Ship Order", "button", intent_phrase=""))


# --- steps to the customer -----------------------------------------------------------------------


def _sample_invoice(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng, "status = 'Pending'")
    slots = {"number": str(order["id"]), "customer": order["name"]}
    return TaskInstance(slots, order_is(order["id"], "Processing"))


@tasks.add(
    "invoice",
    _sample_invoice,
    "Invoice the pending order {number} of {customer}.",
    "Create the invoice for order {number} by {customer}.",
    "{customer} paid for order {number}: invoice it",
    "Order {number} ({customer}) is to be invoiced.",
    "Make out the invoice of the order {number} placed by {customer}.",
)
def invoice(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    yield from click(page, "Invoice", "button", intent_phrase="invoice")
    yield from finish("The invoice is created")


def _sample_ship(data: Data, rng: random.Random) -> TaskInstance | None:
    order, parcel = sample_order(data, rng, "status = 'Processing'"), _sample_parcel(rng)
    slots = {"number": str(order["id"]), **parcel}
    return TaskInstance(
        slots, order_is(order["id"], "Shipped", parcel["carrier"], parcel["tracking"])
    )


@tasks.add(
    "ship",
    _sample_ship,
    "Ship order {number} with {carrier}, tracking number {tracking}.",
    "Order {number} leaves with {carrier} under the tracking number {tracking}. Enter it.",
    "Mark order {number} as shipped: carrier {carrier}, tracking number {tracking}",
    "The parcel of order {number} was picked up by {carrier} ({tracking}). Record the shipment.",
    "Enter the shipment of order {number}: {tracking} by {carrier}.",
)
def ship(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    yield from _ship_order(page, slots)
    yield from finish("The order is shipped")


def _sample_invoice_and_ship(data: Data, rng: random.Random) -> TaskInstance | None:
    order, parcel = sample_order(data, rng, "status = 'Pending'"), _sample_parcel(rng)
    slots = {"number": str(order["id"]), **parcel}
    return TaskInstance(
        slots, order_is(order["id"], "Shipped", parcel["carrier"], parcel["tracking"])
    )


@tasks.add(
    "invoice-and-ship",
    _sample_invoice_and_ship,
    "Invoice order {number} and ship it with {carrier}, tracking number {tracking}.",
    "Order {number} is paid: invoice it, then ship it by {carrier} under {tracking}.",
    "Bring the pending order {number} on its way: invoice, then shipment with {carrier}, "
    "{tracking}",
    "Create the invoice of order {number} and enter its shipment ({carrier}, {tracking}).",
    "First invoice order {number}, then mark it as shipped by {carrier}, number {tracking}.",
)
def invoice_and_ship(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    page = yield from click(page, "Invoice", "button", intent_phrase="invoice")
    yield from _ship_order(page, slots)
    yield from finish("The order is shipped")


def _sample_complete(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng, "status = 'Shipped'")
    body = rng.choice(
        ("Delivered today.", "Signed for at the door.", "Carrier confirmed delivery.")
    )
    spec = order_is(order["id"], "Complete", body)
    return TaskInstance({"number": str(order["id"]), "comment": body}, spec)


@tasks.add(
    "complete",
    _sample_complete,
    'Order {number} arrived. Add the comment "{comment}" and complete it.',
    'Comment on order {number} with "{comment}" and set it to complete',
    'Write "{comment}" into the history of order {number}, then complete the order.',
    'Close order {number}: add "{comment}" as a comment and mark it as complete.',
    'The order {number} can be completed. Leave the comment "{comment}" as well.',
)
def complete(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    page = yield from type_text(page, "Comment", slots["comment"])
    page = yield from click(page, "Add Comment", "button", intent_phrase="")
    yield from click(page, "Complete", "button", intent_phrase="complete")
    yield from finish("The order is complete")


def _sample_hold(data: Data, rng: random.Random) -> TaskInstance | None:
    """Sample an order that is the only one of its customer that can be put on hold."""
    condition = "status IN ('Pending', 'Processing')"
    order = sample_order(data, rng, condition)
    sql = f"SELECT count(*) FROM purchase WHERE customer_id = ? AND {condition}"
    (count,) = data["shop"].execute(sql, [order["customer_id"]]).fetchone()
    if count > 1:
        return None
    status = order["status"].lower()
    slots = {"customer": order["name"], "status": status}
    return TaskInstance(slots, order_is(order["id"], "On Hold"))


@tasks.add(
    "hold",
    _sample_hold,
    "Put the {status} order of {customer} on hold.",
    "{customer} called: the {status} order must wait. Put it on hold.",
    "Hold the order by {customer} that is {status}",
    "Find the {status} order that {customer} placed and put it on hold.",
    "The order of {customer} with the status {status} should be on hold.",
)
def hold(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_order_of(page, slots["customer"], slots["status"])
    yield from click(page, "Hold", "button", intent_phrase="hold")
    yield from finish("The order is on hold")


def _go_to_order_of(page: Observation, customer: str, status: str) -> Moves:
    page = yield from find_orders(page, customer)
    while True:
        page, rows = yield from find_rows(page, ORDER_ROW)
        matches = [row[1] for row in rows if row[5].lower() == status]
        if matches or not has_element(page, "Next", "link"):
            break
        page = yield from click(
            page, "Next", "link", intent_phrase="", reason="It is not among these"
        )
    return (
        yield from click(page, matches[0], "link", intent_phrase="", reason=f"This one is {status}")
    )


# --- cancellation, refund, comment ---------------------------------------------------------------


def _sample_cancel(data: Data, rng: random.Random) -> TaskInstance | None:
    order, reason = (
        sample_order(data, rng, "status IN ('Pending', 'Processing')"),
        rng.choice(CANCEL_REASONS),
    )
    slots = {"number": str(order["id"]), "reason": reason}
    return TaskInstance(slots, order_is(order["id"], "Cancelled", f"Cancelled: {reason}"))


@tasks.add(
    "cancel",
    _sample_cancel,
    'Cancel order {number} with the reason "{reason}".',
    'Order {number} has to be cancelled. Reason: "{reason}"',
    'Please cancel the order {number} and give "{reason}" as the reason',
    'Stop order {number}: cancel it, reason "{reason}".',
    'We cannot deliver order {number}. Cancel it for the reason "{reason}".',
)
def cancel(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    page = yield from click(page, "Cancel", "link", intent_phrase="cancel")
    if slots["reason"] != CANCEL_REASONS[0]:
        page = yield from select_option(page, "Reason", slots["reason"])
    yield from click(page, "Cancel Order", "button", intent_phrase="", reason="It asks once more")
    yield from finish("The order is cancelled")


def _sample_refund(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(
        data, rng, "status IN ('Shipped', 'Complete') AND id > 303500 AND total > 3000"
    )
    reason = rng.choice(REFUND_REASONS)
    amount = rng.randrange(5, order["total"] // 100) * 100
    slots = {"number": str(order["id"]), "amount": format_dollars(amount), "reason": reason}
    text = f"Refunded ${format_dollars(amount)}: {reason}"
    return TaskInstance(slots, order_is(order["id"], "Refunded", text))


@tasks.add(
    "refund",
    _sample_refund,
    'Refund ${amount} of order {number}, reason "{reason}".',
    'Pay back ${amount} on order {number} because of "{reason}".',
    'Order {number}: refund ${amount}; the reason is "{reason}"',
    "The customer of order {number} gets ${amount} back. Enter the refund with the reason "
    '"{reason}".',
    'Give a refund of ${amount} for the order {number}, with "{reason}" as the reason.',
)
def refund(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    page = yield from click(page, "Refund", "link", intent_phrase="refund")
    page = yield from type_text(page, "Amount", slots["amount"])
    if slots["reason"] != REFUND_REASONS[0]:
        page = yield from select_option(page, "Reason", slots["reason"])
    yield from click(page, "Refund Order", "button", intent_phrase="")
    yield from finish("The refund is entered")


def _sample_comment_and_notify(data: Data, rng: random.Random) -> TaskInstance | None:
    order, comment = sample_order(data, rng), rng.choice(random_data.read_lines("admin_remarks"))
    sql = "SELECT 1 FROM remark WHERE purchase_id = ?"
    if data["shop"].execute(sql, [order["id"]]).fetchone():
        return None
    spec = page_includes(
        f"{ADMIN}/orders/{order['id']}", ".history", f"Jun 15, 2023, customer notified {comment}"
    )
    return TaskInstance({"number": str(order["id"]), "comment": comment}, spec)


@tasks.add(
    "comment-and-notify",
    _sample_comment_and_notify,
    'Add the comment "{comment}" to order {number} and notify the customer.',
    'Comment on order {number}: "{comment}" The customer should be notified.',
    'Write "{comment}" into the history of order {number} and let the customer know',
    'Leave "{comment}" as a comment on order {number}, with a notice to the customer.',
    'Order {number} needs the comment "{comment}"; notify the customer of it.',
)
def comment_and_notify(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    page = yield from type_text(page, "Comment", slots["comment"])
    page = yield from set_checked(page, "Notify customer")
    yield from click(page, "Add Comment", "button", intent_phrase="")
    yield from finish("The comment is added")
