"""Views of the merge requests of a project: list, read, open, comment, approve, merge and close."""

from __future__ import annotations

import sqlite3
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.permissions import (
    account_id,
    add_comment,
    deny_access,
    find_project,
    has_role,
    members,
    update_activity_time,
)
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
def merge_requests(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if redirect := request.redirect_without_blanks():
        return redirect
    fields = dict(request.query)
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
    from_clause = f"{_REQUESTS}{where} ORDER BY merge_request.created DESC, merge_request.id DESC"
    pagination = paginate(request, _COLUMNS, from_clause, arguments, size=7)
    context: dict[str, Any] = {"pagination": pagination, "state": state, "fields": fields}
    return request.render("requests.html.j2", project=project, **context)


def _find_request(request: RequestContext, project: Any, number: int) -> sqlite3.Row:
    return request.row(f"SELECT {_COLUMNS} {_REQUESTS} AND number = ?", project["id"], number)


@views.get("/{owner}/{slug}/merge-requests/new", signed_in=True)
def new_form(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    form = Form({"source": request.query.get("source", "")})
    return request.render(
        "new_request.html.j2", project=project, form=form, **_read_choices(request, project)
    )


def _read_choices(request: RequestContext, project: Any) -> dict[str, Any]:
    """Return the branches without an open merge request, and the possible reviewers."""
    branches = request.rows(
        "SELECT name FROM branch WHERE project_id = ?1 AND NOT is_default AND name NOT IN (SELECT"
        " source FROM merge_request WHERE project_id = ?1 AND state = 'open') ORDER BY name",
        project["id"],
    )
    return {"branches": [row["name"] for row in branches], "members": members(request, project)}


@views.post("/{owner}/{slug}/merge-requests/new", signed_in=True)
def create(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    form, choices = Form(request.form), _read_choices(request, project)
    source = form.choice("source", choices["branches"])
    title = form.text("title", max_chars=160)
    body = form.text("body", required=False, max_chars=4000)
    reviewer = form.values.get("reviewer", "")
    if reviewer and reviewer not in {str(member["id"]) for member in choices["members"]}:
        form.errors["reviewer"] = "Choose a member of the project."
    if form.errors:
        return request.render("new_request.html.j2", 422, project=project, form=form, **choices)
    latest_sql = "SELECT coalesce(max(number), 0) FROM merge_request WHERE project_id = ?"
    number = request.value(latest_sql, project["id"]) + 1
    request.execute(
        "INSERT INTO merge_request VALUES (NULL, ?, ?, ?, ?, 'open', ?, 'main', ?, ?, ?, ?)",
        *(project["id"], number, title, body, source, account_id(request), reviewer or None),
        *(request.now, request.now),
    )
    update_activity_time(request, project)
    return request.redirect(
        f"/{project['path']}/merge-requests/{number}", "The merge request was created."
    )


@views.get("/{owner}/{slug}/merge-requests/{number:int}")
def merge_request(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = _find_request(request, project, number)
    comments = request.rows(
        "SELECT comment.*, name, username FROM comment JOIN user ON user.id = author_id"
        " WHERE merge_request_id = ? ORDER BY written, comment.id",
        row["id"],
    )
    approvals = request.rows(
        "SELECT user.id, name, username FROM approval JOIN user ON user.id = user_id"
        " WHERE merge_request_id = ? ORDER BY name",
        row["id"],
    )
    return request.render(
        "request.html.j2",
        project=project,
        merge_request=row,
        comments=comments,
        approvals=approvals,
        approved=account_id(request) in {user["id"] for user in approvals},
        can_merge=has_role(project, "Developer"),
        commits=_read_commits(request, project, row),
        form=Form(),
    )


def _read_commits(request: RequestContext, project: Any, row: Any) -> list[sqlite3.Row]:
    return request.rows(
        "SELECT * FROM revision WHERE project_id = ? AND branch = ? ORDER BY written, id",
        *(project["id"], row["source"]),
    )


@views.get("/{owner}/{slug}/merge-requests/{number:int}/changes")
def request_changes(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = _find_request(request, project, number)
    revisions = [commit["id"] for commit in _read_commits(request, project, row)]
    files = changes(request, revisions) if revisions else []
    return request.render("changes.html.j2", project=project, merge_request=row, files=files)


@views.post("/{owner}/{slug}/merge-requests/{number:int}/comment", signed_in=True)
def comment(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = _find_request(request, project, number)
    return add_comment(request, "merge_request", row, f"/{project['path']}/merge-requests/{number}")


@views.post("/{owner}/{slug}/merge-requests/{number:int}/approve", signed_in=True)
def approve(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = _find_request(request, project, number)
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    pair = (row["id"], account_id(request))
    path = f"/{project['path']}/merge-requests/{number}"
    if request.value("SELECT 1 FROM approval WHERE merge_request_id = ? AND user_id = ?", *pair):
        request.execute("DELETE FROM approval WHERE merge_request_id = ? AND user_id = ?", *pair)
        return request.redirect(path, "You took your approval back.")
    request.execute("INSERT INTO approval VALUES (?, ?)", *pair)
    return request.redirect(path, "You approved this merge request.")


@views.post("/{owner}/{slug}/merge-requests/{number:int}/merge", signed_in=True)
def merge(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    """Merge the source branch into the target and remove it."""
    project = find_project(request, owner, slug)
    row = _find_request(request, project, number)
    if not has_role(project, "Developer") or row["state"] != "open":
        return deny_access(request, project)
    _set_state(request, row, "merged")
    commit(request, project, "main", f"Merge branch '{row['source']}' into 'main'")
    request.execute(
        "DELETE FROM branch WHERE project_id = ? AND name = ? AND NOT is_default",
        *(project["id"], row["source"]),
    )
    return request.redirect(
        f"/{project['path']}/merge-requests/{number}", "The merge request was merged."
    )


@views.post("/{owner}/{slug}/merge-requests/{number:int}/state", signed_in=True)
def change_state(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = _find_request(request, project, number)
    may_close = has_role(project, "Developer") or row["author_id"] == account_id(request)
    if not may_close or row["state"] == "merged":
        return deny_access(request, project)
    state = "closed" if row["state"] == "open" else "open"
    _set_state(request, row, state)
    verb = "closed" if state == "closed" else "opened again"
    return request.redirect(
        f"/{project['path']}/merge-requests/{number}", f"The merge request was {verb}."
    )


def _set_state(request: RequestContext, row: Any, state: str) -> None:
    request.execute(
        "UPDATE merge_request SET state = ?, updated = ? WHERE id = ?",
        *(state, request.now, row["id"]),
    )
