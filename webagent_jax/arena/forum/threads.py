"""A post and what is said below it: reading, voting, replying, changing one's own words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum import post_lists
from webagent_jax.arena.pagination import Listing
from webagent_jax.arena.site import Missing, Views, Visit

views = Views()

THREADS = 3  # comments on the post itself, on a page; each with all its replies


@dataclass(frozen=True, slots=True)
class Said:
    """A comment at its place in the outline."""

    comment: sqlite3.Row
    number: str  # "2.1" is the first reply to the second comment
    depth: int  # 0 for a comment on the post itself


@views.get("/c/{slug}/{number:int}")
def post(visit: Visit, slug: str, number: int) -> Response:
    here = post_at(visit, slug, number)
    return _page(visit, here, Form())


def post_at(visit: Visit, slug: str, number: int) -> Any:
    here = post_lists.shown(visit, number)
    if here["slug"] != slug:
        raise Missing
    return here


def _page(visit: Visit, here: Any, form: Form, status: int = 200) -> Response:
    asked = visit.query.get("page", "1")
    threads = _threads(visit, here["id"])
    pages = max(1, -(-len(threads) // THREADS))
    number = min(max(int(asked) if asked.isdecimal() and len(asked) < 7 else 1, 1), pages)
    part = threads[(number - 1) * THREADS : number * THREADS]
    href = f"/c/{here['slug']}/{here['id']}?page="
    saved = "SELECT 1 FROM saved WHERE member_id = ? AND post_id = ?"
    return visit.page(
        "post.html.j2",
        status,
        post=here,
        form=form,
        said=[said for thread in part for said in thread],
        found=Listing((), len(threads), number, THREADS, href),
        is_saved=visit.value(saved, visit.session.account, here["id"]),
    )


def _threads(visit: Visit, post: int) -> list[list[Said]]:
    """Each comment on the post itself with its replies; the best come first, on every level."""
    rows = visit.rows(
        "SELECT comment.*, username, (SELECT direction FROM vote WHERE member_id = ?1 AND"
        " kind = 'comment' AND thing_id = comment.id) AS vote, author_id IN (SELECT other_id FROM"
        " blocked WHERE member_id = ?1) AS is_blocked"
        " FROM comment LEFT JOIN member ON member.id = author_id WHERE post_id = ?2"
        " ORDER BY comment.up - comment.down DESC, comment.id",
        *(visit.session.account or 0, post),
    )
    replies: dict[int | None, list[sqlite3.Row]] = {}
    for row in rows:
        replies.setdefault(row["parent_id"], []).append(row)

    def outline(row: sqlite3.Row, number: str, depth: int) -> Iterator[Said]:
        yield Said(row, number, depth)
        for position, reply in enumerate(replies.get(row["id"], ()), 1):
            yield from outline(reply, f"{number}.{position}", depth + 1)

    return [list(outline(row, str(n), 0)) for n, row in enumerate(replies.get(None, ()), 1)]


@views.get("/comment/{number:int}")
def permalink(visit: Visit, number: int) -> Response:
    return visit.redirect(_place(visit, _comment(visit, number)))


def _comment(visit: Visit, number: int) -> Any:
    return visit.row(
        "SELECT comment.*, post.title, slug, username FROM comment"
        " JOIN post ON post.id = post_id JOIN community ON community.id = community_id"
        " LEFT JOIN member ON member.id = comment.author_id WHERE comment.id = ?",
        number,
    )


def _place(visit: Visit, comment: Any) -> str:
    """Where a comment is to be read."""
    threads = _threads(visit, comment["post_id"])
    numbers = [[said.comment["id"] for said in thread] for thread in threads]
    at = next((n for n, thread in enumerate(numbers) if comment["id"] in thread), 0)
    page = f"?page={at // THREADS + 1}" if at >= THREADS else ""
    return f"/c/{comment['slug']}/{comment['post_id']}{page}#c{comment['id']}"


# --- votes and bookmarks -------------------------------------------------------------------------


@views.post("/vote/{kind}/{number:int}")
def vote(visit: Visit, kind: str, number: int) -> Response:
    """The same vote twice is none."""
    if not visit.session.account:
        return visit.sign_in_first()
    direction = {"1": 1, "-1": -1}.get(visit.form.get("direction", ""))
    if kind not in ("post", "comment") or direction is None:
        raise Missing
    visit.row(f"SELECT 1 FROM {kind} WHERE id = ?", number)
    key = (visit.session.account, kind, number)
    where = "member_id = ? AND kind = ? AND thing_id = ?"
    before = visit.value(f"SELECT direction FROM vote WHERE {where}", *key)
    visit.do(f"DELETE FROM vote WHERE {where}", *key)
    if before != direction:
        visit.do("INSERT INTO vote VALUES (?, ?, ?, ?)", *key, direction)
    after = 0 if before == direction else direction
    visit.do(
        f"UPDATE {kind} SET up = up + ?, down = down + ? WHERE id = ?",
        *((after == 1) - (before == 1), (after == -1) - (before == -1), number),
    )
    return visit.redirect(visit.back("/"))


@views.post("/c/{slug}/{number:int}/save")
def save(visit: Visit, slug: str, number: int) -> Response:
    """Or the opposite, for what is saved."""
    if not visit.session.account:
        return visit.sign_in_first()
    post_at(visit, slug, number)
    pair = (visit.session.account, number)
    if visit.value("SELECT 1 FROM saved WHERE member_id = ? AND post_id = ?", *pair):
        visit.do("DELETE FROM saved WHERE member_id = ? AND post_id = ?", *pair)
        return visit.redirect(f"/c/{slug}/{number}", "The post is no longer saved.")
    visit.do("INSERT INTO saved VALUES (?, ?)", *pair)
    return visit.redirect(f"/c/{slug}/{number}", "The post was saved.")


# --- saying something ----------------------------------------------------------------------------


@views.post("/c/{slug}/{number:int}")
def comment(visit: Visit, slug: str, number: int) -> Response:
    here, form = post_at(visit, slug, number), Form(visit.form)
    if not visit.session.account:
        return visit.sign_in_first()
    body = form.text("body", most=2000)
    if form.errors:
        return _page(visit, here, form, 422)
    return _say(visit, number, None, body)


@views.get("/comment/{number:int}/reply")
def reply_form(visit: Visit, number: int) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    return visit.page("reply.html.j2", above=_comment(visit, number), form=Form())


@views.post("/comment/{number:int}/reply")
def reply(visit: Visit, number: int) -> Response:
    above, form = _comment(visit, number), Form(visit.form)
    if not visit.session.account:
        return visit.sign_in_first()
    body = form.text("body", most=2000)
    if form.errors:
        return visit.page("reply.html.j2", 422, above=above, form=form)
    return _say(visit, above["post_id"], number, body)


def _say(visit: Visit, post: int, parent: int | None, body: str) -> Response:
    number = visit.do(
        "INSERT INTO comment (post_id, parent_id, author_id, body, written) VALUES (?, ?, ?, ?, ?)",
        *(post, parent, visit.session.account, body, visit.now),
    )
    visit.do(
        "INSERT OR REPLACE INTO vote VALUES (?, 'comment', ?, 1)", visit.session.account, number
    )
    visit.do("UPDATE post SET comments = comments + 1 WHERE id = ?", post)
    return visit.redirect(_place(visit, _comment(visit, number)), "Your comment was posted.")


@views.get("/comment/{number:int}/edit")
def edit_form(visit: Visit, number: int) -> Response:
    here = mine(visit, _comment(visit, number))
    return visit.page("edit_comment.html.j2", comment=here, form=Form(dict(body=here["body"])))


@views.post("/comment/{number:int}/edit")
def edit(visit: Visit, number: int) -> Response:
    here, form = mine(visit, _comment(visit, number)), Form(visit.form)
    body = form.text("body", most=2000)
    if form.errors:
        return visit.page("edit_comment.html.j2", 422, comment=here, form=form)
    visit.do("UPDATE comment SET body = ?, edited = 1 WHERE id = ?", body, number)
    return visit.redirect(_place(visit, here), "Your comment was changed.")


@views.post("/comment/{number:int}/delete")
def delete(visit: Visit, number: int) -> Response:
    """What has been replied to leaves its place."""
    here = mine(visit, _comment(visit, number))
    if visit.value("SELECT 1 FROM comment WHERE parent_id = ?", number):
        visit.do("UPDATE comment SET author_id = NULL, body = '' WHERE id = ?", number)
    else:
        visit.do("DELETE FROM comment WHERE id = ?", number)
    visit.do("UPDATE post SET comments = comments - 1 WHERE id = ?", here["post_id"])
    return visit.redirect(f"/c/{here['slug']}/{here['post_id']}", "Your comment was deleted.")


def mine(visit: Visit, thing: Any) -> Any:
    """What belongs to the reader. Raises Missing for anything else."""
    if visit.session.account is None or thing["author_id"] != visit.session.account:
        raise Missing
    return thing
