"""Communities: which there are, joining and leaving them, beginning one, and looking after it."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum.post_lists import PAGE, is_subscribed, without_blanks
from webagent_jax.arena.pagination import listing
from webagent_jax.arena.site import Missing, Views, Visit

views = Views()

_ORDERS = {
    "subscribers": ("Most subscribers", "subscribers DESC"),
    "name": ("Name", "title"),
    "newest": ("Newest", "created DESC"),
}


@views.get("/communities")
def communities(visit: Visit) -> Response:
    asked = visit.query.get("q", "").strip()
    words = asked.lower().split()[:10]
    where = "".join(" AND instr(lower(slug || title || description), ?)" for _ in words)
    order = _ORDERS.get(visit.query.get("sort", ""), _ORDERS["subscribers"])[1]
    columns = (
        "*, (SELECT count(*) FROM subscription WHERE community_id = community.id"
        f" AND member_id = {visit.session.account or 0}) AS is_subscribed"
    )
    rest = f"FROM community WHERE 1{where} ORDER BY {order}, id"
    return without_blanks(visit) or visit.page(
        "communities.html.j2",
        asked=asked,
        orders=[(key, text) for key, (text, _) in _ORDERS.items()],
        found=listing(visit, columns, rest, words, size=PAGE),
    )


@views.post("/c/{slug}/subscribe")
def subscribe(visit: Visit, slug: str) -> Response:
    """Or the opposite, for who is subscribed."""
    if not visit.session.account:
        return visit.sign_in_first()
    here = visit.row("SELECT * FROM community WHERE slug = ?", slug)
    pair = (visit.session.account, here["id"])
    if is_subscribed(visit, here["id"]):
        visit.do("DELETE FROM subscription WHERE member_id = ? AND community_id = ?", *pair)
        step, told = -1, f"You have unsubscribed from {here['title']}."
    else:
        visit.do("INSERT INTO subscription VALUES (?, ?)", *pair)
        step, told = 1, f"You are subscribed to {here['title']}."
    sql = "UPDATE community SET subscribers = subscribers + ? WHERE id = ?"
    visit.do(sql, step, here["id"])
    return visit.redirect(visit.back(f"/c/{slug}"), told)


# --- beginning one -------------------------------------------------------------------------------


@views.get("/communities/new")
def new_form(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    return visit.page("new_community.html.j2", form=Form())


@views.post("/communities/new")
def new(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    form = Form(visit.form)
    slug = form.text("slug", least=3, most=24)
    if "slug" not in form.errors and not re.fullmatch(r"[a-z0-9-]+", slug):
        form.errors["slug"] = "Use small letters, digits and hyphens."
    elif visit.value("SELECT 1 FROM community WHERE slug = ?", slug):
        form.errors["slug"] = "There is a community of this name already."
    title, description, sidebar = _told(form)
    if visit.value("SELECT 1 FROM community WHERE title = ? COLLATE NOCASE", title):
        form.errors["title"] = "There is a community with this title already."
    if form.errors:
        return visit.page("new_community.html.j2", 422, form=form)
    number = visit.do(
        "INSERT INTO community (slug, title, description, sidebar, created, subscribers, hue)"
        " VALUES (?, ?, ?, ?, ?, 1, ?)",
        *(slug, title, description, sidebar, visit.today, 24 * len(title) % 360),
    )
    visit.do("INSERT INTO moderator VALUES (?, ?)", number, visit.session.account)
    visit.do("INSERT INTO subscription VALUES (?, ?)", visit.session.account, number)
    return visit.redirect(f"/c/{slug}", f"The community {title} was created.")


def _told(form: Form) -> tuple[str, str, str]:
    """Title, description, sidebar."""
    description = form.text("description", most=120)
    return form.text("title", most=60), description, form.text("sidebar", required=False, most=1000)


# --- looking after it ----------------------------------------------------------------------------


@views.get("/c/{slug}/edit")
def edit_form(visit: Visit, slug: str) -> Response:
    here = _moderated(visit, slug)
    return visit.page("edit_community.html.j2", community=here, form=Form(dict(here)))


@views.post("/c/{slug}/edit")
def edit(visit: Visit, slug: str) -> Response:
    here, form = _moderated(visit, slug), Form(visit.form)
    values = _told(form)
    if form.errors:
        return visit.page("edit_community.html.j2", 422, community=here, form=form)
    sql = "UPDATE community SET title = ?, description = ?, sidebar = ? WHERE id = ?"
    visit.do(sql, *values, here["id"])
    return visit.redirect(f"/c/{slug}", "The community was changed.")


def _moderated(visit: Visit, slug: str) -> Any:
    """The community, to its moderators alone. Raises Missing."""
    here = visit.row("SELECT * FROM community WHERE slug = ?", slug)
    sql = "SELECT 1 FROM moderator WHERE community_id = ? AND member_id = ?"
    if not visit.value(sql, here["id"], visit.session.account):
        raise Missing
    return here
