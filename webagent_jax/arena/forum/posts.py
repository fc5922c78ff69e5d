"""Writing posts, and changing or deleting one's own."""

from __future__ import annotations

from starlette.responses import Response

from webagent_jax.arena import common
from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum import post_lists
from webagent_jax.arena.forum.data import minute_of
from webagent_jax.arena.forum.threads import mine, post_at
from webagent_jax.arena.site import Missing, Views, Visit

views = Views()


@views.get("/c/{slug}/submit")
def submit_form(visit: Visit, slug: str) -> Response:
    here = visit.row("SELECT * FROM community WHERE slug = ?", slug)
    if not visit.session.account:
        return visit.sign_in_first()
    return visit.page("submit.html.j2", community=here, form=Form())


@views.post("/c/{slug}/submit")
def submit(visit: Visit, slug: str) -> Response:
    here, form = visit.row("SELECT * FROM community WHERE slug = ?", slug), Form(visit.form)
    if not visit.session.account:
        return visit.sign_in_first()
    title, url, body = _content(form)
    if form.errors:
        return visit.page("submit.html.j2", 422, community=here, form=form)
    number = visit.do(
        "INSERT INTO post (community_id, author_id, title, body, url, posted, minute)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        *(here["id"], visit.session.account, title, body, url, visit.now, minute_of(common.NOW)),
    )
    visit.do("INSERT OR REPLACE INTO vote VALUES (?, 'post', ?, 1)", visit.session.account, number)
    return visit.redirect(f"/c/{slug}/{number}", "Your post is online.")


def _content(form: Form) -> tuple[str, str, str]:
    """Title, link and text; one of the latter two may be empty."""
    title, url = form.text("title", most=150), form.text("url", required=False)
    if url and not url.startswith(("http://", "https://")):
        form.errors["url"] = "Enter an address that begins with https://."
    return title, url, form.text("body", required=False, most=5000)


@views.get("/c/{slug}/{number:int}/edit")
def edit_form(visit: Visit, slug: str, number: int) -> Response:
    here = mine(visit, post_at(visit, slug, number))
    return visit.page("edit_post.html.j2", post=here, form=Form(dict(here)))


@views.post("/c/{slug}/{number:int}/edit")
def edit(visit: Visit, slug: str, number: int) -> Response:
    here, form = mine(visit, post_at(visit, slug, number)), Form(visit.form)
    title, url, body = _content(form)
    if form.errors:
        return visit.page("edit_post.html.j2", 422, post=here, form=form)
    sql = "UPDATE post SET title = ?, url = ?, body = ?, edited = 1 WHERE id = ?"
    visit.do(sql, title, url, body, number)
    return visit.redirect(f"/c/{slug}/{number}", "Your post was changed.")


@views.get("/c/{slug}/{number:int}/delete")
def delete_form(visit: Visit, slug: str, number: int) -> Response:
    return visit.page("delete_post.html.j2", post=mine(visit, post_at(visit, slug, number)))


@views.post("/c/{slug}/{number:int}/delete")
def delete(visit: Visit, slug: str, number: int) -> Response:
    mine(visit, post_at(visit, slug, number))
    visit.do("DELETE FROM comment WHERE post_id = ?", number)
    visit.do("DELETE FROM saved WHERE post_id = ?", number)
    visit.do("DELETE FROM post WHERE id = ?", number)
    return visit.redirect(f"/c/{slug}", "Your post was deleted.")


@views.get("/out/{number:int}")
def out(visit: Visit, number: int) -> Response:
    """Before a link is followed. In the arena it leads nowhere: worlds have no other sites."""
    here = post_lists.shown(visit, number)
    if not here["url"]:
        raise Missing
    return visit.page("out.html.j2", post=here)
