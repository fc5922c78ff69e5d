"""Views of reviews; the shop shows only the approved ones."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.staff_views import (
    ROWS_PER_PAGE,
    optional_choice,
    redirect_to_canonical,
)
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import WhereClause, paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry(signed_in=True)

STATUSES = ("Pending", "Approved", "Rejected")

_FROM = "FROM review JOIN product ON product.id = product_id"


@views.get("/reviews")
def reviews(request: RequestContext) -> Response:
    if redirect := redirect_to_canonical(request, "q", "status", "stars"):
        return redirect
    form, condition = Form(request.query), WhereClause()
    condition.add_words("name || ' ' || nickname", form.text("q", required=False))
    if status := optional_choice(form, "status", STATUSES):
        condition.add("review.status = ?", status)
    if stars := optional_choice(form, "stars", tuple("54321")):
        condition.add("stars = ?", stars)
    from_clause = f"{_FROM} WHERE {condition.sql} ORDER BY review.id DESC"
    columns = "review.id, title, nickname, stars, written, review.status, product.name"
    pagination = paginate(request, columns, from_clause, condition.arguments, size=ROWS_PER_PAGE)
    return request.render("reviews.html.j2", form=form, pagination=pagination, statuses=STATUSES)


@views.get("/reviews/{number:int}")
def review(request: RequestContext, number: int) -> Response:
    return request.render("review.html.j2", review=_find_review(request, number))


@views.post("/reviews/{number:int}/approve")
def approve(request: RequestContext, number: int) -> Response:
    return _set_status(request, number, "Approved")


@views.post("/reviews/{number:int}/reject")
def reject(request: RequestContext, number: int) -> Response:
    return _set_status(request, number, "Rejected")


def _set_status(request: RequestContext, number: int, status: str) -> Response:
    review_row = _find_review(request, number)
    request.execute("UPDATE review SET status = ? WHERE id = ?", status, number)
    _update_rating(request, review_row["product_id"])
    return request.redirect(f"/reviews/{number}", f"The review is {status.lower()}.")


@views.get("/reviews/{number:int}/delete")
def delete_page(request: RequestContext, number: int) -> Response:
    return request.render("delete_review.html.j2", review=_find_review(request, number))


@views.post("/reviews/{number:int}/delete")
def delete(request: RequestContext, number: int) -> Response:
    review_row = _find_review(request, number)
    request.execute("DELETE FROM review WHERE id = ?", number)
    _update_rating(request, review_row["product_id"])
    return request.redirect("/reviews", "The review was deleted.", status="Pending")


def _find_review(request: RequestContext, number: int) -> Any:
    return request.row(f"SELECT review.*, name {_FROM} WHERE review.id = ?", number)


def _update_rating(request: RequestContext, product: int) -> None:
    """Update the rating of a product, which counts its approved reviews only."""
    request.execute(
        "UPDATE product SET (review_count, stars_sum) = (SELECT count(*), coalesce(sum(stars), 0)"
        " FROM review WHERE product_id = product.id AND status = 'Approved') WHERE id = ?",
        product,
    )
