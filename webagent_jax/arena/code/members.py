"""Views of the members and the settings of a project."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.code.permissions import VISIBILITIES, deny_access, find_project, has_role
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry, to_slug

views = ViewRegistry()

_CHILD_TABLES = {  # tables whose rows belong to a row of a project
    "issue": ("comment", "to_do", "issue_label"),
    "merge_request": ("comment", "to_do", "approval"),
    "revision": ("revision_file",),
}


@views.get("/{owner}/{slug}/members")
def members(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    from_clause = (
        "FROM member JOIN user ON user.id = user_id WHERE project_id = ? ORDER BY name, user.id"
    )
    pagination = paginate(
        request, "user.id, username, name, role, since", from_clause, [project["id"]], size=8
    )
    context: dict[str, Any] = {"roles": ROLES, "can_manage": has_role(project, "Maintainer")}
    return request.render("members.html.j2", project=project, pagination=pagination, **context)


@views.get("/{owner}/{slug}/members/invite", signed_in=True)
def invite_form(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(request, project)
    return request.render(
        "invite.html.j2", target=project, roles=ROLES, form=Form(), project=project
    )


@views.post("/{owner}/{slug}/members/invite", signed_in=True)
def invite(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(request, project)
    form = Form(request.form)
    user, role = read_invitation(request, form)
    if user and request.value(
        "SELECT 1 FROM member WHERE project_id = ? AND user_id = ?", project["id"], user["id"]
    ):
        form.errors["user"] = "This person is a member already."
    if form.errors:
        context: dict[str, Any] = {
            "target": project,
            "roles": ROLES,
            "form": form,
            "project": project,
        }
        return request.render("invite.html.j2", 422, **context)
    row = (project["id"], user["id"], role, request.today)
    request.execute("INSERT INTO member VALUES (?, ?, ?, ?)", *row)
    return request.redirect(f"/{project['path']}/members", f"{user['name']} was invited as {role}.")


def read_invitation(request: RequestContext, form: Form) -> tuple[Any, str]:
    """Return the user named in the form, None without a match, and the role."""
    text, role = form.text("user"), form.choice("role", ROLES)
    rows = request.rows(
        "SELECT * FROM user WHERE ? COLLATE NOCASE IN (username, email, name)",
        text.removeprefix("@"),
    )
    if text and not rows:
        form.errors["user"] = "There is nobody with this user name or email address."
    return (rows[0] if rows else None), role


@views.get("/{owner}/{slug}/members/{user:int}", signed_in=True)
def member(request: RequestContext, owner: str, slug: str, user: int) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(request, project)
    row = request.row(
        "SELECT username, name, role, since FROM member JOIN user ON user.id = user_id"
        " WHERE project_id = ? AND user_id = ?",
        *(project["id"], user),
    )
    context: dict[str, Any] = {"roles": ROLES, "form": Form({"role": row["role"]})}
    return request.render("member.html.j2", project=project, member=row, **context)


@views.post("/{owner}/{slug}/members/{user:int}/role", signed_in=True)
def change_role(request: RequestContext, owner: str, slug: str, user: int) -> Response:
    project = find_project(request, owner, slug)
    role = request.form.get("role", "")
    if not has_role(project, "Maintainer") or role not in ROLES:
        return deny_access(request, project)
    path = f"/{project['path']}/members"
    if _is_last_owner(request, project, user):
        return request.redirect(path, "A project needs an owner.")
    request.execute(
        "UPDATE member SET role = ? WHERE project_id = ? AND user_id = ?", role, project["id"], user
    )
    return request.redirect(path, "The role was changed.")


@views.post("/{owner}/{slug}/members/{user:int}/remove", signed_in=True)
def remove(request: RequestContext, owner: str, slug: str, user: int) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(request, project)
    path = f"/{project['path']}/members"
    if _is_last_owner(request, project, user):
        return request.redirect(path, "A project needs an owner.")
    request.execute("DELETE FROM member WHERE project_id = ? AND user_id = ?", project["id"], user)
    return request.redirect(path, "The member was removed.")


def _is_last_owner(request: RequestContext, project: Any, user: int) -> bool:
    owners = request.rows(
        "SELECT user_id FROM member WHERE project_id = ? AND role = 'Owner'", project["id"]
    )
    return [row["user_id"] for row in owners] == [user]


# --- settings ------------------------------------------------------------------------------------


@views.get("/{owner}/{slug}/settings", signed_in=True)
def settings_form(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(request, project)
    values = {key: project[key] for key in ("name", "description", "visibility", "topics")}
    return _render_settings(request, project, Form(values))


def _render_settings(
    request: RequestContext, project: Any, form: Form, status: int = 200
) -> Response:
    context: dict[str, Any] = {
        "visibilities": VISIBILITIES,
        "form": form,
        "is_owner": has_role(project, "Owner"),
    }
    return request.render("settings.html.j2", status, project=project, **context)


@views.post("/{owner}/{slug}/settings", signed_in=True)
def settings(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(request, project)
    form = Form(request.form)
    name = form.text("name", max_chars=60)
    description = form.text("description", required=False)
    topics = form.text("topics", required=False)
    visibility = form.choice("visibility", VISIBILITIES)
    if name and not to_slug(name):
        form.errors["name"] = "A name needs a letter or a digit."
    if form.errors:
        return _render_settings(request, project, form, 422)
    request.execute(
        "UPDATE project SET name = ?, description = ?, topics = ?, visibility = ? WHERE id = ?",
        *(name, description, topics, visibility, project["id"]),
    )
    return request.redirect(f"/{project['path']}", "The settings were saved.")


@views.get("/{owner}/{slug}/delete", signed_in=True)
def delete_form(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Owner"):
        return deny_access(request, project)
    return request.render("delete.html.j2", project=project, form=Form())


@views.post("/{owner}/{slug}/delete", signed_in=True)
def delete(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Owner"):
        return deny_access(request, project)
    form = Form(request.form)
    if form.text("confirm") != project["path"]:
        form.errors["confirm"] = f"Type {project['path']} to confirm."
        return request.render("delete.html.j2", 422, project=project, form=form)
    # Nothing may remain, because later rows get the same ids.
    for table, children in _CHILD_TABLES.items():
        ids_sql = f"(SELECT id FROM {table} WHERE project_id = ?)"
        for child in children:
            request.execute(f"DELETE FROM {child} WHERE {table}_id IN {ids_sql}", project["id"])
        request.execute(f"DELETE FROM {table} WHERE project_id = ?", project["id"])
    for table in ("member", "file", "branch", "star", "milestone", "label"):
        request.execute(f"DELETE FROM {table} WHERE project_id = ?", project["id"])
    request.execute("UPDATE project SET forks = forks - 1 WHERE id = ?", project["forked_from"])
    request.execute("UPDATE project SET forked_from = NULL WHERE forked_from = ?", project["id"])
    request.execute("DELETE FROM project WHERE id = ?", project["id"])
    return request.redirect("/", f"The project {project['name']} was deleted.")
