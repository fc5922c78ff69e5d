"""Views of communities: list, subscription, creation and moderation."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum.post_lists import PAGE_SIZE, is_subscribed
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry

views = ViewRegistry()

_ORDERS = {
    "subscribers": ("Most subscribers", "subscribers DESC"),
    "name": ("Name", "title"),
    "newest": ("Newest", "created DESC"),
}


@views.get("/communities")
def communities(request: RequestContext) -> Response:
    query = request.query.get("q", "").strip()
    words = query.lower().split()[:10]
    where = "".join(" AND instr(lower(slug || title || description), ?)" for _ in words)
    order = _ORDERS.get(request.query.get("sort", ""), _ORDERS["subscribers"])[1]
    columns = (
        "*, (SELECT count(*) FROM subscription WHERE community_id = community.id"
        f" AND member_id = {request.session.account_id or 0}) AS is_subscribed"
    )
    from_clause = f"FROM community WHERE 1{where} ORDER BY {order}, id"
    return request.redirect_without_blanks() or request.render(
        "communities.html.j2",
        query=query,
        orders=[(key, text) for key, (text, _) in _ORDERS.items()],
        pagination=paginate(request, columns, from_clause, words, size=PAGE_SIZE),
    )


@views.post("/c/{slug}/subscribe", signed_in=True)
def subscribe(request: RequestContext, slug: str) -> Response:
    """Subscribe the account to a community, or unsubscribe it from a subscribed one."""
    community = request.row("SELECT * FROM community WHERE slug = ?", slug)
    pair = (request.session.account_id, community["id"])
    if is_subscribed(request, community["id"]):
        request.execute("DELETE FROM subscription WHERE member_id = ? AND community_id = ?", *pair)
        step, message = -1, f"You have unsubscribed from {community['title']}."
    else:
        request.execute("INSERT INTO subscription VALUES (?, ?)", *pair)
        step, message = 1, f"You are subscribed to {community['title']}."
    sql = "UPDATE community SET subscribers = subscribers + ? WHERE id = ?"
    request.execute(sql, step, community["id"])
    return request.redirect(request.return_path(f"/c/{slug}"), message)


# --- creating a community ------------------------------------------------------------------------


@views.get("/communities/new", signed_in=True)
def new_form(request: RequestContext) -> Response:
    return request.render("new_community.html.j2", form=Form())


@views.post("/communities/new", signed_in=True)
def new(request: RequestContext) -> Response:
    form = Form(request.form)
    slug = form.text("slug", min_chars=3, max_chars=24)
    if "slug" not in form.errors and not re.fullmatch(r"[a-z0-9-]+", slug):
        form.errors["slug"] = "Use small letters, digits and hyphens."
    elif request.value("SELECT 1 FROM community WHERE slug = ?", slug):
        form.errors["slug"] = "There is a community of this name already."
    title, description, sidebar = _read_texts(request, form, number=0)
    if form.errors:
        return request.render("new_community.html.j2", 422, form=form)
    number = request.execute(
        "INSERT INTO community (slug, title, description, sidebar, created, subscribers, hue)"
        " VALUES (?, ?, ?, ?, ?, 1, ?)",
        *(slug, title, description, sidebar, request.today, 24 * len(title) % 360),
    )
    request.execute("INSERT INTO moderator VALUES (?, ?)", number, request.session.account_id)
    request.execute("INSERT INTO subscription VALUES (?, ?)", request.session.account_id, number)
    return request.redirect(f"/c/{slug}", f"The community {title} was created.")


def _read_texts(request: RequestContext, form: Form, number: int) -> tuple[str, str, str]:
    """Return title, description and sidebar of the form; `number` is 0 for a new community."""
    title = form.text("title", max_chars=60)
    title_sql = "SELECT 1 FROM community WHERE title = ? COLLATE NOCASE AND id != ?"
    if request.value(title_sql, title, number):
        form.errors["title"] = "There is a community with this title already."
    description = form.text("description", max_chars=120)
    return title, description, form.text("sidebar", required=False, max_chars=1000)


# --- moderating a community ----------------------------------------------------------------------


@views.get("/c/{slug}/edit", signed_in=True)
def edit_form(request: RequestContext, slug: str) -> Response:
    community = _find_moderated(request, slug)
    return request.render("edit_community.html.j2", community=community, form=Form(dict(community)))


@views.post("/c/{slug}/edit", signed_in=True)
def edit(request: RequestContext, slug: str) -> Response:
    community, form = _find_moderated(request, slug), Form(request.form)
    values = _read_texts(request, form, community["id"])
    if form.errors:
        return request.render("edit_community.html.j2", 422, community=community, form=form)
    sql = "UPDATE community SET title = ?, description = ?, sidebar = ? WHERE id = ?"
    request.execute(sql, *values, community["id"])
    return request.redirect(f"/c/{slug}", "The community was changed.")


def _find_moderated(request: RequestContext, slug: str) -> Any:
    """Return the community that the account moderates.

    Raises:
        NotFound: there is no such community, or the account does not moderate it.
    """
    community = request.row("SELECT * FROM community WHERE slug = ?", slug)
    sql = "SELECT 1 FROM moderator WHERE community_id = ? AND member_id = ?"
    if not request.value(sql, community["id"], request.session.account_id):
        raise NotFound
    return community
