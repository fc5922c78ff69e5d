"""Views of the cart, the checkout and the wish list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.shop.policies import DELIVERIES, PAYMENTS, shipping_cost
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry

views = ViewRegistry()

MAX_QUANTITY = 20  # maximum pieces of a product per order


@dataclass(frozen=True, slots=True)
class Cart:
    """Cart of a customer; amounts are in cents."""

    items: list[Any]
    coupon: Any  # row of the table promotion; None without a coupon
    delivery: str

    @property
    def pieces(self) -> int:
        return sum(item["quantity"] for item in self.items)

    @property
    def subtotal(self) -> int:
        return sum(item["quantity"] * item["price"] for item in self.items)

    @property
    def discount(self) -> int:
        is_valid = self.coupon and self.subtotal >= self.coupon["minimum"]
        return self.subtotal * self.coupon["percent"] // 100 if is_valid else 0

    @property
    def shipping(self) -> int:
        return shipping_cost(self.delivery, self.subtotal - self.discount)

    @property
    def total(self) -> int:
        return self.subtotal - self.discount + self.shipping


def customer_id(request: RequestContext) -> int:
    """Return the id of the customer who owns the cart and the wish list; 0 if signed out."""
    return request.session.account_id or 0


def load_cart(request: RequestContext) -> Cart:
    """Return the cart without products that are no longer sold."""
    items = request.rows(
        "SELECT cart_item.*, name, slug, price, stock FROM cart_item JOIN product"
        " ON product.id = product_id WHERE customer_id = ? AND active ORDER BY cart_item.id",
        customer_id(request),
    )
    notes = request.session.pending_inputs
    code = notes.get("coupon")
    # The back office may have deleted the coupon since it was applied.
    coupons = request.rows("SELECT * FROM promotion WHERE code = ?", code) if code else []
    return Cart(items, next(iter(coupons), None), notes.get("delivery", "Standard"))


@views.get("/cart")
def cart(request: RequestContext) -> Response:
    return request.render("cart.html.j2", cart=load_cart(request), form=Form())


@views.post("/cart/add")
def add(request: RequestContext) -> Response:
    slug = request.form.get("slug", "")
    product = request.row("SELECT * FROM product WHERE active AND slug = ?", slug)
    form = Form(request.form)
    choice = form.choice("choice", product["option_values"].split(", "))
    quantity = form.integer("quantity", 1, MAX_QUANTITY)
    pieces_sql = "SELECT sum(quantity) FROM cart_item WHERE customer_id = ? AND product_id = ?"
    pieces = request.value(pieces_sql, customer_id(request), product["id"]) or 0
    error = _quantity_error(product["stock"], pieces + quantity)
    if error and not form.errors:
        form.errors["quantity"] = error
    back = f"/product/{product['slug']}"
    if form.errors:
        return request.redirect(back, f"Not added to your cart. {next(iter(form.errors.values()))}")
    add_item(request, customer_id(request), product["id"], choice, quantity)
    return request.redirect(back, f"{product['name']} was added to your cart.")


def add_item(
    request: RequestContext, customer: int, product: int, choice: str, quantity: int
) -> None:
    """Add pieces of a product to a cart, up to the maximum of an order."""
    request.execute(
        "INSERT INTO cart_item (customer_id, product_id, choice, quantity) VALUES (?, ?, ?, ?)"
        f" ON CONFLICT DO UPDATE SET quantity = min(quantity + excluded.quantity, {MAX_QUANTITY})",
        *(customer, product, choice, quantity),
    )


def adopt_cart(request: RequestContext, customer: int) -> None:
    """Move the products of a signed-out customer to the cart of an account."""
    for item in request.rows("SELECT * FROM cart_item WHERE customer_id = 0"):
        add_item(request, customer, item["product_id"], item["choice"], item["quantity"])
    request.execute("DELETE FROM cart_item WHERE customer_id = 0")


def _quantity_error(stock: int, pieces: int) -> str:
    """Return why an order cannot have so many pieces of a product; "" if it can."""
    if pieces > MAX_QUANTITY:
        return f"At most {MAX_QUANTITY} per order."
    return f"Only {stock} in stock." if pieces > stock else ""


def _quantity_errors(cart: Cart, quantities: Mapping[int, int]) -> dict[int, str]:
    """Return the errors of quantities, both by item; items may have the same product."""
    pieces: Counter[int] = Counter()
    for item in cart.items:
        pieces[item["product_id"]] += quantities[item["id"]]
    errors = {
        item["id"]: _quantity_error(item["stock"], pieces[item["product_id"]])
        for item in cart.items
    }
    return {number: error for number, error in errors.items() if error}


@views.post("/cart/update")
def update(request: RequestContext) -> Response:
    """Change the quantities of all lines at once."""
    form, cart = Form(request.form), load_cart(request)
    quantities = {
        item["id"]: form.integer(f"quantity-{item['id']}", 1, MAX_QUANTITY) for item in cart.items
    }
    if not form.errors:
        errors = _quantity_errors(cart, quantities)
        form.errors.update((f"quantity-{number}", error) for number, error in errors.items())
    if form.errors:
        return request.render("cart.html.j2", 422, cart=cart, form=form)
    for number, quantity in quantities.items():
        request.execute("UPDATE cart_item SET quantity = ? WHERE id = ?", quantity, number)
    return request.redirect("/cart", "Your cart was updated.")


@views.post("/cart/remove")
def remove(request: RequestContext) -> Response:
    number = request.form.get("item", "")
    request.execute(
        "DELETE FROM cart_item WHERE id = ? AND customer_id = ?", number, customer_id(request)
    )
    return request.redirect("/cart", "The product was removed from your cart.")


@views.post("/cart/coupon")
def coupon(request: RequestContext) -> Response:
    """Apply a coupon code instead of the previous one; an empty field removes it."""
    code = request.form.get("code", "").strip().upper()
    if not code:
        request.session.pending_inputs.pop("coupon", None)
        return request.redirect("/cart", "No coupon is applied.")
    cart, form = load_cart(request), Form(request.form)
    promotions = request.rows(
        "SELECT * FROM promotion WHERE code = ? AND active AND ? BETWEEN starts AND ends",
        *(code, request.today),
    )
    if not promotions:
        form.errors["code"] = f"The coupon code {code} is not valid."
    elif cart.subtotal < promotions[0]["minimum"]:
        form.errors["code"] = f"Valid from {promotions[0]['minimum'] // 100} dollars."
    if form.errors:
        return request.render("cart.html.j2", 422, cart=cart, form=form)
    request.session.pending_inputs["coupon"] = code
    return request.redirect("/cart", f"The coupon {code} was applied.")


# --- checkout ------------------------------------------------------------------------------------


@views.get("/checkout", signed_in=True)
def checkout(request: RequestContext) -> Response:
    return _checkout_page(request, "checkout_address.html.j2", Form())


@views.post("/checkout", signed_in=True)
def choose_address(request: RequestContext) -> Response:
    form = Form(request.form)
    address_id = form.choice("address", [str(row["id"]) for row in _addresses(request)])
    if form.errors:
        return _checkout_page(request, "checkout_address.html.j2", form)
    request.session.pending_inputs["address"] = int(address_id)
    return request.redirect("/checkout/delivery")


@views.get("/checkout/delivery", signed_in=True)
def delivery(request: RequestContext) -> Response:
    return _checkout_page(request, "checkout_delivery.html.j2", Form())


@views.post("/checkout/delivery", signed_in=True)
def choose_delivery(request: RequestContext) -> Response:
    form = Form(request.form)
    delivery = form.choice("delivery", DELIVERIES)
    if form.errors:
        return _checkout_page(request, "checkout_delivery.html.j2", form)
    request.session.pending_inputs["delivery"] = delivery
    return request.redirect("/checkout/payment")


@views.get("/checkout/payment", signed_in=True)
def payment(request: RequestContext) -> Response:
    return _checkout_page(request, "checkout_payment.html.j2", Form())


@views.post("/checkout/payment", signed_in=True)
def place_order(request: RequestContext) -> Response:
    form, cart, notes = Form(request.form), load_cart(request), request.session.pending_inputs
    payment = form.choice("payment", PAYMENTS)
    if form.errors or not cart.items or "address" not in notes:
        return _checkout_page(request, "checkout_payment.html.j2", form)
    errors = _quantity_errors(cart, {item["id"]: item["quantity"] for item in cart.items})
    for item in cart.items:
        if item["id"] in errors:
            return request.redirect("/cart", f"{item['name']}: {errors[item['id']]}")
    address = request.row(
        "SELECT name, street, city, zip_code, phone FROM address WHERE id = ? AND customer_id = ?",
        *(notes["address"], customer_id(request)),
    )
    number = request.execute(
        "INSERT INTO purchase (customer_id, placed, status, name, street, city, zip_code, phone,"
        " delivery, payment, coupon, subtotal, discount, shipping, total)"
        " VALUES (?, ?, 'Pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(customer_id(request), request.now, *address, cart.delivery, payment),
        *(cart.coupon["code"] if cart.discount else "", cart.subtotal, cart.discount),
        *(cart.shipping, cart.total),
    )
    for item in cart.items:
        request.execute(
            "INSERT INTO purchase_item VALUES (?, ?, ?, ?, ?)",
            *(number, item["product_id"], item["choice"], item["quantity"], item["price"]),
        )
        request.execute(
            "UPDATE product SET stock = max(stock - ?, 0), sold = sold + ? WHERE id = ?",
            *(item["quantity"], item["quantity"], item["product_id"]),
        )
    request.execute("DELETE FROM cart_item WHERE customer_id = ?", customer_id(request))
    for note in ("address", "delivery", "coupon"):
        notes.pop(note, None)
    return request.redirect("/checkout/done", order=number)


@views.get("/checkout/done", signed_in=True)
def done(request: RequestContext) -> Response:
    number = request.query.get("order", "")
    order = request.row(
        "SELECT * FROM purchase WHERE id = ? AND customer_id = ?", number, customer_id(request)
    )
    return request.render("checkout_done.html.j2", order=order)


def _checkout_page(request: RequestContext, template: str, form: Form) -> Response:
    """Return a page of the checkout, or a redirect without products or an address."""
    cart = load_cart(request)
    if not cart.items:
        return request.redirect("/cart", "Your cart is empty.")
    addresses = _addresses(request)
    if template != "checkout_address.html.j2" and "address" not in request.session.pending_inputs:
        return request.redirect("/checkout", "Choose a delivery address first.")
    default = next((row["id"] for row in addresses if row["is_default"]), "")
    return request.render(
        template,
        422 if form.errors else 200,
        cart=cart,
        form=form,
        addresses=addresses,
        selected_address=request.session.pending_inputs.get("address", default),
        deliveries=[
            (name, shipping_cost(name, cart.subtotal - cart.discount)) for name in DELIVERIES
        ],
        payments=PAYMENTS,
    )


def _addresses(request: RequestContext) -> list[Any]:
    return request.rows(
        "SELECT * FROM address WHERE customer_id = ? ORDER BY id", request.session.account_id
    )


# --- the wish list -------------------------------------------------------------------------------


@views.get("/wishlist")
def wishlist(request: RequestContext) -> Response:
    wishes = request.rows(
        "SELECT wish.id, name, slug, price, old_price, stock, option_values FROM wish JOIN product"
        " ON product.id = product_id WHERE customer_id = ? AND active ORDER BY wish.id",
        customer_id(request),
    )
    return request.render("wishlist.html.j2", wishes=wishes)


@views.post("/wishlist/add", signed_in=True)
def wish(request: RequestContext) -> Response:
    slug = request.form.get("slug", "")
    product = request.row("SELECT * FROM product WHERE active AND slug = ?", slug)
    request.execute(
        "INSERT OR IGNORE INTO wish (customer_id, product_id) VALUES (?, ?)",
        *(customer_id(request), product["id"]),
    )
    return request.redirect(
        f"/product/{product['slug']}", f"{product['name']} was added to your wish list."
    )


@views.post("/wishlist/remove", signed_in=True)
def unwish(request: RequestContext) -> Response:
    number = request.form.get("wish", "")
    if not number.isdecimal():
        raise NotFound
    request.execute(
        "DELETE FROM wish WHERE id = ? AND customer_id = ?", number, customer_id(request)
    )
    return request.redirect("/wishlist", "The product was removed from your wish list.")
