"""Views of a project: files, commits, branches, contributors and stars."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from webagent_jax.arena.code.permissions import (
    account_id,
    deny_access,
    find_project,
    has_role,
    update_activity_time,
)
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry

views = ViewRegistry()

_COMMIT = (
    "revision.*, username, name FROM revision JOIN user ON user.id = author_id WHERE project_id = ?"
)


@views.get("/{owner}/{slug}")
def home(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    readme = request.value(
        "SELECT content FROM file WHERE project_id = ? AND path = 'README.md'", project["id"]
    )
    origin = request.rows(
        "SELECT project.name, namespace.path || '/' || slug AS path FROM project JOIN namespace"
        " ON namespace.id = namespace_id WHERE project.id = ?",
        project["forked_from"],
    )
    is_starred = request.value(
        "SELECT 1 FROM star WHERE project_id = ? AND user_id = ?",
        project["id"],
        account_id(request),
    )
    context: dict[str, Any] = {
        "readme": readme,
        "origin": origin,
        "starred": is_starred,
        "latest": _find_latest(request, project),
    }
    return request.render(
        "project.html.j2", project=project, entries=_read_entries(request, project, ""), **context
    )


def _find_latest(request: RequestContext, project: Any) -> Any:
    rows = request.rows(
        f"SELECT {_COMMIT} AND branch = 'main' ORDER BY written DESC, revision.id DESC LIMIT 1",
        project["id"],
    )
    return rows[0] if rows else None


def _read_entries(request: RequestContext, project: Any, folder: str) -> list[tuple[str, bool]]:
    """Return the name of each entry in a folder, and whether it is a folder; folders first."""
    start = f"{folder}/" if folder else ""
    paths = request.rows(
        "SELECT path FROM file WHERE project_id = ? AND substr(path, 1, ?) = ? ORDER BY path",
        *(project["id"], len(start), start),
    )
    rests = [row["path"][len(start) :].partition("/") for row in paths]
    entries = dict.fromkeys((name, bool(slash)) for name, slash, _ in rests)
    return sorted(entries, key=lambda entry: (not entry[1], entry[0].lower()))


@views.get("/{owner}/{slug}/tree/{path:path}")
def tree(request: RequestContext, owner: str, slug: str, path: str) -> Response:
    project = find_project(request, owner, slug)
    entries = _read_entries(request, project, path)
    if not entries:
        raise NotFound
    return request.render("tree.html.j2", project=project, path=path, entries=entries)


@views.get("/{owner}/{slug}/blob/{path:path}")
def blob(request: RequestContext, owner: str, slug: str, path: str) -> Response:
    project = find_project(request, owner, slug)
    content = _find_file(request, project, path)["content"]
    latest = request.rows(
        f"SELECT {_COMMIT} AND branch = 'main' AND revision.id IN"
        " (SELECT revision_id FROM revision_file WHERE path = ?)"
        " ORDER BY written DESC, revision.id DESC LIMIT 1",
        *(project["id"], path),
    )
    return request.render(
        "blob.html.j2", project=project, path=path, content=content, latest=latest
    )


def _find_file(request: RequestContext, project: Any, path: str) -> Any:
    return request.row("SELECT * FROM file WHERE project_id = ? AND path = ?", project["id"], path)


@views.get("/{owner}/{slug}/edit/{path:path}", signed_in=True)
def edit_form(request: RequestContext, owner: str, slug: str, path: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    row = _find_file(request, project, path)
    form = Form({"path": path, "content": row["content"], "message": f"Update {path}"})
    return request.render("edit.html.j2", project=project, path=path, form=form)


@views.get("/{owner}/{slug}/new-file", signed_in=True)
def new_file_form(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    return request.render(
        "edit.html.j2", project=project, path="", form=Form({"message": "Add a file"})
    )


@views.post("/{owner}/{slug}/edit/{path:path}", signed_in=True)
def edit(request: RequestContext, owner: str, slug: str, path: str) -> Response:
    project = find_project(request, owner, slug)
    return _save(request, project, path)


@views.post("/{owner}/{slug}/new-file", signed_in=True)
def new_file(request: RequestContext, owner: str, slug: str) -> Response:
    return _save(request, find_project(request, owner, slug), "")


def _save(request: RequestContext, project: Any, old_path: str) -> Response:
    """Commit a file to the default branch; `old_path` is "" for a new file."""
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    form = Form(request.form)
    path = old_path or form.text("path", max_chars=120).strip("/")
    if not form.errors and {"", ".", ".."} & set(path.split("/")):
        form.errors["path"] = "Enter a file name, such as docs/notes.md."
    message = form.text("message", max_chars=120)
    content = form.values.get("content", "").replace("\r\n", "\n")
    if not old_path and request.value(
        "SELECT 1 FROM file WHERE project_id = ? AND path = ?", project["id"], path
    ):
        form.errors["path"] = "There is a file with this name already."
    if form.errors:
        return request.render("edit.html.j2", 422, project=project, path=old_path, form=form)
    request.execute(
        "INSERT INTO file (project_id, path, content) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET content = excluded.content",
        *(project["id"], path, content.rstrip("\n") + "\n"),
    )
    commit(request, project, "main", message, path)
    return request.redirect(
        f"/{project['path']}/blob/{quote(path)}", "Your changes were committed."
    )


def commit(request: RequestContext, project: Any, branch: str, title: str, path: str = "") -> None:
    """Insert a commit of the account at the current time; `path` is the changed file."""
    count = request.value("SELECT max(id) FROM revision") + 1
    sha = hashlib.sha256(f"{project['id']} {count} {title}".encode()).hexdigest()[:8]
    number = request.execute(
        "INSERT INTO revision VALUES (NULL, ?, ?, ?, ?, ?, ?)",
        *(project["id"], branch, sha, account_id(request), title, request.now),
    )
    if path:
        request.execute("INSERT INTO revision_file VALUES (?, ?, 1, 1, 0)", number, path)
    request.execute(
        "UPDATE branch SET updated = ? WHERE project_id = ? AND name = ?",
        *(request.now, project["id"], branch),
    )
    update_activity_time(request, project)


# --- commits, branches, contributors -------------------------------------------------------------


@views.get("/{owner}/{slug}/commits")
def commits(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if redirect := request.redirect_without_blanks():
        return redirect
    fields = dict(request.query)
    branch = fields.get("branch", "main")
    where, arguments = "project_id = ? AND branch = ?", [project["id"], branch]
    if "author" in fields:
        where += " AND username = ?"
        arguments.append(fields["author"])
    if "path" in fields:
        where += " AND revision.id IN (SELECT revision_id FROM revision_file WHERE path = ?)"
        arguments.append(fields["path"])
    if "q" in fields:
        where += " AND instr(lower(title), ?)"
        arguments.append(fields["q"].lower())
    from_clause = (
        f"FROM revision JOIN user ON user.id = author_id WHERE {where}"
        " ORDER BY written DESC, revision.id DESC"
    )
    pagination = paginate(request, "revision.*, username, name", from_clause, arguments, size=6)
    authors = request.rows(
        "SELECT DISTINCT username, name FROM revision JOIN user ON user.id = author_id"
        " WHERE project_id = ? AND branch = ? ORDER BY name",
        *(project["id"], branch),
    )
    context: dict[str, Any] = {
        "pagination": pagination,
        "authors": authors,
        "branch": branch,
        "form": Form(request.query),
    }
    return request.render("commits.html.j2", project=project, **context)


@views.get("/{owner}/{slug}/commit/{sha}")
def one_commit(request: RequestContext, owner: str, slug: str, sha: str) -> Response:
    project = find_project(request, owner, slug)
    revision = request.row(f"SELECT {_COMMIT} AND sha = ?", project["id"], sha)
    return request.render(
        "commit.html.j2", project=project, commit=revision, files=changes(request, [revision["id"]])
    )


def changes(request: RequestContext, revisions: list[int]) -> list[dict[str, Any]]:
    """Return the files that revisions change, with the first lines of the additions."""
    rows = request.rows(
        "SELECT revision_file.*, content FROM revision_file JOIN revision ON revision.id ="
        " revision_id LEFT JOIN file ON file.path = revision_file.path AND file.project_id ="
        f" revision.project_id WHERE revision_id IN ({', '.join('?' * len(revisions))})",
        *revisions,
    )
    files = []
    for row in rows:
        lines = (row["content"] or "").splitlines()[row["start"] - 1 :][: row["added"]]
        files.append({**row, "lines": lines[:3] if len(rows) <= 4 else []})
    return files


@views.get("/{owner}/{slug}/branches")
def branches(request: RequestContext, owner: str, slug: str) -> Response:
    return _render_branches(request, find_project(request, owner, slug), Form())


def _render_branches(
    request: RequestContext, project: sqlite3.Row, form: Form, status: int = 200
) -> Response:
    columns = (
        "*, EXISTS (SELECT 1 FROM merge_request WHERE project_id = branch.project_id"
        " AND source = branch.name AND state = 'open') AS has_request"
    )
    from_clause = "FROM branch WHERE project_id = ? ORDER BY is_default DESC, updated DESC, name"
    pagination = paginate(request, columns, from_clause, [project["id"]], size=6)
    return request.render(
        "branches.html.j2", status, project=project, pagination=pagination, form=form
    )


@views.post("/{owner}/{slug}/branches", signed_in=True)
def new_branch(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    form = Form(request.form)
    name = form.text("name", max_chars=60)
    name_sql = "SELECT 1 FROM branch WHERE project_id = ? AND name = ?"
    if " " in name:
        form.errors["name"] = "The name of a branch has no spaces."
    elif request.value(name_sql, project["id"], name):
        form.errors["name"] = "There is a branch with this name already."
    if form.errors:
        return _render_branches(request, project, form, 422)
    request.execute("INSERT INTO branch VALUES (?, ?, ?, 0)", project["id"], name, request.now)
    return request.redirect(f"{request.path}", f"The branch {name} was created from main.")


@views.post("/{owner}/{slug}/branches/delete", signed_in=True)
def delete_branch(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    if not has_role(project, "Developer"):
        return deny_access(request, project)
    name = request.form.get("name", "")
    request.execute(
        "DELETE FROM branch WHERE project_id = ? AND name = ? AND NOT is_default",
        project["id"],
        name,
    )
    return request.redirect(f"/{project['path']}/branches", f"The branch {name} was deleted.")


@views.get("/{owner}/{slug}/contributors")
def contributors(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    from_clause = (
        "FROM (SELECT username, name, count(*) AS commits, max(written) AS latest FROM revision"
        " JOIN user ON user.id = author_id WHERE project_id = ? AND branch = 'main'"
        " GROUP BY user.id) ORDER BY commits DESC, name"
    )
    pagination = paginate(request, "*", from_clause, [project["id"]], size=10)
    max_commits = max((row["commits"] for row in pagination.rows), default=1)
    return request.render(
        "contributors.html.j2", project=project, pagination=pagination, max_commits=max_commits
    )


# --- stars ---------------------------------------------------------------------------------------


@views.post("/{owner}/{slug}/star", signed_in=True)
def star(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    pair = (project["id"], account_id(request))
    if request.value("SELECT 1 FROM star WHERE project_id = ? AND user_id = ?", *pair):
        request.execute("DELETE FROM star WHERE project_id = ? AND user_id = ?", *pair)
    else:
        request.execute("INSERT INTO star (project_id, user_id) VALUES (?, ?)", *pair)
    request.execute(
        "UPDATE project SET stars = (SELECT count(*) FROM star WHERE project_id = ?1)"
        " WHERE id = ?1",
        project["id"],
    )
    return request.redirect(f"/{project['path']}")
