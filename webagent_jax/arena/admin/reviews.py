"""Reviews: the shop shows those that were approved here."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.staff_views import ROWS, StaffViews, one_of, tidied
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import Condition, listing
from webagent_jax.arena.site import Visit

views = StaffViews()

STATUSES = ("Pending", "Approved", "Rejected")

_FROM = "FROM review JOIN product ON product.id = product_id"


@views.get("/reviews")
def reviews(visit: Visit) -> Response:
    if away := tidied(visit, "q", "status", "stars"):
        return away
    form, condition = Form(visit.query), Condition()
    condition.words("name || ' ' || nickname", form.text("q", required=False))
    if status := one_of(form, "status", STATUSES):
        condition.add("review.status = ?", status)
    if stars := one_of(form, "stars", "54321"):
        condition.add("stars = ?", int(stars))
    rest = f"{_FROM} WHERE {condition.sql} ORDER BY review.id DESC"
    columns = "review.id, title, nickname, stars, written, review.status, product.name"
    found = listing(visit, columns, rest, condition.arguments, size=ROWS)
    return visit.page("reviews.html.j2", form=form, found=found, statuses=STATUSES)


@views.get("/reviews/{number:int}")
def review(visit: Visit, number: int) -> Response:
    return visit.page("review.html.j2", review=_review(visit, number))


@views.post("/reviews/{number:int}/approve")
def approve(visit: Visit, number: int) -> Response:
    return _become(visit, number, "Approved")


@views.post("/reviews/{number:int}/reject")
def reject(visit: Visit, number: int) -> Response:
    return _become(visit, number, "Rejected")


def _become(visit: Visit, number: int, status: str) -> Response:
    here = _review(visit, number)
    visit.do("UPDATE review SET status = ? WHERE id = ?", status, number)
    _count(visit, here["product_id"])
    return visit.redirect(f"/reviews/{number}", f"The review is {status.lower()}.")


@views.get("/reviews/{number:int}/delete")
def delete_page(visit: Visit, number: int) -> Response:
    return visit.page("delete_review.html.j2", review=_review(visit, number))


@views.post("/reviews/{number:int}/delete")
def delete(visit: Visit, number: int) -> Response:
    here = _review(visit, number)
    visit.do("DELETE FROM review WHERE id = ?", number)
    _count(visit, here["product_id"])
    return visit.redirect("/reviews", "The review was deleted.", status="Pending")


def _review(visit: Visit, number: int) -> Any:
    return visit.row(f"SELECT review.*, name {_FROM} WHERE review.id = ?", number)


def _count(visit: Visit, product: int) -> None:
    """The shop tells the rating of a product by its approved reviews."""
    visit.do(
        "UPDATE product SET (review_count, stars_sum) = (SELECT count(*), coalesce(sum(stars), 0)"
        " FROM review WHERE product_id = product.id AND status = 'Approved') WHERE id = ?",
        product,
    )
