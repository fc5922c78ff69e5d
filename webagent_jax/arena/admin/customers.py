"""Customers: who they are, what they bought, what we know of them."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.staff_views import ROWS, StaffViews, one_of, tidied
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import Condition, listing
from webagent_jax.arena.site import Visit

views = StaffViews()

GROUPS = ("General", "Wholesale", "Retailer")

SORTS = {
    "": ("Newest first", "joined DESC, customer.id DESC"),
    "oldest": ("Oldest first", "joined, customer.id"),
    "name": ("Last name", "last, first"),
    "orders": ("Most orders first", "orders DESC, last, first"),
}

_ORDERS = "(SELECT count(*) FROM purchase WHERE customer_id = customer.id) AS orders"


@views.get("/customers")
def customers(visit: Visit) -> Response:
    if away := tidied(visit, "q", "group", "sort"):
        return away
    form, condition = Form(visit.query), Condition()
    asked = form.text("q", required=False)
    condition.words("first || ' ' || last || ' ' || email || ' ' || phone", asked)
    if group := one_of(form, "group", GROUPS):
        condition.add("customer_group = ?", group)
    order = SORTS.get(form.values.get("sort", ""), SORTS[""])[1]
    rest = f"FROM customer WHERE {condition.sql} ORDER BY {order}"
    columns = f"id, first || ' ' || last AS name, email, customer_group, joined, {_ORDERS}"
    found = listing(visit, columns, rest, condition.arguments, size=ROWS)
    return visit.page(
        "customers.html.j2",
        form=form,
        found=found,
        groups=GROUPS,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
    )


@views.get("/customers/{number:int}")
def customer(visit: Visit, number: int) -> Response:
    bought = visit.row(
        "SELECT count(*) AS orders, coalesce(sum(total) FILTER (WHERE status != 'Cancelled'), 0)"
        " AS spent FROM purchase WHERE customer_id = ?",
        number,
    )
    return visit.page(
        "customer.html.j2",
        customer=_customer(visit, number),
        address=visit.rows("SELECT * FROM address WHERE customer_id = ? AND is_default", number),
        bought=bought,
        latest=visit.rows(
            "SELECT * FROM purchase WHERE customer_id = ? ORDER BY id DESC LIMIT 5", number
        ),
    )


@views.get("/customers/{number:int}/edit")
def customer_form(visit: Visit, number: int) -> Response:
    here = _customer(visit, number)
    return _form_page(visit, here, Form(dict(here)))


@views.get("/customers/new")
def new_customer(visit: Visit) -> Response:
    return _form_page(visit, None, Form())


def _form_page(visit: Visit, customer: Any, form: Form) -> Response:
    status = 422 if form.errors else 200
    return visit.page("customer_form.html.j2", status, customer=customer, form=form, groups=GROUPS)


@views.post("/customers/new")
def add_customer(visit: Visit) -> Response:
    form = Form(visit.form)
    values = _values(visit, form, number=0)
    if form.errors:
        return _form_page(visit, None, form)
    number = visit.do(
        f"INSERT INTO customer ({', '.join(values)}, password, joined)"
        f" VALUES ({', '.join('?' * len(values))}, '', ?)",
        *values.values(),
        visit.today,
    )
    return _saved(visit, form, number)


@views.post("/customers/{number:int}/edit")
def change_customer(visit: Visit, number: int) -> Response:
    here, form = _customer(visit, number), Form(visit.form)
    values = _values(visit, form, number=number)
    if form.errors:
        return _form_page(visit, here, form)
    assigned = ", ".join(f"{name} = ?" for name in values)
    visit.do(f"UPDATE customer SET {assigned} WHERE id = ?", *values.values(), number)
    return _saved(visit, form, number)


def _values(visit: Visit, form: Form, number: int) -> dict[str, Any]:
    """By column; `number` 0 is a new customer."""
    form.text("note", required=False, most=500)
    values = {
        "first": form.text("first", most=40),
        "last": form.text("last", most=40),
        "email": form.email("email"),
        "phone": form.text("phone", required=False, most=20),
        "customer_group": form.choice("customer_group", GROUPS),
        "newsletter": int(form.ticked("newsletter")),
    }
    if visit.value("SELECT 1 FROM customer WHERE email = ? AND id != ?", values["email"], number):
        form.errors["email"] = "There is a customer with this email address already."
    return values


def _saved(visit: Visit, form: Form, number: int) -> Response:
    visit.do("DELETE FROM customer_note WHERE customer_id = ?", number)
    if note := form.values.get("note", "").strip():
        visit.do("INSERT INTO customer_note VALUES (?, ?)", number, note)
    return visit.redirect(f"/customers/{number}", "The customer was saved.")


def _customer(visit: Visit, number: int) -> Any:
    return visit.row(
        "SELECT customer.*, coalesce(body, '') AS note FROM customer"
        " LEFT JOIN customer_note ON customer_id = customer.id WHERE customer.id = ?",
        number,
    )
