"""Tasks on comments, replies, private messages and blocking."""

from __future__ import annotations

import random
from typing import Any

from webagent_jax.arena.forum.tasks.helpers import (
    AGENT_USERNAME,
    FORUM,
    PERIOD_STARTS,
    POST_QUERY,
    fetch_rows,
    go_to_comment,
    go_to_member,
    go_to_messages,
    go_to_post,
    go_to_sorted_posts,
    next_comment_id,
    parse_post_rows,
    read_comments,
    sample_comment_text,
    sample_community,
    sample_member_name,
    sample_post,
)
from webagent_jax.arena.task import (
    Data,
    EvalSpec,
    Slots,
    TaskInstance,
    TemplateRegistry,
    all_of,
    page_equals,
    page_includes,
)
from webagent_jax.expert_steps import click, extract_text, finish, has_element, type_text
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("forum", "reddit")

COMMENT = (
    "SELECT comment.*, comment.up - comment.down AS score, username FROM comment"
    " JOIN member ON member.id = author_id WHERE post_id = ?"
)


def sample_comment(data: Data, rng: random.Random, post: Any, where: str = "1") -> Any:
    """Return a comment on a post by an author of no other comment there; None without any."""
    sql = (
        f"{COMMENT} AND author_id NOT IN (SELECT author_id FROM comment WHERE post_id = ?"
        f" GROUP BY author_id HAVING count(*) > 1) AND {where} ORDER BY comment.id"
    )
    comments = fetch_rows(data, sql, post["id"], post["id"])
    return rng.choice(comments) if comments else None


def _check_comment(data: Data, post: Any, text: str, parent: int = 0) -> EvalSpec:
    """Check that the agent's next comment has the text, on the post and below the parent."""
    number = next_comment_id(data)
    selector = f'#post h1, #c{number}[data-parent="{parent}"] .body'
    return page_equals(f"{FORUM}/comment/{number}", selector, f"{post['title']} ; {text}")


# --- comments ------------------------------------------------------------------------------------


def _sample_comment(data: Data, rng: random.Random) -> TaskInstance | None:
    post = sample_post(data, rng, "author_id != 1")
    if post is None:
        return None
    text = sample_comment_text(rng, post["slug"])
    return TaskInstance({"title": post["title"], "text": text}, _check_comment(data, post, text))


@tasks.add(
    "comment",
    _sample_comment,
    'Comment on the post "{title}": "{text}"',
    'Reply to the post "{title}" with "{text}".',
    'Leave the comment "{text}" under the post "{title}".',
    'Find the post "{title}" and tell them: "{text}"',
    'Write "{text}" as a comment on "{title}".',
)
def comment(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    page = yield from type_text(page, "Your comment", slots["text"])
    yield from click(page, "Comment", "button", intent_phrase="")
    yield from finish("The comment is there")


def _sample_comment_on_top(data: Data, rng: random.Random) -> TaskInstance | None:
    community, period = sample_community(data, rng), rng.choice(list(PERIOD_STARTS))
    order = rng.choice(("top", "most commented"))
    column = "up - down" if order == "top" else "comments"
    sql = f"{POST_QUERY} WHERE community_id = ? AND posted >= ? ORDER BY {column} DESC LIMIT 2"
    posts = fetch_rows(data, sql, community["id"], PERIOD_STARTS[period])
    key = "score" if order == "top" else "comments"
    if len(posts) < 2 or posts[0][key] == posts[1][key]:
        return None
    text = sample_comment_text(rng, community["slug"])
    slots = {"community": community["title"], "period": period, "order": order, "text": text}
    return TaskInstance(slots, _check_comment(data, posts[0], text))


@tasks.add(
    "comment-on-top",
    _sample_comment_on_top,
    'Comment "{text}" on the {order} post of the past {period} in {community}.',
    'Reply to the {order} post in {community} from the past {period} with "{text}".',
    'In {community}, look at the past {period} and comment on the {order} post: "{text}"',
    'Find the {order} post of {community} within the past {period}. Leave the comment "{text}"',
    'Under the {order} post of the past {period} in the community {community}, write "{text}".',
)
def comment_on_top(slots: Slots, page: Observation) -> Expert:
    order = slots["order"].capitalize()
    page = yield from go_to_sorted_posts(page, slots["community"], order, slots["period"])
    page = yield from click(
        page, parse_post_rows(page)[0].title, "link", intent_phrase="post", reason="It is the first"
    )
    page = yield from type_text(page, "Your comment", slots["text"])
    yield from click(page, "Comment", "button", intent_phrase="")
    yield from finish("The comment is there")


def _sample_reply(data: Data, rng: random.Random) -> TaskInstance | None:
    post = sample_post(data, rng, "comments > 2 AND author_id != 1")
    parent = post and sample_comment(data, rng, post, "author_id != 1")
    if parent is None:
        return None
    text = sample_comment_text(rng, post["slug"])
    slots = {"title": post["title"], "name": parent["username"], "text": text}
    return TaskInstance(slots, _check_comment(data, post, text, parent["id"]))


@tasks.add(
    "reply",
    _sample_reply,
    'Reply to the comment of {name} on the post "{title}": "{text}"',
    'On the post "{title}", answer {name} with "{text}".',
    '{name} has commented on "{title}". Reply to that comment with "{text}"',
    'Find the comment by {name} under "{title}" and write "{text}" as a reply to it.',
    'Under "{title}", respond to what {name} says: "{text}"',
)
def reply(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    page, number = yield from go_to_comment(page, slots["name"])
    page = yield from click(page, f"Reply {number}", "link", intent_phrase=slots["name"])
    page = yield from type_text(page, "Your reply", slots["text"])
    yield from click(page, "Reply", "button", intent_phrase="")
    yield from finish("The reply is there")


def _sample_own_comment(data: Data, rng: random.Random) -> Any:
    """Return a post with an unanswered comment of the agent, and that comment."""
    post = sample_post(data, rng, "post.id IN (SELECT post_id FROM comment WHERE author_id = 1)")
    where = "author_id = 1 AND comment.id NOT IN (SELECT parent_id FROM comment WHERE parent_id)"
    comment = post and sample_comment(data, rng, post, where)
    return None if comment is None or post["author_id"] == 1 else (post, comment)


def _sample_edit_comment(data: Data, rng: random.Random) -> TaskInstance | None:
    pair = _sample_own_comment(data, rng)
    if pair is None:
        return None
    post, comment = pair
    text = sample_comment_text(rng, post["slug"])
    spec = page_equals(f"{FORUM}/comment/{comment['id']}", f"#c{comment['id']} .body", text)
    return TaskInstance({"title": post["title"], "text": text}, spec)


@tasks.add(
    "edit-comment",
    _sample_edit_comment,
    'Change my comment on the post "{title}" to "{text}".',
    'I have commented on "{title}". Edit that comment so that it says "{text}"',
    'Replace what I said under "{title}" by "{text}".',
    'Edit my comment below "{title}": it should be "{text}"',
    'My comment on "{title}" should read "{text}" instead.',
)
def edit_comment(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    page, number = yield from go_to_comment(page, AGENT_USERNAME)
    page = yield from click(page, f"Edit {number}", "link", intent_phrase="comment")
    page = yield from type_text(page, "Comment", slots["text"])
    yield from click(page, "Save Comment", "button", intent_phrase="")
    yield from finish("The comment is changed")


def _sample_delete_comment(data: Data, rng: random.Random) -> TaskInstance | None:
    pair = _sample_own_comment(data, rng)
    if pair is None:
        return None
    post, comment = pair
    spec = page_includes(f"{FORUM}/comment/{comment['id']}", "h1", "Page not found")
    return TaskInstance({"title": post["title"]}, spec)


@tasks.add(
    "delete-comment",
    _sample_delete_comment,
    'Delete my comment on the post "{title}".',
    'Remove what I commented under "{title}".',
    'I have written a comment on "{title}". Take it down',
    'Find my comment below "{title}" and delete it.',
    'My comment on "{title}" has to go.',
)
def delete_comment(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    page, number = yield from go_to_comment(page, AGENT_USERNAME)
    yield from click(page, f"Delete {number}", "button", intent_phrase="comment")
    yield from finish("The comment is gone")


# --- messages ------------------------------------------------------------------------------------

_MESSAGES = (
    ("Thank you", "Your last post helped me a lot."),
    ("A question", "May I use your picture for our newsletter?"),
    ("Swap?", "I have what you are looking for. Shall we swap?"),
    ("Saturday", "Are you coming to the meetup on Saturday?"),
    ("Typo", "There is a typo in the title of your last post."),
    ("Your advice", "I followed your advice, and it worked."),
)


def _check_message(data: Data, name: str, subject: str, body: str) -> EvalSpec:
    (last,) = fetch_rows(data, "SELECT max(id) AS number FROM message")
    url = f"{FORUM}/messages/{last['number'] + 1}"
    return all_of(
        page_includes(url, "h1", subject), page_includes(url, "#message", f"to {name}", body)
    )


def _sample_message(data: Data, rng: random.Random) -> TaskInstance | None:
    name = sample_member_name(data, rng)
    if name is None:
        return None
    subject, body = rng.choice(_MESSAGES)
    slots = {"name": name, "subject": subject, "body": body}
    return TaskInstance(slots, _check_message(data, *slots.values()))


@tasks.add(
    "message",
    _sample_message,
    'Send {name} a private message with the subject "{subject}": "{body}"',
    'Write to {name}. Subject: "{subject}", message: "{body}"',
    'Message the member {name}: "{body}" (subject "{subject}")',
    'I want to tell {name} in private: "{body}" Take "{subject}" as the subject.',
    'Send a message about "{subject}" to {name} that says "{body}"',
)
def message(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_messages(page)
    page = yield from click(page, "New Message", "link", intent_phrase="message")
    page = yield from type_text(page, "To", slots["name"])
    page = yield from type_text(page, "Subject", slots["subject"])
    page = yield from type_text(page, "Message", slots["body"])
    yield from click(page, "Send Message", "button", intent_phrase="")
    yield from finish("The message is sent")


def _sample_message_author(data: Data, rng: random.Random) -> TaskInstance | None:
    post = sample_post(data, rng, "author_id != 1")
    if post is None:
        return None
    subject, body = rng.choice(_MESSAGES)
    slots = {"title": post["title"], "subject": subject, "body": body}
    return TaskInstance(slots, _check_message(data, post["username"], subject, body))


@tasks.add(
    "message-author",
    _sample_message_author,
    'Send the author of the post "{title}" a message with the subject "{subject}": "{body}"',
    'Write to whoever posted "{title}". Subject: "{subject}", message: "{body}"',
    'Who wrote "{title}"? Send them the message "{body}" with "{subject}" as its subject',
    'Message the person behind the post "{title}": "{body}" (subject "{subject}")',
    'Tell the author of "{title}" in a private message: "{body}" The subject is "{subject}".',
)
def message_author(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    link = extract_text(page, r"(\S+) -?[\d,]+ points?")
    page = yield from click(
        page, link, "link", intent_phrase="author", reason="The post tells its author"
    )
    page = yield from click(page, "Send Message", "link", intent_phrase="message")
    page = yield from type_text(page, "Subject", slots["subject"])
    page = yield from type_text(page, "Message", slots["body"])
    yield from click(page, "Send Message", "button", intent_phrase="")
    yield from finish("The message is sent")


def _sample_answer_message(data: Data, rng: random.Random) -> TaskInstance | None:
    sql = "SELECT subject, username FROM message JOIN member ON member.id = sender_id"
    message = rng.choice(fetch_rows(data, f"{sql} WHERE recipient_id = 1 ORDER BY message.id"))
    body = rng.choice(
        (
            "Gladly, give me a day.",
            "Thanks for asking!",
            "Sorry, not this week.",
            "Let us talk on Sunday.",
        )
    )
    spec = _check_message(data, message["username"], f"Re: {message['subject']}", body)
    return TaskInstance({"subject": message["subject"], "body": body}, spec)


@tasks.add(
    "answer-message",
    _sample_answer_message,
    'Answer the message "{subject}" with "{body}"',
    'I got a message called "{subject}". Reply: "{body}"',
    'Look into my inbox and answer "{subject}": "{body}"',
    'Write back to whoever sent me the message "{subject}": "{body}"',
    'Reply to the private message with the subject "{subject}" by "{body}"',
)
def answer_message(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_messages(page)
    page = yield from click(page, slots["subject"], "link")
    page = yield from click(page, "Answer", "link", intent_phrase="")
    page = yield from type_text(page, "Message", slots["body"])
    yield from click(page, "Send Message", "button", intent_phrase="")
    yield from finish("The answer is sent")


# --- blocking members ----------------------------------------------------------------------------


def _sample_block(data: Data, rng: random.Random) -> TaskInstance | None:
    name = sample_member_name(data, rng)
    if name is None:
        return None
    return TaskInstance({"name": name}, page_includes(f"{FORUM}/settings", "#blocked a", name))


@tasks.add(
    "block",
    _sample_block,
    "Block the member {name}.",
    "I do not want to see anything by {name} any more. Block them",
    "Put {name} on my list of blocked members.",
    "Make sure that I see no more posts of {name} by blocking them.",
    "Go to the profile of {name} and block this member.",
)
def block(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_member(page, slots["name"])
    yield from click(page, "Block", "button", intent_phrase="block")
    yield from finish("The member is blocked")


def _sample_block_worst(data: Data, rng: random.Random) -> TaskInstance | None:
    post = sample_post(data, rng, "comments BETWEEN 3 AND 9")
    lowest = post and fetch_rows(data, f"{COMMENT} ORDER BY score LIMIT 2", post["id"])
    if not lowest or lowest[0]["score"] == lowest[1]["score"] or lowest[0]["author_id"] == 1:
        return None
    spec = page_equals(f"{FORUM}/settings", "#blocked a", lowest[0]["username"])
    return TaskInstance({"title": post["title"]}, spec)


@tasks.add(
    "block-worst",
    _sample_block_worst,
    'Block whoever wrote the comment with the fewest points on the post "{title}".',
    'On the post "{title}", find the lowest rated comment and block its author.',
    'Look at all comments on "{title}" and block the author of the one with the lowest score',
    'The comment with the fewest points under "{title}" annoys me. Block the member who wrote it.',
    'Under "{title}", one comment has the lowest score. Its author should be blocked.',
)
def block_worst(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    worst: tuple[int, str] | None = None
    while True:
        page, comments = yield from read_comments(page)
        for _, name, points in comments:
            worst = min(worst or (points, name), (points, name))
        if not has_element(page, "Next", "link"):
            break
        page = yield from click(page, "Next", "link", reason="There are more comments")
    assert worst is not None
    page = yield from go_to_member(page, worst[1])
    yield from click(page, "Block", "button", intent_phrase="block")
    yield from finish("The author is blocked")
