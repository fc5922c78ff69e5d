"""Who works here, and what waits for them: sign-in and the dashboard."""

from __future__ import annotations

from starlette.responses import Response

from webagent_jax.arena import common
from webagent_jax.arena.admin.reports import LOW_STOCK, bestsellers_since
from webagent_jax.arena.admin.staff_views import StaffViews
from webagent_jax.arena.forms import Form
from webagent_jax.arena.site import Views, Visit

views = StaffViews()
door = Views()  # open to everybody


@views.get("/")
def dashboard(visit: Visit) -> Response:
    month = visit.row(
        "SELECT count(*) AS orders, coalesce(sum(total), 0) AS revenue FROM purchase"
        " WHERE placed >= ? AND status != 'Cancelled'",
        visit.today[:8] + "01",
    )
    waiting = {
        "ship": visit.value("SELECT count(*) FROM purchase WHERE status = 'Processing'"),
        "reviews": visit.value("SELECT count(*) FROM review WHERE status = 'Pending'"),
        "stock": visit.value("SELECT count(*) FROM product WHERE stock < ?", LOW_STOCK),
    }
    months = visit.rows(
        "SELECT substr(placed, 1, 7) AS interval, sum(total) AS revenue FROM purchase"
        " WHERE status != 'Cancelled' GROUP BY interval ORDER BY interval DESC LIMIT 13"
    )
    return visit.page(
        "dashboard.html.j2",
        month=month,
        waiting=waiting,
        months=months[::-1],
        latest=visit.rows("SELECT * FROM purchase ORDER BY id DESC LIMIT 5"),
        bestsellers=bestsellers_since(visit, days=30)[:5],
    )


@door.get("/sign-in")
def sign_in_form(visit: Visit) -> Response:
    return visit.page("sign_in.html.j2", form=Form(visit.query))


@door.post("/sign-in")
def sign_in(visit: Visit) -> Response:
    """One person works here; it is the customer with her password."""
    form = Form(visit.form)
    email, password = form.email("email"), form.text("password")
    me = common.me()
    if not form.errors:
        if (email.lower(), password) == (me.email, me.password):
            return visit.sign_in(me.id, "/")
        form.errors["password"] = "The email address or the password is wrong."
    return visit.page("sign_in.html.j2", 422, form=form)


@door.post("/sign-out")
def sign_out(visit: Visit) -> Response:
    visit.session.account = None
    return visit.redirect("/sign-in", "You are signed out.")
