"""Views across projects: sign-in, own work, exploration, to-dos, search and profile."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.code.permissions import (
    FROM_PROJECT,
    PROJECT_COLUMNS,
    VISIBLE_CONDITION,
    account_id,
)
from webagent_jax.arena.forms import Form
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

TO_DOS_PER_PAGE = 6

LANGUAGES = ("C", "Go", "Python", "Rust", "TypeScript")
SORTS = {
    "updated": ("Last updated", "active DESC"),
    "stars": ("Most stars", "stars DESC"),
    "created": ("Newest", "created DESC"),
    "name": ("Name", "project.name COLLATE NOCASE"),
}


@views.get("/sign-in")
def sign_in_form(request: RequestContext) -> Response:
    return request.render("sign_in.html.j2", form=Form(request.query))


@views.post("/sign-in")
def sign_in(request: RequestContext) -> Response:
    form = Form(request.form)
    username, password = form.text("username"), form.text("password")
    if not form.errors:
        number = request.value(
            "SELECT id FROM user WHERE ? COLLATE NOCASE IN (username, email) AND password = ?",
            *(username, password),
        )
        if number:
            return request.sign_in(number, "/")
        form.errors["password"] = "The user name or the password is wrong."
    return request.render("sign_in.html.j2", 422, form=form)


@views.post("/sign-out")
def sign_out(request: RequestContext) -> Response:
    return request.sign_out("/explore")


@views.get("/")
def my_projects(request: RequestContext) -> Response:
    if not account_id(request):
        return request.redirect("/explore")
    return _render_projects(
        request,
        "Your projects",
        "project.id IN (SELECT project_id FROM member WHERE user_id = ?1)",
        "work",
    )


@views.get("/starred", signed_in=True)
def starred(request: RequestContext) -> Response:
    return _render_projects(
        request,
        "Starred projects",
        "project.id IN (SELECT project_id FROM star WHERE user_id = ?1)",
        "work",
    )


@views.get("/explore")
def explore(request: RequestContext) -> Response:
    return _render_projects(request, "Explore projects", "1", "")


def _render_projects(request: RequestContext, heading: str, where: str, side: str) -> Response:
    if redirect := request.redirect_without_blanks():
        return redirect
    fields = dict(request.query)
    values: list[Any] = [account_id(request)]
    if fields.get("language") in LANGUAGES:
        where += " AND language = ?2"
        values.append(fields["language"])
    order = SORTS.get(fields.get("sort", ""), SORTS["updated"])[1]
    from_clause = (
        f"{FROM_PROJECT} WHERE {where} AND {VISIBLE_CONDITION} ORDER BY {order}, project.id"
    )
    pagination = paginate(request, PROJECT_COLUMNS, from_clause, values, size=7)
    sorts = [(key, text) for key, (text, _) in SORTS.items()]
    context: dict[str, Any] = {
        "heading": heading,
        "pagination": pagination,
        "side": side,
        "sorts": sorts,
    }
    return request.render(
        "projects.html.j2", **context, languages=LANGUAGES, form=Form(request.query)
    )


@views.get("/issues", signed_in=True)
def my_issues(request: RequestContext) -> Response:
    from_clause = (
        "FROM issue JOIN project ON project.id = project_id JOIN namespace"
        " ON namespace.id = namespace_id WHERE assignee_id = ? AND state = 'open'"
        " ORDER BY issue.created DESC, issue.id DESC"
    )
    columns = (
        f"{PROJECT_COLUMNS}, issue.number, issue.title, issue.created AS opened, issue.due,"
        " 'issues' AS kind"
    )
    pagination = paginate(request, columns, from_clause, [account_id(request)], size=8)
    return request.render(
        "my_work.html.j2", heading="Issues assigned to you", pagination=pagination
    )


@views.get("/merge-requests", signed_in=True)
def my_requests(request: RequestContext) -> Response:
    """Show the open merge requests by the account, or those with the account as reviewer."""
    is_reviewer = request.query.get("role") == "reviewer"
    column = "reviewer_id" if is_reviewer else "author_id"
    from_clause = (
        "FROM merge_request JOIN project ON project.id = project_id JOIN namespace"
        f" ON namespace.id = namespace_id WHERE {column} = ? AND state = 'open'"
        " ORDER BY merge_request.created DESC, merge_request.id DESC"
    )
    columns = (
        f"{PROJECT_COLUMNS}, merge_request.number, merge_request.title,"
        " merge_request.created AS opened, NULL AS due, 'merge-requests' AS kind"
    )
    pagination = paginate(request, columns, from_clause, [account_id(request)], size=8)
    heading = "Merge requests to review" if is_reviewer else "Your merge requests"
    return request.render("my_work.html.j2", heading=heading, pagination=pagination)


# --- to-dos --------------------------------------------------------------------------------------


@views.get("/to-dos", signed_in=True)
def to_dos(request: RequestContext) -> Response:
    is_done = request.query.get("state") == "done"
    from_clause = (
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
    pagination = paginate(
        request,
        columns,
        from_clause,
        [account_id(request), int(is_done)],
        size=TO_DOS_PER_PAGE,
    )
    return request.render("to_dos.html.j2", pagination=pagination, is_done=is_done)


@views.post("/to-dos/done", signed_in=True)
def to_do_done(request: RequestContext) -> Response:
    request.execute(
        "UPDATE to_do SET done = 1 WHERE id = ? AND user_id = ?",
        *(request.form.get("to_do", ""), account_id(request)),
    )
    return request.redirect("/to-dos", "The to-do is done.")


@views.post("/to-dos/all-done", signed_in=True)
def all_done(request: RequestContext) -> Response:
    request.execute("UPDATE to_do SET done = 1 WHERE user_id = ?", account_id(request))
    return request.redirect("/to-dos", "All to-dos are done.")


# --- search --------------------------------------------------------------------------------------

_SCOPES = {
    "projects": "Projects",
    "issues": "Issues",
    "merge-requests": "Merge requests",
    "users": "People",
}


@views.get("/search")
def search(request: RequestContext) -> Response:
    """Show entries whose name or title contains all the words, in any order."""
    query = request.query.get("q", "").strip()
    if not query:
        return request.redirect("/explore", "Type what you are looking for.")
    scope = request.query.get("scope", "projects")
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
            columns, from_clause = (
                PROJECT_COLUMNS,
                f"{FROM_PROJECT} WHERE {where} AND {VISIBLE_CONDITION} ORDER BY stars DESC",
            )
        case "users":
            columns, from_clause = "*", f"FROM user WHERE {where} ORDER BY name"
        case _:
            table = scope.replace("-", "_").removesuffix("s")
            columns = (
                f"{PROJECT_COLUMNS}, {table}.number, {table}.title, state,"
                f" {table}.created AS opened"
            )
            from_clause = (
                f"FROM {table} {join} WHERE {where} AND {VISIBLE_CONDITION}"
                f" ORDER BY {table}.created DESC"
            )
    pagination = paginate(request, columns, from_clause, [account_id(request), *words], size=6)
    return request.render(
        "search.html.j2", query=query, scope=scope, scopes=_SCOPES, pagination=pagination
    )


# --- profile of the account ----------------------------------------------------------------------


@views.get("/profile", signed_in=True)
def profile_form(request: RequestContext) -> Response:
    user = request.row("SELECT * FROM user WHERE id = ?", account_id(request))
    return request.render("profile.html.j2", form=Form({**user}))


@views.post("/profile", signed_in=True)
def profile(request: RequestContext) -> Response:
    form = Form(request.form)
    values = [form.text("name", max_chars=60)]
    values += [form.text(name, required=False) for name in ("status", "bio", "location")]
    if form.errors:
        return request.render("profile.html.j2", 422, form=form)
    request.execute(
        "UPDATE user SET name = ?, status = ?, bio = ?, location = ? WHERE id = ?",
        *(*values, account_id(request)),
    )
    username = request.value("SELECT username FROM user WHERE id = ?", account_id(request))
    return request.redirect(f"/{username}", "Your profile was saved.")
