"""Issues of a project: to list, read, write, change, discuss and close."""

from __future__ import annotations

import datetime
import sqlite3
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.permissions import discuss, find, may, me, members, refuse, touch
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import listing
from webagent_jax.arena.site import Views, Visit

views = Views()

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
def issues(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    kept = {name: value for name, value in visit.query.items() if value}
    if len(kept) < len(visit.query):  # a form sends its empty fields as well
        return visit.redirect(visit.path, **kept)
    where, arguments = "", [here["id"]]
    state = kept.get("state", "open")
    if state in ("open", "closed"):
        where += f" AND issue.state = '{state}'"
    for name, condition in _CONDITIONS.items():
        if name in kept:
            where += f" AND {condition}"
            arguments.append(kept[name])
    order = SORTS.get(kept.get("sort", ""), SORTS["newest"])[1]
    found = listing(visit, _COLUMNS, f"{_ISSUES}{where} ORDER BY {order}", arguments, size=6)
    return visit.page(
        "issues.html.j2",
        project=here,
        found=found,
        state=state,
        kept=kept,
        sorts=[(key, text) for key, (text, _) in SORTS.items()],
        choices=_choices(visit, here),
        form=Form(visit.query),
    )


def _choices(visit: Visit, here: Any) -> dict[str, list[sqlite3.Row]]:
    """What an issue can be given."""
    sql = "SELECT * FROM milestone WHERE project_id = ? ORDER BY state DESC, due, id"
    return {
        "labels": visit.rows("SELECT * FROM label WHERE project_id = ? ORDER BY id", here["id"]),
        "milestones": visit.rows(sql, here["id"]),
        "members": members(visit, here),
    }


def _issue(visit: Visit, here: Any, number: int) -> sqlite3.Row:
    sql = f"SELECT {_COLUMNS} {_ISSUES} AND issue.number = ?"
    return visit.row(sql, here["id"], number)


@views.get("/{owner}/{slug}/issues/new")
def new_form(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not me(visit):
        return visit.sign_in_first()
    context: dict[str, Any] = {"form": Form(), "choices": _choices(visit, here), "chosen": set()}
    return visit.page("edit_issue.html.j2", project=here, issue=None, **context)


@views.get("/{owner}/{slug}/issues/{number:int}")
def issue(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = _issue(visit, here, number)
    comments = visit.rows(
        "SELECT comment.*, name, username FROM comment JOIN user ON user.id = author_id"
        " WHERE issue_id = ? ORDER BY written, comment.id",
        row["id"],
    )
    return visit.page(
        "issue.html.j2",
        project=here,
        issue=row,
        comments=comments,
        can_edit=_can_edit(visit, here, row),
        form=Form(),
    )


def _can_edit(visit: Visit, here: Any, row: Any) -> bool:
    return may(here, "Reporter") or row["author_id"] == me(visit)


@views.get("/{owner}/{slug}/issues/{number:int}/edit")
def edit_form(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = _issue(visit, here, number)
    if not _can_edit(visit, here, row):
        return refuse(visit, here)
    values = {
        "title": row["title"],
        "body": row["body"],
        "due": row["due"] or "",
        "assignee": str(row["assignee_id"] or ""),
        "milestone": str(row["milestone_id"] or ""),
    }
    context: dict[str, Any] = {"form": Form(values), "choices": _choices(visit, here)}
    chosen = set((row["labels"] or "").split(", "))
    return visit.page("edit_issue.html.j2", project=here, issue=row, chosen=chosen, **context)


@views.post("/{owner}/{slug}/issues/new")
def create(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not me(visit):
        return visit.sign_in_first()
    return _save(visit, here, None)


@views.post("/{owner}/{slug}/issues/{number:int}/edit")
def edit(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = _issue(visit, here, number)
    if not _can_edit(visit, here, row):
        return refuse(visit, here)
    return _save(visit, here, row)


def _save(visit: Visit, here: Any, row: Any) -> Response:
    form, choices = Form(visit.form), _choices(visit, here)
    title = form.text("title", most=160)
    body = form.text("body", required=False, most=4000)
    due = form.text("due", required=False)
    labels = [label for label in choices["labels"] if form.ticked(f"label-{label['id']}")]
    assignee, milestone = form.values.get("assignee", ""), form.values.get("milestone", "")
    if due and not is_day(due):
        form.errors["due"] = "Enter a day as 2023-06-30."
    if assignee and assignee not in {str(member["id"]) for member in choices["members"]}:
        form.errors["assignee"] = "Choose a member of the project."
    if milestone and milestone not in {str(each["id"]) for each in choices["milestones"]}:
        form.errors["milestone"] = "Choose a milestone of the project."
    if form.errors:
        chosen = {label["name"] for label in labels}
        context: dict[str, Any] = {"form": form, "choices": choices, "chosen": chosen}
        return visit.page("edit_issue.html.j2", 422, project=here, issue=row, **context)
    values = (title, body, assignee or None, milestone or None, due or None, visit.now)
    if row is None:
        latest = "SELECT coalesce(max(number), 0) FROM issue WHERE project_id = ?"
        number = visit.value(latest, here["id"]) + 1
        issue_id = visit.do(
            "INSERT INTO issue (title, body, assignee_id, milestone_id, due, updated, created,"
            " project_id, number, state, author_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?)",
            *(*values, visit.now, here["id"], number, me(visit)),
        )
    else:
        number, issue_id = row["number"], row["id"]
        visit.do(
            "UPDATE issue SET title = ?, body = ?, assignee_id = ?, milestone_id = ?, due = ?,"
            " updated = ? WHERE id = ?",
            *(*values, issue_id),
        )
    visit.do("DELETE FROM issue_label WHERE issue_id = ?", issue_id)
    for label in labels:
        visit.do("INSERT INTO issue_label VALUES (?, ?)", issue_id, label["id"])
    touch(visit, here)
    told = "The issue was created." if row is None else "The issue was saved."
    return visit.redirect(f"/{here['path']}/issues/{number}", told)


def is_day(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


@views.post("/{owner}/{slug}/issues/{number:int}/comment")
def comment(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = _issue(visit, here, number)
    return discuss(visit, "issue", row, f"/{here['path']}/issues/{number}")


@views.post("/{owner}/{slug}/issues/{number:int}/state")
def change_state(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = _issue(visit, here, number)
    if not _can_edit(visit, here, row):
        return refuse(visit, here)
    state = "closed" if row["state"] == "open" else "open"
    visit.do("UPDATE issue SET state = ?, updated = ? WHERE id = ?", state, visit.now, row["id"])
    told = "closed" if state == "closed" else "opened again"
    return visit.redirect(f"/{here['path']}/issues/{number}", f"The issue was {told}.")
