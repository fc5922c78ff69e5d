"""Views of the milestones and labels of a project."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.permissions import deny_access, find_project, has_role
from webagent_jax.arena.forms import Form
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

_SELECT = (
    "SELECT milestone.*, (SELECT count(*) FROM issue WHERE milestone_id = milestone.id) AS total,"
    " (SELECT count(*) FROM issue WHERE milestone_id = milestone.id AND state = 'closed') AS done"
    " FROM milestone WHERE project_id = ?"
)


@views.get("/{owner}/{slug}/milestones")
def milestones(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    state = "closed" if request.query.get("state") == "closed" else "open"
    rows = request.rows(f"{_SELECT} AND state = ? ORDER BY due, id", project["id"], state)
    return request.render("milestones.html.j2", project=project, milestones=rows, state=state)


@views.get("/{owner}/{slug}/milestones/new", signed_in=True)
def new_form(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    return request.render("edit_milestone.html.j2", project=project, milestone=None, form=Form())


@views.get("/{owner}/{slug}/milestones/{number:int}")
def milestone(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = request.row(f"{_SELECT} AND milestone.id = ?", project["id"], number)
    issues = request.rows(
        "SELECT * FROM issue WHERE milestone_id = ? ORDER BY state DESC, number DESC LIMIT 12",
        number,
    )
    return request.render("milestone.html.j2", project=project, milestone=row, issues=issues)


@views.get("/{owner}/{slug}/milestones/{number:int}/edit", signed_in=True)
def edit_form(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    row = _find_milestone(request, project, number)
    return request.render(
        "edit_milestone.html.j2", project=project, milestone=row, form=Form({**row})
    )


def _find_milestone(request: RequestContext, project: Any, number: int) -> Any:
    return request.row(
        "SELECT * FROM milestone WHERE project_id = ? AND id = ?", project["id"], number
    )


@views.post("/{owner}/{slug}/milestones/new", signed_in=True)
def create(request: RequestContext, owner: str, slug: str) -> Response:
    return _save(request, find_project(request, owner, slug), None)


@views.post("/{owner}/{slug}/milestones/{number:int}/edit", signed_in=True)
def edit(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    return _save(request, project, _find_milestone(request, project, number))


def _save(request: RequestContext, project: Any, row: Any) -> Response:
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    form = Form(request.form)
    title, due = form.text("title", max_chars=60), form.day("due")
    description = form.text("description", required=False, max_chars=1000)
    title_sql = "SELECT 1 FROM milestone WHERE project_id = ? AND title = ? AND id != ?"
    if request.value(title_sql, project["id"], title, row["id"] if row else 0):
        form.errors["title"] = "There is a milestone with this title already."
    if form.errors:
        context: dict[str, Any] = {"milestone": row, "form": form}
        return request.render("edit_milestone.html.j2", 422, project=project, **context)
    if row is None:
        number = request.execute(
            "INSERT INTO milestone VALUES (NULL, ?, ?, ?, ?, 'open')",
            *(project["id"], title, description, due),
        )
    else:
        number = row["id"]
        request.execute(
            "UPDATE milestone SET title = ?, description = ?, due = ? WHERE id = ?",
            *(title, description, due, number),
        )
    return request.redirect(f"/{project['path']}/milestones/{number}", "The milestone was saved.")


@views.post("/{owner}/{slug}/milestones/{number:int}/state", signed_in=True)
def change_state(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    row = _find_milestone(request, project, number)
    state = "closed" if row["state"] == "open" else "open"
    request.execute("UPDATE milestone SET state = ? WHERE id = ?", state, number)
    verb = "closed" if state == "closed" else "opened again"
    return request.redirect(f"/{project['path']}/milestones/{number}", f"The milestone was {verb}.")


@views.get("/{owner}/{slug}/labels")
def labels(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    return request.render(
        "labels.html.j2", project=project, labels=_read_labels(request, project), form=Form()
    )


def _read_labels(request: RequestContext, project: Any) -> Any:
    return request.rows(
        "SELECT label.*, (SELECT count(*) FROM issue_label JOIN issue ON issue.id = issue_id"
        " WHERE label_id = label.id AND state = 'open') AS issues FROM label WHERE project_id = ?"
        " ORDER BY id",
        project["id"],
    )


@views.post("/{owner}/{slug}/labels", signed_in=True)
def new_label(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Reporter"):
        return deny_access(request, project)
    form = Form(request.form)
    name = form.text("name", max_chars=30)
    name_sql = "SELECT 1 FROM label WHERE project_id = ? AND name = ?"
    if request.value(name_sql, project["id"], name):
        form.errors["name"] = "There is a label with this name already."
    elif "," in name:
        form.errors["name"] = "The name of a label has no commas."
    if form.errors:
        rows = _read_labels(request, project)
        return request.render("labels.html.j2", 422, project=project, labels=rows, form=form)
    hue = len(name) * 47 % 360
    request.execute(
        "INSERT INTO label (project_id, name, hue) VALUES (?, ?, ?)", project["id"], name, hue
    )
    return request.redirect(request.path, f"The label {name} was created.")
