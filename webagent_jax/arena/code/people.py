"""Views of users and groups: profiles, following and invitations to groups."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.code.members import read_invitation
from webagent_jax.arena.code.permissions import PROJECT_COLUMNS, FROM_PROJECT, VISIBLE_CONDITION, account_id
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry

views = ViewRegistry()


@views.get("/{owner}")
def owner_page(visit: RequestContext, owner: str) -> Response:
    namespace = visit.row("SELECT * FROM namespace WHERE path = ?", owner)
    if namespace["user_id"] is None:
        return _render_group(visit, _find_group(visit, owner))
    user = visit.row("SELECT * FROM user WHERE id = ?", namespace["user_id"])
    rest = f"{FROM_PROJECT} WHERE namespace.id = ?2 AND {VISIBLE_CONDITION} ORDER BY active DESC, project.id"
    pagination = paginate(visit, PROJECT_COLUMNS, rest, [account_id(visit), namespace["id"]], size=6)
    context: dict[str, Any] = {
        "user": user,
        "found": pagination,
        "following": visit.value(
            "SELECT 1 FROM follow WHERE follower_id = ? AND followed_id = ?", account_id(visit), user["id"]
        ),
        "followers": visit.value("SELECT count(*) FROM follow WHERE followed_id = ?", user["id"]),
        "follows": visit.value("SELECT count(*) FROM follow WHERE follower_id = ?", user["id"]),
        "commits": visit.value("SELECT count(*) FROM revision WHERE author_id = ?", user["id"]),
    }
    return visit.render("user.html.j2", **context)


@views.post("/{owner}/follow")
def follow(visit: RequestContext, owner: str) -> Response:
    if not account_id(visit):
        return visit.redirect_to_sign_in()
    user = visit.row("SELECT * FROM user WHERE username = ?", owner)
    pair = (account_id(visit), user["id"])
    if user["id"] == account_id(visit):
        return visit.redirect(f"/{owner}", "You cannot follow yourself.")
    if visit.value("SELECT 1 FROM follow WHERE follower_id = ? AND followed_id = ?", *pair):
        visit.execute("DELETE FROM follow WHERE follower_id = ? AND followed_id = ?", *pair)
        return visit.redirect(f"/{owner}", f"You no longer follow {user['name']}.")
    visit.execute("INSERT INTO follow VALUES (?, ?)", *pair)
    return visit.redirect(f"/{owner}", f"You follow {user['name']}.")


# --- groups --------------------------------------------------------------------------------------


def _find_group(visit: RequestContext, path: str) -> Any:
    """Return a group with the `role` of the account in it.

    Raises:
        NotFound: There is no such group, or it is private and the account is not in it.
    """
    group = visit.row(
        "SELECT namespace.*, coalesce((SELECT role FROM group_member WHERE namespace_id ="
        " namespace.id AND group_member.user_id = ?), '') AS role FROM namespace WHERE path = ?"
        " AND user_id IS NULL",
        *(account_id(visit), path),
    )
    if group["visibility"] == "private" and not group["role"]:
        raise NotFound
    return group


def _render_group(visit: RequestContext, group: Any) -> Response:
    rest = f"{FROM_PROJECT} WHERE namespace.id = ?2 AND {VISIBLE_CONDITION} ORDER BY active DESC, project.id"
    pagination = paginate(visit, PROJECT_COLUMNS, rest, [account_id(visit), group["id"]], size=6)
    return visit.render(
        "group.html.j2", group=group, found=pagination, members=_read_members(visit, group)
    )


def _read_members(visit: RequestContext, group: Any) -> Any:
    return visit.rows(
        "SELECT username, name, role FROM group_member JOIN user ON user.id = group_member.user_id"
        " WHERE namespace_id = ? ORDER BY role = 'Owner' DESC, name",
        group["id"],
    )


@views.get("/{owner}/invite")
def invite_form(visit: RequestContext, owner: str) -> Response:
    group = _find_group(visit, owner)
    if group["role"] != "Owner":
        return visit.redirect(f"/{owner}", "You do not have the permission to do this.")
    return visit.render("invite.html.j2", place=group, roles=ROLES, form=Form(), project=None)


@views.post("/{owner}/invite")
def invite(visit: RequestContext, owner: str) -> Response:
    group = _find_group(visit, owner)
    if group["role"] != "Owner":
        return visit.redirect(f"/{owner}", "You do not have the permission to do this.")
    form = Form(visit.form)
    user, role = read_invitation(visit, form)
    if user and visit.value(
        "SELECT 1 FROM group_member WHERE namespace_id = ? AND user_id = ?", group["id"], user["id"]
    ):
        form.errors["user"] = "This person is a member already."
    if form.errors:
        context: dict[str, Any] = {"place": group, "roles": ROLES, "form": form, "project": None}
        return visit.render("invite.html.j2", 422, **context)
    visit.execute("INSERT INTO group_member VALUES (?, ?, ?)", group["id"], user["id"], role)
    return visit.redirect(f"/{owner}", f"{user['name']} was invited as {role}.")
