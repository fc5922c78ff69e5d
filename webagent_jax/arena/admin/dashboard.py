"""Views of the sign-in page and of the dashboard, which lists pending work."""

from __future__ import annotations

from starlette.responses import Response

from webagent_jax.arena import common
from webagent_jax.arena.admin.reports import LOW_STOCK_LIMIT, bestsellers_since
from webagent_jax.arena.forms import Form
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry(signed_in=True)
public_views = ViewRegistry()  # views without sign-in


@views.get("/")
def dashboard(request: RequestContext) -> Response:
    month = request.row(
        "SELECT count(*) AS orders, coalesce(sum(total), 0) AS revenue FROM purchase"
        " WHERE placed >= ? AND status != 'Cancelled'",
        request.today[:8] + "01",
    )
    pending = {
        "ship": request.value("SELECT count(*) FROM purchase WHERE status = 'Processing'"),
        "reviews": request.value("SELECT count(*) FROM review WHERE status = 'Pending'"),
        "stock": request.value(
            "SELECT count(*) FROM product WHERE active AND stock < ?", LOW_STOCK_LIMIT
        ),
    }
    months = request.rows(
        "SELECT substr(placed, 1, 7) AS interval, sum(total) AS revenue FROM purchase"
        " WHERE status != 'Cancelled' GROUP BY interval ORDER BY interval DESC LIMIT 13"
    )
    return request.render(
        "dashboard.html.j2",
        month=month,
        pending=pending,
        months=months[::-1],
        latest=request.rows("SELECT * FROM purchase ORDER BY id DESC LIMIT 5"),
        bestsellers=bestsellers_since(request, days=30)[:5],
    )


@public_views.get("/sign-in")
def sign_in_form(request: RequestContext) -> Response:
    return request.render("sign_in.html.j2", form=Form(request.query))


@public_views.post("/sign-in")
def sign_in(request: RequestContext) -> Response:
    """Sign in the only staff member, with the email and password of their customer account."""
    form = Form(request.form)
    email, password = form.email("email"), form.text("password")
    staff = common.agent_user()
    if not form.errors:
        if (email.lower(), password) == (staff.email, staff.password):
            return request.sign_in(staff.id, "/")
        form.errors["password"] = "The email address or the password is wrong."
    return request.render("sign_in.html.j2", 422, form=form)


@public_views.post("/sign-out")
def sign_out(request: RequestContext) -> Response:
    return request.sign_out("/sign-in")
