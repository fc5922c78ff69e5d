"""Tasks on voting and on saved posts."""

from __future__ import annotations

import random

from webagent_jax.arena.forum.tasks.comments_and_messages import COMMENT, sample_comment
from webagent_jax.arena.forum.tasks.helpers import (
    FORUM,
    NOT_VOTED_CONDITION,
    PERIOD_STARTS,
    POST_QUERY,
    comment_has_points,
    fetch_rows,
    go_to_account_page,
    go_to_comment,
    go_to_member,
    go_to_post,
    go_to_sorted_posts,
    parse_post_rows,
    post_has_points,
    post_url,
    read_comments,
    sample_community,
    sample_post,
)
from webagent_jax.arena.forum.threads import THREADS_PER_PAGE
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    all_of,
    page_equals,
    page_includes,
)
from webagent_jax.expert_steps import click, finish, go_back, has_element, is_lite
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("forum", "reddit")

_COUNTS = {"two": 2, "three": 3, "four": 4}


def _read_voted_ids(data: Data) -> set[int]:
    """Return the ids of the posts that the agent has voted on."""
    return {
        row["id"]
        for row in fetch_rows(data, f"SELECT id FROM post WHERE NOT ({NOT_VOTED_CONDITION})")
    }


def _sample_upvote(data: Data, rng: random.Random) -> TaskInstance | None:
    post = sample_post(data, rng, NOT_VOTED_CONDITION)
    return post and TaskInstance({"title": post["title"]}, post_has_points(post, post["score"] + 1))


@tasks.add(
    "upvote",
    _sample_upvote,
    'Upvote the post "{title}".',
    'Give "{title}" an upvote.',
    'I like the post "{title}". Vote it up',
    'Find the post called "{title}" and vote for it.',
    'Vote up what was posted as "{title}".',
)
def upvote(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    yield from click(page, "Upvote post", "button", intent_phrase="vote")
    yield from finish("The vote is counted")


def _sample_upvote_newest(data: Data, rng: random.Random) -> TaskInstance | None:
    community, count = sample_community(data, rng), rng.choice(list(_COUNTS))
    sql = f"{POST_QUERY} WHERE community_id = ? ORDER BY posted DESC, post.id DESC LIMIT ?"
    rows = fetch_rows(data, sql, community["id"], _COUNTS[count] + 1)
    posts, next_posts = rows[: _COUNTS[count]], rows[_COUNTS[count] :]
    if _read_voted_ids(data) & {post["id"] for post in posts}:
        return None
    spec = all_of(
        *(post_has_points(post, post["score"] + 1) for post in posts),
        *(post_has_points(post, post["score"]) for post in next_posts),
    )
    return TaskInstance({"community": community["title"], "count": count}, spec)


@tasks.add(
    "upvote-newest",
    _sample_upvote_newest,
    "Upvote the {count} newest posts in {community}.",
    "Give an upvote to each of the {count} latest posts of the {community} community.",
    "In {community}, vote up the {count} posts that were written last",
    "Vote for the {count} most recent posts in the community {community}.",
    "Like the newest {count} submissions in {community}.",
)
def upvote_newest(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_sorted_posts(page, slots["community"], "New")
    for rank in range(1, _COUNTS[slots["count"]] + 1):
        page = yield from click(page, f"Upvote {rank}", "button", intent_phrase="vote")
    yield from finish("All of them have my vote")


def _sample_downvote_most_commented(data: Data, rng: random.Random) -> TaskInstance | None:
    community, period = sample_community(data, rng), rng.choice(list(PERIOD_STARTS))
    count = rng.choice(("two", "three"))
    sql = f"{POST_QUERY} WHERE community_id = ? AND posted >= ? ORDER BY comments DESC LIMIT ?"
    posts = fetch_rows(data, sql, community["id"], PERIOD_STARTS[period], _COUNTS[count] + 1)
    replies = [post["comments"] for post in posts]
    if len(set(replies)) <= _COUNTS[count] or _read_voted_ids(data) & {
        post["id"] for post in posts
    }:
        return None
    spec = all_of(
        *(post_has_points(post, post["score"] - 1) for post in posts[:-1]),
        post_has_points(posts[-1], posts[-1]["score"]),
    )
    return TaskInstance({"community": community["title"], "period": period, "count": count}, spec)


@tasks.add(
    "downvote-most-commented",
    _sample_downvote_most_commented,
    "Downvote the {count} most commented posts of the past {period} in {community}.",
    "Thumbs down for the {count} most commented posts in {community} of the past {period}.",
    "In {community}, vote against the {count} posts of the past {period} with most comments",
    "Give a downvote to each of the {count} posts in {community} that were commented on most in "
    "the past {period}.",
    "Vote down the {count} posts with most comments from the past {period} in {community}.",
)
def downvote_most_commented(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_sorted_posts(
        page, slots["community"], "Most commented", slots["period"]
    )
    titles = [row.title for row in parse_post_rows(page)][: _COUNTS[slots["count"]]]
    for title in titles:
        page = yield from click(page, title, "link", intent_phrase="post")
        page = yield from click(page, "Downvote post", "button", intent_phrase="vote")
        if title != titles[-1]:
            page = yield from go_back("The next one is on the list")
            if not has_element(page, "Most commented", "link"):
                page = yield from go_back("One page further back")
    yield from finish("All of them are voted down")


def _sample_upvote_by_member(data: Data, rng: random.Random) -> TaskInstance | None:
    sql = (
        "SELECT community_id, author_id, count(*) AS n FROM post"
        f" WHERE {NOT_VOTED_CONDITION} AND author_id != 1"
        " GROUP BY 1, 2 HAVING n BETWEEN 2 AND 5 ORDER BY 1, 2"
    )
    author_row = rng.choice(fetch_rows(data, sql))
    posts = fetch_rows(
        data, f"{POST_QUERY} WHERE community_id = ? AND author_id = ?", *tuple(author_row)[:2]
    )
    if _read_voted_ids(data) & {post["id"] for post in posts}:
        return None
    slots = {"name": posts[0]["username"], "community": posts[0]["community"]}
    # The newest post of the member in another community keeps its points.
    sql = (
        f"{POST_QUERY} WHERE community_id != ? AND author_id = ?"
        " ORDER BY posted DESC, post.id DESC LIMIT 1"
    )
    other_posts = fetch_rows(data, sql, *tuple(author_row)[:2])
    spec = all_of(
        *(post_has_points(post, post["score"] + 1) for post in posts),
        *(post_has_points(post, post["score"]) for post in other_posts),
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "upvote-by-member",
    _sample_upvote_by_member,
    "Upvote all posts by {name} in {community}.",
    "Like all submissions created by {name} in the community {community}.",
    "Vote up everything that {name} has posted in {community}",
    "In {community}, give an upvote to every post of {name}.",
    "Give each of the posts that {name} wrote in {community} an upvote.",
)
def upvote_by_member(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_member(page, slots["name"])
    while True:
        ranks = [
            row.rank
            for row in parse_post_rows(page)
            if f", {slots['community']}," in f", {row.details}"
        ]
        for rank in ranks:
            page = yield from click(page, f"Upvote {rank}", "button", intent_phrase="vote")
        if not has_element(page, "Next", "link"):
            break
        page = yield from click(page, "Next", "link", reason="This member wrote more")
    yield from finish("All of them have my vote")


# --- comments ------------------------------------------------------------------------------------


def _sample_vote_on_comment(data: Data, rng: random.Random) -> TaskInstance | None:
    post = sample_post(data, rng, "comments > 2")
    comment = post and sample_comment(data, rng, post, "author_id != 1")
    if comment is None:
        return None
    kind, step = rng.choice((("Upvote", 1), ("Downvote", -1)))
    slots = {"vote": kind, "name": comment["username"], "title": post["title"]}
    return TaskInstance(slots, comment_has_points(comment, comment["score"] + step))


@tasks.add(
    "vote-on-comment",
    _sample_vote_on_comment,
    '{vote} the comment of {name} on the post "{title}".',
    '{vote} what {name} says under "{title}".',
    'On the post "{title}", find the comment by {name}. {vote} it',
    'Look at the comments on "{title}". {vote} the one by {name}.',
    '{vote} the comment that {name} left on "{title}".',
)
def vote_on_comment(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    page, number = yield from go_to_comment(page, slots["name"])
    yield from click(page, f"{slots['vote']} {number}", "button", intent_phrase=slots["name"])
    yield from finish("The vote is counted")


def _sample_downvote_negative(data: Data, rng: random.Random) -> TaskInstance | None:
    negative_sql = "SELECT post_id FROM comment WHERE up < down GROUP BY 1 HAVING count(*) > 1"
    one_page_sql = (
        "SELECT post_id FROM comment WHERE parent_id IS NULL GROUP BY 1"
        f" HAVING count(*) <= {THREADS_PER_PAGE}"
    )
    post = sample_post(data, rng, f"post.id IN ({negative_sql}) AND post.id IN ({one_page_sql})")
    if post is None:
        return None
    comments = fetch_rows(data, COMMENT, post["id"])
    authors = [row["author_id"] for row in comments]
    negative_comments = [row for row in comments if row["score"] < 0]
    if any(
        authors.count(row["author_id"]) > 1 or row["author_id"] == 1 for row in negative_comments
    ):
        return None
    # The other comments keep their points.
    points = [(row, row["score"] - (row["score"] < 0)) for row in comments]
    spec = all_of(*(comment_has_points(row, number) for row, number in points))
    return TaskInstance({"title": post["title"]}, spec)


@tasks.add(
    "downvote-negative",
    _sample_downvote_negative,
    'Downvote every comment on the post "{title}" that has less than zero points.',
    'On the post "{title}", vote down all comments with a negative score.',
    'Give a downvote to each comment under "{title}" whose points are below zero',
    'Look through the comments on "{title}" and downvote those with negative points.',
    'Every comment on "{title}" that is below zero points should get a downvote from me.',
)
def downvote_negative(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    page, comments = yield from read_comments(page)
    if is_lite(page):
        page = yield from go_to_post(page, slots["title"])
    # A vote may change the order and the numbers, so the author identifies each comment.
    for _, name, points in comments:
        if points < 0:
            page, number = yield from go_to_comment(page, name)
            page = yield from click(page, f"Downvote {number}", "button", intent_phrase="vote")
    yield from finish("All of them are voted down")


# --- saved posts ---------------------------------------------------------------------------------


def _sample_save(data: Data, rng: random.Random) -> TaskInstance | None:
    first, second = (
        sample_post(data, rng, "post.id NOT IN (SELECT post_id FROM saved)") for _ in range(2)
    )
    if first is None or second is None or first["id"] == second["id"]:
        return None
    slots = {"first": first["title"], "second": second["title"]}
    specs = (page_includes(post_url(post), "#post .do", "Unsave") for post in (first, second))
    return TaskInstance(slots, all_of(*specs))


@tasks.add(
    "save",
    _sample_save,
    'Save the posts "{first}" and "{second}".',
    'Keep "{first}" and "{second}" among my saved posts.',
    'I want to read the posts "{first}" and "{second}" later. Save both',
    'Add the post "{first}" to my saved posts, and "{second}" as well.',
    'Find "{first}", save it, and do the same with "{second}".',
)
def save(slots: Slots, page: Observation) -> Expert:
    for title in (slots["first"], slots["second"]):
        page = yield from go_to_post(page, title)
        page = yield from click(page, "Save", "button", intent_phrase="save")
    yield from finish("Both are saved")


def _sample_unsave(data: Data, rng: random.Random) -> TaskInstance | None:
    sql = f"{POST_QUERY} WHERE post.id IN (SELECT post_id FROM saved) ORDER BY post.id DESC"
    saved = fetch_rows(data, sql)
    removed_post = rng.choice(saved)
    other_titles = " ; ".join(row["title"] for row in saved if row["id"] != removed_post["id"])
    return TaskInstance(
        {"title": removed_post["title"]},
        page_equals(f"{FORUM}/saved", ".posts .title", other_titles),
    )


@tasks.add(
    "unsave",
    _sample_unsave,
    'Remove "{title}" from my saved posts.',
    'I have read "{title}". Take it off my saved posts',
    'The post "{title}" need not be saved any longer. Unsave it.',
    'Look at my saved posts and unsave "{title}".',
    'Make "{title}" disappear from the list of what I saved.',
)
def unsave(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_account_page(page, "Saved posts")
    page = yield from click(page, slots["title"], "link")
    yield from click(page, "Unsave", "button", intent_phrase="")
    yield from finish("It is no longer saved")


def _sample_take_back(data: Data, rng: random.Random) -> TaskInstance | None:
    post = sample_post(data, rng, f"author_id != 1 AND NOT ({NOT_VOTED_CONDITION})")
    return post and TaskInstance({"title": post["title"]}, post_has_points(post, post["score"] - 1))


@tasks.add(
    "take-back",
    _sample_take_back,
    'Take back my upvote for the post "{title}".',
    'I voted for "{title}" by mistake. Undo that vote.',
    'Remove my vote from the post "{title}"',
    'My upvote for "{title}" should not count any more.',
    'Undo the upvote that I gave "{title}".',
)
def take_back(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    yield from click(page, "Undo upvote post", "button", intent_phrase="upvote")
    yield from finish("The vote is taken back")
