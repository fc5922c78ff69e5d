"""Views of a customer's account: sign-in, orders, addresses, details."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.shop.cart import customer_id
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

OPEN_STATUSES = ("Pending", "Processing")  # statuses of orders that are not shipped: they can be canceled


@views.get("/sign-in")
def sign_in_form(visit: RequestContext) -> Response:
    return visit.render("sign_in.html.j2", form=Form(visit.query))


@views.post("/sign-in")
def sign_in(visit: RequestContext) -> Response:
    form = Form(visit.form)
    email, password = form.email("email"), form.text("password")
    if not form.errors:
        number = visit.value(
            "SELECT id FROM customer WHERE email = ? COLLATE NOCASE AND password = ?",
            *(email, password),
        )
        if number:
            return visit.sign_in(number, "/account")
        form.errors["password"] = "The email address or the password is wrong."
    return visit.render("sign_in.html.j2", 422, form=form)


@views.post("/sign-out")
def sign_out(visit: RequestContext) -> Response:
    visit.session.account = None
    visit.session.pending_inputs.clear()
    return visit.redirect("/", "You are signed out.")


@views.get("/register")
def register_form(visit: RequestContext) -> Response:
    return visit.render("register.html.j2", form=Form())


@views.post("/register")
def register(visit: RequestContext) -> Response:
    form = Form(visit.form)
    row = [form.text("first", max_chars=40), form.text("last", max_chars=40), form.email("email")]
    password = form.text("password", min_chars=8)
    if visit.value("SELECT 1 FROM customer WHERE email = ?", row[-1]):
        form.errors["email"] = "There is an account with this email address already."
    if form.errors:
        return visit.render("register.html.j2", 422, form=form)
    visit.session.account = visit.execute(
        "INSERT INTO customer (first, last, email, phone, password, customer_group, joined)"
        " VALUES (?, ?, ?, '', ?, 'General', ?)",
        *(*row, password, visit.today),
    )
    return visit.redirect("/account", "Your account was created.")


@views.get("/account")
def account(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    customer_row = visit.row("SELECT * FROM customer WHERE id = ?", visit.session.account)
    default_addresses = visit.rows(
        "SELECT * FROM address WHERE customer_id = ? AND is_default", visit.session.account
    )
    latest = visit.rows(
        "SELECT * FROM purchase WHERE customer_id = ? ORDER BY id DESC LIMIT 3",
        visit.session.account,
    )
    return visit.render(
        "account.html.j2", customer=customer_row, addresses=default_addresses, latest=latest
    )


@views.get("/account/orders")
def orders(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    rest = "FROM purchase WHERE customer_id = ? ORDER BY id DESC"
    pagination = paginate(visit, "*", rest, [visit.session.account], size=8)
    return visit.render("orders.html.j2", found=pagination)


@views.get("/account/orders/{number:int}")
def order(visit: RequestContext, number: int) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    order_row = _find_order(visit, number)
    return visit.render(
        "order.html.j2",
        order=order_row,
        items=_find_items(visit, number),
        is_open=order_row["status"] in OPEN_STATUSES,
    )


@views.post("/account/orders/{number:int}/cancel")
def cancel(visit: RequestContext, number: int) -> Response:
    order_row = _find_order(visit, number)
    if order_row["status"] not in OPEN_STATUSES:
        return visit.redirect(f"/account/orders/{number}", "This order cannot be cancelled.")
    visit.execute("UPDATE purchase SET status = 'Cancelled' WHERE id = ?", number)
    return visit.redirect(f"/account/orders/{number}", "The order was cancelled.")


@views.post("/account/orders/{number:int}/reorder")
def reorder(visit: RequestContext, number: int) -> Response:
    _find_order(visit, number)
    for item in _find_items(visit, number):
        visit.execute(
            "INSERT INTO cart_item (customer_id, product_id, choice, quantity) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET quantity = quantity + excluded.quantity",
            *(customer_id(visit), item["product_id"], item["choice"], item["quantity"]),
        )
    return visit.redirect("/cart", f"The products of order {number} are in your cart.")


@views.get("/account/orders/{number:int}/address")
def order_address_form(visit: RequestContext, number: int) -> Response:
    order_row = _find_order(visit, number)
    return visit.render("order_address.html.j2", order=order_row, form=Form(dict(order_row)))


@views.post("/account/orders/{number:int}/address")
def order_address(visit: RequestContext, number: int) -> Response:
    order_row, form = _find_order(visit, number), Form(visit.form)
    values = _read_address(form)
    if order_row["status"] not in OPEN_STATUSES:
        return visit.redirect(f"/account/orders/{number}", "This order has left the house already.")
    if form.errors:
        return visit.render("order_address.html.j2", 422, order=order_row, form=form)
    visit.execute(
        "UPDATE purchase SET name = ?, street = ?, city = ?, zip_code = ?, phone = ? WHERE id = ?",
        *(*values, number),
    )
    return visit.redirect(f"/account/orders/{number}", "The delivery address was changed.")


def _find_order(visit: RequestContext, number: int) -> Any:
    return visit.row(
        "SELECT * FROM purchase WHERE id = ? AND customer_id = ?", number, visit.session.account
    )


def _find_items(visit: RequestContext, number: int) -> list[Any]:
    return visit.rows(
        "SELECT purchase_item.*, name, slug FROM purchase_item"
        " JOIN product ON product.id = product_id WHERE purchase_id = ?",
        number,
    )


# --- addresses and details -----------------------------------------------------------------------


@views.get("/account/addresses")
def addresses(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    rows = visit.rows(
        "SELECT * FROM address WHERE customer_id = ? ORDER BY is_default DESC, id",
        visit.session.account,
    )
    return visit.render("addresses.html.j2", addresses=rows)


@views.get("/account/addresses/new")
def new_address(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    return visit.render("address.html.j2", form=Form(), address=None)


@views.get("/account/addresses/{number:int}")
def edit_address(visit: RequestContext, number: int) -> Response:
    address = _find_address(visit, number)
    return visit.render("address.html.j2", form=Form(dict(address)), address=address)


@views.post("/account/addresses/new")
def add_address(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    form = Form(visit.form)
    values = _read_address(form)
    if form.errors:
        return visit.render("address.html.j2", 422, form=form, address=None)
    number = visit.execute(
        "INSERT INTO address (name, street, city, zip_code, phone, customer_id)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        *(*values, visit.session.account),
    )
    return _save_default(visit, form, number)


@views.post("/account/addresses/{number:int}")
def change_address(visit: RequestContext, number: int) -> Response:
    address, form = _find_address(visit, number), Form(visit.form)
    values = _read_address(form)
    if form.errors:
        return visit.render("address.html.j2", 422, form=form, address=address)
    visit.execute(
        "UPDATE address SET name = ?, street = ?, city = ?, zip_code = ?, phone = ? WHERE id = ?",
        *(*values, number),
    )
    return _save_default(visit, form, number)


@views.post("/account/addresses/{number:int}/delete")
def delete_address(visit: RequestContext, number: int) -> Response:
    if _find_address(visit, number)["is_default"]:
        return visit.redirect("/account/addresses", "The default address cannot be deleted.")
    visit.execute("DELETE FROM address WHERE id = ?", number)
    return visit.redirect("/account/addresses", "The address was deleted.")


def _find_address(visit: RequestContext, number: int) -> Any:
    return visit.row(
        "SELECT * FROM address WHERE id = ? AND customer_id = ?", number, visit.session.account
    )


def _read_address(form: Form) -> list[str]:
    values = [form.text(name, max_chars=80) for name in ("name", "street", "city", "zip_code", "phone")]
    zip_code = values[3]
    if zip_code and not (zip_code.isdecimal() and len(zip_code) == 5):
        form.errors["zip_code"] = "A zip code has five digits."
    return values


def _save_default(visit: RequestContext, form: Form, number: int) -> Response:
    if form.is_checked("is_default"):
        visit.execute(
            "UPDATE address SET is_default = (id = ?) WHERE customer_id = ?",
            *(number, visit.session.account),
        )
    return visit.redirect("/account/addresses", "The address was saved.")


@views.get("/account/details")
def details_form(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    customer_row = visit.row("SELECT * FROM customer WHERE id = ?", visit.session.account)
    return visit.render("details.html.j2", form=Form({**customer_row}), customer=customer_row)


@views.post("/account/details")
def details(visit: RequestContext) -> Response:
    customer_row = visit.row("SELECT * FROM customer WHERE id = ?", visit.session.account)
    form = Form(visit.form)
    row = [form.text("first", max_chars=40), form.text("last", max_chars=40), form.email("email")]
    row.append(form.text("phone", max_chars=20))
    if visit.value(
        "SELECT 1 FROM customer WHERE email = ? AND id != ?", row[2], customer_row["id"]
    ):
        form.errors["email"] = "There is an account with this email address already."
    if form.errors:
        return visit.render("details.html.j2", 422, form=form, customer=customer_row)
    visit.execute(
        "UPDATE customer SET first = ?, last = ?, email = ?, phone = ?, newsletter = ?"
        " WHERE id = ?",
        *(*row, int(form.is_checked("newsletter")), customer_row["id"]),
    )
    return visit.redirect("/account", "Your details were saved.")


@views.get("/account/reviews")
def my_reviews(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    rest = (
        "FROM review JOIN product ON product.id = product_id WHERE customer_id = ?"
        " ORDER BY review.id DESC"
    )
    pagination = paginate(visit, "review.*, name, slug", rest, [visit.session.account], size=5)
    return visit.render("my_reviews.html.j2", found=pagination)
