"""Views of products: the list, a product, a new product."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.staff_views import (
    ROWS_PER_PAGE,
    optional_choice,
    redirect_to_canonical,
)
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import WhereClause, paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry, to_slug

views = ViewRegistry(signed_in=True)

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
def products(request: RequestContext) -> Response:
    if redirect := redirect_to_canonical(request, "q", "department", "state", "sort"):
        return redirect
    form, condition = Form(request.query), WhereClause()
    condition.add_words("words", form.text("q", required=False))
    departments = request.rows("SELECT * FROM department")
    if department := optional_choice(form, "department", [row["slug"] for row in departments]):
        condition.add(
            "category_id IN (SELECT category.id FROM category"
            " JOIN department ON department.id = department_id WHERE department.slug = ?)",
            department,
        )
    if state := optional_choice(form, "state", STATES):
        condition.add("active = ?", int(state == "Enabled"))
    order = SORTS.get(form.values.get("sort", ""), SORTS[""])[1]
    from_clause = f"FROM product WHERE {condition.sql} ORDER BY {order}"
    columns = "id, name, sku, price, stock, active"
    pagination = paginate(request, columns, from_clause, condition.arguments, size=ROWS_PER_PAGE)
    return request.render(
        "products.html.j2",
        form=form,
        pagination=pagination,
        departments=[("", "All"), *((row["slug"], row["name"]) for row in departments)],
        states=STATES,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
    )


@views.get("/products/new")
def new_product(request: RequestContext) -> Response:
    """Show the form of a new product; its department is chosen first."""
    department_slug = request.query.get("department", "")
    if not department_slug:
        departments = request.rows("SELECT slug, name FROM department")
        return request.render("new_product.html.j2", form=Form(), departments=departments)
    department = request.row("SELECT * FROM department WHERE slug = ?", department_slug)
    return _product_page(request, None, department["id"], Form())


@views.get("/products/{number:int}")
def product(request: RequestContext, number: int) -> Response:
    product_row = _find_product(request, number)
    values = {
        **product_row,
        "price": _field_text(product_row["price"]),
        "old_price": _field_text(product_row["old_price"]),
    }
    values["state"] = STATES[0] if product_row["active"] else STATES[1]
    return _product_page(request, product_row, product_row["department_id"], Form(values))


def _product_page(request: RequestContext, product: Any, department: int, form: Form) -> Response:
    categories = request.rows("SELECT id, name FROM category WHERE department_id = ?", department)
    return request.render(
        "product.html.j2",
        422 if form.errors else 200,
        product=product,
        form=form,
        categories=[(row["id"], row["name"]) for row in categories],
        states=STATES,
    )


@views.post("/products/new")
def add_product(request: RequestContext) -> Response:
    department = request.row(
        "SELECT * FROM department WHERE slug = ?", request.query.get("department", "")
    )
    form = Form(request.form)
    values = _read_values(request, form, number=0)
    if form.errors:
        return _product_page(request, None, department["id"], form)
    category = request.row("SELECT * FROM category WHERE id = ?", values["category_id"])
    values |= {
        "slug": to_slug(values["name"]),
        "kind": category["name"],
        "features": "",
        "option_name": "Choice",
        "option_values": "One size",
        "added": request.today,
        "icon": category["icon"],
        "hue": 40,
    }
    number = request.execute(
        f"INSERT INTO product ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
        *values.values(),
    )
    return request.redirect(f"/products/{number}", "The product was added.")


@views.post("/products/{number:int}")
def change_product(request: RequestContext, number: int) -> Response:
    product_row, form = _find_product(request, number), Form(request.form)
    values = _read_values(request, form, number=number)
    if form.errors:
        return _product_page(request, product_row, product_row["department_id"], form)
    assignments = ", ".join(f"{name} = ?" for name in values)
    request.execute(f"UPDATE product SET {assignments} WHERE id = ?", *values.values(), number)
    return request.redirect(f"/products/{number}", "The product was saved.")


def _read_values(request: RequestContext, form: Form, number: int) -> dict[str, Any]:
    """Return the values of the form by column; check the errors of the form before using them.

    `number` is 0 for a new product.
    """
    name, sku = form.text("name", max_chars=80), form.text("sku", max_chars=20)
    if sku and not re.fullmatch(r"[A-Z0-9-]+", sku):
        form.errors["sku"] = "Capital letters, digits and hyphens only."
    if name and not to_slug(name):
        form.errors["name"] = "A name needs a letter or a digit."
    for column, value in (("name", name), ("sku", sku), ("slug", to_slug(name))):
        if request.value(f"SELECT 1 FROM product WHERE {column} = ? AND id != ?", value, number):
            field = "sku" if column == "sku" else "name"
            form.errors[field] = "There is a product with this one already."
    price = form.cents("price")
    if price == 0 and "price" not in form.errors:
        form.errors["price"] = "Enter an amount above zero."
    old_price = form.cents("old_price") if form.values.get("old_price", "").strip() else None
    if old_price is not None and old_price <= price and not form.errors:
        form.errors["old_price"] = "This must be above the price."
    categories = [str(row["id"]) for row in request.rows("SELECT id FROM category")]
    return {
        "name": name,
        "sku": sku,
        "brand": form.text("brand", max_chars=40),
        "material": form.text("material", required=False, max_chars=60),
        "category_id": form.choice("category_id", categories),
        "price": price,
        "old_price": old_price,
        "stock": form.integer("stock", 0, 9999),
        "active": int(form.choice("state", STATES) == "Enabled"),
    }


def _find_product(request: RequestContext, number: int) -> Any:
    return request.row(
        "SELECT product.*, department_id FROM product"
        " JOIN category ON category.id = category_id WHERE product.id = ?",
        number,
    )


def _field_text(cents: int | None) -> str:
    """Return an amount as text for a field: 123450 gives 1234.50."""
    return "" if cents is None else f"{cents / 100:.2f}"
