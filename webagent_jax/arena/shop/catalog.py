"""What there is to buy: start page, departments, lists of products, one product, comparing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import Condition, listing
from webagent_jax.arena.site import Views, Visit

views = Views()

PAGE = 8  # products
COMPARED = 4  # products at most, side by side

_CARD = "id, slug, name, price, old_price, icon, hue, review_count, stars_sum"
_FROM = "FROM product WHERE active"
_OF_DEPARTMENT = "category_id IN (SELECT id FROM category WHERE department_id = ?)"

SORTS = {
    "popular": ("Best selling", "sold DESC"),
    "price-up": ("Price: low to high", "price"),
    "price-down": ("Price: high to low", "price DESC"),
    "rating": ("Customer rating", "stars_sum * 1.0 / max(review_count, 1) DESC, review_count DESC"),
    "newest": ("Newest", "added DESC"),
}


@views.get("/")
def start(visit: Visit) -> Response:
    popular = visit.rows(f"SELECT {_CARD} {_FROM} ORDER BY sold DESC, id LIMIT 4")
    return visit.page("start.html.j2", popular=popular)


@views.get("/department/{slug}")
def department(visit: Visit, slug: str) -> Response:
    here = visit.row("SELECT * FROM department WHERE slug = ?", slug)
    categories = visit.rows("SELECT * FROM category WHERE department_id = ?", here["id"])
    popular = visit.rows(
        f"SELECT {_CARD} {_FROM} AND {_OF_DEPARTMENT} ORDER BY sold DESC, id LIMIT 4",
        here["id"],
    )
    return visit.page("department.html.j2", department=here, categories=categories, popular=popular)


@views.get("/category/{slug}")
def category(visit: Visit, slug: str) -> Response:
    here = visit.row(
        "SELECT category.*, department.name AS department, department.slug AS department_slug"
        " FROM category JOIN department ON department.id = department_id WHERE category.slug = ?",
        slug,
    )
    condition = Condition()
    condition.add("category_id = ?", here["id"])
    return _products(visit, here["name"], condition, category=here)


@views.get("/deals")
def deals(visit: Visit) -> Response:
    condition = Condition()
    condition.add("old_price IS NOT NULL")
    return _products(visit, "Deals", condition)


@views.get("/search")
def search(visit: Visit) -> Response:
    """All words must be in the name of the product or of its category, in any order."""
    asked = visit.query.get("q", "").strip()
    if not asked:
        return visit.redirect("/", "Type what you are looking for.")
    condition = Condition()
    condition.words("words", asked)
    return _products(visit, f"Results for \u201c{asked}\u201d", condition)


def _products(visit: Visit, heading: str, condition: Condition, category: Any = None) -> Response:
    """A list of products, narrowed down and sorted as the visitor wants."""
    kept = {name: value for name, value in visit.query.items() if value}
    if len(kept) < len(visit.query):  # a form sends its empty fields as well
        return visit.redirect(visit.path, **kept)
    form = Form(visit.query)
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
    rest = f"{_FROM} AND {condition.sql} ORDER BY {order}, id"
    found = listing(visit, _CARD, rest, condition.arguments, size=PAGE)
    return visit.page(
        "products.html.j2",
        heading=heading,
        category=category,
        found=found,
        form=form,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
        narrowed=any(form.values.get(name) for name in ("from", "to", "stars")),
    )


@views.get("/product/{slug}")
def product(visit: Visit, slug: str) -> Response:
    here = _product(visit, slug)
    reviews = visit.rows(
        "SELECT * FROM review WHERE product_id = ? AND status = 'Approved'"
        " ORDER BY written DESC, id DESC LIMIT 1",
        here["id"],
    )
    return visit.page("product.html.j2", product=here, reviews=reviews, form=Form())


@views.get("/product/{slug}/reviews")
def reviews(visit: Visit, slug: str) -> Response:
    here = _product(visit, slug)
    wanted = visit.query.get("stars", "")
    stars = [int(wanted)] if wanted in ("1", "2", "3", "4", "5") else [1, 2, 3, 4, 5]
    rest = (
        "FROM review WHERE product_id = ? AND status = 'Approved'"
        f" AND stars IN ({', '.join(map(str, stars))}) ORDER BY written DESC, id DESC"
    )
    found = listing(visit, "*", rest, [here["id"]], size=4)
    return visit.page("reviews.html.j2", product=here, found=found, form=Form(visit.query))


@views.get("/product/{slug}/review")
def review_form(visit: Visit, slug: str) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    return visit.page("review.html.j2", product=_product(visit, slug), form=Form())


@views.post("/product/{slug}/review")
def write_review(visit: Visit, slug: str) -> Response:
    """It waits for the admin's approval; until then only its author sees it."""
    here, customer = _product(visit, slug), visit.session.account
    if not customer:
        return visit.sign_in_first()
    form = Form(visit.form)
    stars = form.choice("stars", ("1", "2", "3", "4", "5"))
    title = form.text("title", most=80)
    body = form.text("body", most=1000)
    nickname = form.text("nickname", most=40)
    if form.errors:
        return visit.page("review.html.j2", 422, product=here, form=form)
    visit.do(
        "INSERT INTO review (product_id, customer_id, nickname, stars, title, body, written, "
        "status)"
        " VALUES (?, ?, ?, ?, ?, ?, date(?), 'Pending')",
        *(here["id"], customer, nickname, int(stars), title, body, visit.today),
    )
    return visit.redirect(
        f"/product/{slug}", "Thank you. Your review will appear once we have read it."
    )


@views.get("/compare")
def compare(visit: Visit) -> Response:
    return visit.page("compare.html.j2", products=_compared(visit))


@views.post("/compare/add")
def compare_add(visit: Visit) -> Response:
    here = _product(visit, visit.form.get("slug", ""))
    kept: list[int] = visit.session.notes.setdefault("compared", [])
    back = f"/product/{here['slug']}"
    if here["id"] in kept:
        return visit.redirect(back, "This product is on the comparison list already.")
    if len(kept) == COMPARED:
        return visit.redirect(back, f"You can compare {COMPARED} products at most.")
    kept.append(here["id"])
    return visit.redirect(back, f"{here['name']} was added to the comparison.")


@views.post("/compare/clear")
def compare_clear(visit: Visit) -> Response:
    visit.session.notes["compared"] = []
    return visit.redirect("/compare", "The comparison list is empty.")


def _compared(visit: Visit) -> Sequence[Any]:
    columns = f"{_CARD}, brand, material, option_name, option_values"
    return [
        visit.row(f"SELECT {columns} {_FROM} AND id = ?", number)
        for number in visit.session.notes.get("compared", [])
    ]


def _product(visit: Visit, slug: str) -> Any:
    return visit.row(
        "SELECT product.*, category.name AS category, category.slug AS category_slug,"
        " department.name AS department, department.slug AS department_slug"
        " FROM product JOIN category ON category.id = category_id"
        " JOIN department ON department.id = department_id WHERE active AND product.slug = ?",
        slug,
    )
