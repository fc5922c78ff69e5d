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
def sign_in_form(visit: RequestContext) -> Response:
    return visit.render("sign_in.html.j2", form=Form(visit.query))


@views.post("/sign-in")
def sign_in(visit: RequestContext) -> Response:
    form = Form(visit.form)
    name, password = form.text("username"), form.text("password")
    if not form.errors:
        sql = "SELECT id FROM member WHERE username = ? COLLATE NOCASE AND password = ?"
        number = visit.value(sql, name, password)
        if number:
            return visit.sign_in(number, "/")
        form.errors["password"] = "The user name or the password is wrong."
    return visit.render("sign_in.html.j2", 422, form=form)


@views.post("/sign-out")
def sign_out(visit: RequestContext) -> Response:
    visit.session.account = None
    return visit.redirect("/", "You are signed out.")


@views.get("/register")
def register_form(visit: RequestContext) -> Response:
    return visit.render("register.html.j2", form=Form())


@views.post("/register")
def register(visit: RequestContext) -> Response:
    form = Form(visit.form)
    name, password = form.text("username", min_chars=3, max_chars=24), form.text("password", min_chars=8)
    if "username" not in form.errors and not re.fullmatch(r"[a-z0-9.]+", name):
        form.errors["username"] = "Use small letters, digits and dots."
    elif visit.value("SELECT 1 FROM member WHERE username = ?", name):
        form.errors["username"] = "This user name is taken."
    if form.errors:
        return visit.render("register.html.j2", 422, form=form)
    visit.session.account = visit.execute(
        "INSERT INTO member (username, password, bio, town, joined) VALUES (?, ?, '', '', ?)",
        *(name, password, visit.today),
    )
    return visit.redirect("/communities", "Welcome to Fencepost. Find a community to join.")


# --- posts and comments of a member --------------------------------------------------------------


@views.get("/u/{name}")
def member(visit: RequestContext, name: str) -> Response:
    row = _find_member(visit, name)
    pagination = post_lists.paginate_posts(visit, "author_id = ?", row["id"], default="new")
    return visit.render("member.html.j2", member=row, found=pagination)


@views.get("/u/{name}/comments")
def comments(visit: RequestContext, name: str) -> Response:
    row = _find_member(visit, name)
    columns = "comment.*, post.title"
    rest = (
        "FROM comment JOIN post ON post.id = post_id"
        " WHERE comment.author_id = ? ORDER BY comment.id DESC"
    )
    pagination = paginate(visit, columns, rest, [row["id"]], size=post_lists.PAGE_SIZE)
    return visit.render("member_comments.html.j2", member=row, found=pagination)


def _find_member(visit: RequestContext, name: str) -> Any:
    """Return a member with the counts and points of their posts and comments.

    Raises:
        NotFound: There is no member of this name.
    """
    return visit.row(
        "SELECT *, (SELECT count(*) FROM post WHERE author_id = member.id) AS posts,"
        " (SELECT count(*) FROM comment WHERE author_id = member.id) AS comments,"
        " (SELECT coalesce(sum(up - down), 0) FROM post WHERE author_id = member.id)"
        " + (SELECT coalesce(sum(up - down), 0) FROM comment WHERE author_id = member.id) AS "
        "points,"
        " id IN (SELECT other_id FROM blocked WHERE member_id = ?) AS is_blocked"
        " FROM member WHERE username = ?",
        *(visit.session.account or 0, name),
    )


@views.post("/u/{name}/block")
def block(visit: RequestContext, name: str) -> Response:
    """Block a member, or unblock a blocked one."""
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    row = _find_member(visit, name)
    pair = (visit.session.account, row["id"])
    if row["is_blocked"]:
        visit.execute("DELETE FROM blocked WHERE member_id = ? AND other_id = ?", *pair)
        return visit.redirect(f"/u/{name}", f"{name} is no longer blocked.")
    if row["id"] == visit.session.account:
        return visit.redirect(f"/u/{name}", "You cannot block yourself.")
    visit.execute("INSERT INTO blocked VALUES (?, ?)", *pair)
    return visit.redirect(f"/u/{name}", f"{name} is blocked. You will not see their posts.")


# --- settings of the account ---------------------------------------------------------------------


@views.get("/settings")
def settings_form(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    row = visit.row("SELECT * FROM member WHERE id = ?", visit.session.account)
    return visit.render("settings.html.j2", **_settings_context(visit), form=Form(dict(row)))


def _settings_context(visit: RequestContext) -> dict[str, Any]:
    blocked_rows = visit.rows(
        "SELECT username FROM blocked JOIN member ON member.id = other_id WHERE member_id = ?"
        " ORDER BY username",
        visit.session.account,
    )
    mail = visit.value("SELECT mail FROM member WHERE id = ?", visit.session.account)
    sorts = [(key, text) for key, (text, _) in post_lists.SORTS.items()]
    return {"blocked": blocked_rows, "mail": mail, "sorts": sorts}


@views.post("/settings")
def settings(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    form = Form(visit.form)
    bio = form.text("bio", required=False, max_chars=400)
    values = (
        bio,
        form.text("town", required=False, max_chars=40),
        form.choice("sort", post_lists.SORTS),
    )
    if form.errors:
        return visit.render("settings.html.j2", 422, **_settings_context(visit), form=form)
    visit.execute(
        "UPDATE member SET bio = ?, town = ?, sort = ?, mail = ? WHERE id = ?",
        *(*values, int(form.is_checked("mail")), visit.session.account),
    )
    return visit.redirect("/settings", "Your settings were saved.")
