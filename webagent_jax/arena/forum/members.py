"""Views of members: sign-in, their posts and comments, settings and blocking."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum import post_lists
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()


@views.get("/sign-in")
def sign_in_form(request: RequestContext) -> Response:
    return request.render("sign_in.html.j2", form=Form(request.query))


@views.post("/sign-in")
def sign_in(request: RequestContext) -> Response:
    form = Form(request.form)
    name, password = form.text("username"), form.text("password")
    if not form.errors:
        sql = "SELECT id FROM member WHERE username = ? COLLATE NOCASE AND password = ?"
        number = request.value(sql, name, password)
        if number:
            return request.sign_in(number, "/")
        form.errors["password"] = "The user name or the password is wrong."
    return request.render("sign_in.html.j2", 422, form=form)


@views.post("/sign-out")
def sign_out(request: RequestContext) -> Response:
    return request.sign_out("/")


@views.get("/register")
def register_form(request: RequestContext) -> Response:
    return request.render("register.html.j2", form=Form())


@views.post("/register")
def register(request: RequestContext) -> Response:
    form = Form(request.form)
    name, password = (
        form.text("username", min_chars=3, max_chars=24),
        form.text("password", min_chars=8),
    )
    if "username" not in form.errors and not re.fullmatch(r"[a-z0-9.]+", name):
        form.errors["username"] = "Use small letters, digits and dots."
    elif request.value("SELECT 1 FROM member WHERE username = ?", name):
        form.errors["username"] = "This user name is taken."
    if form.errors:
        return request.render("register.html.j2", 422, form=form)
    request.session.account_id = request.execute(
        "INSERT INTO member (username, password, bio, town, joined) VALUES (?, ?, '', '', ?)",
        *(name, password, request.today),
    )
    return request.redirect("/communities", "Welcome to Fencepost. Find a community to join.")


# --- posts and comments of a member --------------------------------------------------------------


@views.get("/u/{name}")
def member(request: RequestContext, name: str) -> Response:
    row = _find_member(request, name)
    pagination = post_lists.paginate_posts(request, "author_id = ?", row["id"], default="new")
    return request.render("member.html.j2", member=row, pagination=pagination)


@views.get("/u/{name}/comments")
def comments(request: RequestContext, name: str) -> Response:
    row = _find_member(request, name)
    columns = "comment.*, post.title"
    from_clause = (
        "FROM comment JOIN post ON post.id = post_id"
        " WHERE comment.author_id = ? ORDER BY comment.id DESC"
    )
    pagination = paginate(request, columns, from_clause, [row["id"]], size=post_lists.PAGE_SIZE)
    return request.render("member_comments.html.j2", member=row, pagination=pagination)


def _find_member(request: RequestContext, name: str) -> Any:
    """Return a member with the counts and points of their posts and comments.

    Raises:
        NotFound: there is no member of this name.
    """
    return request.row(
        "SELECT *, (SELECT count(*) FROM post WHERE author_id = member.id) AS posts,"
        " (SELECT count(*) FROM comment WHERE author_id = member.id) AS comments,"
        " (SELECT coalesce(sum(up - down), 0) FROM post WHERE author_id = member.id)"
        " + (SELECT coalesce(sum(up - down), 0) FROM comment WHERE author_id = member.id) AS "
        "points,"
        " id IN (SELECT other_id FROM blocked WHERE member_id = ?) AS is_blocked"
        " FROM member WHERE username = ?",
        *(request.session.account_id or 0, name),
    )


@views.post("/u/{name}/block", signed_in=True)
def block(request: RequestContext, name: str) -> Response:
    """Block a member, or unblock a blocked one."""
    row = _find_member(request, name)
    pair = (request.session.account_id, row["id"])
    if row["is_blocked"]:
        request.execute("DELETE FROM blocked WHERE member_id = ? AND other_id = ?", *pair)
        return request.redirect(f"/u/{name}", f"{name} is no longer blocked.")
    if row["id"] == request.session.account_id:
        return request.redirect(f"/u/{name}", "You cannot block yourself.")
    request.execute("INSERT INTO blocked VALUES (?, ?)", *pair)
    return request.redirect(f"/u/{name}", f"{name} is blocked. You will not see their posts.")


# --- settings of the account ---------------------------------------------------------------------


@views.get("/settings", signed_in=True)
def settings_form(request: RequestContext) -> Response:
    row = request.row("SELECT * FROM member WHERE id = ?", request.session.account_id)
    return request.render("settings.html.j2", **_settings_context(request), form=Form(dict(row)))


def _settings_context(request: RequestContext) -> dict[str, Any]:
    blocked_rows = request.rows(
        "SELECT username FROM blocked JOIN member ON member.id = other_id WHERE member_id = ?"
        " ORDER BY username",
        request.session.account_id,
    )
    sorts = [(key, text) for key, (text, _) in post_lists.SORTS.items()]
    return {"blocked": blocked_rows, "sorts": sorts}


@views.post("/settings", signed_in=True)
def settings(request: RequestContext) -> Response:
    form = Form(request.form)
    bio = form.text("bio", required=False, max_chars=400)
    values = (
        bio,
        form.text("town", required=False, max_chars=40),
        form.choice("sort", post_lists.SORTS),
    )
    if form.errors:
        return request.render("settings.html.j2", 422, **_settings_context(request), form=form)
    request.execute(
        "UPDATE member SET bio = ?, town = ?, sort = ?, mail = ? WHERE id = ?",
        *(*values, int(form.is_checked("mail")), request.session.account_id),
    )
    return request.redirect("/settings", "Your settings were saved.")
