"""Views of the cart, the checkout and the wish list."""

from __future__ import annotations

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
    items = request.rows(
        "SELECT cart_item.*, name, slug, price, stock FROM cart_item"
        " JOIN product ON product.id = product_id WHERE customer_id = ? ORDER BY cart_item.id",
        customer_id(request),
    )
    notes = request.session.pending_inputs
    code = notes.get("coupon")
    coupon = code and request.row("SELECT * FROM promotion WHERE code = ?", code)
    return Cart(items, coupon, notes.get("delivery", "Standard"))


@views.get("/cart")
def cart(request: RequestContext) -> Response:
    return request.render("cart.html.j2", cart=load_cart(request), form=Form())


@views.post("/cart/add")
def add(request: RequestContext) -> Response:
    product = request.row("SELECT * FROM product WHERE slug = ?", request.form.get("slug", ""))
    form = Form(request.form)
    choice = form.choice("choice", product["option_values"].split(", "))
    quantity = form.integer("quantity", 1, MAX_QUANTITY)
    if product["stock"] < quantity and not form.errors:
        form.errors["quantity"] = f"Only {product['stock']} in stock."
    back = f"/product/{product['slug']}"
    if form.errors:
        return request.redirect(back, f"Not added to your cart. {next(iter(form.errors.values()))}")
    request.execute(
        "INSERT INTO cart_item (customer_id, product_id, choice, quantity) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET quantity = quantity + excluded.quantity",
        *(customer_id(request), product["id"], choice, quantity),
    )
    return request.redirect(back, f"{product['name']} was added to your cart.")


@views.post("/cart/update")
def update(request: RequestContext) -> Response:
    """Change the quantities of all lines at once."""
    form, cart = Form(request.form), load_cart(request)
    quantities = {
        item["id"]: form.integer(f"quantity-{item['id']}", 1, MAX_QUANTITY) for item in cart.items
    }
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


@views.get("/checkout")
def checkout(request: RequestContext) -> Response:
    return _checkout_page(request, "checkout_address.html.j2", Form())


@views.post("/checkout")
def choose_address(request: RequestContext) -> Response:
    form = Form(request.form)
    address_id = form.choice("address", [str(row["id"]) for row in _addresses(request)])
    if form.errors:
        return _checkout_page(request, "checkout_address.html.j2", form)
    request.session.pending_inputs["address"] = int(address_id)
    return request.redirect("/checkout/delivery")


@views.get("/checkout/delivery")
def delivery(request: RequestContext) -> Response:
    return _checkout_page(request, "checkout_delivery.html.j2", Form())


@views.post("/checkout/delivery")
def choose_delivery(request: RequestContext) -> Response:
    form = Form(request.form)
    delivery = form.choice("delivery", DELIVERIES)
    if form.errors:
        return _checkout_page(request, "checkout_delivery.html.j2", form)
    request.session.pending_inputs["delivery"] = delivery
    return request.redirect("/checkout/payment")


@views.get("/checkout/payment")
def payment(request: RequestContext) -> Response:
    return _checkout_page(request, "checkout_payment.html.j2", Form())


@views.post("/checkout/payment")
def place_order(request: RequestContext) -> Response:
    form, cart, notes = Form(request.form), load_cart(request), request.session.pending_inputs
    payment = form.choice("payment", PAYMENTS)
    if form.errors or not cart.items or "address" not in notes:
        return _checkout_page(request, "checkout_payment.html.j2", form)
    address = request.row(
        "SELECT name, street, city, zip_code, phone FROM address WHERE id = ?", notes["address"]
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


@views.get("/checkout/done")
def done(request: RequestContext) -> Response:
    number = request.query.get("order", "")
    order = request.row(
        "SELECT * FROM purchase WHERE id = ? AND customer_id = ?", number, customer_id(request)
    )
    return request.render("checkout_done.html.j2", order=order)


def _checkout_page(request: RequestContext, template: str, form: Form) -> Response:
    """Return a page of the checkout, or a redirect without an account, products or an address."""
    if not request.session.account_id:
        return request.redirect_to_sign_in()
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
        "SELECT wish.id, name, slug, price, old_price, stock, option_values FROM wish"
        " JOIN product ON product.id = product_id WHERE customer_id = ? ORDER BY wish.id",
        customer_id(request),
    )
    return request.render("wishlist.html.j2", wishes=wishes)


@views.post("/wishlist/add")
def wish(request: RequestContext) -> Response:
    if not request.session.account_id:
        return request.redirect_to_sign_in()
    product = request.row("SELECT * FROM product WHERE slug = ?", request.form.get("slug", ""))
    request.execute(
        "INSERT OR IGNORE INTO wish (customer_id, product_id) VALUES (?, ?)",
        *(customer_id(request), product["id"]),
    )
    return request.redirect(
        f"/product/{product['slug']}", f"{product['name']} was added to your wish list."
    )


@views.post("/wishlist/remove")
def unwish(request: RequestContext) -> Response:
    number = request.form.get("wish", "")
    if not number.isdecimal():
        raise NotFound
    request.execute(
        "DELETE FROM wish WHERE id = ? AND customer_id = ?", number, customer_id(request)
    )
    return request.redirect("/wishlist", "The product was removed from your wish list.")
