"""How one gets about in the forum, and what tasks of it are drawn from."""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from webagent_jax.arena import common, random_data
from webagent_jax.arena.expert_steps import (
    Moves,
    choose,
    click,
    flat,
    names,
    read_all,
    read_on,
    search,
    type_text,
)
from webagent_jax.arena.forum.data import POSTS, Community, Voice, communities
from webagent_jax.arena.site import plural
from webagent_jax.arena.task import Data, Spec, page_is, pick
from webagent_jax.types import Decision, Observation

Slots = Mapping[str, str]

FORUM = "__REDDIT__"
NEXT_POST = POSTS + 1  # number of the first post of a world
MY_NAME = common.me().username

POST = (
    "SELECT post.*, up - down AS score, slug, community.title AS community, username FROM post"
    " JOIN community ON community.id = community_id JOIN member ON member.id = author_id"
)
NOT_VOTED = "post.id NOT IN (SELECT thing_id FROM vote WHERE kind = 'post')"
PERIODS = {"week": "2023-06-08 10:00", "month": "2023-05-16 10:00", "year": "2022-06-15 10:00"}
"""When the past week, month and year began."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of a list of posts."""

    rank: str
    title: str
    told: str  # by whom or where, and when: "Gardening, 3 days"


# --- drawing -------------------------------------------------------------------------------------


def rows(data: Data, sql: str, *arguments: Any) -> list[Any]:
    return data["forum"].execute(sql, arguments).fetchall()


def a_community(data: Data, rng: random.Random, where: str = "1") -> Any:
    return pick(rng, rows(data, f"SELECT * FROM community WHERE {where} ORDER BY id"))


def a_post(data: Data, rng: random.Random, where: str = "1") -> Any:
    """One that its title finds; None when the drawn one is not found so."""
    numbers = rows(data, f"SELECT id FROM post WHERE {where} ORDER BY id")
    if not numbers:
        return None
    (row,) = rows(data, f"{POST} WHERE post.id = ?", rng.choice(numbers)["id"])
    return row if is_found(data, row) else None


def is_found(data: Data, post: Any) -> bool:
    """Whether a search for its title lists it on the first page."""
    words = post["title"].lower().split()[:10]
    where = " AND ".join("title || ' ' || body LIKE ?" for _ in words)
    sql = f"SELECT id FROM post WHERE {where} ORDER BY up - down DESC, id DESC LIMIT 5"
    return any(row["id"] == post["id"] for row in rows(data, sql, *(f"%{w}%" for w in words)))


@functools.cache
def _by_slug() -> Mapping[str, Community]:
    return {each.slug: each for each in communities()}


def voice(rng: random.Random, slug: str) -> Voice:
    """To say something in a community."""
    return Voice(rng, _by_slug()[slug])


def said(rng: random.Random, slug: str) -> str:
    """What somebody could reply there."""
    return voice(rng, slug).say(rng.choice(random_data.table("forum_words")["comments"]))


def next_comment(data: Data) -> int:
    (row,) = rows(data, "SELECT max(id) + 1 AS number FROM comment")
    return int(row["number"])


def address(post: Any) -> str:
    return f"{FORUM}/c/{post['slug']}/{post['id']}"


def post_scores(post: Any, points: int) -> Spec:
    return page_is(address(post), "#post .points", plural(points, "point"))


def comment_scores(comment: Any, points: int) -> Spec:
    number = comment["id"]
    return page_is(f"{FORUM}/comment/{number}", f"#c{number} .points", plural(points, "point"))


# --- ways ----------------------------------------------------------------------------------------


def to_community(page: Observation, title: str) -> Moves:
    page = yield from search(page, "Search", title, why="The search finds communities by name")
    return (yield from click(page, title, "link", why="Here is the community"))


def to_post(page: Observation, title: str) -> Moves:
    page = yield from search(page, "Search", title, why="The search finds a post by its title")
    return (yield from click(page, title, "link", why="Here is the post"))


def to_member(page: Observation, name: str) -> Moves:
    page = yield from search(page, "Search", name, why="The search finds members by name")
    return (yield from click(page, name, "link", why="Here is the member"))


def to_top(page: Observation, community: str, order: str, period: str = "") -> Moves:
    """A community's posts in an order, "New", "Top" or "Most commented"."""
    page = yield from to_community(page, community)
    page = yield from click(page, order, "link", about="", why="The order matters here")
    if period:
        page = yield from choose(page, "From", f"Past {period}", about=period)
    return page


def to_my(page: Observation, entry: str) -> Moves:
    """An entry of the menu with my name."""
    page = yield from click(page, MY_NAME, "button", about="", why="My own pages are in this menu")
    return (yield from click(page, entry, "link", about=""))


def to_messages(page: Observation) -> Moves:
    link = next(name for name in names(page, "link") if name.startswith("Messages"))
    return (yield from click(page, link, "link", about="message"))


def to_comment(
    page: Observation, author: str
) -> Generator[Decision, Observation, tuple[Observation, str]]:
    """On a post: the page that has somebody's comment, and the number of that comment."""
    pattern = rf"(?<!\S)(\d+(?:\.\d+)*) {re.escape(author)} -?\d+ points?"
    while True:
        page, match = yield from read_on(page, pattern)
        if match:
            return page, match[1]
        page = yield from click(page, "Next", "link", why=f"{author} is not on this page")


def submit(page: Observation, title: str, *, body: str = "", url: str = "") -> Moves:
    """A new post, from the page of its community."""
    page = yield from click(page, "Create Post", "link", about="post")
    page = yield from type_text(page, "Title", title)
    if url:
        page = yield from type_text(page, "Link (optional)", url)
    if body:
        page = yield from type_text(page, "Text (optional)", body)
    return (yield from click(page, "Submit Post", "button", about=""))


def listed(page: Observation) -> list[Listed]:
    """The rows of a list of posts that are in view."""
    words, elements, found = flat(page), list(page.elements.values()), []
    for button, link in itertools.pairwise(elements):
        rank = re.fullmatch(r"(?:Upvote|Undo upvote) (\d+)", button.name)
        told = (
            rf"{re.escape(' '.join(link.name.split()))} -?[\d,]+ points?, \d+ comments?, (.+?) ago"
        )
        if rank and (match := re.search(told, words)):
            found.append(Listed(rank[1], link.name, match[1]))
    return found


def all_comments(
    page: Observation,
) -> Generator[Decision, Observation, tuple[Observation, list[tuple[str, str, int]]]]:
    """On this page of a post: the number of each comment, its author and its points."""
    page, views = yield from read_all(page)
    seen: dict[str, tuple[str, str, int]] = {}
    for view in views:
        for match in re.finditer(r"(?<!\S)([\d.]+) (\S+) (-?\d+) points?", flat(view)):
            seen[match[1]] = (match[1], match[2], int(match[3]))
    return page, list(seen.values())
