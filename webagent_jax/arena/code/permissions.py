"""Who may do what: a project as the visitor has it, the roles of its members; and comments."""

from __future__ import annotations

import sqlite3
from typing import Any, Literal

from starlette.responses import Response

from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.forms import Form
from webagent_jax.arena.site import Visit

VISIBILITIES = ("public", "internal", "private")

SEEN = (
    "(project.visibility = 'public' OR (project.visibility = 'internal' AND ?1) OR project.id IN"
    " (SELECT project_id FROM member WHERE user_id = ?1))"
)
"""Condition on projects that the visitor, whose id is the first argument, may see."""

FACTS = (
    "project.*, namespace.path AS owner, namespace.name AS owner_name,"
    " namespace.path || '/' || project.slug AS path"
)
JOINED = "FROM project JOIN namespace ON namespace.id = namespace_id"


def me(visit: Visit) -> int:
    """User id of the visitor; 0 when nobody is signed in."""
    return visit.session.account or 0


def find(visit: Visit, owner: str, slug: str) -> sqlite3.Row:
    """The project, with `role`: the visitor's, "" for none. Raises Missing when it is hidden."""
    return visit.row(
        f"SELECT {FACTS}, coalesce((SELECT role FROM member WHERE project_id = project.id"
        f" AND user_id = ?1), '') AS role {JOINED} WHERE namespace.path = ?2 AND slug = ?3"
        f" AND {SEEN}",
        *(me(visit), owner, slug),
    )


def may(project: Any, role: str) -> bool:
    """Whether the visitor is at least this in the project."""
    return project["role"] in ROLES[ROLES.index(role) :]


def refuse(visit: Visit, project: Any) -> Response:
    """For those who may not do what they sent."""
    if not me(visit):
        return visit.sign_in_first()
    return visit.redirect(f"/{project['path']}", "You do not have the permission to do this.")


def touch(visit: Visit, project: Any) -> None:
    visit.do("UPDATE project SET active = ? WHERE id = ?", visit.now, project["id"])


def discuss(visit: Visit, what: Literal["issue", "merge_request"], row: Any, path: str) -> Response:
    """Adds the comment that was sent, by anybody who is signed in, and leads back to `path`."""
    if not me(visit):
        return visit.sign_in_first()
    form = Form(visit.form)
    body = form.text("body", most=4000)
    if form.errors:
        return visit.redirect(path, "An empty comment says nothing.")
    visit.do(
        f"INSERT INTO comment ({what}_id, author_id, body, written) VALUES (?, ?, ?, ?)",
        *(row["id"], me(visit), body, visit.now),
    )
    if what == "issue":  # these alone are listed by when they were last updated
        visit.do("UPDATE issue SET updated = ? WHERE id = ?", visit.now, row["id"])
    return visit.redirect(path, "Your comment was added.")


def members(visit: Visit, project: Any) -> list[sqlite3.Row]:
    return visit.rows(
        "SELECT user.id, username, name, role, since FROM member JOIN user ON user.id = user_id"
        " WHERE project_id = ? ORDER BY name",
        project["id"],
    )


def spaces(visit: Visit) -> list[str]:
    """Paths under which the visitor may put a project."""
    rows = visit.rows(
        "SELECT path FROM namespace WHERE user_id = ?1 OR id IN (SELECT namespace_id FROM"
        " group_member WHERE user_id = ?1 AND role IN ('Owner', 'Maintainer'))"
        " ORDER BY user_id IS NULL, path",
        me(visit),
    )
    return [row["path"] for row in rows]
