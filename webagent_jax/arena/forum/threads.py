"""Views of a post and its comments: reading, voting, replying and editing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum import post_lists
from webagent_jax.arena.pagination import paginate_rows
from webagent_jax.arena.site import NotFound, RequestContext, ViewRegistry

views = ViewRegistry()

THREADS_PER_PAGE = 3  # top-level comments per page, each with all its replies


@dataclass(frozen=True, slots=True)
class CommentEntry:
    """A comment with its position in the outline."""

    comment: sqlite3.Row
    number: str  # outline number: "2.1" is the first reply to the second comment
    depth: int  # nesting level, 0 for a comment on the post itself


@views.get("/c/{slug}/{number:int}")
def post(request: RequestContext, slug: str, number: int) -> Response:
    row = find_post(request, slug, number)
    return _render_post(request, row, Form())


def find_post(request: RequestContext, slug: str, number: int) -> Any:
    post = post_lists.find_post(request, number)
    if post["slug"] != slug:
        raise NotFound
    return post


def _render_post(request: RequestContext, post: Any, form: Form, status: int = 200) -> Response:
    threads = _read_threads(request, post["id"])
    pagination = paginate_rows(request, threads, size=THREADS_PER_PAGE)
    saved_sql = "SELECT 1 FROM saved WHERE member_id = ? AND post_id = ?"
    return request.render(
        "post.html.j2",
        status,
        post=post,
        form=form,
        entries=[entry for thread in pagination.rows for entry in thread],
        pagination=pagination,
        is_saved=request.value(saved_sql, request.session.account_id, post["id"]),
    )


def _read_threads(request: RequestContext, post: int) -> list[list[CommentEntry]]:
    """Return each top-level comment with its replies, sorted by points on every level."""
    rows = request.rows(
        "SELECT comment.*, username, (SELECT direction FROM vote WHERE member_id = ?1 AND"
        " kind = 'comment' AND thing_id = comment.id) AS vote, author_id IN (SELECT other_id FROM"
        " blocked WHERE member_id = ?1) AS is_blocked"
        " FROM comment LEFT JOIN member ON member.id = author_id WHERE post_id = ?2"
        " ORDER BY comment.up - comment.down DESC, comment.id",
        *(request.session.account_id or 0, post),
    )
    replies: dict[int | None, list[sqlite3.Row]] = {}
    for row in rows:
        replies.setdefault(row["parent_id"], []).append(row)

    def outline(row: sqlite3.Row, number: str, depth: int) -> Iterator[CommentEntry]:
        yield CommentEntry(row, number, depth)
        for position, reply in enumerate(replies.get(row["id"], ()), 1):
            yield from outline(reply, f"{number}.{position}", depth + 1)

    return [list(outline(row, str(n), 0)) for n, row in enumerate(replies.get(None, ()), 1)]


@views.get("/comment/{number:int}")
def permalink(request: RequestContext, number: int) -> Response:
    return request.redirect(_comment_url(request, _find_comment(request, number)))


def _find_comment(request: RequestContext, number: int) -> Any:
    return request.row(
        "SELECT comment.*, post.title, slug, username FROM comment"
        " JOIN post ON post.id = post_id JOIN community ON community.id = community_id"
        " LEFT JOIN member ON member.id = comment.author_id WHERE comment.id = ?",
        number,
    )


def _comment_url(request: RequestContext, comment: Any) -> str:
    """Return the address of a comment on the page of its post."""
    threads = _read_threads(request, comment["post_id"])
    numbers = [[entry.comment["id"] for entry in thread] for thread in threads]
    index = next((n for n, thread in enumerate(numbers) if comment["id"] in thread), 0)
    page = f"?page={index // THREADS_PER_PAGE + 1}" if index >= THREADS_PER_PAGE else ""
    return f"/c/{comment['slug']}/{comment['post_id']}{page}#c{comment['id']}"


# --- votes and bookmarks -------------------------------------------------------------------------


@views.post("/vote/{kind}/{number:int}", signed_in=True)
def vote(request: RequestContext, kind: str, number: int) -> Response:
    """Set the vote of the account; the same vote again withdraws it."""
    direction = {"1": 1, "-1": -1}.get(request.form.get("direction", ""))
    if kind not in ("post", "comment") or direction is None:
        raise NotFound
    request.row(f"SELECT 1 FROM {kind} WHERE id = ?", number)
    key = (request.session.account_id, kind, number)
    where = "member_id = ? AND kind = ? AND thing_id = ?"
    old_vote = request.value(f"SELECT direction FROM vote WHERE {where}", *key)
    request.execute(f"DELETE FROM vote WHERE {where}", *key)
    if old_vote != direction:
        request.execute("INSERT INTO vote VALUES (?, ?, ?, ?)", *key, direction)
    new_vote = 0 if old_vote == direction else direction
    request.execute(
        f"UPDATE {kind} SET up = up + ?, down = down + ? WHERE id = ?",
        *((new_vote == 1) - (old_vote == 1), (new_vote == -1) - (old_vote == -1), number),
    )
    return request.redirect(request.return_path("/"))


@views.post("/c/{slug}/{number:int}/save", signed_in=True)
def save(request: RequestContext, slug: str, number: int) -> Response:
    """Save a post, or remove a saved one."""
    find_post(request, slug, number)
    pair = (request.session.account_id, number)
    if request.value("SELECT 1 FROM saved WHERE member_id = ? AND post_id = ?", *pair):
        request.execute("DELETE FROM saved WHERE member_id = ? AND post_id = ?", *pair)
        return request.redirect(f"/c/{slug}/{number}", "The post is no longer saved.")
    request.execute("INSERT INTO saved VALUES (?, ?)", *pair)
    return request.redirect(f"/c/{slug}/{number}", "The post was saved.")


# --- comments ------------------------------------------------------------------------------------


@views.post("/c/{slug}/{number:int}", signed_in=True)
def comment(request: RequestContext, slug: str, number: int) -> Response:
    post, form = find_post(request, slug, number), Form(request.form)
    body = form.text("body", max_chars=2000)
    if form.errors:
        return _render_post(request, post, form, 422)
    return _add_comment(request, number, None, body)


@views.get("/comment/{number:int}/reply", signed_in=True)
def reply_form(request: RequestContext, number: int) -> Response:
    return request.render("reply.html.j2", parent=_find_comment(request, number), form=Form())


@views.post("/comment/{number:int}/reply", signed_in=True)
def reply(request: RequestContext, number: int) -> Response:
    parent, form = _find_comment(request, number), Form(request.form)
    body = form.text("body", max_chars=2000)
    if form.errors:
        return request.render("reply.html.j2", 422, parent=parent, form=form)
    return _add_comment(request, parent["post_id"], number, body)


def _add_comment(request: RequestContext, post: int, parent: int | None, body: str) -> Response:
    number = request.execute(
        "INSERT INTO comment (post_id, parent_id, author_id, body, written) VALUES (?, ?, ?, ?, ?)",
        *(post, parent, request.session.account_id, body, request.now),
    )
    request.execute(
        "INSERT OR REPLACE INTO vote VALUES (?, 'comment', ?, 1)",
        request.session.account_id,
        number,
    )
    request.execute("UPDATE post SET comments = comments + 1 WHERE id = ?", post)
    return request.redirect(
        _comment_url(request, _find_comment(request, number)), "Your comment was posted."
    )


@views.get("/comment/{number:int}/edit", signed_in=True)
def edit_form(request: RequestContext, number: int) -> Response:
    row = require_author(request, _find_comment(request, number))
    return request.render("edit_comment.html.j2", comment=row, form=Form(dict(body=row["body"])))


@views.post("/comment/{number:int}/edit", signed_in=True)
def edit(request: RequestContext, number: int) -> Response:
    row, form = require_author(request, _find_comment(request, number)), Form(request.form)
    body = form.text("body", max_chars=2000)
    if form.errors:
        return request.render("edit_comment.html.j2", 422, comment=row, form=form)
    request.execute("UPDATE comment SET body = ?, edited = 1 WHERE id = ?", body, number)
    return request.redirect(_comment_url(request, row), "Your comment was changed.")


@views.post("/comment/{number:int}/delete", signed_in=True)
def delete(request: RequestContext, number: int) -> Response:
    """Delete a comment; one with replies remains as an empty entry."""
    row = require_author(request, _find_comment(request, number))
    if request.value("SELECT 1 FROM comment WHERE parent_id = ?", number):
        request.execute("UPDATE comment SET author_id = NULL, body = '' WHERE id = ?", number)
    else:
        request.execute("DELETE FROM comment WHERE id = ?", number)
    request.execute("UPDATE post SET comments = comments - 1 WHERE id = ?", row["post_id"])
    return request.redirect(f"/c/{row['slug']}/{row['post_id']}", "Your comment was deleted.")


def require_author(request: RequestContext, thing: Any) -> Any:
    """Return `thing` if the account wrote it.

    Raises:
        NotFound: another member wrote it.
    """
    if thing["author_id"] != request.session.account_id:
        raise NotFound
    return thing
