"""Sampling, navigation and evaluation helpers for the tasks of the forum."""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from webagent_jax.arena import common, random_data
from webagent_jax.arena.forum.data import NUM_POSTS, Community, SentenceSampler, communities
from webagent_jax.arena.site import pluralize
from webagent_jax.arena.task import Data, EvalSpec, page_equals, sample_row
from webagent_jax.expert_steps import (
    Moves,
    click,
    element_names,
    page_text,
    scroll_through,
    scroll_until,
    search,
    select_option,
    type_text,
)
from webagent_jax.types import Decision, Observation

FORUM = "__REDDIT__"
NEXT_POST_ID = NUM_POSTS + 1  # number of the first post of a world
AGENT_USERNAME = common.agent_user().username

POST_QUERY = (
    "SELECT post.*, up - down AS score, slug, community.title AS community, username FROM post"
    " JOIN community ON community.id = community_id JOIN member ON member.id = author_id"
)
NOT_VOTED_CONDITION = "post.id NOT IN (SELECT thing_id FROM vote WHERE kind = 'post')"
PERIOD_STARTS = {
    "week": "2023-06-08 10:00",
    "month": "2023-05-16 10:00",
    "year": "2022-06-15 10:00",
}
"""Start of the past week, month and year."""


@dataclass(frozen=True, slots=True)
class PostRow:
    """A row of a list of posts."""

    rank: str
    title: str
    details: str  # author or community, and age: "Gardening, 3 days"


# --- sampling ------------------------------------------------------------------------------------


def fetch_rows(data: Data, sql: str, *arguments: Any) -> list[Any]:
    return data["forum"].execute(sql, arguments).fetchall()


def sample_community(data: Data, rng: random.Random, where: str = "1") -> Any:
    return sample_row(rng, fetch_rows(data, f"SELECT * FROM community WHERE {where} ORDER BY id"))


def sample_post(data: Data, rng: random.Random, where: str = "1") -> Any:
    """Return a post that a search for its title finds; None if the drawn post is not found."""
    numbers = fetch_rows(data, f"SELECT id FROM post WHERE {where} ORDER BY id")
    if not numbers:
        return None
    (row,) = fetch_rows(data, f"{POST_QUERY} WHERE post.id = ?", rng.choice(numbers)["id"])
    return row if is_searchable(data, row) else None


def sample_member_name(data: Data, rng: random.Random) -> str | None:
    """Return the name of a member; None for one of the few ids that no member has."""
    rows = fetch_rows(data, "SELECT username FROM member WHERE id = ?", rng.randint(2, 1100))
    return rows[0]["username"] if rows else None


def is_searchable(data: Data, post: Any) -> bool:
    """Return whether a search for the title lists the post on the first page."""
    words = post["title"].lower().split()[:10]
    where = " AND ".join("title || ' ' || body LIKE ?" for _ in words)
    sql = f"SELECT id FROM post WHERE {where} ORDER BY up - down DESC, id DESC LIMIT 5"
    return any(
        row["id"] == post["id"] for row in fetch_rows(data, sql, *(f"%{word}%" for word in words))
    )


@functools.cache
def _communities_by_slug() -> Mapping[str, Community]:
    return {community.slug: community for community in communities()}


def make_sentence_sampler(rng: random.Random, slug: str) -> SentenceSampler:
    """Return a source of sentences for a community."""
    return SentenceSampler(rng, _communities_by_slug()[slug])


def sample_comment_text(rng: random.Random, slug: str) -> str:
    """Return the text of a comment that fits the community."""
    return make_sentence_sampler(rng, slug).sample(
        rng.choice(random_data.read_json("forum_words")["comments"])
    )


def next_comment_id(data: Data) -> int:
    (row,) = fetch_rows(data, "SELECT max(id) + 1 AS number FROM comment")
    return int(row["number"])


def post_url(post: Any) -> str:
    return f"{FORUM}/c/{post['slug']}/{post['id']}"


def post_has_points(post: Any, points: int) -> EvalSpec:
    return page_equals(post_url(post), "#post .points", pluralize(points, "point"))


def comment_has_points(comment: Any, points: int) -> EvalSpec:
    number = comment["id"]
    return page_equals(
        f"{FORUM}/comment/{number}", f"#c{number} .points", pluralize(points, "point")
    )


# --- navigation ----------------------------------------------------------------------------------


def go_to_community(page: Observation, title: str) -> Moves:
    page = yield from search(page, "Search", title, reason="The search finds communities by name")
    return (yield from click(page, title, "link", reason="Here is the community"))


def go_to_post(page: Observation, title: str) -> Moves:
    page = yield from search(page, "Search", title, reason="The search finds a post by its title")
    return (yield from click(page, title, "link", reason="Here is the post"))


def go_to_member(page: Observation, name: str) -> Moves:
    page = yield from search(page, "Search", name, reason="The search finds members by name")
    return (yield from click(page, name, "link", reason="Here is the member"))


def go_to_sorted_posts(page: Observation, community: str, order: str, period: str = "") -> Moves:
    """Open the posts of a community in an order.

    Args:
        page: current page.
        community: title of the community.
        order: "New", "Top" or "Most commented".
        period: "week", "month" or "year"; "" for no limit.
    """
    page = yield from go_to_community(page, community)
    page = yield from click(page, order, "link", intent_phrase="", reason="The order matters here")
    if period:
        page = yield from select_option(page, "From", f"Past {period}", intent_phrase=period)
    return page


def go_to_account_page(page: Observation, entry: str) -> Moves:
    """Open an entry of the account menu."""
    page = yield from click(
        page, AGENT_USERNAME, "button", intent_phrase="", reason="My own pages are in this menu"
    )
    return (yield from click(page, entry, "link", intent_phrase=""))


def go_to_messages(page: Observation) -> Moves:
    link = next(name for name in element_names(page, "link") if name.startswith("Messages"))
    return (yield from click(page, link, "link", intent_phrase="message"))


def go_to_comment(
    page: Observation, author: str
) -> Generator[Decision, Observation, tuple[Observation, str]]:
    """Find the comment of an author on a post; return its page and its outline number."""
    pattern = rf"(?<!\S)(\d+(?:\.\d+)*) {re.escape(author)} -?\d+ points?"
    while True:
        page, match = yield from scroll_until(page, pattern)
        if match:
            return page, match[1]
        page = yield from click(page, "Next", "link", reason=f"{author} is not on this page")


def submit_post(page: Observation, title: str, *, body: str = "", url: str = "") -> Moves:
    """Submit a new post from the page of its community."""
    page = yield from click(page, "Create Post", "link", intent_phrase="post")
    page = yield from type_text(page, "Title", title)
    if url:
        page = yield from type_text(page, "Link (optional)", url)
    if body:
        page = yield from type_text(page, "Text (optional)", body)
    return (yield from click(page, "Submit Post", "button", intent_phrase=""))


def parse_post_rows(page: Observation) -> list[PostRow]:
    """Return the rows of a list of posts that the observation contains."""
    words, elements, post_rows = page_text(page), list(page.elements.values()), []
    for button, link in itertools.pairwise(elements):
        rank = re.fullmatch(r"(?:Upvote|Undo upvote) (\d+)", button.name)
        pattern = (
            rf"{re.escape(' '.join(link.name.split()))} -?[\d,]+ points?, \d+ comments?, (.+?) ago"
        )
        if rank and (match := re.search(pattern, words)):
            post_rows.append(PostRow(rank[1], link.name, match[1]))
    return post_rows


def read_comments(
    page: Observation,
) -> Generator[Decision, Observation, tuple[Observation, list[tuple[str, str, int]]]]:
    """Return outline number, author and points of each comment on this page of a post."""
    page, views = yield from scroll_through(page)
    comments: dict[str, tuple[str, str, int]] = {}
    for view in views:
        for match in re.finditer(r"(?<!\S)([\d.]+) (\S+) (-?\d+) points?", page_text(view)):
            comments[match[1]] = (match[1], match[2], int(match[3]))
    return page, list(comments.values())
