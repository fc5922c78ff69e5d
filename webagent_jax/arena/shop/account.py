"""What a customer sees of themselves: sign-in, orders, addresses, details."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import listing
from webagent_jax.arena.shop.cart import customer
from webagent_jax.arena.site import Views, Visit

views = Views()

OPEN = ("Pending", "Processing")  # orders that have not left the house: they can be cancelled


@views.get("/sign-in")
def sign_in_form(visit: Visit) -> Response:
    return visit.page("sign_in.html.j2", form=Form(visit.query))


@views.post("/sign-in")
def sign_in(visit: Visit) -> Response:
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
    return visit.page("sign_in.html.j2", 422, form=form)


@views.post("/sign-out")
def sign_out(visit: Visit) -> Response:
    visit.session.account = None
    visit.session.notes.clear()
    return visit.redirect("/", "You are signed out.")


@views.get("/register")
def register_form(visit: Visit) -> Response:
    return visit.page("register.html.j2", form=Form())


@views.post("/register")
def register(visit: Visit) -> Response:
    form = Form(visit.form)
    row = [form.text("first", most=40), form.text("last", most=40), form.email("email")]
    password = form.text("password", least=8)
    if visit.value("SELECT 1 FROM customer WHERE email = ?", row[-1]):
        form.errors["email"] = "There is an account with this email address already."
    if form.errors:
        return visit.page("register.html.j2", 422, form=form)
    visit.session.account = visit.do(
        "INSERT INTO customer (first, last, email, phone, password, customer_group, joined)"
        " VALUES (?, ?, ?, '', ?, 'General', ?)",
        *(*row, password, visit.today),
    )
    return visit.redirect("/account", "Your account was created.")


@views.get("/account")
def account(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    here = visit.row("SELECT * FROM customer WHERE id = ?", visit.session.account)
    address = visit.rows(
        "SELECT * FROM address WHERE customer_id = ? AND is_default", visit.session.account
    )
    latest = visit.rows(
        "SELECT * FROM purchase WHERE customer_id = ? ORDER BY id DESC LIMIT 3",
        visit.session.account,
    )
    return visit.page("account.html.j2", customer=here, addresses=address, latest=latest)


@views.get("/account/orders")
def orders(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    rest = "FROM purchase WHERE customer_id = ? ORDER BY id DESC"
    found = listing(visit, "*", rest, [visit.session.account], size=8)
    return visit.page("orders.html.j2", found=found)


@views.get("/account/orders/{number:int}")
def order(visit: Visit, number: int) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    here = _order(visit, number)
    return visit.page(
        "order.html.j2", order=here, items=_items(visit, number), is_open=here["status"] in OPEN
    )


@views.post("/account/orders/{number:int}/cancel")
def cancel(visit: Visit, number: int) -> Response:
    here = _order(visit, number)
    if here["status"] not in OPEN:
        return visit.redirect(f"/account/orders/{number}", "This order cannot be cancelled.")
    visit.do("UPDATE purchase SET status = 'Cancelled' WHERE id = ?", number)
    return visit.redirect(f"/account/orders/{number}", "The order was cancelled.")


@views.post("/account/orders/{number:int}/reorder")
def reorder(visit: Visit, number: int) -> Response:
    _order(visit, number)
    for item in _items(visit, number):
        visit.do(
            "INSERT INTO cart_item (customer_id, product_id, choice, quantity) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET quantity = quantity + excluded.quantity",
            *(customer(visit), item["product_id"], item["choice"], item["quantity"]),
        )
    return visit.redirect("/cart", f"The products of order {number} are in your cart.")


@views.get("/account/orders/{number:int}/address")
def order_address_form(visit: Visit, number: int) -> Response:
    here = _order(visit, number)
    return visit.page("order_address.html.j2", order=here, form=Form(dict(here)))


@views.post("/account/orders/{number:int}/address")
def order_address(visit: Visit, number: int) -> Response:
    here, form = _order(visit, number), Form(visit.form)
    values = _address_values(form)
    if here["status"] not in OPEN:
        return visit.redirect(f"/account/orders/{number}", "This order has left the house already.")
    if form.errors:
        return visit.page("order_address.html.j2", 422, order=here, form=form)
    visit.do(
        "UPDATE purchase SET name = ?, street = ?, city = ?, zip_code = ?, phone = ? WHERE id = ?",
        *(*values, number),
    )
    return visit.redirect(f"/account/orders/{number}", "The delivery address was changed.")


def _order(visit: Visit, number: int) -> Any:
    return visit.row(
        "SELECT * FROM purchase WHERE id = ? AND customer_id = ?", number, visit.session.account
    )


def _items(visit: Visit, number: int) -> list[Any]:
    return visit.rows(
        "SELECT purchase_item.*, name, slug FROM purchase_item"
        " JOIN product ON product.id = product_id WHERE purchase_id = ?",
        number,
    )


# --- addresses and details -----------------------------------------------------------------------


@views.get("/account/addresses")
def addresses(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    kept = visit.rows(
        "SELECT * FROM address WHERE customer_id = ? ORDER BY is_default DESC, id",
        visit.session.account,
    )
    return visit.page("addresses.html.j2", addresses=kept)


@views.get("/account/addresses/new")
def new_address(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    return visit.page("address.html.j2", form=Form(), address=None)


@views.get("/account/addresses/{number:int}")
def edit_address(visit: Visit, number: int) -> Response:
    here = _address(visit, number)
    return visit.page("address.html.j2", form=Form(dict(here)), address=here)


@views.post("/account/addresses/new")
def add_address(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    form = Form(visit.form)
    values = _address_values(form)
    if form.errors:
        return visit.page("address.html.j2", 422, form=form, address=None)
    number = visit.do(
        "INSERT INTO address (name, street, city, zip_code, phone, customer_id)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        *(*values, visit.session.account),
    )
    return _address_saved(visit, form, number)


@views.post("/account/addresses/{number:int}")
def change_address(visit: Visit, number: int) -> Response:
    here, form = _address(visit, number), Form(visit.form)
    values = _address_values(form)
    if form.errors:
        return visit.page("address.html.j2", 422, form=form, address=here)
    visit.do(
        "UPDATE address SET name = ?, street = ?, city = ?, zip_code = ?, phone = ? WHERE id = ?",
        *(*values, number),
    )
    return _address_saved(visit, form, number)


@views.post("/account/addresses/{number:int}/delete")
def delete_address(visit: Visit, number: int) -> Response:
    if _address(visit, number)["is_default"]:
        return visit.redirect("/account/addresses", "The default address cannot be deleted.")
    visit.do("DELETE FROM address WHERE id = ?", number)
    return visit.redirect("/account/addresses", "The address was deleted.")


def _address(visit: Visit, number: int) -> Any:
    return visit.row(
        "SELECT * FROM address WHERE id = ? AND customer_id = ?", number, visit.session.account
    )


def _address_values(form: Form) -> list[str]:
    values = [form.text(name, most=80) for name in ("name", "street", "city", "zip_code", "phone")]
    zip_code = values[3]
    if zip_code and not (zip_code.isdecimal() and len(zip_code) == 5):
        form.errors["zip_code"] = "A zip code has five digits."
    return values


def _address_saved(visit: Visit, form: Form, number: int) -> Response:
    if form.ticked("is_default"):
        visit.do(
            "UPDATE address SET is_default = (id = ?) WHERE customer_id = ?",
            *(number, visit.session.account),
        )
    return visit.redirect("/account/addresses", "The address was saved.")


@views.get("/account/details")
def details_form(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    here = visit.row("SELECT * FROM customer WHERE id = ?", visit.session.account)
    return visit.page("details.html.j2", form=Form({**here}), customer=here)


@views.post("/account/details")
def details(visit: Visit) -> Response:
    here = visit.row("SELECT * FROM customer WHERE id = ?", visit.session.account)
    form = Form(visit.form)
    row = [form.text("first", most=40), form.text("last", most=40), form.email("email")]
    row.append(form.text("phone", most=20))
    if visit.value("SELECT 1 FROM customer WHERE email = ? AND id != ?", row[2], here["id"]):
        form.errors["email"] = "There is an account with this email address already."
    if form.errors:
        return visit.page("details.html.j2", 422, form=form, customer=here)
    visit.do(
        "UPDATE customer SET first = ?, last = ?, email = ?, phone = ?, newsletter = ?"
        " WHERE id = ?",
        *(*row, int(form.ticked("newsletter")), here["id"]),
    )
    return visit.redirect("/account", "Your details were saved.")


@views.get("/account/reviews")
def my_reviews(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    rest = (
        "FROM review JOIN product ON product.id = product_id WHERE customer_id = ?"
        " ORDER BY review.id DESC"
    )
    found = listing(visit, "review.*, name, slug", rest, [visit.session.account], size=5)
    return visit.page("my_reviews.html.j2", found=found)
