"""Views of the catalog: start page, departments, product lists, products and comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import WhereClause, paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

PAGE_SIZE = 8  # products on a page of a list
MAX_COMPARED_PRODUCTS = 4  # maximum products in the comparison

_CARD_COLUMNS = "id, slug, name, price, old_price, icon, hue, review_count, stars_sum"
_FROM_ACTIVE = "FROM product WHERE active"
_IN_DEPARTMENT = "category_id IN (SELECT id FROM category WHERE department_id = ?)"

SORTS = {
    "popular": ("Best selling", "sold DESC"),
    "price-up": ("Price: low to high", "price"),
    "price-down": ("Price: high to low", "price DESC"),
    "rating": ("Customer rating", "stars_sum * 1.0 / max(review_count, 1) DESC, review_count DESC"),
    "newest": ("Newest", "added DESC"),
}


@views.get("/")
def start(request: RequestContext) -> Response:
    popular = request.rows(f"SELECT {_CARD_COLUMNS} {_FROM_ACTIVE} ORDER BY sold DESC, id LIMIT 4")
    return request.render("start.html.j2", popular=popular)


@views.get("/department/{slug}")
def department(request: RequestContext, slug: str) -> Response:
    department_row = request.row("SELECT * FROM department WHERE slug = ?", slug)
    categories = request.rows(
        "SELECT * FROM category WHERE department_id = ?", department_row["id"]
    )
    popular = request.rows(
        f"SELECT {_CARD_COLUMNS} {_FROM_ACTIVE} AND {_IN_DEPARTMENT}"
        " ORDER BY sold DESC, id LIMIT 4",
        department_row["id"],
    )
    return request.render(
        "department.html.j2", department=department_row, categories=categories, popular=popular
    )


@views.get("/category/{slug}")
def category(request: RequestContext, slug: str) -> Response:
    category_row = request.row(
        "SELECT category.*, department.name AS department, department.slug AS department_slug"
        " FROM category JOIN department ON department.id = department_id WHERE category.slug = ?",
        slug,
    )
    condition = WhereClause()
    condition.add("category_id = ?", category_row["id"])
    return _product_list(request, category_row["name"], condition, category=category_row)


@views.get("/deals")
def deals(request: RequestContext) -> Response:
    condition = WhereClause()
    condition.add("old_price IS NOT NULL")
    return _product_list(request, "Deals", condition)


@views.get("/search")
def search(request: RequestContext) -> Response:
    """List the products whose name or category contains all words, in any order."""
    words = request.query.get("q", "").strip()
    if not words:
        return request.redirect("/", "Type what you are looking for.")
    condition = WhereClause()
    condition.add_words("words", words)
    return _product_list(request, f"Results for \u201c{words}\u201d", condition)


def _product_list(
    request: RequestContext, heading: str, condition: WhereClause, category: Any = None
) -> Response:
    """Return a page of a product list, with the filters and the order of the query parameters."""
    if redirect := request.redirect_without_blanks():
        return redirect
    form = Form(request.query)
    lowest = form.cents("from") if form.values.get("from") else None
    highest = form.cents("to") if form.values.get("to") else None
    stars = form.choice("stars", ("4", "3", "2")) if form.values.get("stars") else None
    if lowest and "from" not in form.errors:
        condition.add("price >= ?", lowest)
    if highest is not None and "to" not in form.errors:
        condition.add("price <= ?", highest)
    if stars and "stars" not in form.errors:
        condition.add("review_count AND stars_sum >= ? * review_count", int(stars))
    sort = form.values.get("sort", "")
    order = SORTS.get(sort, SORTS["popular"])[1]
    from_clause = f"{_FROM_ACTIVE} AND {condition.sql} ORDER BY {order}, id"
    pagination = paginate(request, _CARD_COLUMNS, from_clause, condition.arguments, size=PAGE_SIZE)
    return request.render(
        "products.html.j2",
        heading=heading,
        category=category,
        pagination=pagination,
        form=form,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
        is_filtered=any(form.values.get(name) for name in ("from", "to", "stars")),
    )


@views.get("/product/{slug}")
def product(request: RequestContext, slug: str) -> Response:
    product_row = _find_product(request, slug)
    reviews = request.rows(
        "SELECT * FROM review WHERE product_id = ? AND status = 'Approved'"
        " ORDER BY written DESC, id DESC LIMIT 1",
        product_row["id"],
    )
    return request.render("product.html.j2", product=product_row, reviews=reviews, form=Form())


@views.get("/product/{slug}/reviews")
def reviews(request: RequestContext, slug: str) -> Response:
    product_row = _find_product(request, slug)
    star_text = request.query.get("stars", "")
    stars = [int(star_text)] if star_text in ("1", "2", "3", "4", "5") else [1, 2, 3, 4, 5]
    from_clause = (
        "FROM review WHERE product_id = ? AND status = 'Approved'"
        f" AND stars IN ({', '.join(map(str, stars))}) ORDER BY written DESC, id DESC"
    )
    pagination = paginate(request, "*", from_clause, [product_row["id"]], size=4)
    return request.render(
        "reviews.html.j2", product=product_row, pagination=pagination, form=Form(request.query)
    )


@views.get("/product/{slug}/review", signed_in=True)
def review_form(request: RequestContext, slug: str) -> Response:
    return request.render("review.html.j2", product=_find_product(request, slug), form=Form())


@views.post("/product/{slug}/review", signed_in=True)
def write_review(request: RequestContext, slug: str) -> Response:
    """Add a review, which only its author sees until the admin approves it."""
    product_row, customer = _find_product(request, slug), request.session.account_id
    form = Form(request.form)
    stars = form.choice("stars", ("1", "2", "3", "4", "5"))
    title = form.text("title", max_chars=80)
    body = form.text("body", max_chars=1000)
    nickname = form.text("nickname", max_chars=40)
    if form.errors:
        return request.render("review.html.j2", 422, product=product_row, form=form)
    request.execute(
        "INSERT INTO review (product_id, customer_id, nickname, stars, title, body, written, "
        "status)"
        " VALUES (?, ?, ?, ?, ?, ?, date(?), 'Pending')",
        *(product_row["id"], customer, nickname, int(stars), title, body, request.today),
    )
    return request.redirect(
        f"/product/{slug}", "Thank you. Your review will appear once we have read it."
    )


@views.get("/compare")
def compare(request: RequestContext) -> Response:
    return request.render("compare.html.j2", products=_compared_products(request))


@views.post("/compare/add")
def compare_add(request: RequestContext) -> Response:
    product_row = _find_product(request, request.form.get("slug", ""))
    product_ids: list[int] = request.session.pending_inputs.setdefault("compared", [])
    back = f"/product/{product_row['slug']}"
    if product_row["id"] in product_ids:
        return request.redirect(back, "This product is on the comparison list already.")
    if len(product_ids) == MAX_COMPARED_PRODUCTS:
        return request.redirect(back, f"You can compare {MAX_COMPARED_PRODUCTS} products at most.")
    product_ids.append(product_row["id"])
    return request.redirect(back, f"{product_row['name']} was added to the comparison.")


@views.post("/compare/clear")
def compare_clear(request: RequestContext) -> Response:
    request.session.pending_inputs["compared"] = []
    return request.redirect("/compare", "The comparison list is empty.")


def _compared_products(request: RequestContext) -> Sequence[Any]:
    columns = f"{_CARD_COLUMNS}, brand, material, option_name, option_values"
    return [
        row
        for number in request.session.pending_inputs.get("compared", [])
        for row in request.rows(f"SELECT {columns} {_FROM_ACTIVE} AND id = ?", number)
    ]


def _find_product(request: RequestContext, slug: str) -> Any:
    return request.row(
        "SELECT product.*, category.name AS category, category.slug AS category_slug,"
        " department.name AS department, department.slug AS department_slug"
        " FROM product JOIN category ON category.id = category_id"
        " JOIN department ON department.id = department_id WHERE active AND product.slug = ?",
        slug,
    )
