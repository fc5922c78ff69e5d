"""Views of the issues of a project: list, read, create, edit, comment and close."""

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
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

SORTS = {
    "newest": ("Newest first", "issue.created DESC, issue.id DESC"),
    "oldest": ("Oldest first", "issue.created, issue.id"),
    "updated": ("Last updated", "issue.updated DESC, issue.id DESC"),
    "due": ("Due date", "issue.due IS NULL, issue.due, issue.id"),
    "comments": (
        "Most comments",
        "(SELECT count(*) FROM comment WHERE issue_id = issue.id) DESC, issue.id DESC",
    ),
}
_CONDITIONS = {
    "label": "issue.id IN (SELECT issue_id FROM issue_label JOIN label ON label.id = label_id"
    " WHERE label.name = ?)",
    "milestone": "milestone.title = ?",
    "assignee": "assignee.username = ?",
    "author": "author.username = ?",
    "q": "instr(lower(issue.title), lower(?))",
}
_ISSUES = (
    "FROM issue JOIN user author ON author.id = issue.author_id"
    " LEFT JOIN user assignee ON assignee.id = issue.assignee_id"
    " LEFT JOIN milestone ON milestone.id = issue.milestone_id WHERE issue.project_id = ?"
)
_COLUMNS = (
    "issue.*, author.name AS author, author.username AS author_username,"
    " assignee.name AS assignee, assignee.username AS assignee_username,"
    " milestone.title AS milestone,"
    " (SELECT group_concat(name, ', ') FROM (SELECT label.name FROM issue_label JOIN label"
    " ON label.id = label_id WHERE issue_id = issue.id ORDER BY label.id)) AS labels"
)


@views.get("/{owner}/{slug}/issues")
def issues(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if redirect := request.redirect_without_blanks():
        return redirect
    fields = dict(request.query)
    where, arguments = "", [project["id"]]
    state = fields.get("state", "open")
    if state in ("open", "closed"):
        where += f" AND issue.state = '{state}'"
    for name, condition in _CONDITIONS.items():
        if name in fields:
            where += f" AND {condition}"
            arguments.append(fields[name])
    order = SORTS.get(fields.get("sort", ""), SORTS["newest"])[1]
    pagination = paginate(
        request, _COLUMNS, f"{_ISSUES}{where} ORDER BY {order}", arguments, size=6
    )
    return request.render(
        "issues.html.j2",
        project=project,
        pagination=pagination,
        state=state,
        fields=fields,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
        choices=_read_choices(request, project),
        form=Form(request.query),
    )


def _read_choices(
    request: RequestContext, project: Any, row: Any = None
) -> dict[str, list[sqlite3.Row]]:
    """Return the labels, milestones and members that an issue can have.

    The members include the assignee of the issue `row`, who may have left the project.
    """
    people = members(request, project)
    assignee_id = row["assignee_id"] if row else None
    if assignee_id not in (None, *(member["id"] for member in people)):
        people += request.rows("SELECT * FROM user WHERE id = ?", assignee_id)
    sql = "SELECT * FROM milestone WHERE project_id = ? ORDER BY state DESC, due, id"
    return {
        "labels": request.rows(
            "SELECT * FROM label WHERE project_id = ? ORDER BY id", project["id"]
        ),
        "milestones": request.rows(sql, project["id"]),
        "members": people,
    }


def _find_issue(request: RequestContext, project: Any, number: int) -> sqlite3.Row:
    sql = f"SELECT {_COLUMNS} {_ISSUES} AND issue.number = ?"
    return request.row(sql, project["id"], number)


@views.get("/{owner}/{slug}/issues/new", signed_in=True)
def new_form(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    context: dict[str, Any] = {
        "form": Form(),
        "choices": _read_choices(request, project),
        "selected_labels": set(),
    }
    return request.render("edit_issue.html.j2", project=project, issue=None, **context)


@views.get("/{owner}/{slug}/issues/{number:int}")
def issue(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = _find_issue(request, project, number)
    comments = request.rows(
        "SELECT comment.*, name, username FROM comment JOIN user ON user.id = author_id"
        " WHERE issue_id = ? ORDER BY written, comment.id",
        row["id"],
    )
    return request.render(
        "issue.html.j2",
        project=project,
        issue=row,
        comments=comments,
        can_edit=_can_edit(request, project, row),
        form=Form(),
    )


def _can_edit(request: RequestContext, project: Any, row: Any) -> bool:
    return has_role(project, "Reporter") or row["author_id"] == account_id(request)


@views.get("/{owner}/{slug}/issues/{number:int}/edit", signed_in=True)
def edit_form(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = _find_issue(request, project, number)
    if not _can_edit(request, project, row):
        return deny_access(request, project)
    values = {
        "title": row["title"],
        "body": row["body"],
        "due": row["due"] or "",
        "assignee": str(row["assignee_id"] or ""),
        "milestone": str(row["milestone_id"] or ""),
    }
    choices = _read_choices(request, project, row)
    context: dict[str, Any] = {"form": Form(values), "choices": choices}
    label_names = set((row["labels"] or "").split(", "))
    return request.render(
        "edit_issue.html.j2", project=project, issue=row, selected_labels=label_names, **context
    )


@views.post("/{owner}/{slug}/issues/new", signed_in=True)
def create(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    return _save(request, project, None)


@views.post("/{owner}/{slug}/issues/{number:int}/edit", signed_in=True)
def edit(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = _find_issue(request, project, number)
    if not _can_edit(request, project, row):
        return deny_access(request, project)
    return _save(request, project, row)


def _save(request: RequestContext, project: Any, row: Any) -> Response:
    form, choices = Form(request.form), _read_choices(request, project, row)
    title = form.text("title", max_chars=160)
    body = form.text("body", required=False, max_chars=4000)
    due = form.day("due", required=False)
    labels = [label for label in choices["labels"] if form.is_checked(f"label-{label['id']}")]
    assignee, milestone = form.values.get("assignee", ""), form.values.get("milestone", "")
    if assignee and assignee not in {str(member["id"]) for member in choices["members"]}:
        form.errors["assignee"] = "Choose a member of the project."
    if milestone and milestone not in {str(entry["id"]) for entry in choices["milestones"]}:
        form.errors["milestone"] = "Choose a milestone of the project."
    if form.errors:
        label_names = {label["name"] for label in labels}
        context: dict[str, Any] = {"form": form, "choices": choices, "selected_labels": label_names}
        return request.render("edit_issue.html.j2", 422, project=project, issue=row, **context)
    values = (title, body, assignee or None, milestone or None, due or None, request.now)
    if row is None:
        latest_sql = "SELECT coalesce(max(number), 0) FROM issue WHERE project_id = ?"
        number = request.value(latest_sql, project["id"]) + 1
        issue_id = request.execute(
            "INSERT INTO issue (title, body, assignee_id, milestone_id, due, updated, created,"
            " project_id, number, state, author_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?)",
            *(*values, request.now, project["id"], number, account_id(request)),
        )
    else:
        number, issue_id = row["number"], row["id"]
        request.execute(
            "UPDATE issue SET title = ?, body = ?, assignee_id = ?, milestone_id = ?, due = ?,"
            " updated = ? WHERE id = ?",
            *(*values, issue_id),
        )
    request.execute("DELETE FROM issue_label WHERE issue_id = ?", issue_id)
    for label in labels:
        request.execute("INSERT INTO issue_label VALUES (?, ?)", issue_id, label["id"])
    update_activity_time(request, project)
    message = "The issue was created." if row is None else "The issue was saved."
    return request.redirect(f"/{project['path']}/issues/{number}", message)


@views.post("/{owner}/{slug}/issues/{number:int}/comment", signed_in=True)
def comment(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = _find_issue(request, project, number)
    return add_comment(request, "issue", row, f"/{project['path']}/issues/{number}")


@views.post("/{owner}/{slug}/issues/{number:int}/state", signed_in=True)
def change_state(request: RequestContext, owner: str, slug: str, number: int) -> Response:
    project = find_project(request, owner, slug)
    row = _find_issue(request, project, number)
    if not _can_edit(request, project, row):
        return deny_access(request, project)
    state = "closed" if row["state"] == "open" else "open"
    request.execute(
        "UPDATE issue SET state = ?, updated = ? WHERE id = ?", state, request.now, row["id"]
    )
    verb = "closed" if state == "closed" else "opened again"
    return request.redirect(f"/{project['path']}/issues/{number}", f"The issue was {verb}.")
