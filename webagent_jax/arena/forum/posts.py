"""Views to write, edit and delete posts."""

from __future__ import annotations

from starlette.responses import Response

from webagent_jax.arena import common
from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum import post_lists
from webagent_jax.arena.forum.data import minutes_since_2022
from webagent_jax.arena.forum.threads import require_author, find_post
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry

views = ViewRegistry()


@views.get("/c/{slug}/submit")
def submit_form(visit: RequestContext, slug: str) -> Response:
    community = visit.row("SELECT * FROM community WHERE slug = ?", slug)
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    return visit.render("submit.html.j2", community=community, form=Form())


@views.post("/c/{slug}/submit")
def submit(visit: RequestContext, slug: str) -> Response:
    community, form = visit.row("SELECT * FROM community WHERE slug = ?", slug), Form(visit.form)
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    title, url, body = _read_content(form)
    if form.errors:
        return visit.render("submit.html.j2", 422, community=community, form=form)
    number = visit.execute(
        "INSERT INTO post (community_id, author_id, title, body, url, posted, minute)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        *(
            community["id"],
            visit.session.account,
            title,
            body,
            url,
            visit.now,
            minutes_since_2022(common.NOW),
        ),
    )
    visit.execute(
        "INSERT OR REPLACE INTO vote VALUES (?, 'post', ?, 1)", visit.session.account, number
    )
    return visit.redirect(f"/c/{slug}/{number}", "Your post is online.")


def _read_content(form: Form) -> tuple[str, str, str]:
    """Return title, link and text of the form; link and text may be empty."""
    title, url = form.text("title", max_chars=150), form.text("url", required=False)
    if url and not url.startswith(("http://", "https://")):
        form.errors["url"] = "Enter an address that begins with https://."
    return title, url, form.text("body", required=False, max_chars=5000)


@views.get("/c/{slug}/{number:int}/edit")
def edit_form(visit: RequestContext, slug: str, number: int) -> Response:
    post = require_author(visit, find_post(visit, slug, number))
    return visit.render("edit_post.html.j2", post=post, form=Form(dict(post)))


@views.post("/c/{slug}/{number:int}/edit")
def edit(visit: RequestContext, slug: str, number: int) -> Response:
    post, form = require_author(visit, find_post(visit, slug, number)), Form(visit.form)
    title, url, body = _read_content(form)
    if form.errors:
        return visit.render("edit_post.html.j2", 422, post=post, form=form)
    sql = "UPDATE post SET title = ?, url = ?, body = ?, edited = 1 WHERE id = ?"
    visit.execute(sql, title, url, body, number)
    return visit.redirect(f"/c/{slug}/{number}", "Your post was changed.")


@views.get("/c/{slug}/{number:int}/delete")
def delete_form(visit: RequestContext, slug: str, number: int) -> Response:
    return visit.render("delete_post.html.j2", post=require_author(visit, find_post(visit, slug, number)))


@views.post("/c/{slug}/{number:int}/delete")
def delete(visit: RequestContext, slug: str, number: int) -> Response:
    require_author(visit, find_post(visit, slug, number))
    visit.execute("DELETE FROM comment WHERE post_id = ?", number)
    visit.execute("DELETE FROM saved WHERE post_id = ?", number)
    visit.execute("DELETE FROM post WHERE id = ?", number)
    return visit.redirect(f"/c/{slug}", "Your post was deleted.")


@views.get("/out/{number:int}")
def out(visit: RequestContext, number: int) -> Response:
    """Show the page before an external link, which ends here: a world has no other sites."""
    post = post_lists.find_post(visit, number)
    if not post["url"]:
        raise NotFound
    return visit.render("out.html.j2", post=post)
