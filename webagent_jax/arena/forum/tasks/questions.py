"""Questions about authors, titles, points, subscribers and moderators."""

from __future__ import annotations

import random
import re

from webagent_jax.arena.forum.tasks.helpers import (
    PERIOD_STARTS,
    POST_QUERY,
    fetch_rows,
    go_to_community,
    go_to_member,
    go_to_sorted_posts,
    parse_post_rows,
    sample_community,
    sample_member_name,
)
from webagent_jax.arena.task import Data, Slots, TaskInstance, TemplateRegistry, answer_includes
from webagent_jax.expert_steps import (
    answer,
    click,
    extract_text,
    has_element,
    page_text,
    scroll_through,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("forum", "reddit")


def _sample_top_author(data: Data, rng: random.Random) -> TaskInstance | None:
    community, period = sample_community(data, rng), rng.choice(list(PERIOD_STARTS))
    order, key = rng.choice((("top", "score"), ("most commented", "comments")))
    sql = f"{POST_QUERY} WHERE community_id = ? AND posted >= ? ORDER BY {key} DESC LIMIT 8"
    posts = fetch_rows(data, sql, community["id"], PERIOD_STARTS[period])
    if len(posts) < 2 or posts[0][key] == posts[1][key] or posts[0]["author_id"] == 1:
        return None
    slots = {"community": community["title"], "period": period, "order": order}
    first, *others = (post["username"] for post in posts)
    return TaskInstance(slots, answer_includes(first, excluding=others))


@tasks.add(
    "top-author",
    _sample_top_author,
    "Who wrote the {order} post of the past {period} in {community}?",
    "Tell me the user name of the author of the {order} post in {community} in the past {period}.",
    "In the {community} community, who is behind the {order} post of the past {period}?",
    "Find the {order} post of {community} from the past {period} and name its author",
    "Whose post is the {order} one of the past {period} in {community}?",
)
def top_author(slots: Slots, page: Observation) -> Expert:
    order = slots["order"].capitalize()
    page = yield from go_to_sorted_posts(page, slots["community"], order, slots["period"])
    author = parse_post_rows(page)[0].details.removeprefix("by ").split(",")[0]
    yield from answer(author, evidence="by", reason="The first of the list tells its author")


def _sample_top_titles(data: Data, rng: random.Random) -> TaskInstance | None:
    community, period = sample_community(data, rng), rng.choice(list(PERIOD_STARTS))
    sql = f"{POST_QUERY} WHERE community_id = ? AND posted >= ? ORDER BY score DESC LIMIT 8"
    posts = fetch_rows(data, sql, community["id"], PERIOD_STARTS[period])
    if len({post["score"] for post in posts[:4]}) < 4:
        return None
    slots = {"community": community["title"], "period": period}
    titles = [post["title"] for post in posts]
    return TaskInstance(slots, answer_includes(*titles[:3], excluding=titles))


@tasks.add(
    "top-titles",
    _sample_top_titles,
    "What are the titles of the top three posts of the past {period} in {community}?",
    "Tell me the titles of the three posts with most points in {community} in the past {period}.",
    "List the three top posts of the past {period} in the {community} community by title.",
    "Which three posts did {community} like best in the past {period}? Give me their titles",
    "Name the three highest rated posts in {community} from the past {period}.",
)
def top_titles(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_sorted_posts(page, slots["community"], "Top", slots["period"])
    titles = [row.title for row in parse_post_rows(page)][:3]
    yield from answer("; ".join(titles), reason="The list is in the order of points")


def _sample_negative_comments(data: Data, rng: random.Random) -> TaskInstance | None:
    community = sample_community(data, rng)
    sql = f"{POST_QUERY} WHERE community_id = ? ORDER BY posted DESC, post.id DESC LIMIT 1"
    (post,) = fetch_rows(data, sql, community["id"])
    sql = "SELECT up, down FROM comment WHERE author_id = ?"
    comments = fetch_rows(data, sql, post["author_id"])
    if not 1 <= len(comments) <= 24:
        return None
    count = sum(row["up"] < row["down"] for row in comments)
    reference = str(count) if count else "0 |OR| none"
    return TaskInstance({"community": community["title"]}, answer_includes(reference))


@tasks.add(
    "negative-comments",
    _sample_negative_comments,
    "How many comments with less than zero points has the author of the newest post in "
    "{community} written?",
    "Tell me the count of comments that have received more downvotes than upvotes for the user "
    "who made the latest post in {community}.",
    "Find who wrote the newest post in {community} and count their comments with negative points. "
    "Answer with the number alone",
    "Of all comments by the author of the latest {community} post, how many have a negative score?",
    "The member who posted last in {community}: how many of their comments are below zero points?",
)
def negative_comments(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_sorted_posts(page, slots["community"], "New")
    page = yield from click(page, parse_post_rows(page)[0].title, "link", intent_phrase="post")
    author = extract_text(page, r"(\S+) -?[\d,]+ points?")
    page = yield from click(page, author, "link", intent_phrase="author")
    link = extract_text(page, r"(Comments \d+)")
    page = yield from click(page, link, "link", intent_phrase="comments")
    points: dict[str, int] = {}
    while True:
        page, views = yield from scroll_through(page)
        for view in views:
            pattern = r"(-?\d+) points?, (?:[^,]+ ago|just now), on (.+?)(?= -?\d+ points?,|$)"
            for row in re.finditer(pattern, page_text(view)):
                points[f"{row[1]} {row[2][:16]}"] = int(row[1])
        if not has_element(page, "Next", "link"):
            break
        page = yield from click(page, "Next", "link", reason="There are more comments")
    count = sum(value < 0 for value in points.values())
    yield from answer(str(count), reason="I have read all of them")


def _sample_larger_community(data: Data, rng: random.Random) -> TaskInstance | None:
    first, second = sample_community(data, rng), sample_community(data, rng)
    if first["subscribers"] == second["subscribers"]:
        return None
    larger = max(first, second, key=lambda row: row["subscribers"])
    slots = {"first": first["title"], "second": second["title"]}
    return TaskInstance(
        slots, answer_includes(f"{larger['subscribers']:,} |OR| {larger['subscribers']}")
    )


@tasks.add(
    "larger-community",
    _sample_larger_community,
    "How many subscribers does the larger one of the communities {first} and {second} have?",
    "Compare {first} and {second}: how many subscribers has the one with more of them?",
    "Which of {first} and {second} has more subscribers? Tell me how many that is",
    "Look up the subscribers of {first} and of {second} and tell me the larger number.",
    "Of the communities {first} and {second}, what is the number of subscribers of the bigger one?",
)
def larger_community(slots: Slots, page: Observation) -> Expert:
    counts: list[int] = []
    for name in (slots["first"], slots["second"]):
        page = yield from go_to_community(page, name)
        counts.append(int(extract_text(page, r"([\d,]+) subscribers").replace(",", "")))
    yield from answer(f"{max(counts):,}", reason="It is the larger one of the two")


def _sample_points(data: Data, rng: random.Random) -> TaskInstance | None:
    name = sample_member_name(data, rng)
    if name is None:
        return None
    sql = (
        "SELECT (SELECT coalesce(sum(up - down), 0) FROM post WHERE author_id = member.id)"
        " + (SELECT coalesce(sum(up - down), 0) FROM comment WHERE author_id = member.id)"
        " AS points FROM member WHERE username = ?"
    )
    ((points,),) = fetch_rows(data, sql, name)
    if points < 20:
        return None
    return TaskInstance({"name": name}, answer_includes(f"{points:,} |OR| {points}"))


@tasks.add(
    "points",
    _sample_points,
    "How many points does the member {name} have?",
    "Tell me the points of {name}.",
    "What is the total of points on the profile of {name}?",
    "Look at the profile of {name}: how many points are there?",
    "Find out how many points {name} has collected",
)
def points(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_member(page, slots["name"])
    total = extract_text(page, r"([\d,]+) points, member since")
    yield from answer(total, evidence=slots["name"], reason="The profile tells the points")


def _sample_moderators(data: Data, rng: random.Random) -> TaskInstance | None:
    community = sample_community(data, rng)
    sql = (
        "SELECT username FROM moderator JOIN member ON member.id = member_id WHERE community_id = ?"
    )
    usernames = [row["username"] for row in fetch_rows(data, sql, community["id"])]
    return TaskInstance({"community": community["title"]}, answer_includes(*usernames))


@tasks.add(
    "moderators",
    _sample_moderators,
    "Who moderates the community {community}?",
    "Name all moderators of {community}.",
    "Tell me the user names of the moderators of the {community} community.",
    "Whom would I ask about the rules of {community}? I need the names of its moderators",
    "List everybody who moderates {community}.",
)
def moderators(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_community(page, slots["community"])
    page = yield from click(page, "Rules and moderators", "button", intent_phrase="moderators")
    page, views = yield from scroll_through(page)
    pattern = r"Moderators (.+) Since"
    text = next(match[1] for view in views if (match := re.search(pattern, page_text(view))))
    yield from answer(text, evidence="Moderators", reason="They are named beside the posts")
