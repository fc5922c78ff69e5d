"""Promotions: coupons that take something off the cart."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.admin.staff_views import ROWS, StaffViews, day_field
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import listing
from webagent_jax.arena.site import Visit

views = StaffViews()


def state(promotion: Any, today: str) -> str:
    """What a coupon does today."""
    if not promotion["active"]:
        return "Disabled"
    if promotion["starts"] > today:
        return "Scheduled"
    return "Active" if promotion["ends"] >= today else "Expired"


@views.get("/promotions")
def promotions(visit: Visit) -> Response:
    found = listing(visit, "*", "FROM promotion ORDER BY id DESC", size=ROWS)
    return visit.page("promotions.html.j2", found=found, state=state)


@views.get("/promotions/new")
def new_promotion(visit: Visit) -> Response:
    return _form_page(visit, None, Form({"active": "1"}))


@views.get("/promotions/{number:int}")
def promotion(visit: Visit, number: int) -> Response:
    here = _promotion(visit, number)
    values = {**here, "minimum": f"{here['minimum'] / 100:.2f}"}
    return _form_page(visit, here, Form(values))


def _form_page(visit: Visit, promotion: Any, form: Form) -> Response:
    code = promotion["code"] if promotion else ""
    used = visit.value("SELECT count(*) FROM purchase WHERE coupon = ?", code)
    return visit.page(
        "promotion.html.j2",
        422 if form.errors else 200,
        promotion=promotion,
        form=form,
        state=state(promotion, visit.today) if promotion else "",
        used=used,
    )


@views.post("/promotions/new")
def add_promotion(visit: Visit) -> Response:
    form = Form(visit.form)
    values = _values(visit, form, number=0)
    if form.errors:
        return _form_page(visit, None, form)
    visit.do(
        f"INSERT INTO promotion ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
        *values.values(),
    )
    return visit.redirect("/promotions", "The promotion was saved.")


@views.post("/promotions/{number:int}")
def change_promotion(visit: Visit, number: int) -> Response:
    here, form = _promotion(visit, number), Form(visit.form)
    values = _values(visit, form, number=number)
    if form.errors:
        return _form_page(visit, here, form)
    assigned = ", ".join(f"{name} = ?" for name in values)
    visit.do(f"UPDATE promotion SET {assigned} WHERE id = ?", *values.values(), number)
    return visit.redirect("/promotions", "The promotion was saved.")


@views.post("/promotions/{number:int}/switch")
def switch(visit: Visit, number: int) -> Response:
    here = _promotion(visit, number)
    visit.do("UPDATE promotion SET active = NOT active WHERE id = ?", number)
    told = "disabled" if here["active"] else "enabled"
    return visit.redirect(f"/promotions/{number}", f"The promotion was {told}.")


@views.get("/promotions/{number:int}/delete")
def delete_page(visit: Visit, number: int) -> Response:
    return visit.page("delete_promotion.html.j2", promotion=_promotion(visit, number))


@views.post("/promotions/{number:int}/delete")
def delete(visit: Visit, number: int) -> Response:
    _promotion(visit, number)
    visit.do("DELETE FROM promotion WHERE id = ?", number)
    return visit.redirect("/promotions", "The promotion was deleted.")


def _values(visit: Visit, form: Form, number: int) -> dict[str, Any]:
    """By column; `number` 0 is a new promotion."""
    values = {
        "name": form.text("name", most=60),
        "code": form.text("code", most=20).upper(),
        "percent": form.whole("percent", 1, 90),
        "minimum": form.cents("minimum"),
        "starts": day_field(form, "starts"),
        "ends": day_field(form, "ends"),
        "active": int(form.ticked("active")),
    }
    if values["code"] and not re.fullmatch(r"[A-Z0-9]+", str(values["code"])):
        form.errors["code"] = "Letters and digits only."
    if visit.value("SELECT 1 FROM promotion WHERE code = ? AND id != ?", values["code"], number):
        form.errors["code"] = "There is a promotion with this code already."
    if values["starts"] and values["ends"] and str(values["ends"]) < str(values["starts"]):
        form.errors["ends"] = "This day is before the first one."
    return values


def _promotion(visit: Visit, number: int) -> Any:
    return visit.row("SELECT * FROM promotion WHERE id = ?", number)
