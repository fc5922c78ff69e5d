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


def customer_id(visit: RequestContext) -> int:
    """Return the id of the customer who owns the cart and the wish list; 0 if signed out."""
    return visit.session.account or 0


def load_cart(visit: RequestContext) -> Cart:
    items = visit.rows(
        "SELECT cart_item.*, name, slug, price, stock FROM cart_item"
        " JOIN product ON product.id = product_id WHERE customer_id = ? ORDER BY cart_item.id",
        customer_id(visit),
    )
    notes = visit.session.pending_inputs
    code = notes.get("coupon")
    coupon = code and visit.row("SELECT * FROM promotion WHERE code = ?", code)
    return Cart(items, coupon, notes.get("delivery", "Standard"))


@views.get("/cart")
def cart(visit: RequestContext) -> Response:
    return visit.render("cart.html.j2", cart=load_cart(visit), form=Form())


@views.post("/cart/add")
def add(visit: RequestContext) -> Response:
    product = visit.row("SELECT * FROM product WHERE slug = ?", visit.form.get("slug", ""))
    form = Form(visit.form)
    choice = form.choice("choice", product["option_values"].split(", "))
    quantity = form.integer("quantity", 1, MAX_QUANTITY)
    if product["stock"] < quantity and not form.errors:
        form.errors["quantity"] = f"Only {product['stock']} in stock."
    back = f"/product/{product['slug']}"
    if form.errors:
        return visit.redirect(back, f"Not added to your cart. {next(iter(form.errors.values()))}")
    visit.execute(
        "INSERT INTO cart_item (customer_id, product_id, choice, quantity) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET quantity = quantity + excluded.quantity",
        *(customer_id(visit), product["id"], choice, quantity),
    )
    return visit.redirect(back, f"{product['name']} was added to your cart.")


@views.post("/cart/update")
def update(visit: RequestContext) -> Response:
    """Change the quantities of all lines at once."""
    form, cart = Form(visit.form), load_cart(visit)
    quantities = {
        item["id"]: form.integer(f"quantity-{item['id']}", 1, MAX_QUANTITY) for item in cart.items
    }
    if form.errors:
        return visit.render("cart.html.j2", 422, cart=cart, form=form)
    for number, quantity in quantities.items():
        visit.execute("UPDATE cart_item SET quantity = ? WHERE id = ?", quantity, number)
    return visit.redirect("/cart", "Your cart was updated.")


@views.post("/cart/remove")
def remove(visit: RequestContext) -> Response:
    number = visit.form.get("item", "")
    visit.execute("DELETE FROM cart_item WHERE id = ? AND customer_id = ?", number, customer_id(visit))
    return visit.redirect("/cart", "The product was removed from your cart.")


@views.post("/cart/coupon")
def coupon(visit: RequestContext) -> Response:
    """Apply a coupon code instead of the previous one; an empty field removes it."""
    code = visit.form.get("code", "").strip().upper()
    if not code:
        visit.session.pending_inputs.pop("coupon", None)
        return visit.redirect("/cart", "No coupon is applied.")
    cart, form = load_cart(visit), Form(visit.form)
    promotions = visit.rows(
        "SELECT * FROM promotion WHERE code = ? AND active AND ? BETWEEN starts AND ends",
        *(code, visit.today),
    )
    if not promotions:
        form.errors["code"] = f"The coupon code {code} is not valid."
    elif cart.subtotal < promotions[0]["minimum"]:
        form.errors["code"] = f"Valid from {promotions[0]['minimum'] // 100} dollars."
    if form.errors:
        return visit.render("cart.html.j2", 422, cart=cart, form=form)
    visit.session.pending_inputs["coupon"] = code
    return visit.redirect("/cart", f"The coupon {code} was applied.")


# --- checkout ------------------------------------------------------------------------------------


@views.get("/checkout")
def checkout(visit: RequestContext) -> Response:
    return _checkout_page(visit, "checkout_address.html.j2", Form())


@views.post("/checkout")
def choose_address(visit: RequestContext) -> Response:
    form = Form(visit.form)
    address_id = form.choice("address", [str(row["id"]) for row in _addresses(visit)])
    if form.errors:
        return _checkout_page(visit, "checkout_address.html.j2", form)
    visit.session.pending_inputs["address"] = int(address_id)
    return visit.redirect("/checkout/delivery")


@views.get("/checkout/delivery")
def delivery(visit: RequestContext) -> Response:
    return _checkout_page(visit, "checkout_delivery.html.j2", Form())


@views.post("/checkout/delivery")
def choose_delivery(visit: RequestContext) -> Response:
    form = Form(visit.form)
    delivery = form.choice("delivery", DELIVERIES)
    if form.errors:
        return _checkout_page(visit, "checkout_delivery.html.j2", form)
    visit.session.pending_inputs["delivery"] = delivery
    return visit.redirect("/checkout/payment")


@views.get("/checkout/payment")
def payment(visit: RequestContext) -> Response:
    return _checkout_page(visit, "checkout_payment.html.j2", Form())


@views.post("/checkout/payment")
def place_order(visit: RequestContext) -> Response:
    form, cart, notes = Form(visit.form), load_cart(visit), visit.session.pending_inputs
    payment = form.choice("payment", PAYMENTS)
    if form.errors or not cart.items or "address" not in notes:
        return _checkout_page(visit, "checkout_payment.html.j2", form)
    address = visit.row(
        "SELECT name, street, city, zip_code, phone FROM address WHERE id = ?", notes["address"]
    )
    number = visit.execute(
        "INSERT INTO purchase (customer_id, placed, status, name, street, city, zip_code, phone,"
        " delivery, payment, coupon, subtotal, discount, shipping, total)"
        " VALUES (?, ?, 'Pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(customer_id(visit), visit.now, *address, cart.delivery, payment),
        *(cart.coupon["code"] if cart.discount else "", cart.subtotal, cart.discount),
        *(cart.shipping, cart.total),
    )
    for item in cart.items:
        visit.execute(
            "INSERT INTO purchase_item VALUES (?, ?, ?, ?, ?)",
            *(number, item["product_id"], item["choice"], item["quantity"], item["price"]),
        )
        visit.execute(
            "UPDATE product SET stock = max(stock - ?, 0), sold = sold + ? WHERE id = ?",
            *(item["quantity"], item["quantity"], item["product_id"]),
        )
    visit.execute("DELETE FROM cart_item WHERE customer_id = ?", customer_id(visit))
    for note in ("address", "delivery", "coupon"):
        notes.pop(note, None)
    return visit.redirect("/checkout/done", order=number)


@views.get("/checkout/done")
def done(visit: RequestContext) -> Response:
    number = visit.query.get("order", "")
    order = visit.row(
        "SELECT * FROM purchase WHERE id = ? AND customer_id = ?", number, customer_id(visit)
    )
    return visit.render("checkout_done.html.j2", order=order)


def _checkout_page(visit: RequestContext, template: str, form: Form) -> Response:
    """Return a page of the checkout, or a redirect without a cart or an account."""
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    cart = load_cart(visit)
    if not cart.items:
        return visit.redirect("/cart", "Your cart is empty.")
    addresses = _addresses(visit)
    if template != "checkout_address.html.j2" and "address" not in visit.session.pending_inputs:
        return visit.redirect("/checkout", "Choose a delivery address first.")
    default = next((row["id"] for row in addresses if row["is_default"]), "")
    return visit.render(
        template,
        422 if form.errors else 200,
        cart=cart,
        form=form,
        addresses=addresses,
        chosen=visit.session.pending_inputs.get("address", default),
        deliveries=[
            (name, shipping_cost(name, cart.subtotal - cart.discount)) for name in DELIVERIES
        ],
        payments=PAYMENTS,
    )


def _addresses(visit: RequestContext) -> list[Any]:
    return visit.rows(
        "SELECT * FROM address WHERE customer_id = ? ORDER BY id", visit.session.account
    )


# --- the wish list -------------------------------------------------------------------------------


@views.get("/wishlist")
def wishlist(visit: RequestContext) -> Response:
    wishes = visit.rows(
        "SELECT wish.id, name, slug, price, old_price, stock, option_values FROM wish"
        " JOIN product ON product.id = product_id WHERE customer_id = ? ORDER BY wish.id",
        customer_id(visit),
    )
    return visit.render("wishlist.html.j2", wishes=wishes)


@views.post("/wishlist/add")
def wish(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    product = visit.row("SELECT * FROM product WHERE slug = ?", visit.form.get("slug", ""))
    visit.execute(
        "INSERT OR IGNORE INTO wish (customer_id, product_id) VALUES (?, ?)",
        *(customer_id(visit), product["id"]),
    )
    return visit.redirect(
        f"/product/{product['slug']}", f"{product['name']} was added to your wish list."
    )


@views.post("/wishlist/remove")
def unwish(visit: RequestContext) -> Response:
    number = visit.form.get("wish", "")
    if not number.isdecimal():
        raise NotFound
    visit.execute("DELETE FROM wish WHERE id = ? AND customer_id = ?", number, customer_id(visit))
    return visit.redirect("/wishlist", "The product was removed from your wish list.")
