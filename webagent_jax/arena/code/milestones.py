"""Milestones of a project, and the labels its issues can have."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.issues import is_day
from webagent_jax.arena.code.permissions import find, may, refuse
from webagent_jax.arena.forms import Form
from webagent_jax.arena.site import Views, Visit

views = Views()

_COUNTED = (
    "SELECT milestone.*, (SELECT count(*) FROM issue WHERE milestone_id = milestone.id) AS total,"
    " (SELECT count(*) FROM issue WHERE milestone_id = milestone.id AND state = 'closed') AS done"
    " FROM milestone WHERE project_id = ?"
)


@views.get("/{owner}/{slug}/milestones")
def milestones(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    state = "closed" if visit.query.get("state") == "closed" else "open"
    found = visit.rows(f"{_COUNTED} AND state = ? ORDER BY due, id", here["id"], state)
    return visit.page("milestones.html.j2", project=here, milestones=found, state=state)


@views.get("/{owner}/{slug}/milestones/new")
def new_form(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Developer"):
        return refuse(visit, here)
    return visit.page("edit_milestone.html.j2", project=here, milestone=None, form=Form())


@views.get("/{owner}/{slug}/milestones/{number:int}")
def milestone(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    row = visit.row(f"{_COUNTED} AND milestone.id = ?", here["id"], number)
    issues = visit.rows(
        "SELECT * FROM issue WHERE milestone_id = ? ORDER BY state DESC, number DESC LIMIT 12",
        number,
    )
    return visit.page("milestone.html.j2", project=here, milestone=row, issues=issues)


@views.get("/{owner}/{slug}/milestones/{number:int}/edit")
def edit_form(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Developer"):
        return refuse(visit, here)
    row = _milestone(visit, here, number)
    return visit.page("edit_milestone.html.j2", project=here, milestone=row, form=Form({**row}))


def _milestone(visit: Visit, here: Any, number: int) -> Any:
    return visit.row("SELECT * FROM milestone WHERE project_id = ? AND id = ?", here["id"], number)


@views.post("/{owner}/{slug}/milestones/new")
def create(visit: Visit, owner: str, slug: str) -> Response:
    return _save(visit, find(visit, owner, slug), None)


@views.post("/{owner}/{slug}/milestones/{number:int}/edit")
def edit(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    return _save(visit, here, _milestone(visit, here, number))


def _save(visit: Visit, here: Any, row: Any) -> Response:
    if not may(here, "Developer"):
        return refuse(visit, here)
    form = Form(visit.form)
    title, due = form.text("title", most=60), form.text("due")
    description = form.text("description", required=False, most=1000)
    taken = "SELECT 1 FROM milestone WHERE project_id = ? AND title = ? AND id != ?"
    if visit.value(taken, here["id"], title, row["id"] if row else 0):
        form.errors["title"] = "There is a milestone with this title already."
    if due and not is_day(due):
        form.errors["due"] = "Enter a day as 2023-06-30."
    if form.errors:
        context: dict[str, Any] = {"milestone": row, "form": form}
        return visit.page("edit_milestone.html.j2", 422, project=here, **context)
    if row is None:
        number = visit.do(
            "INSERT INTO milestone VALUES (NULL, ?, ?, ?, ?, 'open')",
            *(here["id"], title, description, due),
        )
    else:
        number = row["id"]
        visit.do(
            "UPDATE milestone SET title = ?, description = ?, due = ? WHERE id = ?",
            *(title, description, due, number),
        )
    return visit.redirect(f"/{here['path']}/milestones/{number}", "The milestone was saved.")


@views.post("/{owner}/{slug}/milestones/{number:int}/state")
def change_state(visit: Visit, owner: str, slug: str, number: int) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Developer"):
        return refuse(visit, here)
    row = _milestone(visit, here, number)
    state = "closed" if row["state"] == "open" else "open"
    visit.do("UPDATE milestone SET state = ? WHERE id = ?", state, number)
    told = "closed" if state == "closed" else "opened again"
    return visit.redirect(f"/{here['path']}/milestones/{number}", f"The milestone was {told}.")


@views.get("/{owner}/{slug}/labels")
def labels(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    return visit.page("labels.html.j2", project=here, labels=_labels(visit, here), form=Form())


def _labels(visit: Visit, here: Any) -> Any:
    return visit.rows(
        "SELECT label.*, (SELECT count(*) FROM issue_label JOIN issue ON issue.id = issue_id"
        " WHERE label_id = label.id AND state = 'open') AS issues FROM label WHERE project_id = ?"
        " ORDER BY id",
        here["id"],
    )


@views.post("/{owner}/{slug}/labels")
def new_label(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Reporter"):
        return refuse(visit, here)
    form = Form(visit.form)
    name = form.text("name", most=30)
    taken = "SELECT 1 FROM label WHERE project_id = ? AND name = ?"
    if visit.value(taken, here["id"], name):
        form.errors["name"] = "There is a label with this name already."
    elif "," in name:
        form.errors["name"] = "The name of a label has no commas."
    if form.errors:
        found = _labels(visit, here)
        return visit.page("labels.html.j2", 422, project=here, labels=found, form=form)
    hue = len(name) * 47 % 360
    visit.do("INSERT INTO label (project_id, name, hue) VALUES (?, ?, ?)", here["id"], name, hue)
    return visit.redirect(visit.path, f"The label {name} was created.")
