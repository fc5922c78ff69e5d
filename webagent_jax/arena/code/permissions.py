"""Permissions of the account in a project, and comments on issues and merge requests."""

from __future__ import annotations

import sqlite3
from typing import Any, Literal

from starlette.responses import Response

from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.forms import Form
from webagent_jax.arena.site import RequestContext

VISIBILITIES = ("public", "internal", "private")

VISIBLE_CONDITION = (
    "(project.visibility = 'public' OR (project.visibility = 'internal' AND ?1) OR project.id IN"
    " (SELECT project_id FROM member WHERE user_id = ?1))"
)
"""SQL condition on projects visible to the account, whose id is the first parameter."""

PROJECT_COLUMNS = (
    "project.*, namespace.path AS owner, namespace.name AS owner_name,"
    " namespace.path || '/' || project.slug AS path"
)
FROM_PROJECT = "FROM project JOIN namespace ON namespace.id = namespace_id"


def account_id(request: RequestContext) -> int:
    """Return the user id of the account; 0 if none is signed in."""
    return request.session.account_id or 0


def find_project(request: RequestContext, owner: str, slug: str) -> sqlite3.Row:
    """Return a project with the `role` of the account in it, "" for none.

    Raises:
        NotFound: there is no such project, or the account may not see it.
    """
    return request.row(
        f"SELECT {PROJECT_COLUMNS}, coalesce((SELECT role FROM member WHERE project_id = project.id"
        f" AND user_id = ?1), '') AS role {FROM_PROJECT} WHERE namespace.path = ?2 AND slug = ?3"
        f" AND {VISIBLE_CONDITION}",
        *(account_id(request), owner, slug),
    )


def has_role(project: Any, role: str) -> bool:
    """Return whether the account has at least the role in the project."""
    return project["role"] in ROLES[ROLES.index(role) :]


def deny_access(request: RequestContext, project: Any) -> Response:
    """Return the response to a request without permission."""
    return request.redirect(f"/{project['path']}", "You do not have the permission to do this.")


def update_activity_time(request: RequestContext, project: Any) -> None:
    request.execute("UPDATE project SET active = ? WHERE id = ?", request.now, project["id"])


def add_comment(
    request: RequestContext, kind: Literal["issue", "merge_request"], row: Any, path: str
) -> Response:
    """Add the comment of the form and redirect to `path`; every signed-in account may comment."""
    form = Form(request.form)
    body = form.text("body", max_chars=4000)
    if form.errors:
        return request.redirect(path, "An empty comment says nothing.")
    request.execute(
        f"INSERT INTO comment ({kind}_id, author_id, body, written) VALUES (?, ?, ?, ?)",
        *(row["id"], account_id(request), body, request.now),
    )
    # Only lists of issues are sorted by the time of the last update.
    if kind == "issue":
        request.execute("UPDATE issue SET updated = ? WHERE id = ?", request.now, row["id"])
    return request.redirect(path, "Your comment was added.")


def members(request: RequestContext, project: Any) -> list[sqlite3.Row]:
    return request.rows(
        "SELECT user.id, username, name, role, since FROM member JOIN user ON user.id = user_id"
        " WHERE project_id = ? ORDER BY name",
        project["id"],
    )


def spaces(request: RequestContext) -> list[str]:
    """Return the namespace paths in which the account may create a project."""
    rows = request.rows(
        "SELECT path FROM namespace WHERE user_id = ?1 OR id IN (SELECT namespace_id FROM"
        " group_member WHERE user_id = ?1 AND role IN ('Owner', 'Maintainer'))"
        " ORDER BY user_id IS NULL, path",
        account_id(request),
    )
    return [row["path"] for row in rows]
