"""Views of a customer's account: sign-in, orders, addresses, details."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.shop.cart import add_item, adopt_cart, customer_id
from webagent_jax.arena.shop.stock import return_products
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

OPEN_STATUSES = (
    "Pending",
    "Processing",
)  # statuses of orders that are not shipped: they can be canceled


@views.get("/sign-in")
def sign_in_form(request: RequestContext) -> Response:
    return request.render("sign_in.html.j2", form=Form(request.query))


@views.post("/sign-in")
def sign_in(request: RequestContext) -> Response:
    form = Form(request.form)
    email, password = form.email("email"), form.text("password")
    if not form.errors:
        number = request.value(
            "SELECT id FROM customer WHERE email = ? COLLATE NOCASE AND password = ?",
            *(email, password),
        )
        if number:
            adopt_cart(request, number)
            return request.sign_in(number, "/account")
        form.errors["password"] = "The email address or the password is wrong."
    return request.render("sign_in.html.j2", 422, form=form)


@views.post("/sign-out")
def sign_out(request: RequestContext) -> Response:
    return request.sign_out("/")


@views.get("/register")
def register_form(request: RequestContext) -> Response:
    return request.render("register.html.j2", form=Form())


@views.post("/register")
def register(request: RequestContext) -> Response:
    form = Form(request.form)
    row = [form.text("first", max_chars=40), form.text("last", max_chars=40), form.email("email")]
    password = form.text("password", min_chars=8)
    if request.value("SELECT 1 FROM customer WHERE email = ? COLLATE NOCASE", row[-1]):
        form.errors["email"] = "There is an account with this email address already."
    if form.errors:
        return request.render("register.html.j2", 422, form=form)
    number = request.execute(
        "INSERT INTO customer (first, last, email, phone, password, customer_group, joined)"
        " VALUES (?, ?, ?, '', ?, 'General', ?)",
        *(*row, password, request.today),
    )
    adopt_cart(request, number)
    request.set_account(number)
    return request.redirect("/account", "Your account was created.")


@views.get("/account", signed_in=True)
def account(request: RequestContext) -> Response:
    customer_row = request.row("SELECT * FROM customer WHERE id = ?", request.session.account_id)
    default_addresses = request.rows(
        "SELECT * FROM address WHERE customer_id = ? AND is_default", request.session.account_id
    )
    latest = request.rows(
        "SELECT * FROM purchase WHERE customer_id = ? ORDER BY id DESC LIMIT 3",
        request.session.account_id,
    )
    return request.render(
        "account.html.j2", customer=customer_row, addresses=default_addresses, latest=latest
    )


@views.get("/account/orders", signed_in=True)
def orders(request: RequestContext) -> Response:
    from_clause = "FROM purchase WHERE customer_id = ? ORDER BY id DESC"
    pagination = paginate(request, "*", from_clause, [request.session.account_id], size=8)
    return request.render("orders.html.j2", pagination=pagination)


@views.get("/account/orders/{number:int}", signed_in=True)
def order(request: RequestContext, number: int) -> Response:
    order_row = _find_order(request, number)
    return request.render(
        "order.html.j2",
        order=order_row,
        items=_find_items(request, number),
        is_open=order_row["status"] in OPEN_STATUSES,
    )


@views.post("/account/orders/{number:int}/cancel", signed_in=True)
def cancel(request: RequestContext, number: int) -> Response:
    order_row = _find_order(request, number)
    if order_row["status"] not in OPEN_STATUSES:
        return request.redirect(f"/account/orders/{number}", "This order cannot be cancelled.")
    return_products(request, number)
    request.execute("UPDATE purchase SET status = 'Cancelled' WHERE id = ?", number)
    return request.redirect(f"/account/orders/{number}", "The order was cancelled.")


@views.post("/account/orders/{number:int}/reorder", signed_in=True)
def reorder(request: RequestContext, number: int) -> Response:
    _find_order(request, number)
    for item in _find_items(request, number):
        product, choice = item["product_id"], item["choice"]
        add_item(request, customer_id(request), product, choice, item["quantity"])
    return request.redirect("/cart", f"The products of order {number} are in your cart.")


@views.get("/account/orders/{number:int}/address", signed_in=True)
def order_address_form(request: RequestContext, number: int) -> Response:
    order_row = _find_order(request, number)
    return request.render("order_address.html.j2", order=order_row, form=Form(dict(order_row)))


@views.post("/account/orders/{number:int}/address", signed_in=True)
def order_address(request: RequestContext, number: int) -> Response:
    order_row, form = _find_order(request, number), Form(request.form)
    values = _read_address(form)
    if order_row["status"] not in OPEN_STATUSES:
        return request.redirect(
            f"/account/orders/{number}", "This order has left the house already."
        )
    if form.errors:
        return request.render("order_address.html.j2", 422, order=order_row, form=form)
    request.execute(
        "UPDATE purchase SET name = ?, street = ?, city = ?, zip_code = ?, phone = ? WHERE id = ?",
        *(*values, number),
    )
    return request.redirect(f"/account/orders/{number}", "The delivery address was changed.")


def _find_order(request: RequestContext, number: int) -> Any:
    return request.row(
        "SELECT * FROM purchase WHERE id = ? AND customer_id = ?",
        number,
        request.session.account_id,
    )


def _find_items(request: RequestContext, number: int) -> list[Any]:
    return request.rows(
        "SELECT purchase_item.*, name, slug FROM purchase_item"
        " JOIN product ON product.id = product_id WHERE purchase_id = ?",
        number,
    )


# --- addresses and details -----------------------------------------------------------------------


@views.get("/account/addresses", signed_in=True)
def addresses(request: RequestContext) -> Response:
    rows = request.rows(
        "SELECT * FROM address WHERE customer_id = ? ORDER BY is_default DESC, id",
        request.session.account_id,
    )
    return request.render("addresses.html.j2", addresses=rows)


@views.get("/account/addresses/new", signed_in=True)
def new_address(request: RequestContext) -> Response:
    return request.render("address.html.j2", form=Form(), address=None)


@views.get("/account/addresses/{number:int}", signed_in=True)
def edit_address(request: RequestContext, number: int) -> Response:
    address = _find_address(request, number)
    return request.render("address.html.j2", form=Form(dict(address)), address=address)


@views.post("/account/addresses/new", signed_in=True)
def add_address(request: RequestContext) -> Response:
    form = Form(request.form)
    values = _read_address(form)
    if form.errors:
        return request.render("address.html.j2", 422, form=form, address=None)
    number = request.execute(
        "INSERT INTO address (name, street, city, zip_code, phone, customer_id)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        *(*values, request.session.account_id),
    )
    return _save_default(request, form, number)


@views.post("/account/addresses/{number:int}", signed_in=True)
def change_address(request: RequestContext, number: int) -> Response:
    address, form = _find_address(request, number), Form(request.form)
    values = _read_address(form)
    if form.errors:
        return request.render("address.html.j2", 422, form=form, address=address)
    request.execute(
        "UPDATE address SET name = ?, street = ?, city = ?, zip_code = ?, phone = ? WHERE id = ?",
        *(*values, number),
    )
    return _save_default(request, form, number)


@views.post("/account/addresses/{number:int}/delete", signed_in=True)
def delete_address(request: RequestContext, number: int) -> Response:
    if _find_address(request, number)["is_default"]:
        return request.redirect("/account/addresses", "The default address cannot be deleted.")
    request.execute("DELETE FROM address WHERE id = ?", number)
    if request.session.pending_inputs.get("address") == number:
        del request.session.pending_inputs["address"]
    return request.redirect("/account/addresses", "The address was deleted.")


def _find_address(request: RequestContext, number: int) -> Any:
    return request.row(
        "SELECT * FROM address WHERE id = ? AND customer_id = ?", number, request.session.account_id
    )


def _read_address(form: Form) -> list[str]:
    values = [
        form.text(name, max_chars=80) for name in ("name", "street", "city", "zip_code", "phone")
    ]
    zip_code = values[3]
    if zip_code and not (zip_code.isdecimal() and len(zip_code) == 5):
        form.errors["zip_code"] = "A zip code has five digits."
    return values


def _save_default(request: RequestContext, form: Form, number: int) -> Response:
    if form.is_checked("is_default"):
        request.execute(
            "UPDATE address SET is_default = (id = ?) WHERE customer_id = ?",
            *(number, request.session.account_id),
        )
    return request.redirect("/account/addresses", "The address was saved.")


@views.get("/account/details", signed_in=True)
def details_form(request: RequestContext) -> Response:
    customer_row = request.row("SELECT * FROM customer WHERE id = ?", request.session.account_id)
    return request.render("details.html.j2", form=Form({**customer_row}))


@views.post("/account/details", signed_in=True)
def details(request: RequestContext) -> Response:
    customer_row = request.row("SELECT * FROM customer WHERE id = ?", request.session.account_id)
    form = Form(request.form)
    row = [form.text("first", max_chars=40), form.text("last", max_chars=40), form.email("email")]
    row.append(form.text("phone", max_chars=20))
    email_sql = "SELECT 1 FROM customer WHERE email = ? COLLATE NOCASE AND id != ?"
    if request.value(email_sql, row[2], customer_row["id"]):
        form.errors["email"] = "There is an account with this email address already."
    if form.errors:
        return request.render("details.html.j2", 422, form=form)
    request.execute(
        "UPDATE customer SET first = ?, last = ?, email = ?, phone = ?, newsletter = ?"
        " WHERE id = ?",
        *(*row, int(form.is_checked("newsletter")), customer_row["id"]),
    )
    return request.redirect("/account", "Your details were saved.")


@views.get("/account/reviews", signed_in=True)
def my_reviews(request: RequestContext) -> Response:
    from_clause = (
        "FROM review JOIN product ON product.id = product_id WHERE customer_id = ?"
        " ORDER BY review.id DESC"
    )
    pagination = paginate(
        request, "review.*, name, slug", from_clause, [request.session.account_id], size=5
    )
    return request.render("my_reviews.html.j2", pagination=pagination)
