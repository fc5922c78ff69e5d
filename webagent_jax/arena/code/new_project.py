"""Views to create projects: blank, from a template or as a fork."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.permissions import VISIBILITIES, account_id, find_project, spaces
from webagent_jax.arena.forms import Form
from webagent_jax.arena.site import RequestContext, ViewRegistry, to_slug

views = ViewRegistry()

TEMPLATES = {
    "": "Blank project",
    "library": "Python library",
    "website": "Static web site",
    "service": "Go service",
}
_FILES = {
    "library": ("Python", ("pyproject.toml", "src/__init__.py", "tests/test_start.py")),
    "website": ("TypeScript", ("index.html", "style.css", "src/main.ts")),
    "service": ("Go", ("go.mod", "main.go", "Dockerfile")),
}


@views.get("/projects/new", signed_in=True)
def new_project_form(request: RequestContext) -> Response:
    return request.render("new_project.html.j2", form=Form(), **_read_choices(request))


def _read_choices(request: RequestContext) -> dict[str, Any]:
    return {"spaces": spaces(request), "templates": list(TEMPLATES.items())}


@views.post("/projects/new", signed_in=True)
def new_project(request: RequestContext) -> Response:
    form, choices = Form(request.form), _read_choices(request)
    name = form.text("name", max_chars=60)
    space = form.choice("space", choices["spaces"])
    visibility = form.choice("visibility", VISIBILITIES)
    description = form.text("description", required=False)
    template = form.values.get("template", "")
    if name and not to_slug(name):
        form.errors["name"] = "A name needs a letter or a digit."
    elif to_slug(name) in request.site.reserved_names("/{owner}/"):
        form.errors["name"] = "This name is reserved."
    slug_sql = (
        "SELECT 1 FROM project JOIN namespace n ON n.id = namespace_id WHERE path = ? AND slug = ?"
    )
    if request.value(slug_sql, space, to_slug(name)):
        form.errors["name"] = "There is a project with this name already."
    if form.errors or template not in TEMPLATES:
        return request.render("new_project.html.j2", 422, form=form, **choices)
    language, paths = _FILES.get(template, ("", ()))
    owner = request.value("SELECT id FROM namespace WHERE path = ?", space)
    number = request.execute(
        "INSERT INTO project (namespace_id, name, slug, description, visibility, language, license,"
        " topics, created, active) VALUES (?, ?, ?, ?, ?, ?, '', '', ?, ?)",
        *(owner, name, to_slug(name), description, visibility, language, request.now, request.now),
    )
    request.execute(
        "INSERT INTO member VALUES (?, ?, 'Owner', ?)", number, account_id(request), request.today
    )
    request.execute("INSERT INTO branch VALUES (?, 'main', ?, 1)", number, request.now)
    texts = {path: "" for path in paths}
    if form.is_checked("readme") or template:
        texts["README.md"] = f"# {name}\n\n{description}\n"
    for path, text in texts.items():
        request.execute("INSERT INTO file VALUES (NULL, ?, ?, ?)", number, path, text)
    if texts:
        request.execute(
            "INSERT INTO revision VALUES (NULL, ?, 'main', ?, ?, 'First version', ?)",
            *(number, f"{number * 7919 + 0x5A11F0:08x}", account_id(request), request.now),
        )
    return request.redirect(f"/{space}/{to_slug(name)}", f"The project {name} was created.")


@views.get("/{owner}/{slug}/fork", signed_in=True)
def fork_form(request: RequestContext, owner: str, slug: str) -> Response:
    project = find_project(request, owner, slug)
    form = Form({"name": project["name"], "visibility": project["visibility"]})
    return request.render("fork.html.j2", project=project, form=form, spaces=spaces(request))


@views.post("/{owner}/{slug}/fork", signed_in=True)
def fork(request: RequestContext, owner: str, slug: str) -> Response:
    """Copy the project with its files and the commits of its default branch."""
    project = find_project(request, owner, slug)
    form, choices = Form(request.form), spaces(request)
    space = form.choice("space", choices)
    visibility = form.choice("visibility", ("public", "internal", "private"))
    slug_sql = (
        "SELECT 1 FROM project JOIN namespace ON namespace.id = namespace_id"
        " WHERE path = ? AND slug = ?"
    )
    if request.value(slug_sql, space, slug):
        form.errors["space"] = "There is a project with this name already."
    if form.errors:
        return request.render("fork.html.j2", 422, project=project, form=form, spaces=choices)
    number = request.execute(
        "INSERT INTO project (namespace_id, name, slug, description, visibility, language, license,"
        " topics, forked_from, created, active) SELECT (SELECT id FROM namespace WHERE path = ?),"
        " name, slug, description, ?, language, license, topics, id, ?, ? FROM project WHERE id = "
        "?",
        *(space, visibility, request.now, request.now, project["id"]),
    )
    request.execute("UPDATE project SET forks = forks + 1 WHERE id = ?", project["id"])
    request.execute(
        "INSERT INTO member VALUES (?, ?, 'Owner', ?)", number, account_id(request), request.today
    )
    request.execute("INSERT INTO branch VALUES (?, 'main', ?, 1)", number, request.now)
    request.execute(
        "INSERT INTO file SELECT NULL, ?, path, content FROM file WHERE project_id = ?",
        *(number, project["id"]),
    )
    request.execute(
        "INSERT INTO revision SELECT NULL, ?, branch, sha, author_id, title, written FROM revision"
        " WHERE project_id = ? AND branch = 'main'",
        *(number, project["id"]),
    )
    return request.redirect(f"/{space}/{slug}", "The project was forked.")
