"""A project: its files, commits, branches and contributors; to star it."""

from __future__ import annotations

import hashlib
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.permissions import find, may, me, refuse, touch
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import listing
from webagent_jax.arena.site import Missing, Views, Visit

views = Views()

_COMMIT = (
    "revision.*, username, name FROM revision JOIN user ON user.id = author_id WHERE project_id = ?"
)


@views.get("/{owner}/{slug}")
def home(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    readme = visit.value(
        "SELECT content FROM file WHERE project_id = ? AND path = 'README.md'", here["id"]
    )
    origin = visit.rows(
        "SELECT project.name, namespace.path || '/' || slug AS path FROM project JOIN namespace"
        " ON namespace.id = namespace_id WHERE project.id = ?",
        here["forked_from"],
    )
    starred = visit.value(
        "SELECT 1 FROM star WHERE project_id = ? AND user_id = ?", here["id"], me(visit)
    )
    context: dict[str, Any] = {
        "readme": readme,
        "origin": origin,
        "starred": starred,
        "latest": _latest(visit, here),
    }
    return visit.page("project.html.j2", project=here, entries=_entries(visit, here, ""), **context)


def _latest(visit: Visit, here: Any) -> Any:
    found = visit.rows(
        f"SELECT {_COMMIT} AND branch = 'main' ORDER BY written DESC, revision.id DESC LIMIT 1",
        here["id"],
    )
    return found[0] if found else None


def _entries(visit: Visit, here: Any, folder: str) -> list[tuple[str, bool]]:
    """Names in a folder, and whether they are folders, which come first."""
    start = f"{folder}/" if folder else ""
    paths = visit.rows(
        "SELECT path FROM file WHERE project_id = ? AND substr(path, 1, ?) = ? ORDER BY path",
        *(here["id"], len(start), start),
    )
    rests = [row["path"][len(start) :].partition("/") for row in paths]
    found = dict.fromkeys((name, bool(slash)) for name, slash, _ in rests)
    return sorted(found, key=lambda entry: (not entry[1], entry[0].lower()))


@views.get("/{owner}/{slug}/tree/{path:path}")
def tree(visit: Visit, owner: str, slug: str, path: str) -> Response:
    here = find(visit, owner, slug)
    entries = _entries(visit, here, path)
    if not entries:
        raise Missing
    return visit.page("tree.html.j2", project=here, path=path, entries=entries)


@views.get("/{owner}/{slug}/blob/{path:path}")
def blob(visit: Visit, owner: str, slug: str, path: str) -> Response:
    here = find(visit, owner, slug)
    content = _file(visit, here, path)["content"]
    latest = visit.rows(
        f"SELECT {_COMMIT} AND branch = 'main' AND revision.id IN"
        " (SELECT revision_id FROM revision_file WHERE path = ?)"
        " ORDER BY written DESC, revision.id DESC LIMIT 1",
        *(here["id"], path),
    )
    return visit.page("blob.html.j2", project=here, path=path, content=content, latest=latest)


def _file(visit: Visit, here: Any, path: str) -> Any:
    return visit.row("SELECT * FROM file WHERE project_id = ? AND path = ?", here["id"], path)


@views.get("/{owner}/{slug}/edit/{path:path}")
def edit_form(visit: Visit, owner: str, slug: str, path: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Developer"):
        return refuse(visit, here)
    row = _file(visit, here, path)
    form = Form({"path": path, "content": row["content"], "message": f"Update {path}"})
    return visit.page("edit.html.j2", project=here, path=path, form=form)


@views.get("/{owner}/{slug}/new-file")
def new_file_form(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Developer"):
        return refuse(visit, here)
    return visit.page("edit.html.j2", project=here, path="", form=Form({"message": "Add a file"}))


@views.post("/{owner}/{slug}/edit/{path:path}")
def edit(visit: Visit, owner: str, slug: str, path: str) -> Response:
    here = find(visit, owner, slug)
    return _save(visit, here, path)


@views.post("/{owner}/{slug}/new-file")
def new_file(visit: Visit, owner: str, slug: str) -> Response:
    return _save(visit, find(visit, owner, slug), "")


def _save(visit: Visit, here: Any, old: str) -> Response:
    """Commits a file to the default branch; `old` is its path, "" when it is new."""
    if not may(here, "Developer"):
        return refuse(visit, here)
    form = Form(visit.form)
    path = old or form.text("path", most=120).strip("/")
    message = form.text("message", most=120)
    content = form.values.get("content", "").replace("\r\n", "\n")
    if not old and visit.value(
        "SELECT 1 FROM file WHERE project_id = ? AND path = ?", here["id"], path
    ):
        form.errors["path"] = "There is a file with this name already."
    if form.errors:
        return visit.page("edit.html.j2", 422, project=here, path=old, form=form)
    visit.do(
        "INSERT INTO file (project_id, path, content) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET content = excluded.content",
        *(here["id"], path, content.rstrip("\n") + "\n"),
    )
    commit(visit, here, "main", message, path)
    return visit.redirect(f"/{here['path']}/blob/{path}", "Your changes were committed.")


def commit(visit: Visit, here: Any, branch: str, title: str, path: str = "") -> None:
    """Of the visitor, now; `path` is the file it changes."""
    count = visit.value("SELECT max(id) FROM revision") + 1
    sha = hashlib.sha256(f"{here['id']} {count} {title}".encode()).hexdigest()[:8]
    number = visit.do(
        "INSERT INTO revision VALUES (NULL, ?, ?, ?, ?, ?, ?)",
        *(here["id"], branch, sha, me(visit), title, visit.now),
    )
    if path:
        visit.do("INSERT INTO revision_file VALUES (?, ?, 1, 1, 0)", number, path)
    visit.do(
        "UPDATE branch SET updated = ? WHERE project_id = ? AND name = ?",
        *(visit.now, here["id"], branch),
    )
    touch(visit, here)


# --- commits, branches, contributors -------------------------------------------------------------


@views.get("/{owner}/{slug}/commits")
def commits(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    kept = {name: value for name, value in visit.query.items() if value}
    if len(kept) < len(visit.query):
        return visit.redirect(visit.path, **kept)
    branch = kept.get("branch", "main")
    where, arguments = "project_id = ? AND branch = ?", [here["id"], branch]
    if "author" in kept:
        where += " AND username = ?"
        arguments.append(kept["author"])
    if "path" in kept:
        where += " AND revision.id IN (SELECT revision_id FROM revision_file WHERE path = ?)"
        arguments.append(kept["path"])
    if "q" in kept:
        where += " AND instr(lower(title), ?)"
        arguments.append(kept["q"].lower())
    rest = (
        f"FROM revision JOIN user ON user.id = author_id WHERE {where}"
        " ORDER BY written DESC, revision.id DESC"
    )
    found = listing(visit, "revision.*, username, name", rest, arguments, size=6)
    authors = visit.rows(
        "SELECT DISTINCT username, name FROM revision JOIN user ON user.id = author_id"
        " WHERE project_id = ? AND branch = ? ORDER BY name",
        *(here["id"], branch),
    )
    context: dict[str, Any] = {
        "found": found,
        "authors": authors,
        "branch": branch,
        "form": Form(visit.query),
    }
    return visit.page("commits.html.j2", project=here, **context)


@views.get("/{owner}/{slug}/commit/{sha}")
def one_commit(visit: Visit, owner: str, slug: str, sha: str) -> Response:
    here = find(visit, owner, slug)
    revision = visit.row(f"SELECT {_COMMIT} AND sha = ?", here["id"], sha)
    return visit.page(
        "commit.html.j2", project=here, commit=revision, files=changes(visit, [revision["id"]])
    )


def changes(visit: Visit, revisions: list[int]) -> list[dict[str, Any]]:
    """The files that revisions change, and the first lines of what they bring."""
    rows = visit.rows(
        "SELECT revision_file.*, content FROM revision_file JOIN revision ON revision.id ="
        " revision_id LEFT JOIN file ON file.path = revision_file.path AND file.project_id ="
        f" revision.project_id WHERE revision_id IN ({', '.join('?' * len(revisions))})",
        *revisions,
    )
    made = []
    for row in rows:
        lines = (row["content"] or "").splitlines()[row["start"] - 1 :][: row["added"]]
        made.append({**row, "lines": lines[:3] if len(rows) <= 4 else []})
    return made


@views.get("/{owner}/{slug}/branches")
def branches(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    rest = "FROM branch WHERE project_id = ? ORDER BY is_default DESC, updated DESC, name"
    found = listing(visit, "*", rest, [here["id"]], size=6)
    return visit.page("branches.html.j2", project=here, found=found, form=Form())


@views.post("/{owner}/{slug}/branches")
def new_branch(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Developer"):
        return refuse(visit, here)
    form = Form(visit.form)
    name = form.text("name", most=60)
    taken = "SELECT 1 FROM branch WHERE project_id = ? AND name = ?"
    if " " in name:
        form.errors["name"] = "The name of a branch has no spaces."
    elif visit.value(taken, here["id"], name):
        form.errors["name"] = "There is a branch with this name already."
    if form.errors:
        rest = "FROM branch WHERE project_id = ? ORDER BY is_default DESC, updated DESC, name"
        found = listing(visit, "*", rest, [here["id"]], size=6)
        return visit.page("branches.html.j2", 422, project=here, found=found, form=form)
    visit.do("INSERT INTO branch VALUES (?, ?, ?, 0)", here["id"], name, visit.now)
    return visit.redirect(f"{visit.path}", f"The branch {name} was created from main.")


@views.post("/{owner}/{slug}/branches/delete")
def delete_branch(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not may(here, "Developer"):
        return refuse(visit, here)
    name = visit.form.get("name", "")
    visit.do(
        "DELETE FROM branch WHERE project_id = ? AND name = ? AND NOT is_default", here["id"], name
    )
    return visit.redirect(f"/{here['path']}/branches", f"The branch {name} was deleted.")


@views.get("/{owner}/{slug}/contributors")
def contributors(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    rest = (
        "FROM (SELECT username, name, count(*) AS commits, max(written) AS latest FROM revision"
        " JOIN user ON user.id = author_id WHERE project_id = ? AND branch = 'main'"
        " GROUP BY user.id) ORDER BY commits DESC, name"
    )
    found = listing(visit, "*", rest, [here["id"]], size=10)
    most = max((row["commits"] for row in found.rows), default=1)
    return visit.page("contributors.html.j2", project=here, found=found, most=most)


# --- stars ---------------------------------------------------------------------------------------


@views.post("/{owner}/{slug}/star")
def star(visit: Visit, owner: str, slug: str) -> Response:
    here = find(visit, owner, slug)
    if not me(visit):
        return visit.sign_in_first()
    pair = (here["id"], me(visit))
    if visit.value("SELECT 1 FROM star WHERE project_id = ? AND user_id = ?", *pair):
        visit.do("DELETE FROM star WHERE project_id = ? AND user_id = ?", *pair)
    else:
        visit.do("INSERT INTO star (project_id, user_id) VALUES (?, ?)", *pair)
    visit.do(
        "UPDATE project SET stars = (SELECT count(*) FROM star WHERE project_id = ?1)"
        " WHERE id = ?1",
        here["id"],
    )
    return visit.redirect(f"/{here['path']}")
