"""Views of promotions: coupons with a discount."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.staff_views import ROWS_PER_PAGE
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry(signed_in=True)


def promotion_state(promotion: Any, today: str) -> str:
    """Return the state of a promotion on a day."""
    if not promotion["active"]:
        return "Disabled"
    if promotion["starts"] > today:
        return "Scheduled"
    return "Active" if promotion["ends"] >= today else "Expired"


@views.get("/promotions")
def promotions(request: RequestContext) -> Response:
    pagination = paginate(request, "*", "FROM promotion ORDER BY id DESC", size=ROWS_PER_PAGE)
    return request.render("promotions.html.j2", pagination=pagination, state=promotion_state)


@views.get("/promotions/new")
def new_promotion(request: RequestContext) -> Response:
    return _form_page(request, None, Form({"active": "1"}))


@views.get("/promotions/{number:int}")
def promotion(request: RequestContext, number: int) -> Response:
    promotion_row = _find_promotion(request, number)
    values = {**promotion_row, "minimum": f"{promotion_row['minimum'] / 100:.2f}"}
    return _form_page(request, promotion_row, Form(values))


def _form_page(request: RequestContext, promotion: Any, form: Form) -> Response:
    code = promotion["code"] if promotion else ""
    num_uses = request.value("SELECT count(*) FROM purchase WHERE coupon = ?", code)
    return request.render(
        "promotion.html.j2",
        422 if form.errors else 200,
        promotion=promotion,
        form=form,
        state=promotion_state(promotion, request.today) if promotion else "",
        num_uses=num_uses,
    )


@views.post("/promotions/new")
def add_promotion(request: RequestContext) -> Response:
    form = Form(request.form)
    values = _read_values(request, form, number=0)
    if form.errors:
        return _form_page(request, None, form)
    request.execute(
        f"INSERT INTO promotion ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
        *values.values(),
    )
    return request.redirect("/promotions", "The promotion was saved.")


@views.post("/promotions/{number:int}")
def change_promotion(request: RequestContext, number: int) -> Response:
    promotion_row, form = _find_promotion(request, number), Form(request.form)
    values = _read_values(request, form, number=number)
    if form.errors:
        return _form_page(request, promotion_row, form)
    assignments = ", ".join(f"{name} = ?" for name in values)
    request.execute(f"UPDATE promotion SET {assignments} WHERE id = ?", *values.values(), number)
    return request.redirect("/promotions", "The promotion was saved.")


@views.post("/promotions/{number:int}/switch")
def switch(request: RequestContext, number: int) -> Response:
    promotion_row = _find_promotion(request, number)
    request.execute("UPDATE promotion SET active = NOT active WHERE id = ?", number)
    new_state = "disabled" if promotion_row["active"] else "enabled"
    return request.redirect(f"/promotions/{number}", f"The promotion was {new_state}.")


@views.get("/promotions/{number:int}/delete")
def delete_page(request: RequestContext, number: int) -> Response:
    return request.render("delete_promotion.html.j2", promotion=_find_promotion(request, number))


@views.post("/promotions/{number:int}/delete")
def delete(request: RequestContext, number: int) -> Response:
    _find_promotion(request, number)
    request.execute("DELETE FROM promotion WHERE id = ?", number)
    return request.redirect("/promotions", "The promotion was deleted.")


def _read_values(request: RequestContext, form: Form, number: int) -> dict[str, Any]:
    """Return the values of the form by column; `number` is 0 for a new promotion."""
    values = {
        "name": form.text("name", max_chars=60),
        "code": form.text("code", max_chars=20).upper(),
        "percent": form.integer("percent", 1, 90),
        "minimum": form.cents("minimum"),
        "starts": form.day("starts"),
        "ends": form.day("ends"),
        "active": int(form.is_checked("active")),
    }
    if values["code"] and not re.fullmatch(r"[A-Z0-9]+", str(values["code"])):
        form.errors["code"] = "Letters and digits only."
    if request.value("SELECT 1 FROM promotion WHERE code = ? AND id != ?", values["code"], number):
        form.errors["code"] = "There is a promotion with this code already."
    if values["starts"] and values["ends"] and str(values["ends"]) < str(values["starts"]):
        form.errors["ends"] = "This day is before the first one."
    return values


def _find_promotion(request: RequestContext, number: int) -> Any:
    return request.row("SELECT * FROM promotion WHERE id = ?", number)
