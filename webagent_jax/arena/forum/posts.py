"""Views to write, edit and delete posts."""

from __future__ import annotations

from starlette.responses import Response

from webagent_jax.arena import common
from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum import post_lists
from webagent_jax.arena.forum.data import minutes_since_2022
from webagent_jax.arena.forum.threads import find_post, require_author
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry

views = ViewRegistry()


@views.get("/c/{slug}/submit", signed_in=True)
def submit_form(request: RequestContext, slug: str) -> Response:
    community = request.row("SELECT * FROM community WHERE slug = ?", slug)
    return request.render("submit.html.j2", community=community, form=Form())


@views.post("/c/{slug}/submit", signed_in=True)
def submit(request: RequestContext, slug: str) -> Response:
    community, form = (
        request.row("SELECT * FROM community WHERE slug = ?", slug),
        Form(request.form),
    )
    title, url, body = _read_content(form)
    if form.errors:
        return request.render("submit.html.j2", 422, community=community, form=form)
    number = request.execute(
        "INSERT INTO post (community_id, author_id, title, body, url, posted, minute)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        *(
            community["id"],
            request.session.account_id,
            title,
            body,
            url,
            request.now,
            minutes_since_2022(common.NOW),
        ),
    )
    request.execute(
        "INSERT OR REPLACE INTO vote VALUES (?, 'post', ?, 1)", request.session.account_id, number
    )
    return request.redirect(f"/c/{slug}/{number}", "Your post is online.")


def _read_content(form: Form) -> tuple[str, str, str]:
    """Return title, link and text of the form; link and text may be empty."""
    title, url = form.text("title", max_chars=150), form.text("url", required=False)
    if url and not url.startswith(("http://", "https://")):
        form.errors["url"] = "Enter an address that begins with https://."
    return title, url, form.text("body", required=False, max_chars=5000)


@views.get("/c/{slug}/{number:int}/edit", signed_in=True)
def edit_form(request: RequestContext, slug: str, number: int) -> Response:
    post = require_author(request, find_post(request, slug, number))
    return request.render("edit_post.html.j2", post=post, form=Form(dict(post)))


@views.post("/c/{slug}/{number:int}/edit", signed_in=True)
def edit(request: RequestContext, slug: str, number: int) -> Response:
    post, form = require_author(request, find_post(request, slug, number)), Form(request.form)
    title, url, body = _read_content(form)
    if form.errors:
        return request.render("edit_post.html.j2", 422, post=post, form=form)
    sql = "UPDATE post SET title = ?, url = ?, body = ?, edited = 1 WHERE id = ?"
    request.execute(sql, title, url, body, number)
    return request.redirect(f"/c/{slug}/{number}", "Your post was changed.")


@views.get("/c/{slug}/{number:int}/delete", signed_in=True)
def delete_form(request: RequestContext, slug: str, number: int) -> Response:
    return request.render(
        "delete_post.html.j2", post=require_author(request, find_post(request, slug, number))
    )


@views.post("/c/{slug}/{number:int}/delete", signed_in=True)
def delete(request: RequestContext, slug: str, number: int) -> Response:
    require_author(request, find_post(request, slug, number))
    request.execute("DELETE FROM comment WHERE post_id = ?", number)
    request.execute("DELETE FROM saved WHERE post_id = ?", number)
    request.execute("DELETE FROM post WHERE id = ?", number)
    return request.redirect(f"/c/{slug}", "Your post was deleted.")


@views.get("/out/{number:int}")
def out(request: RequestContext, number: int) -> Response:
    """Show a page in place of an external link, because a world has no other sites."""
    post = post_lists.find_post(request, number)
    if not post["url"]:
        raise NotFound
    return request.render("out.html.j2", post=post)
