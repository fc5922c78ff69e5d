"""Views of the members and the settings of a project."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code import sample_projects
from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.code.permissions import VISIBILITIES, find_project, has_role, deny_access
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()


@views.get("/{owner}/{slug}/members")
def members(visit: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(visit, owner, slug)
    rest = "FROM member JOIN user ON user.id = user_id WHERE project_id = ? ORDER BY name, user.id"
    pagination = paginate(
        visit, "user.id, username, name, role, since", rest, [project["id"]], size=8
    )
    context: dict[str, Any] = {"roles": ROLES, "manages": has_role(project, "Maintainer")}
    return visit.render("members.html.j2", project=project, found=pagination, **context)


@views.get("/{owner}/{slug}/members/invite")
def invite_form(visit: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(visit, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(visit, project)
    return visit.render("invite.html.j2", place=project, roles=ROLES, form=Form(), project=project)


@views.post("/{owner}/{slug}/members/invite")
def invite(visit: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(visit, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(visit, project)
    form = Form(visit.form)
    user, role = read_invitation(visit, form)
    if user and visit.value(
        "SELECT 1 FROM member WHERE project_id = ? AND user_id = ?", project["id"], user["id"]
    ):
        form.errors["user"] = "This person is a member already."
    if form.errors:
        context: dict[str, Any] = {
            "place": project,
            "roles": ROLES,
            "form": form,
            "project": project,
        }
        return visit.render("invite.html.j2", 422, **context)
    row = (project["id"], user["id"], role, visit.today)
    visit.execute("INSERT INTO member VALUES (?, ?, ?, ?)", *row)
    return visit.redirect(f"/{project['path']}/members", f"{user['name']} was invited as {role}.")


def read_invitation(visit: RequestContext, form: Form) -> tuple[Any, str]:
    """Return the user named in the form, None without a match, and the role."""
    text, role = form.text("user"), form.choice("role", ROLES)
    rows = visit.rows(
        "SELECT * FROM user WHERE ? COLLATE NOCASE IN (username, email, name)",
        text.removeprefix("@"),
    )
    if text and not rows:
        form.errors["user"] = "There is nobody with this user name or email address."
    return (rows[0] if rows else None), role


@views.get("/{owner}/{slug}/members/{user:int}")
def member(visit: RequestContext, owner: str, slug: str, user: int) -> Response:
    project = find_project(visit, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(visit, project)
    row = visit.row(
        "SELECT username, name, role, since FROM member JOIN user ON user.id = user_id"
        " WHERE project_id = ? AND user_id = ?",
        *(project["id"], user),
    )
    context: dict[str, Any] = {"roles": ROLES, "form": Form({"role": row["role"]})}
    return visit.render("member.html.j2", project=project, member=row, **context)


@views.post("/{owner}/{slug}/members/{user:int}/role")
def change_role(visit: RequestContext, owner: str, slug: str, user: int) -> Response:
    project = find_project(visit, owner, slug)
    role = visit.form.get("role", "")
    if not has_role(project, "Maintainer") or role not in ROLES:
        return deny_access(visit, project)
    path = f"/{project['path']}/members"
    if _is_last_owner(visit, project, user):
        return visit.redirect(path, "A project needs an owner.")
    visit.execute(
        "UPDATE member SET role = ? WHERE project_id = ? AND user_id = ?", role, project["id"], user
    )
    return visit.redirect(path, "The role was changed.")


@views.post("/{owner}/{slug}/members/{user:int}/remove")
def remove(visit: RequestContext, owner: str, slug: str, user: int) -> Response:
    project = find_project(visit, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(visit, project)
    path = f"/{project['path']}/members"
    if _is_last_owner(visit, project, user):
        return visit.redirect(path, "A project needs an owner.")
    visit.execute("DELETE FROM member WHERE project_id = ? AND user_id = ?", project["id"], user)
    return visit.redirect(path, "The member was removed.")


def _is_last_owner(visit: RequestContext, project: Any, user: int) -> bool:
    owners = visit.rows(
        "SELECT user_id FROM member WHERE project_id = ? AND role = 'Owner'", project["id"]
    )
    return [row["user_id"] for row in owners] == [user]


# --- settings ------------------------------------------------------------------------------------


@views.get("/{owner}/{slug}/settings")
def settings_form(visit: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(visit, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(visit, project)
    values = {key: project[key] for key in ("name", "description", "visibility", "topics")}
    return _render_settings(visit, project, Form(values))


def _render_settings(
    visit: RequestContext, project: Any, form: Form, status: int = 200
) -> Response:
    context: dict[str, Any] = {
        "visibilities": VISIBILITIES,
        "form": form,
        "owns": has_role(project, "Owner"),
    }
    return visit.render("settings.html.j2", status, project=project, **context)


@views.post("/{owner}/{slug}/settings")
def settings(visit: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(visit, owner, slug)
    if not has_role(project, "Maintainer"):
        return deny_access(visit, project)
    form = Form(visit.form)
    name = form.text("name", max_chars=60)
    about = form.text("description", required=False)
    topics = form.text("topics", required=False)
    visibility = form.choice("visibility", VISIBILITIES)
    if name and not sample_projects.slug(name):
        form.errors["name"] = "A name needs a letter or a digit."
    if form.errors:
        return _render_settings(visit, project, form, 422)
    visit.execute(
        "UPDATE project SET name = ?, description = ?, topics = ?, visibility = ? WHERE id = ?",
        *(name, about, topics, visibility, project["id"]),
    )
    return visit.redirect(f"/{project['path']}", "The settings were saved.")


@views.get("/{owner}/{slug}/delete")
def delete_form(visit: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(visit, owner, slug)
    if not has_role(project, "Owner"):
        return deny_access(visit, project)
    return visit.render("delete.html.j2", project=project, form=Form())


@views.post("/{owner}/{slug}/delete")
def delete(visit: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(visit, owner, slug)
    if not has_role(project, "Owner"):
        return deny_access(visit, project)
    form = Form(visit.form)
    if form.text("confirm") != project["path"]:
        form.errors["confirm"] = f"Type {project['path']} to confirm."
        return visit.render("delete.html.j2", 422, project=project, form=form)
    ids_sql = "(SELECT id FROM {} WHERE project_id = ?)"
    for table in ("issue", "merge_request"):
        for child in ("comment", "to_do"):
            visit.execute(
                f"DELETE FROM {child} WHERE {table}_id IN {ids_sql.format(table)}", project["id"]
            )
    for table in ("issue", "merge_request", "member", "file", "branch", "revision", "star"):
        visit.execute(f"DELETE FROM {table} WHERE project_id = ?", project["id"])
    visit.execute("DELETE FROM project WHERE id = ?", project["id"])
    return visit.redirect("/", f"The project {project['name']} was deleted.")
