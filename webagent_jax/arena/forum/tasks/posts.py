"""Posts to write, to change, and to take back."""

from __future__ import annotations

import random
import re

from webagent_jax.arena import random_data
from webagent_jax.arena.expert_steps import bring, click, done, names, names_after, type_text
from webagent_jax.arena.forum.tasks.helpers import (
    FORUM,
    NEXT_POST,
    Slots,
    a_community,
    a_post,
    address,
    rows,
    submit,
    to_community,
    to_post,
    voice,
)
from webagent_jax.arena.task import Data, Instance, Spec, Templates, page_has
from webagent_jax.types import Expert, Observation

tasks = Templates("forum", "reddit")


def _posted(slug: str, *texts: str) -> Spec:
    return page_has(f"{FORUM}/c/{slug}/{NEXT_POST}", "#post", *texts)


def _draft(data: Data, rng: random.Random, slug: str) -> tuple[str, str] | None:
    """Title and text of a post that could be there, and is not."""
    told = random_data.table("forum_words")[rng.choice(("problem", "doing", "opinion"))]
    own = voice(rng, slug)
    title, body = own.say(rng.choice(told["titles"])), own.say(rng.choice(told["bodies"]))
    return None if rows(data, "SELECT 1 FROM post WHERE title = ?", title) else (title, body)


def _post_text(data: Data, rng: random.Random) -> Instance | None:
    community = a_community(data, rng)
    draft = _draft(data, rng, community["slug"])
    if draft is None:
        return None
    slots = {"community": community["title"], "title": draft[0], "body": draft[1]}
    return Instance(slots, _posted(community["slug"], *draft))


@tasks.add(
    "post-text",
    _post_text,
    'Create a post in the {community} community with the title "{title}" and the text "{body}".',
    'Post "{title}" in {community}. The text below it: "{body}"',
    'Write a new post in the community {community}, titled "{title}", that says "{body}"',
    'In {community}, start a discussion "{title}" with the text "{body}".',
    'Submit to {community}: title "{title}", text "{body}".',
)
def post_text(slots: Slots, page: Observation) -> Expert:
    page = yield from to_community(page, slots["community"])
    yield from submit(page, slots["title"], body=slots["body"])
    yield from done("The post is online")


def _post_motto(data: Data, rng: random.Random) -> Instance | None:
    community = a_community(data, rng, "description NOT LIKE 'Everything about%'")
    draft = _draft(data, rng, community["slug"])
    if draft is None:
        return None
    slots = {"motto": community["description"], "title": draft[0]}
    return Instance(slots, _posted(community["slug"], draft[0]))


@tasks.add(
    "post-by-motto",
    _post_motto,
    'Post "{title}" in the community that describes itself as "{motto}".',
    'Find the community with the motto "{motto}" and ask there: "{title}".',
    'There is a community described by "{motto}". Create a post "{title}" in it',
    'Look for the community "{motto}" (this is its description) and post "{title}".',
    'My post "{title}" belongs into the community whose description is "{motto}". Submit it.',
)
def post_by_motto(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Communities", "link", about="community")
    page = yield from type_text(page, "Filter communities", slots["motto"])
    page = yield from click(page, "Filter", "button", about="")
    title = names_after(page, "Create Community", "link")[0]
    page = yield from click(page, title, "link", about=slots["motto"], why="Its description fits")
    yield from submit(page, slots["title"])
    yield from done("The post is online")


def _ask_budget(data: Data, rng: random.Random) -> Instance | None:
    community = a_community(data, rng, "description NOT LIKE 'Everything about%'")
    things = rng.choice(voice(rng, community["slug"]).words("things"))
    budget = f"${rng.randint(2, 30)}0"
    slots = {"community": community["title"], "things": things, "budget": budget}
    return Instance(slots, _posted(community["slug"], things, budget))


@tasks.add(
    "ask-within-budget",
    _ask_budget,
    "Ask for recommendations of {things} within a budget of {budget} in {community}.",
    "In the {community} community, ask which {things} people recommend for {budget}.",
    "I have {budget} for {things}. Ask the members of {community} for advice in a new post",
    "Create a post in {community} that asks about {things} and names my budget, {budget}.",
    "Post a question in {community}: what {things} to buy with a budget of {budget}?",
)
def ask_within_budget(slots: Slots, page: Observation) -> Expert:
    page = yield from to_community(page, slots["community"])
    title = f"Which {slots['things']} do you recommend within a budget of {slots['budget']}?"
    yield from submit(page, title)
    yield from done("The question is asked")


def _meetup(data: Data, rng: random.Random) -> Instance | None:
    community = a_community(data, rng)
    day = f"{rng.choice(('June', 'July', 'August'))} {rng.randint(16, 30)}"
    slots = {"community": community["title"], "day": day}
    return Instance(slots, _posted(community["slug"], "virtual meetup", day))


@tasks.add(
    "meetup",
    _meetup,
    "Post a notice on a virtual meetup on {day} in the {community} community.",
    "Announce in {community} that there is a virtual meetup on {day}.",
    "Tell the people of {community} in a new post about a virtual meetup on {day}",
    "Create a post in {community} that invites to a virtual meetup on {day}.",
    "There will be a virtual meetup of {community} on {day}. Put up a notice there.",
)
def meetup(slots: Slots, page: Observation) -> Expert:
    page = yield from to_community(page, slots["community"])
    yield from submit(page, f"Virtual meetup on {slots['day']}")
    yield from done("The notice is up")


def _post_link(data: Data, rng: random.Random) -> Instance | None:
    community, words = a_community(data, rng), random_data.table("forum_words")
    title = voice(rng, community["slug"]).say(rng.choice(words["link"]["titles"]))
    url = f"https://{rng.choice(words['sources'])}/{rng.randint(1000, 9999)}"
    if rows(data, "SELECT 1 FROM post WHERE title = ?", title):
        return None
    slots = {"community": community["title"], "title": title, "url": url}
    return Instance(slots, _posted(community["slug"], title, url))


@tasks.add(
    "post-link",
    _post_link,
    'Share the link {url} in {community} under the title "{title}".',
    'Post {url} in the community {community}, titled "{title}".',
    'Submit a link to {community}: "{title}", {url}',
    'I found {url}. Show it to the people of {community} in a post called "{title}".',
    'Create a link post in {community} with the title "{title}" that leads to {url} .',
)
def post_link(slots: Slots, page: Observation) -> Expert:
    page = yield from to_community(page, slots["community"])
    yield from submit(page, slots["title"], url=slots["url"])
    yield from done("The link is shared")


def _crosspost(data: Data, rng: random.Random) -> Instance | None:
    post, community = a_post(data, rng, "url != ''"), a_community(data, rng)
    if post is None or post["slug"] == community["slug"]:
        return None
    slots = {"title": post["title"], "community": community["title"]}
    return Instance(slots, _posted(community["slug"], post["title"], post["url"]))


@tasks.add(
    "crosspost",
    _crosspost,
    'Share the link of the post "{title}" in {community} as well, under the same title.',
    'Repost "{title}" with its link to the community {community}.',
    'The post "{title}" has a link. Submit the same title and link to {community}',
    'Cross-post "{title}" to {community}: same title, same link.',
    'Put what "{title}" links to into {community} too, and keep the title.',
)
def crosspost(slots: Slots, page: Observation) -> Expert:
    page = yield from to_post(page, slots["title"])
    url = next(name for name in names(page, "link") if re.match(r"https?://", name))
    page = yield from to_community(page, slots["community"])
    yield from submit(page, slots["title"], url=url)
    yield from done("The link is shared there too")


# --- one's own -----------------------------------------------------------------------------------


def _add_line(data: Data, rng: random.Random) -> Instance | None:
    post = a_post(data, rng, "post.author_id = 1")
    line = rng.choice(
        (
            "Edit: solved, thank you all.",
            "Update: I asked a friend, and she agrees.",
            "Update: it got better.",
            "Edit: more about this on Sunday.",
        )
    )
    if post is None:
        return None
    spec = page_has(address(post), "#post .body", f"{post['body']} {line}")
    return Instance({"title": post["title"], "line": line}, spec)


@tasks.add(
    "edit-post",
    _add_line,
    'Edit my post "{title}": add "{line}" at the end of its text.',
    'Add the sentence "{line}" to the text of my post "{title}".',
    'Append "{line}" to what I wrote in "{title}"',
    'In my post "{title}", keep the text and add "{line}" behind it.',
    'My post "{title}" needs an addition at its end: "{line}"',
)
def edit_post(slots: Slots, page: Observation) -> Expert:
    page = yield from to_post(page, slots["title"])
    page = yield from click(page, "Edit Post", "link", about="")
    page, field = yield from bring(page, "Text (optional)", "textbox")
    text = f"{page.elements[field].value} {slots['line']}"
    page = yield from type_text(page, "Text (optional)", text)
    yield from click(page, "Save Post", "button", about="")
    yield from done("The sentence is added")


def _delete(data: Data, rng: random.Random) -> Instance | None:
    post = a_post(data, rng, "post.author_id = 1")
    return post and Instance(
        {"title": post["title"]}, page_has(address(post), "h1", "Page not found")
    )


@tasks.add(
    "delete-post",
    _delete,
    'Delete my post "{title}".',
    'Remove the post "{title}" that I wrote.',
    'I regret my post "{title}". Take it down',
    'Get rid of my post with the title "{title}".',
    'Please delete "{title}", a post of mine.',
)
def delete_post(slots: Slots, page: Observation) -> Expert:
    page = yield from to_post(page, slots["title"])
    page = yield from click(page, "Delete Post", "link", about="")
    yield from click(page, "Delete Post", "button", about="", why="It asks once more")
    yield from done("The post is gone")
