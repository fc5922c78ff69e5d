"""The catalogue: the list, one product, a new one."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.staff_views import ROWS, StaffViews, one_of, tidied
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import Condition, listing
from webagent_jax.arena.shop.product_catalog import slug
from webagent_jax.arena.site import Visit

views = StaffViews()

SORTS = {
    "": ("Newest first", "id DESC"),
    "name": ("Name", "name"),
    "price-up": ("Lowest price first", "price, id"),
    "price-down": ("Highest price first", "price DESC, id"),
    "stock-up": ("Lowest stock first", "stock, id"),
    "stock-down": ("Highest stock first", "stock DESC, id"),
    "sold": ("Most sold first", "sold DESC, id"),
}

STATES = ("Enabled", "Disabled")


@views.get("/products")
def products(visit: Visit) -> Response:
    if away := tidied(visit, "q", "department", "state", "sort"):
        return away
    form, condition = Form(visit.query), Condition()
    condition.words("words", form.text("q", required=False))
    departments = visit.rows("SELECT * FROM department")
    if department := one_of(form, "department", [each["slug"] for each in departments]):
        condition.add(
            "category_id IN (SELECT category.id FROM category"
            " JOIN department ON department.id = department_id WHERE department.slug = ?)",
            department,
        )
    if state := one_of(form, "state", STATES):
        condition.add("active = ?", int(state == "Enabled"))
    order = SORTS.get(form.values.get("sort", ""), SORTS[""])[1]
    rest = f"FROM product WHERE {condition.sql} ORDER BY {order}"
    columns = "id, name, sku, price, stock, active"
    found = listing(visit, columns, rest, condition.arguments, size=ROWS)
    return visit.page(
        "products.html.j2",
        form=form,
        found=found,
        departments=[("", "All"), *((each["slug"], each["name"]) for each in departments)],
        states=STATES,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
    )


@views.get("/products/new")
def new_product(visit: Visit) -> Response:
    """Asks for the department first: its categories are among the fields."""
    wanted = visit.query.get("department", "")
    if not wanted:
        departments = visit.rows("SELECT slug, name FROM department")
        return visit.page("new_product.html.j2", form=Form(), departments=departments)
    department = visit.row("SELECT * FROM department WHERE slug = ?", wanted)
    return _product_page(visit, None, department["id"], Form())


@views.get("/products/{number:int}")
def product(visit: Visit, number: int) -> Response:
    here = _product(visit, number)
    values = {**here, "price": _dollars(here["price"]), "old_price": _dollars(here["old_price"])}
    values["state"] = STATES[0] if here["active"] else STATES[1]
    return _product_page(visit, here, here["department_id"], Form(values))


def _product_page(visit: Visit, product: Any, department: int, form: Form) -> Response:
    categories = visit.rows("SELECT id, name FROM category WHERE department_id = ?", department)
    return visit.page(
        "product.html.j2",
        422 if form.errors else 200,
        product=product,
        form=form,
        categories=[(each["id"], each["name"]) for each in categories],
        states=STATES,
    )


@views.post("/products/new")
def add_product(visit: Visit) -> Response:
    department = visit.row(
        "SELECT * FROM department WHERE slug = ?", visit.query.get("department", "")
    )
    form = Form(visit.form)
    values = _values(visit, form, number=0)
    if form.errors:
        return _product_page(visit, None, department["id"], form)
    category = visit.row("SELECT * FROM category WHERE id = ?", values["category_id"])
    values |= {
        "slug": slug(values["name"]),
        "kind": category["name"],
        "features": "",
        "option_name": "Choice",
        "option_values": "One size",
        "added": visit.today,
        "icon": category["icon"],
        "hue": 40,
    }
    number = visit.do(
        f"INSERT INTO product ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
        *values.values(),
    )
    return visit.redirect(f"/products/{number}", "The product was added.")


@views.post("/products/{number:int}")
def change_product(visit: Visit, number: int) -> Response:
    here, form = _product(visit, number), Form(visit.form)
    values = _values(visit, form, number=number)
    if form.errors:
        return _product_page(visit, here, here["department_id"], form)
    assigned = ", ".join(f"{name} = ?" for name in values)
    visit.do(f"UPDATE product SET {assigned} WHERE id = ?", *values.values(), number)
    return visit.redirect(f"/products/{number}", "The product was saved.")


def _values(visit: Visit, form: Form, number: int) -> dict[str, Any]:
    """By column; look at the errors of the form before they are used. `number` 0 is a new one."""
    name, sku = form.text("name", most=80), form.text("sku", most=20)
    if sku and not re.fullmatch(r"[A-Z0-9-]+", sku):
        form.errors["sku"] = "Capital letters, digits and hyphens only."
    for column, value in (("name", name), ("sku", sku), ("slug", slug(name))):
        if visit.value(f"SELECT 1 FROM product WHERE {column} = ? AND id != ?", value, number):
            field = "sku" if column == "sku" else "name"
            form.errors[field] = "There is a product with this one already."
    price = form.cents("price")
    if price == 0 and "price" not in form.errors:
        form.errors["price"] = "Enter an amount above zero."
    old_price = form.cents("old_price") if form.values.get("old_price", "").strip() else None
    if old_price is not None and old_price <= price and not form.errors:
        form.errors["old_price"] = "This must be above the price."
    categories = [str(each["id"]) for each in visit.rows("SELECT id FROM category")]
    return {
        "name": name,
        "sku": sku,
        "brand": form.text("brand", most=40),
        "material": form.text("material", required=False, most=60),
        "category_id": form.choice("category_id", categories),
        "price": price,
        "old_price": old_price,
        "stock": form.whole("stock", 0, 9999),
        "active": int(form.choice("state", STATES) == "Enabled"),
    }


def _product(visit: Visit, number: int) -> Any:
    return visit.row(
        "SELECT product.*, department_id FROM product"
        " JOIN category ON category.id = category_id WHERE product.id = ?",
        number,
    )


def _dollars(cents: int | None) -> str:
    """As a field holds it: 123450 -> 1234.50"""
    return "" if cents is None else f"{cents / 100:.2f}"
