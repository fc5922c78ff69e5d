"""Views of customers: their data, orders and notes."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.staff_views import (
    ROWS_PER_PAGE,
    optional_choice,
    redirect_to_canonical,
)
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import WhereClause, paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry(signed_in=True)

GROUPS = ("General", "Wholesale", "Retailer")

SORTS = {
    "": ("Newest first", "joined DESC, customer.id DESC"),
    "oldest": ("Oldest first", "joined, customer.id"),
    "name": ("Last name", "last, first"),
    "orders": ("Most orders first", "orders DESC, last, first"),
}

_NUM_ORDERS = "(SELECT count(*) FROM purchase WHERE customer_id = customer.id) AS orders"


@views.get("/customers")
def customers(request: RequestContext) -> Response:
    if redirect := redirect_to_canonical(request, "q", "group", "sort"):
        return redirect
    form, condition = Form(request.query), WhereClause()
    query = form.text("q", required=False)
    condition.add_words("first || ' ' || last || ' ' || email || ' ' || phone", query)
    if group := optional_choice(form, "group", GROUPS):
        condition.add("customer_group = ?", group)
    order = SORTS.get(form.values.get("sort", ""), SORTS[""])[1]
    from_clause = f"FROM customer WHERE {condition.sql} ORDER BY {order}"
    columns = f"id, first || ' ' || last AS name, email, customer_group, joined, {_NUM_ORDERS}"
    pagination = paginate(request, columns, from_clause, condition.arguments, size=ROWS_PER_PAGE)
    return request.render(
        "customers.html.j2",
        form=form,
        pagination=pagination,
        groups=GROUPS,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
    )


@views.get("/customers/{number:int}")
def customer(request: RequestContext, number: int) -> Response:
    totals = request.row(
        "SELECT count(*) AS orders, coalesce(sum(total) FILTER (WHERE status != 'Cancelled'), 0)"
        " AS spent FROM purchase WHERE customer_id = ?",
        number,
    )
    return request.render(
        "customer.html.j2",
        customer=_find_customer(request, number),
        address=request.rows("SELECT * FROM address WHERE customer_id = ? AND is_default", number),
        totals=totals,
        latest=request.rows(
            "SELECT * FROM purchase WHERE customer_id = ? ORDER BY id DESC LIMIT 5", number
        ),
    )


@views.get("/customers/{number:int}/edit")
def customer_form(request: RequestContext, number: int) -> Response:
    customer_row = _find_customer(request, number)
    return _customer_form(request, customer_row, Form(dict(customer_row)))


@views.get("/customers/new")
def new_customer(request: RequestContext) -> Response:
    return _customer_form(request, None, Form())


def _customer_form(request: RequestContext, customer: Any, form: Form) -> Response:
    status = 422 if form.errors else 200
    return request.render(
        "customer_form.html.j2", status, customer=customer, form=form, groups=GROUPS
    )


@views.post("/customers/new")
def add_customer(request: RequestContext) -> Response:
    form = Form(request.form)
    values = _read_values(request, form, number=0)
    if form.errors:
        return _customer_form(request, None, form)
    number = request.execute(
        f"INSERT INTO customer ({', '.join(values)}, password, joined)"
        f" VALUES ({', '.join('?' * len(values))}, '', ?)",
        *values.values(),
        request.today,
    )
    return _save_note(request, form, number)


@views.post("/customers/{number:int}/edit")
def change_customer(request: RequestContext, number: int) -> Response:
    customer_row, form = _find_customer(request, number), Form(request.form)
    values = _read_values(request, form, number=number)
    if form.errors:
        return _customer_form(request, customer_row, form)
    assignments = ", ".join(f"{name} = ?" for name in values)
    request.execute(f"UPDATE customer SET {assignments} WHERE id = ?", *values.values(), number)
    return _save_note(request, form, number)


def _read_values(request: RequestContext, form: Form, number: int) -> dict[str, Any]:
    """Return the values of the form by column; `number` is 0 for a new customer."""
    form.text("note", required=False, max_chars=500)
    values = {
        "first": form.text("first", max_chars=40),
        "last": form.text("last", max_chars=40),
        "email": form.email("email"),
        "phone": form.text("phone", required=False, max_chars=20),
        "customer_group": form.choice("customer_group", GROUPS),
        "newsletter": int(form.is_checked("newsletter")),
    }
    email_sql = "SELECT 1 FROM customer WHERE email = ? COLLATE NOCASE AND id != ?"
    if request.value(email_sql, values["email"], number):
        form.errors["email"] = "There is a customer with this email address already."
    return values


def _save_note(request: RequestContext, form: Form, number: int) -> Response:
    request.execute("DELETE FROM customer_note WHERE customer_id = ?", number)
    if note := form.values.get("note", "").strip():
        request.execute("INSERT INTO customer_note VALUES (?, ?)", number, note)
    return request.redirect(f"/customers/{number}", "The customer was saved.")


def _find_customer(request: RequestContext, number: int) -> Any:
    return request.row(
        "SELECT customer.*, coalesce(body, '') AS note FROM customer"
        " LEFT JOIN customer_note ON customer_id = customer.id WHERE customer.id = ?",
        number,
    )
