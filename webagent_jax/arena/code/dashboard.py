"""Views across projects: sign-in, own work, exploration, to-dos, search and profile."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.permissions import PROJECT_COLUMNS, FROM_PROJECT, VISIBLE_CONDITION, account_id
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

LANGUAGES = ("C", "Go", "Python", "Rust", "TypeScript")
SORTS = {
    "updated": ("Last updated", "active DESC"),
    "stars": ("Most stars", "stars DESC"),
    "created": ("Newest", "created DESC"),
    "name": ("Name", "project.name COLLATE NOCASE"),
}


@views.get("/sign-in")
def sign_in_form(visit: RequestContext) -> Response:
    return visit.render("sign_in.html.j2", form=Form(visit.query))


@views.post("/sign-in")
def sign_in(visit: RequestContext) -> Response:
    form = Form(visit.form)
    username, password = form.text("username"), form.text("password")
    if not form.errors:
        number = visit.value(
            "SELECT id FROM user WHERE ? COLLATE NOCASE IN (username, email) AND password = ?",
            *(username, password),
        )
        if number:
            return visit.sign_in(number, "/")
        form.errors["password"] = "The user name or the password is wrong."
    return visit.render("sign_in.html.j2", 422, form=form)


@views.post("/sign-out")
def sign_out(visit: RequestContext) -> Response:
    visit.session.account = None
    return visit.redirect("/explore", "You are signed out.")


@views.get("/")
def my_projects(visit: RequestContext) -> Response:
    if not account_id(visit):
        return visit.redirect("/explore")
    return _render_projects(
        visit,
        "Your projects",
        "project.id IN (SELECT project_id FROM member WHERE user_id = ?1)",
        "work",
    )


@views.get("/starred")
def starred(visit: RequestContext) -> Response:
    return _render_projects(
        visit,
        "Starred projects",
        "project.id IN (SELECT project_id FROM star WHERE user_id = ?1)",
        "work",
    )


@views.get("/explore")
def explore(visit: RequestContext) -> Response:
    return _render_projects(visit, "Explore projects", "1", "")


def _render_projects(visit: RequestContext, heading: str, where: str, side: str) -> Response:
    fields = {name: value for name, value in visit.query.items() if value}
    if len(fields) < len(visit.query):
        return visit.redirect(visit.path, **fields)
    values: list[Any] = [account_id(visit)]
    if fields.get("language") in LANGUAGES:
        where += " AND language = ?2"
        values.append(fields["language"])
    order = SORTS.get(fields.get("sort", ""), SORTS["updated"])[1]
    rest = f"{FROM_PROJECT} WHERE {where} AND {VISIBLE_CONDITION} ORDER BY {order}, project.id"
    pagination = paginate(visit, PROJECT_COLUMNS, rest, values, size=7)
    sorts = [(key, text) for key, (text, _) in SORTS.items()]
    context: dict[str, Any] = {
        "heading": heading,
        "found": pagination,
        "side": side,
        "sorts": sorts,
    }
    return visit.render("projects.html.j2", **context, languages=LANGUAGES, form=Form(visit.query))


@views.get("/issues")
def my_issues(visit: RequestContext) -> Response:
    if not account_id(visit):
        return visit.redirect_to_sign_in()
    rest = (
        "FROM issue JOIN project ON project.id = project_id JOIN namespace"
        " ON namespace.id = namespace_id WHERE assignee_id = ? AND state = 'open'"
        " ORDER BY issue.created DESC, issue.id DESC"
    )
    columns = f"{PROJECT_COLUMNS}, issue.number, issue.title, issue.created, issue.due, 'issues' AS kind"
    pagination = paginate(visit, columns, rest, [account_id(visit)], size=8)
    return visit.render("my_work.html.j2", heading="Issues assigned to you", found=pagination)


@views.get("/merge-requests")
def my_requests(visit: RequestContext) -> Response:
    """Show the merge requests of the account, or those that wait for its review."""
    if not account_id(visit):
        return visit.redirect_to_sign_in()
    is_reviewer = visit.query.get("role") == "reviewer"
    column = "reviewer_id" if is_reviewer else "author_id"
    rest = (
        "FROM merge_request JOIN project ON project.id = project_id JOIN namespace"
        f" ON namespace.id = namespace_id WHERE {column} = ? AND state = 'open'"
        " ORDER BY merge_request.created DESC, merge_request.id DESC"
    )
    columns = (
        f"{PROJECT_COLUMNS}, merge_request.number, merge_request.title, merge_request.created,"
        " NULL AS due, 'merge-requests' AS kind"
    )
    pagination = paginate(visit, columns, rest, [account_id(visit)], size=8)
    heading = "Merge requests to review" if is_reviewer else "Your merge requests"
    return visit.render("my_work.html.j2", heading=heading, found=pagination)


# --- to-dos --------------------------------------------------------------------------------------


@views.get("/to-dos")
def to_dos(visit: RequestContext) -> Response:
    if not account_id(visit):
        return visit.redirect_to_sign_in()
    is_done = visit.query.get("state") == "done"
    rest = (
        "FROM to_do JOIN user ON user.id = to_do.author_id"
        " LEFT JOIN issue ON issue.id = issue_id"
        " LEFT JOIN merge_request ON merge_request.id = merge_request_id"
        " JOIN project ON project.id = coalesce(issue.project_id, merge_request.project_id)"
        " JOIN namespace ON namespace.id = namespace_id WHERE to_do.user_id = ? AND done = ?"
        " ORDER BY to_do.written DESC, to_do.id DESC"
    )
    columns = (
        f"{PROJECT_COLUMNS}, to_do.id AS to_do, action, to_do.written, user.name AS author,"
        " coalesce(issue.title, merge_request.title) AS title,"
        " coalesce(issue.number, merge_request.number) AS number,"
        " iif(issue_id IS NULL, 'merge-requests', 'issues') AS kind"
    )
    pagination = paginate(visit, columns, rest, [account_id(visit), int(is_done)], size=6)
    return visit.render("to_dos.html.j2", found=pagination, done=is_done)


@views.post("/to-dos/done")
def to_do_done(visit: RequestContext) -> Response:
    visit.execute(
        "UPDATE to_do SET done = 1 WHERE id = ? AND user_id = ?",
        *(visit.form.get("to_do", ""), account_id(visit)),
    )
    return visit.redirect("/to-dos", "The to-do is done.")


@views.post("/to-dos/all-done")
def all_done(visit: RequestContext) -> Response:
    visit.execute("UPDATE to_do SET done = 1 WHERE user_id = ?", account_id(visit))
    return visit.redirect("/to-dos", "All to-dos are done.")


# --- search --------------------------------------------------------------------------------------

_SCOPES = {
    "projects": "Projects",
    "issues": "Issues",
    "merge-requests": "Merge requests",
    "users": "People",
}


@views.get("/search")
def search(visit: RequestContext) -> Response:
    """Show entries whose name or title contains all the words, in any order."""
    query = visit.query.get("q", "").strip()
    if not query:
        return visit.redirect("/explore", "Type what you are looking for.")
    scope = visit.query.get("scope", "projects")
    scope = scope if scope in _SCOPES else "projects"
    text = {
        "projects": "lower(project.name || ' ' || namespace.path || ' ' || project.description)",
        "issues": "lower(issue.title)",
        "merge-requests": "lower(merge_request.title)",
        "users": "lower(name || ' ' || username)",
    }[scope]
    words = query.lower().split()[:8]
    where = " AND ".join(f"instr({text}, ?{i})" for i in range(2, len(words) + 2))
    join = "JOIN project ON project.id = project_id JOIN namespace ON namespace.id = namespace_id"
    match scope:
        case "projects":
            columns, rest = PROJECT_COLUMNS, f"{FROM_PROJECT} WHERE {where} AND {VISIBLE_CONDITION} ORDER BY stars DESC"
        case "users":
            columns, rest = "*", f"FROM user WHERE {where} ORDER BY name"
        case _:
            table = scope.replace("-", "_").removesuffix("s")
            columns = f"{PROJECT_COLUMNS}, {table}.number, {table}.title, state, {table}.created"
            rest = f"FROM {table} {join} WHERE {where} AND {VISIBLE_CONDITION} ORDER BY {table}.created DESC"
    pagination = paginate(visit, columns, rest, [account_id(visit), *words], size=6)
    return visit.render(
        "search.html.j2", asked=query, scope=scope, scopes=_SCOPES, found=pagination
    )


# --- profile of the account ----------------------------------------------------------------------


@views.get("/profile")
def profile_form(visit: RequestContext) -> Response:
    if not account_id(visit):
        return visit.redirect_to_sign_in()
    user = visit.row("SELECT * FROM user WHERE id = ?", account_id(visit))
    return visit.render("profile.html.j2", form=Form({**user}))


@views.post("/profile")
def profile(visit: RequestContext) -> Response:
    form = Form(visit.form)
    values = [form.text("name", max_chars=60)]
    values += [form.text(name, required=False) for name in ("status", "bio", "location")]
    if form.errors:
        return visit.render("profile.html.j2", 422, form=form)
    visit.execute(
        "UPDATE user SET name = ?, status = ?, bio = ?, location = ? WHERE id = ?",
        *(*values, account_id(visit)),
    )
    username = visit.value("SELECT username FROM user WHERE id = ?", account_id(visit))
    return visit.redirect(f"/{username}", "Your profile was saved.")
