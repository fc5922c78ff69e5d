"""Lists of posts, sorted as the reader likes: home, everything, a community, a search, a member."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from webagent_jax.arena import common
from webagent_jax.arena.pagination import Listing, listing
from webagent_jax.arena.site import Views, Visit

views = Views()

PAGE = 5  # posts, communities, or comments of a member

# A point is worth ten minutes, up to three days: old posts sink, however good they are.
SORTS = {
    "hot": ("Hot", "minute + 10 * min(up - down, 432) DESC"),
    "new": ("New", "posted DESC"),
    "top": ("Top", "up - down DESC"),
    "comments": ("Most commented", "comments DESC"),
}
PERIODS = {"day": 1, "week": 7, "month": 30, "year": 365}  # days up to now

_SHOWN = (
    "SELECT post.*, slug, community.title AS community, hue, username, up - down AS score,"
    " (SELECT direction FROM vote WHERE member_id = ? AND kind = 'post' AND thing_id = post.id)"
    " AS vote FROM post JOIN community ON community.id = community_id"
    " JOIN member ON member.id = author_id"
)


def posts(visit: Visit, where: str, *arguments: Any, default: str = "") -> Listing:
    """Of the posts that are `where`, and by nobody the reader has blocked."""
    sort = visit.query.get("sort", default) or reader_sort(visit)
    order = SORTS.get(sort, SORTS["hot"])[1]
    days = PERIODS.get(visit.query.get("period", ""))
    since = (common.NOW - datetime.timedelta(days or 10_000)).isoformat(" ")
    rest = (
        f"FROM post WHERE {where} AND posted >= ? AND author_id NOT IN"
        f" (SELECT other_id FROM blocked WHERE member_id = ?) ORDER BY {order}, id DESC"
    )
    reader = visit.session.account or 0
    found = listing(visit, "id", rest, [*arguments, since, reader], size=PAGE)
    return replace(found, rows=[shown(visit, row["id"]) for row in found.rows])


def shown(visit: Visit, number: int) -> Any:
    """A post with all that is told of it. Raises Missing."""
    return visit.row(f"{_SHOWN} WHERE post.id = ?", visit.session.account or 0, number)


def reader_sort(visit: Visit) -> str:
    """How the reader likes lists of posts."""
    sort = visit.value("SELECT sort FROM member WHERE id = ?", visit.session.account)
    return str(sort or "hot")


def without_blanks(visit: Visit) -> Response | None:
    """To the same address without empty fields, which forms send as well."""
    kept = {name: value for name, value in visit.query.items() if value}
    return visit.redirect(visit.path, **kept) if len(kept) < len(visit.query) else None


def _feed(visit: Visit, heading: str, found: Listing, **context: Any) -> Response:
    sort = visit.query.get("sort") or reader_sort(visit)
    return visit.page("feed.html.j2", heading=heading, found=found, sort=sort, **context)


@views.get("/")
def home(visit: Visit) -> Response:
    if not visit.session.account:
        return everything(visit)
    found = posts(
        visit,
        "community_id IN (SELECT community_id FROM subscription WHERE member_id = ?)",
        visit.session.account,
    )
    return without_blanks(visit) or _feed(visit, "Home", found)


@views.get("/all")
def everything(visit: Visit) -> Response:
    return without_blanks(visit) or _feed(visit, "All communities", posts(visit, "1"))


@views.get("/c/{slug}")
def community(visit: Visit, slug: str) -> Response:
    here = visit.row("SELECT * FROM community WHERE slug = ?", slug)
    found = posts(visit, "community_id = ?", here["id"])
    return without_blanks(visit) or _feed(
        visit,
        here["title"],
        found,
        community=here,
        is_subscribed=is_subscribed(visit, here["id"]),
        moderators=moderators(visit, here["id"]),
    )


def is_subscribed(visit: Visit, community: int) -> bool:
    sql = "SELECT 1 FROM subscription WHERE member_id = ? AND community_id = ?"
    return bool(visit.value(sql, visit.session.account, community))


def moderators(visit: Visit, community: int) -> Sequence[str]:
    """Their user names."""
    sql = (
        "SELECT username FROM moderator JOIN member ON member.id = member_id"
        " WHERE community_id = ? ORDER BY member_id"
    )
    return [row["username"] for row in visit.rows(sql, community)]


@views.get("/saved")
def saved(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    where = "id IN (SELECT post_id FROM saved WHERE member_id = ?)"
    found = posts(visit, where, visit.session.account, default="new")
    return visit.page("saved.html.j2", found=found)


@views.get("/search")
def search(visit: Visit) -> Response:
    """Posts and communities that have all the words; members whose name begins with the word."""
    asked = visit.query.get("q", "").strip()
    if not asked:
        return visit.redirect("/communities", "Type what you are looking for.")
    words = asked.lower().split()[:10]
    return without_blanks(visit) or visit.page(
        "search.html.j2",
        asked=asked,
        communities=_communities(visit, words),
        members=_members(visit, words),
        found=posts(
            visit,
            " AND ".join("title || ' ' || body LIKE ?" for _ in words),
            *(f"%{word}%" for word in words),
            default="top",
        ),
    )


def _communities(visit: Visit, words: Sequence[str]) -> Sequence[Any]:
    """The largest that have all the words in name, title or description; four at most."""
    where = " AND ".join("instr(lower(slug || title || description), ?)" for _ in words)
    return visit.rows(
        f"SELECT * FROM community WHERE {where} ORDER BY subscribers DESC, id LIMIT 4", *words
    )


def _members(visit: Visit, words: Sequence[str]) -> Sequence[Any]:
    """Four at most."""
    (word, *others) = words
    sql = "SELECT username FROM member WHERE username LIKE ? ORDER BY username LIMIT 4"
    return [] if others or len(word) < 4 else visit.rows(sql, f"{word}%")
