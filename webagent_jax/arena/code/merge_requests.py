"""Merge requests of a project: to list, read, open, discuss, approve, merge and close."""

from __future__ import annotations

import sqlite3
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.permissions import discuss, find, may, me, members, refuse, touch
from webagent_jax.arena.code.project import changes, commit
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import listing
from webagent_jax.arena.site import Views, Visit

views = Views()

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
def requests(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    kept = {name: value for name, value in visit.query.items() if value}
    if len(kept) < len(visit.query):
        return visit.redirect(visit.path, **kept)
    where, arguments = "", [here["id"]]
    state = kept.get("state", "open")
    if state in STATES:
        where += f" AND state = '{state}'"
    if "q" in kept:
        where += " AND instr(lower(title), lower(?))"
        arguments.append(kept["q"])
    if "author" in kept:
        where += " AND author.username = ?"
        arguments.append(kept["author"])
    rest = f"{_REQUESTS}{where} ORDER BY merge_request.created DESC, merge_request.id DESC"
    found = listing(visit, _COLUMNS, rest, arguments, size=7)
    context: dict[str, Any] = {"found": found, "state": state, "kept": kept}
    return visit.page("requests.html.j2", project=here, **context)


def _request(visit: Visit, here: Any, number: int) -> sqlite3.Row:
    return visit.row(f"SELECT {_COLUMNS} {_REQUESTS} AND number = ?", here["id"], number)


@views.get("/{owner}/{slug}/merge-requests/new")
def new_form(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Developer"):
        return refuse(visit, here)
    form = Form({"source": visit.query.get("source", "")})
    return visit.page("new_request.html.j2", project=here, form=form, **_offered(visit, here))


def _offered(visit: Visit, here: Any) -> dict[str, Any]:
    """Branches without an open merge request, and who may review."""
    branches = visit.rows(
        "SELECT name FROM branch WHERE project_id = ?1 AND NOT is_default AND name NOT IN (SELECT"
        " source FROM merge_request WHERE project_id = ?1 AND state = 'open') ORDER BY name",
        here["id"],
    )
    return {"branches": [row["name"] for row in branches], "members": members(visit, here)}


@views.post("/{owner}/{slug}/merge-requests/new")
def create(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Developer"):
        return refuse(visit, here)
    form, offered = Form(visit.form), _offered(visit, here)
    source = form.choice("source", offered["branches"])
    title = form.text("title", most=160)
    body = form.text("body", required=False, most=4000)
    reviewer = form.values.get("reviewer", "")
    if reviewer and reviewer not in {str(member["id"]) for member in offered["members"]}:
        form.errors["reviewer"] = "Choose a member of the project."
    if form.errors:
        return visit.page("new_request.html.j2", 422, project=here, form=form, **offered)
    latest = "SELECT coalesce(max(number), 0) FROM merge_request WHERE project_id = ?"
    number = visit.value(latest, here["id"]) + 1
    visit.do(
        "INSERT INTO merge_request VALUES (NULL, ?, ?, ?, ?, 'open', ?, 'main', ?, ?, ?, ?)",
        *(here["id"], number, title, body, source, me(visit), reviewer or None),
        *(visit.now, visit.now),
    )
    touch(visit, here)
    return visit.redirect(
        f"/{here['path']}/merge-requests/{number}", "The merge request was created."
    )


@views.get("/{owner}/{slug}/merge-requests/{number:int}")
def request(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = _request(visit, here, number)
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
    return visit.page(
        "request.html.j2",
        project=here,
        request=row,
        comments=comments,
        approvals=approvals,
        approved=me(visit) in {user["id"] for user in approvals},
        can_merge=may(here, "Developer"),
        commits=_commits(visit, here, row),
        form=Form(),
    )


def _commits(visit: Visit, here: Any, row: Any) -> list[sqlite3.Row]:
    return visit.rows(
        "SELECT * FROM revision WHERE project_id = ? AND branch = ? ORDER BY written, id",
        *(here["id"], row["source"]),
    )


@views.get("/{owner}/{slug}/merge-requests/{number:int}/changes")
def request_changes(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = _request(visit, here, number)
    revisions = [each["id"] for each in _commits(visit, here, row)]
    files = changes(visit, revisions) if revisions else []
    return visit.page("changes.html.j2", project=here, request=row, files=files)


@views.post("/{owner}/{slug}/merge-requests/{number:int}/comment")
def comment(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = _request(visit, here, number)
    return discuss(visit, "merge_request", row, f"/{here['path']}/merge-requests/{number}")


@views.post("/{owner}/{slug}/merge-requests/{number:int}/approve")
def approve(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = _request(visit, here, number)
    if not may(here, "Developer"):
        return refuse(visit, here)
    pair = (row["id"], me(visit))
    path = f"/{here['path']}/merge-requests/{number}"
    if visit.value("SELECT 1 FROM approval WHERE merge_request_id = ? AND user_id = ?", *pair):
        visit.do("DELETE FROM approval WHERE merge_request_id = ? AND user_id = ?", *pair)
        return visit.redirect(path, "You took your approval back.")
    visit.do("INSERT INTO approval VALUES (?, ?)", *pair)
    return visit.redirect(path, "You approved this merge request.")


@views.post("/{owner}/{slug}/merge-requests/{number:int}/merge")
def merge(visit: Visit, owner: str, slug: str, number: int) -> Response:
    """Puts the commits of the source branch on the target and removes the branch."""
    here = find(visit, owner, slug)
    row = _request(visit, here, number)
    if not may(here, "Developer") or row["state"] != "open":
        return refuse(visit, here)
    _set_state(visit, row, "merged")
    commit(visit, here, "main", f"Merge branch '{row['source']}' into 'main'")
    visit.do(
        "DELETE FROM branch WHERE project_id = ? AND name = ? AND NOT is_default",
        *(here["id"], row["source"]),
    )
    return visit.redirect(
        f"/{here['path']}/merge-requests/{number}", "The merge request was merged."
    )


@views.post("/{owner}/{slug}/merge-requests/{number:int}/state")
def change_state(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = _request(visit, here, number)
    may_close = may(here, "Developer") or row["author_id"] == me(visit)
    if not may_close or row["state"] == "merged":
        return refuse(visit, here)
    state = "closed" if row["state"] == "open" else "open"
    _set_state(visit, row, state)
    told = "closed" if state == "closed" else "opened again"
    return visit.redirect(
        f"/{here['path']}/merge-requests/{number}", f"The merge request was {told}."
    )


def _set_state(visit: Visit, row: Any, state: str) -> None:
    visit.do(
        "UPDATE merge_request SET state = ?, updated = ? WHERE id = ?",
        *(state, visit.now, row["id"]),
    )
