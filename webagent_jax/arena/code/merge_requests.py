"""Views of the merge requests of a project: list, read, open, comment, approve, merge and close."""

from __future__ import annotations

import sqlite3
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.permissions import add_comment, find_project, has_role, account_id, members, deny_access, update_activity_time
from webagent_jax.arena.code.project import changes, commit
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

STATES = ("open", "merged", "closed")

_COLUMNS = (
    "merge_request.*, author.name AS author, author.username AS author_username,"
    " reviewer.name AS reviewer, reviewer.username AS reviewer_username"
)
_REQUESTS = (
    "FROM merge_request JOIN user author ON author.id = merge_request.author_id"
    " LEFT JOIN user reviewer ON reviewer.id = reviewer_id WHERE project_id = ?"
)


@views.get("/{owner}/{slug}/merge-requests")
def requests(visit: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(visit, owner, slug)
    fields = {name: value for name, value in visit.query.items() if value}
    if len(fields) < len(visit.query):
        return visit.redirect(visit.path, **fields)
    where, arguments = "", [project["id"]]
    state = fields.get("state", "open")
    if state in STATES:
        where += f" AND state = '{state}'"
    if "q" in fields:
        where += " AND instr(lower(title), lower(?))"
        arguments.append(fields["q"])
    if "author" in fields:
        where += " AND author.username = ?"
        arguments.append(fields["author"])
    rest = f"{_REQUESTS}{where} ORDER BY merge_request.created DESC, merge_request.id DESC"
    pagination = paginate(visit, _COLUMNS, rest, arguments, size=7)
    context: dict[str, Any] = {"found": pagination, "state": state, "kept": fields}
    return visit.render("requests.html.j2", project=project, **context)


def _find_request(visit: RequestContext, project: Any, number: int) -> sqlite3.Row:
    return visit.row(f"SELECT {_COLUMNS} {_REQUESTS} AND number = ?", project["id"], number)


@views.get("/{owner}/{slug}/merge-requests/new")
def new_form(visit: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(visit, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(visit, project)
    form = Form({"source": visit.query.get("source", "")})
    return visit.render(
        "new_request.html.j2", project=project, form=form, **_read_choices(visit, project)
    )


def _read_choices(visit: RequestContext, project: Any) -> dict[str, Any]:
    """Return the branches without an open merge request, and the possible reviewers."""
    branches = visit.rows(
        "SELECT name FROM branch WHERE project_id = ?1 AND NOT is_default AND name NOT IN (SELECT"
        " source FROM merge_request WHERE project_id = ?1 AND state = 'open') ORDER BY name",
        project["id"],
    )
    return {"branches": [row["name"] for row in branches], "members": members(visit, project)}


@views.post("/{owner}/{slug}/merge-requests/new")
def create(visit: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(visit, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(visit, project)
    form, choices = Form(visit.form), _read_choices(visit, project)
    source = form.choice("source", choices["branches"])
    title = form.text("title", max_chars=160)
    body = form.text("body", required=False, max_chars=4000)
    reviewer = form.values.get("reviewer", "")
    if reviewer and reviewer not in {str(member["id"]) for member in choices["members"]}:
        form.errors["reviewer"] = "Choose a member of the project."
    if form.errors:
        return visit.render("new_request.html.j2", 422, project=project, form=form, **choices)
    latest_sql = "SELECT coalesce(max(number), 0) FROM merge_request WHERE project_id = ?"
    number = visit.value(latest_sql, project["id"]) + 1
    visit.execute(
        "INSERT INTO merge_request VALUES (NULL, ?, ?, ?, ?, 'open', ?, 'main', ?, ?, ?, ?)",
        *(project["id"], number, title, body, source, account_id(visit), reviewer or None),
        *(visit.now, visit.now),
    )
    update_activity_time(visit, project)
    return visit.redirect(
        f"/{project['path']}/merge-requests/{number}", "The merge request was created."
    )


@views.get("/{owner}/{slug}/merge-requests/{number:int}")
def request(visit: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(visit, owner, slug)
    row = _find_request(visit, project, number)
    comments = visit.rows(
        "SELECT comment.*, name, username FROM comment JOIN user ON user.id = author_id"
        " WHERE merge_request_id = ? ORDER BY written, comment.id",
        row["id"],
    )
    approvals = visit.rows(
        "SELECT user.id, name, username FROM approval JOIN user ON user.id = user_id"
        " WHERE merge_request_id = ? ORDER BY name",
        row["id"],
    )
    return visit.render(
        "request.html.j2",
        project=project,
        request=row,
        comments=comments,
        approvals=approvals,
        approved=account_id(visit) in {user["id"] for user in approvals},
        can_merge=has_role(project, "Developer"),
        commits=_read_commits(visit, project, row),
        form=Form(),
    )


def _read_commits(visit: RequestContext, project: Any, row: Any) -> list[sqlite3.Row]:
    return visit.rows(
        "SELECT * FROM revision WHERE project_id = ? AND branch = ? ORDER BY written, id",
        *(project["id"], row["source"]),
    )


@views.get("/{owner}/{slug}/merge-requests/{number:int}/changes")
def request_changes(visit: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(visit, owner, slug)
    row = _find_request(visit, project, number)
    revisions = [each["id"] for each in _read_commits(visit, project, row)]
    files = changes(visit, revisions) if revisions else []
    return visit.render("changes.html.j2", project=project, request=row, files=files)


@views.post("/{owner}/{slug}/merge-requests/{number:int}/comment")
def comment(visit: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(visit, owner, slug)
    row = _find_request(visit, project, number)
    return add_comment(visit, "merge_request", row, f"/{project['path']}/merge-requests/{number}")


@views.post("/{owner}/{slug}/merge-requests/{number:int}/approve")
def approve(visit: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(visit, owner, slug)
    row = _find_request(visit, project, number)
    if not has_role(project, "Developer"):
        return deny_access(visit, project)
    pair = (row["id"], account_id(visit))
    path = f"/{project['path']}/merge-requests/{number}"
    if visit.value("SELECT 1 FROM approval WHERE merge_request_id = ? AND user_id = ?", *pair):
        visit.execute("DELETE FROM approval WHERE merge_request_id = ? AND user_id = ?", *pair)
        return visit.redirect(path, "You took your approval back.")
    visit.execute("INSERT INTO approval VALUES (?, ?)", *pair)
    return visit.redirect(path, "You approved this merge request.")


@views.post("/{owner}/{slug}/merge-requests/{number:int}/merge")
def merge(visit: RequestContext, owner: str, slug: str, number: int) -> Response:
    """Merge the source branch into the target and remove it."""
    project = find_project(visit, owner, slug)
    row = _find_request(visit, project, number)
    if not has_role(project, "Developer") or row["state"] != "open":
        return deny_access(visit, project)
    _set_state(visit, row, "merged")
    commit(visit, project, "main", f"Merge branch '{row['source']}' into 'main'")
    visit.execute(
        "DELETE FROM branch WHERE project_id = ? AND name = ? AND NOT is_default",
        *(project["id"], row["source"]),
    )
    return visit.redirect(
        f"/{project['path']}/merge-requests/{number}", "The merge request was merged."
    )


@views.post("/{owner}/{slug}/merge-requests/{number:int}/state")
def change_state(visit: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(visit, owner, slug)
    row = _find_request(visit, project, number)
    may_close = has_role(project, "Developer") or row["author_id"] == account_id(visit)
    if not may_close or row["state"] == "merged":
        return deny_access(visit, project)
    state = "closed" if row["state"] == "open" else "open"
    _set_state(visit, row, state)
    verb = "closed" if state == "closed" else "opened again"
    return visit.redirect(
        f"/{project['path']}/merge-requests/{number}", f"The merge request was {verb}."
    )


def _set_state(visit: RequestContext, row: Any, state: str) -> None:
    visit.execute(
        "UPDATE merge_request SET state = ?, updated = ? WHERE id = ?",
        *(state, visit.now, row["id"]),
    )
