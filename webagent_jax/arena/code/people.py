"""Pages of users and groups; to follow people, to invite them into a group."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.code.members import invited
from webagent_jax.arena.code.permissions import FACTS, JOINED, SEEN, me
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import listing
from webagent_jax.arena.site import Missing, Views, Visit

views = Views()


@views.get("/{owner}")
def owner_page(visit: Visit, owner: str) -> Response:
    here = visit.row("SELECT * FROM namespace WHERE path = ?", owner)
    if here["user_id"] is None:
        return _group(visit, _find_group(visit, owner))
    user = visit.row("SELECT * FROM user WHERE id = ?", here["user_id"])
    rest = f"{JOINED} WHERE namespace.id = ?2 AND {SEEN} ORDER BY active DESC, project.id"
    found = listing(visit, FACTS, rest, [me(visit), here["id"]], size=6)
    context: dict[str, Any] = {
        "user": user,
        "found": found,
        "following": visit.value(
            "SELECT 1 FROM follow WHERE follower_id = ? AND followed_id = ?", me(visit), user["id"]
        ),
        "followers": visit.value("SELECT count(*) FROM follow WHERE followed_id = ?", user["id"]),
        "follows": visit.value("SELECT count(*) FROM follow WHERE follower_id = ?", user["id"]),
        "commits": visit.value("SELECT count(*) FROM revision WHERE author_id = ?", user["id"]),
    }
    return visit.page("user.html.j2", **context)


@views.post("/{owner}/follow")
def follow(visit: Visit, owner: str) -> Response:
    if not me(visit):
        return visit.sign_in_first()
    user = visit.row("SELECT * FROM user WHERE username = ?", owner)
    pair = (me(visit), user["id"])
    if user["id"] == me(visit):
        return visit.redirect(f"/{owner}", "You cannot follow yourself.")
    if visit.value("SELECT 1 FROM follow WHERE follower_id = ? AND followed_id = ?", *pair):
        visit.do("DELETE FROM follow WHERE follower_id = ? AND followed_id = ?", *pair)
        return visit.redirect(f"/{owner}", f"You no longer follow {user['name']}.")
    visit.do("INSERT INTO follow VALUES (?, ?)", *pair)
    return visit.redirect(f"/{owner}", f"You follow {user['name']}.")


# --- groups --------------------------------------------------------------------------------------


def _find_group(visit: Visit, path: str) -> Any:
    """With `role`: the visitor's. Raises Missing for a private group of others."""
    here = visit.row(
        "SELECT namespace.*, coalesce((SELECT role FROM group_member WHERE namespace_id ="
        " namespace.id AND group_member.user_id = ?), '') AS role FROM namespace WHERE path = ?"
        " AND user_id IS NULL",
        *(me(visit), path),
    )
    if here["visibility"] == "private" and not here["role"]:
        raise Missing
    return here


def _group(visit: Visit, here: Any) -> Response:
    rest = f"{JOINED} WHERE namespace.id = ?2 AND {SEEN} ORDER BY active DESC, project.id"
    found = listing(visit, FACTS, rest, [me(visit), here["id"]], size=6)
    return visit.page("group.html.j2", group=here, found=found, members=_members(visit, here))


def _members(visit: Visit, here: Any) -> Any:
    return visit.rows(
        "SELECT username, name, role FROM group_member JOIN user ON user.id = group_member.user_id"
        " WHERE namespace_id = ? ORDER BY role = 'Owner' DESC, name",
        here["id"],
    )


@views.get("/{owner}/invite")
def invite_form(visit: Visit, owner: str) -> Response:
    here = _find_group(visit, owner)
    if here["role"] != "Owner":
        return visit.redirect(f"/{owner}", "You do not have the permission to do this.")
    return visit.page("invite.html.j2", place=here, roles=ROLES, form=Form(), project=None)


@views.post("/{owner}/invite")
def invite(visit: Visit, owner: str) -> Response:
    here = _find_group(visit, owner)
    if here["role"] != "Owner":
        return visit.redirect(f"/{owner}", "You do not have the permission to do this.")
    form = Form(visit.form)
    user, role = invited(visit, form)
    if user and visit.value(
        "SELECT 1 FROM group_member WHERE namespace_id = ? AND user_id = ?", here["id"], user["id"]
    ):
        form.errors["user"] = "This person is a member already."
    if form.errors:
        context: dict[str, Any] = {"place": here, "roles": ROLES, "form": form, "project": None}
        return visit.page("invite.html.j2", 422, **context)
    visit.do("INSERT INTO group_member VALUES (?, ?, ?)", here["id"], user["id"], role)
    return visit.redirect(f"/{owner}", f"{user['name']} was invited as {role}.")
