"""Lists of posts in the reader's order: home, all, community, saved and search."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from webagent_jax.arena import common
from webagent_jax.arena.pagination import Pagination, paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

PAGE_SIZE = 5  # entries per page: posts, communities, or comments of a member

# A point counts as ten minutes, up to three days, so that old posts sink.
SORTS = {
    "hot": ("Hot", "minute + 10 * min(up - down, 432) DESC"),
    "new": ("New", "posted DESC"),
    "top": ("Top", "up - down DESC"),
    "comments": ("Most commented", "comments DESC"),
}
PERIODS = {"day": 1, "week": 7, "month": 30, "year": 365}  # days before now

_POST = (
    "SELECT post.*, slug, community.title AS community, hue, username, up - down AS score,"
    " (SELECT direction FROM vote WHERE member_id = ? AND kind = 'post' AND thing_id = post.id)"
    " AS vote FROM post JOIN community ON community.id = community_id"
    " JOIN member ON member.id = author_id"
)


def paginate_posts(
    request: RequestContext, where: str, *arguments: Any, default: str = ""
) -> Pagination:
    """Return a page of matching posts, without those of members that the reader blocked.

    Args:
        request: Request; its query selects order, period and page.
        where: SQL condition on posts.
        arguments: parameters of `where`.
        default: key of `SORTS` if the query names none; "" for the setting of the reader.
    """
    sort = request.query.get("sort", default) or reader_sort(request)
    order = SORTS.get(sort, SORTS["hot"])[1]
    days = PERIODS.get(request.query.get("period", ""))
    start = (common.NOW - datetime.timedelta(days or 10_000)).isoformat(" ")
    from_clause = (
        f"FROM post WHERE {where} AND posted >= ? AND author_id NOT IN"
        f" (SELECT other_id FROM blocked WHERE member_id = ?) ORDER BY {order}, id DESC"
    )
    reader = request.session.account_id or 0
    pagination = paginate(request, "id", from_clause, [*arguments, start, reader], size=PAGE_SIZE)
    return replace(pagination, rows=[find_post(request, row["id"]) for row in pagination.rows])


def find_post(request: RequestContext, number: int) -> Any:
    """Return a post with its community, author, score and the vote of the reader.

    Raises:
        NotFound: there is no such post.
    """
    return request.row(f"{_POST} WHERE post.id = ?", request.session.account_id or 0, number)


def reader_sort(request: RequestContext) -> str:
    """Return the key of `SORTS` in the settings of the reader."""
    sort = request.value("SELECT sort FROM member WHERE id = ?", request.session.account_id)
    return str(sort or "hot")


def _render_feed(
    request: RequestContext, heading: str, pagination: Pagination, **context: Any
) -> Response:
    sort = request.query.get("sort") or reader_sort(request)
    return request.render(
        "feed.html.j2", heading=heading, pagination=pagination, sort=sort, **context
    )


@views.get("/")
def home(request: RequestContext) -> Response:
    if not request.session.account_id:
        return all_posts(request)
    pagination = paginate_posts(
        request,
        "community_id IN (SELECT community_id FROM subscription WHERE member_id = ?)",
        request.session.account_id,
    )
    return request.redirect_without_blanks() or _render_feed(request, "Home", pagination)


@views.get("/all")
def all_posts(request: RequestContext) -> Response:
    return request.redirect_without_blanks() or _render_feed(
        request, "All communities", paginate_posts(request, "1")
    )


@views.get("/c/{slug}")
def community(request: RequestContext, slug: str) -> Response:
    row = request.row("SELECT * FROM community WHERE slug = ?", slug)
    pagination = paginate_posts(request, "community_id = ?", row["id"])
    return request.redirect_without_blanks() or _render_feed(
        request,
        row["title"],
        pagination,
        community=row,
        is_subscribed=is_subscribed(request, row["id"]),
        moderators=moderators(request, row["id"]),
    )


def is_subscribed(request: RequestContext, community: int) -> bool:
    sql = "SELECT 1 FROM subscription WHERE member_id = ? AND community_id = ?"
    return bool(request.value(sql, request.session.account_id, community))


def moderators(request: RequestContext, community: int) -> Sequence[str]:
    """Return the user names of the moderators of a community."""
    sql = (
        "SELECT username FROM moderator JOIN member ON member.id = member_id"
        " WHERE community_id = ? ORDER BY member_id"
    )
    return [row["username"] for row in request.rows(sql, community)]


@views.get("/saved", signed_in=True)
def saved(request: RequestContext) -> Response:
    where = "id IN (SELECT post_id FROM saved WHERE member_id = ?)"
    pagination = paginate_posts(request, where, request.session.account_id, default="new")
    return request.render("saved.html.j2", pagination=pagination)


@views.get("/search")
def search(request: RequestContext) -> Response:
    """Show posts and communities with all the words, and members whose name starts with one."""
    query = request.query.get("q", "").strip()
    if not query:
        return request.redirect("/communities", "Type what you are looking for.")
    words = query.lower().split()[:10]
    return request.redirect_without_blanks() or request.render(
        "search.html.j2",
        query=query,
        communities=_find_communities(request, words),
        members=_find_members(request, words),
        pagination=paginate_posts(
            request,
            " AND ".join("instr(lower(title || ' ' || body), ?)" for _ in words),
            *words,
            default="top",
        ),
    )


def _find_communities(request: RequestContext, words: Sequence[str]) -> Sequence[Any]:
    """Return the four largest communities with all the words in name, title or description."""
    where = " AND ".join("instr(lower(slug || title || description), ?)" for _ in words)
    return request.rows(
        f"SELECT * FROM community WHERE {where} ORDER BY subscribers DESC, id LIMIT 4", *words
    )


def _find_members(request: RequestContext, words: Sequence[str]) -> Sequence[Any]:
    """Return up to four members whose name starts with the word; none for several words."""
    (word, *others) = words
    sql = (
        "SELECT username FROM member WHERE instr(lower(username), ?) = 1 ORDER BY username LIMIT 4"
    )
    return [] if others or len(word) < 4 else request.rows(sql, word)
