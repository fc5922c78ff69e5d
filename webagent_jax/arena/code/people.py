"""Views of users and groups: profiles, following and invitations to groups."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.code.members import read_invitation
from webagent_jax.arena.code.permissions import (
    FROM_PROJECT,
    PROJECT_COLUMNS,
    VISIBLE_CONDITION,
    account_id,
)
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry

views = ViewRegistry()


@views.get("/{owner}")
def owner_page(request: RequestContext, owner: str) -> Response:
    namespace = request.row("SELECT * FROM namespace WHERE path = ?", owner)
    if namespace["user_id"] is None:
        return _render_group(request, _find_group(request, owner))
    user = request.row("SELECT * FROM user WHERE id = ?", namespace["user_id"])
    from_clause = (
        f"{FROM_PROJECT} WHERE namespace.id = ?2 AND {VISIBLE_CONDITION}"
        " ORDER BY active DESC, project.id"
    )
    pagination = paginate(
        request, PROJECT_COLUMNS, from_clause, [account_id(request), namespace["id"]], size=6
    )
    context: dict[str, Any] = {
        "user": user,
        "pagination": pagination,
        "following": request.value(
            "SELECT 1 FROM follow WHERE follower_id = ? AND followed_id = ?",
            account_id(request),
            user["id"],
        ),
        "followers": request.value("SELECT count(*) FROM follow WHERE followed_id = ?", user["id"]),
        "follows": request.value("SELECT count(*) FROM follow WHERE follower_id = ?", user["id"]),
        "commits": request.value("SELECT count(*) FROM revision WHERE author_id = ?", user["id"]),
    }
    return request.render("user.html.j2", **context)


@views.post("/{owner}/follow", signed_in=True)
def follow(request: RequestContext, owner: str) -> Response:
    user = request.row("SELECT * FROM user WHERE username = ?", owner)
    pair = (account_id(request), user["id"])
    if user["id"] == account_id(request):
        return request.redirect(f"/{owner}", "You cannot follow yourself.")
    if request.value("SELECT 1 FROM follow WHERE follower_id = ? AND followed_id = ?", *pair):
        request.execute("DELETE FROM follow WHERE follower_id = ? AND followed_id = ?", *pair)
        return request.redirect(f"/{owner}", f"You no longer follow {user['name']}.")
    request.execute("INSERT INTO follow VALUES (?, ?)", *pair)
    return request.redirect(f"/{owner}", f"You follow {user['name']}.")


# --- groups --------------------------------------------------------------------------------------


def _find_group(request: RequestContext, path: str) -> Any:
    """Return a group with the `role` of the account in it.

    Raises:
        NotFound: there is no such group, or it is private and the account is not in it.
    """
    group = request.row(
        "SELECT namespace.*, coalesce((SELECT role FROM group_member WHERE namespace_id ="
        " namespace.id AND group_member.user_id = ?), '') AS role FROM namespace WHERE path = ?"
        " AND user_id IS NULL",
        *(account_id(request), path),
    )
    if group["visibility"] == "private" and not group["role"]:
        raise NotFound
    return group


def _render_group(request: RequestContext, group: Any) -> Response:
    from_clause = (
        f"{FROM_PROJECT} WHERE namespace.id = ?2 AND {VISIBLE_CONDITION}"
        " ORDER BY active DESC, project.id"
    )
    pagination = paginate(
        request, PROJECT_COLUMNS, from_clause, [account_id(request), group["id"]], size=6
    )
    return request.render(
        "group.html.j2", group=group, pagination=pagination, members=_read_members(request, group)
    )


def _read_members(request: RequestContext, group: Any) -> Any:
    return request.rows(
        "SELECT username, name, role FROM group_member JOIN user ON user.id = group_member.user_id"
        " WHERE namespace_id = ? ORDER BY role = 'Owner' DESC, name",
        group["id"],
    )


@views.get("/{owner}/invite", signed_in=True)
def invite_form(request: RequestContext, owner: str) -> Response:
    group = _find_group(request, owner)
    if group["role"] != "Owner":
        return request.redirect(f"/{owner}", "You do not have the permission to do this.")
    return request.render("invite.html.j2", target=group, roles=ROLES, form=Form(), project=None)


@views.post("/{owner}/invite", signed_in=True)
def invite(request: RequestContext, owner: str) -> Response:
    group = _find_group(request, owner)
    if group["role"] != "Owner":
        return request.redirect(f"/{owner}", "You do not have the permission to do this.")
    form = Form(request.form)
    user, role = read_invitation(request, form)
    if user and request.value(
        "SELECT 1 FROM group_member WHERE namespace_id = ? AND user_id = ?", group["id"], user["id"]
    ):
        form.errors["user"] = "This person is a member already."
    if form.errors:
        context: dict[str, Any] = {"target": group, "roles": ROLES, "form": form, "project": None}
        return request.render("invite.html.j2", 422, **context)
    request.execute("INSERT INTO group_member VALUES (?, ?, ?)", group["id"], user["id"], role)
    return request.redirect(f"/{owner}", f"{user['name']} was invited as {role}.")
