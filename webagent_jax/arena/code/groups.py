"""Views of groups: the list of groups, and a form for a new one."""

from __future__ import annotations

import re

from starlette.responses import Response

from webagent_jax.arena.code.permissions import VISIBILITIES, VISIBLE_CONDITION, account_id
from webagent_jax.arena.forms import Form
from webagent_jax.arena.site import RequestContext, ViewRegistry, to_slug

views = ViewRegistry()


@views.get("/groups")
def groups(request: RequestContext) -> Response:
    rows = request.rows(
        "SELECT namespace.*, (SELECT count(*) FROM project WHERE namespace_id = namespace.id"
        f" AND {VISIBLE_CONDITION}) AS projects, coalesce((SELECT role FROM group_member WHERE"
        " namespace_id = namespace.id AND user_id = ?1), '') AS role FROM namespace"
        " WHERE namespace.user_id IS NULL AND (visibility = 'public' OR role != '') ORDER BY name",
        account_id(request),
    )
    return request.render("groups.html.j2", groups=rows)


@views.get("/groups/new", signed_in=True)
def new_group_form(request: RequestContext) -> Response:
    return request.render("new_group.html.j2", form=Form())


@views.post("/groups/new", signed_in=True)
def new_group(request: RequestContext) -> Response:
    form = Form(request.form)
    name = form.text("name", max_chars=60)
    description = form.text("description", required=False)
    visibility = form.choice("visibility", VISIBILITIES)
    path = to_slug(name)
    if name and not re.search(r"[a-z]", path):
        form.errors["name"] = "A name needs a letter."
    elif path in request.site.reserved_names("/"):
        form.errors["name"] = "This name is reserved."
    elif request.value("SELECT 1 FROM namespace WHERE path = ?", path):
        form.errors["name"] = "This name is taken."
    if form.errors:
        return request.render("new_group.html.j2", 422, form=form)
    number = request.execute(
        "INSERT INTO namespace (path, name, description, visibility, created)"
        " VALUES (?, ?, ?, ?, ?)",
        *(path, name, description, visibility, request.today),
    )
    request.execute("INSERT INTO group_member VALUES (?, ?, 'Owner')", number, account_id(request))
    return request.redirect(f"/{path}", f"The group {name} was created.")
