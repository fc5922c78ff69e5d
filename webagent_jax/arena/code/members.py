"""Members of a project and its settings."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code import sample_projects
from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.code.permissions import VISIBILITIES, find, may, refuse
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import listing
from webagent_jax.arena.site import Views, Visit

views = Views()


@views.get("/{owner}/{slug}/members")
def members(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    rest = "FROM member JOIN user ON user.id = user_id WHERE project_id = ? ORDER BY name, user.id"
    found = listing(visit, "user.id, username, name, role, since", rest, [here["id"]], size=8)
    context: dict[str, Any] = {"roles": ROLES, "manages": may(here, "Maintainer")}
    return visit.page("members.html.j2", project=here, found=found, **context)


@views.get("/{owner}/{slug}/members/invite")
def invite_form(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Maintainer"):
        return refuse(visit, here)
    return visit.page("invite.html.j2", place=here, roles=ROLES, form=Form(), project=here)


@views.post("/{owner}/{slug}/members/invite")
def invite(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Maintainer"):
        return refuse(visit, here)
    form = Form(visit.form)
    user, role = invited(visit, form)
    if user and visit.value(
        "SELECT 1 FROM member WHERE project_id = ? AND user_id = ?", here["id"], user["id"]
    ):
        form.errors["user"] = "This person is a member already."
    if form.errors:
        context: dict[str, Any] = {"place": here, "roles": ROLES, "form": form, "project": here}
        return visit.page("invite.html.j2", 422, **context)
    row = (here["id"], user["id"], role, visit.today)
    visit.do("INSERT INTO member VALUES (?, ?, ?, ?)", *row)
    return visit.redirect(f"/{here['path']}/members", f"{user['name']} was invited as {role}.")


def invited(visit: Visit, form: Form) -> tuple[Any, str]:
    """Whom the form means, None when nobody, and the role."""
    asked, role = form.text("user"), form.choice("role", ROLES)
    rows = visit.rows(
        "SELECT * FROM user WHERE ? COLLATE NOCASE IN (username, email, name)",
        asked.removeprefix("@"),
    )
    if asked and not rows:
        form.errors["user"] = "There is nobody with this user name or email address."
    return (rows[0] if rows else None), role


@views.get("/{owner}/{slug}/members/{user:int}")
def member(visit: Visit, owner: str, slug: str, user: int) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Maintainer"):
        return refuse(visit, here)
    row = visit.row(
        "SELECT username, name, role, since FROM member JOIN user ON user.id = user_id"
        " WHERE project_id = ? AND user_id = ?",
        *(here["id"], user),
    )
    context: dict[str, Any] = {"roles": ROLES, "form": Form({"role": row["role"]})}
    return visit.page("member.html.j2", project=here, member=row, **context)


@views.post("/{owner}/{slug}/members/{user:int}/role")
def change_role(visit: Visit, owner: str, slug: str, user: int) -> Response:
    here = find(visit, owner, slug)
    role = visit.form.get("role", "")
    if not may(here, "Maintainer") or role not in ROLES:
        return refuse(visit, here)
    path = f"/{here['path']}/members"
    if _is_last_owner(visit, here, user):
        return visit.redirect(path, "A project needs an owner.")
    visit.do(
        "UPDATE member SET role = ? WHERE project_id = ? AND user_id = ?", role, here["id"], user
    )
    return visit.redirect(path, "The role was changed.")


@views.post("/{owner}/{slug}/members/{user:int}/remove")
def remove(visit: Visit, owner: str, slug: str, user: int) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Maintainer"):
        return refuse(visit, here)
    path = f"/{here['path']}/members"
    if _is_last_owner(visit, here, user):
        return visit.redirect(path, "A project needs an owner.")
    visit.do("DELETE FROM member WHERE project_id = ? AND user_id = ?", here["id"], user)
    return visit.redirect(path, "The member was removed.")


def _is_last_owner(visit: Visit, here: Any, user: int) -> bool:
    owners = visit.rows(
        "SELECT user_id FROM member WHERE project_id = ? AND role = 'Owner'", here["id"]
    )
    return [row["user_id"] for row in owners] == [user]


# --- settings ------------------------------------------------------------------------------------


@views.get("/{owner}/{slug}/settings")
def settings_form(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Maintainer"):
        return refuse(visit, here)
    values = {key: here[key] for key in ("name", "description", "visibility", "topics")}
    return _settings(visit, here, Form(values))


def _settings(visit: Visit, here: Any, form: Form, status: int = 200) -> Response:
    context: dict[str, Any] = {
        "visibilities": VISIBILITIES,
        "form": form,
        "owns": may(here, "Owner"),
    }
    return visit.page("settings.html.j2", status, project=here, **context)


@views.post("/{owner}/{slug}/settings")
def settings(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Maintainer"):
        return refuse(visit, here)
    form = Form(visit.form)
    name = form.text("name", most=60)
    about = form.text("description", required=False)
    topics = form.text("topics", required=False)
    visibility = form.choice("visibility", VISIBILITIES)
    if name and not sample_projects.slug(name):
        form.errors["name"] = "A name needs a letter or a digit."
    if form.errors:
        return _settings(visit, here, form, 422)
    visit.do(
        "UPDATE project SET name = ?, description = ?, topics = ?, visibility = ? WHERE id = ?",
        *(name, about, topics, visibility, here["id"]),
    )
    return visit.redirect(f"/{here['path']}", "The settings were saved.")


@views.get("/{owner}/{slug}/delete")
def delete_form(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Owner"):
        return refuse(visit, here)
    return visit.page("delete.html.j2", project=here, form=Form())


@views.post("/{owner}/{slug}/delete")
def delete(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Owner"):
        return refuse(visit, here)
    form = Form(visit.form)
    if form.text("confirm") != here["path"]:
        form.errors["confirm"] = f"Type {here['path']} to confirm."
        return visit.page("delete.html.j2", 422, project=here, form=form)
    mine = "(SELECT id FROM {} WHERE project_id = ?)"
    for table in ("issue", "merge_request"):
        for what in ("comment", "to_do"):
            visit.do(f"DELETE FROM {what} WHERE {table}_id IN {mine.format(table)}", here["id"])
    for table in ("issue", "merge_request", "member", "file", "branch", "revision", "star"):
        visit.do(f"DELETE FROM {table} WHERE project_id = ?", here["id"])
    visit.do("DELETE FROM project WHERE id = ?", here["id"])
    return visit.redirect("/", f"The project {here['name']} was deleted.")
