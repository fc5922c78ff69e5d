"""Tasks on writing, editing and deleting posts."""

from __future__ import annotations

import random
import re

from webagent_jax.arena import random_data
from webagent_jax.arena.forum.tasks.helpers import (
    FORUM,
    NEXT_POST_ID,
    fetch_rows,
    go_to_community,
    go_to_post,
    make_sentence_sampler,
    post_url,
    sample_community,
    sample_post,
    submit_post,
)
from webagent_jax.arena.task import (
    Data,
    EvalSpec,
    Slots,
    TaskInstance,
    TemplateRegistry,
    page_includes,
)
from webagent_jax.expert_steps import (
    click,
    element_names,
    element_names_after,
    finish,
    scroll_to,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("forum", "reddit")


def _check_post(slug: str, *texts: str) -> EvalSpec:
    return page_includes(f"{FORUM}/c/{slug}/{NEXT_POST_ID}", "#post", *texts)


def _sample_draft(data: Data, rng: random.Random, slug: str) -> tuple[str, str] | None:
    """Return title and text of a new post; None if the title is taken."""
    templates = random_data.read_json("forum_words")[rng.choice(("problem", "doing", "opinion"))]
    sentence_sampler = make_sentence_sampler(rng, slug)
    title, body = (
        sentence_sampler.sample(rng.choice(templates["titles"])),
        sentence_sampler.sample(rng.choice(templates["bodies"])),
    )
    return None if fetch_rows(data, "SELECT 1 FROM post WHERE title = ?", title) else (title, body)


def _sample_post_text(data: Data, rng: random.Random) -> TaskInstance | None:
    community = sample_community(data, rng)
    draft = _sample_draft(data, rng, community["slug"])
    if draft is None:
        return None
    slots = {"community": community["title"], "title": draft[0], "body": draft[1]}
    return TaskInstance(slots, _check_post(community["slug"], *draft))


@tasks.add(
    "post-text",
    _sample_post_text,
    'Create a post in the {community} community with the title "{title}" and the text "{body}".',
    'Post "{title}" in {community}. The text below it: "{body}"',
    'Write a new post in the community {community}, titled "{title}", that says "{body}"',
    'In {community}, start a discussion "{title}" with the text "{body}".',
    'Submit to {community}: title "{title}", text "{body}".',
)
def post_text(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_community(page, slots["community"])
    yield from submit_post(page, slots["title"], body=slots["body"])
    yield from finish("The post is online")


def _sample_post_by_motto(data: Data, rng: random.Random) -> TaskInstance | None:
    community = sample_community(data, rng, "description NOT LIKE 'Everything about%'")
    draft = _sample_draft(data, rng, community["slug"])
    if draft is None:
        return None
    slots = {"motto": community["description"], "title": draft[0]}
    return TaskInstance(slots, _check_post(community["slug"], draft[0]))


@tasks.add(
    "post-by-motto",
    _sample_post_by_motto,
    'Post "{title}" in the community that describes itself as "{motto}".',
    'Find the community with the motto "{motto}" and ask there: "{title}".',
    'There is a community described by "{motto}". Create a post "{title}" in it',
    'Look for the community "{motto}" (this is its description) and post "{title}".',
    'My post "{title}" belongs into the community whose description is "{motto}". Submit it.',
)
def post_by_motto(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Communities", "link", intent_phrase="community")
    page = yield from type_text(page, "Filter communities", slots["motto"])
    page = yield from click(page, "Filter", "button", intent_phrase="")
    title = element_names_after(page, "Create Community", "link")[0]
    page = yield from click(
        page, title, "link", intent_phrase=slots["motto"], reason="Its description fits"
    )
    yield from submit_post(page, slots["title"])
    yield from finish("The post is online")


def _sample_ask_within_budget(data: Data, rng: random.Random) -> TaskInstance | None:
    community = sample_community(data, rng, "description NOT LIKE 'Everything about%'")
    things = rng.choice(make_sentence_sampler(rng, community["slug"]).words("things"))
    budget = f"${rng.randint(2, 30)}0"
    slots = {"community": community["title"], "things": things, "budget": budget}
    return TaskInstance(slots, _check_post(community["slug"], things, budget))


@tasks.add(
    "ask-within-budget",
    _sample_ask_within_budget,
    "Ask for recommendations of {things} within a budget of {budget} in {community}.",
    "In the {community} community, ask which {things} people recommend for {budget}.",
    "I have {budget} for {things}. Ask the members of {community} for advice in a new post",
    "Create a post in {community} that asks about {things} and names my budget, {budget}.",
    "Post a question in {community}: what {things} to buy with a budget of {budget}?",
)
def ask_within_budget(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_community(page, slots["community"])
    title = f"Which {slots['things']} do you recommend within a budget of {slots['budget']}?"
    yield from submit_post(page, title)
    yield from finish("The question is asked")


def _sample_meetup(data: Data, rng: random.Random) -> TaskInstance | None:
    community = sample_community(data, rng)
    day = f"{rng.choice(('June', 'July', 'August'))} {rng.randint(16, 30)}"
    slots = {"community": community["title"], "day": day}
    return TaskInstance(slots, _check_post(community["slug"], "virtual meetup", day))


@tasks.add(
    "meetup",
    _sample_meetup,
    "Post a notice on a virtual meetup on {day} in the {community} community.",
    "Announce in {community} that there is a virtual meetup on {day}.",
    "Tell the people of {community} in a new post about a virtual meetup on {day}",
    "Create a post in {community} that invites to a virtual meetup on {day}.",
    "There will be a virtual meetup of {community} on {day}. Put up a notice there.",
)
def meetup(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_community(page, slots["community"])
    yield from submit_post(page, f"Virtual meetup on {slots['day']}")
    yield from finish("The notice is up")


def _sample_post_link(data: Data, rng: random.Random) -> TaskInstance | None:
    community, words = sample_community(data, rng), random_data.read_json("forum_words")
    title = make_sentence_sampler(rng, community["slug"]).sample(
        rng.choice(words["link"]["titles"])
    )
    url = f"https://{rng.choice(words['sources'])}/{rng.randint(1000, 9999)}"
    if fetch_rows(data, "SELECT 1 FROM post WHERE title = ?", title):
        return None
    slots = {"community": community["title"], "title": title, "url": url}
    return TaskInstance(slots, _check_post(community["slug"], title, url))


@tasks.add(
    "post-link",
    _sample_post_link,
    'Share the link {url} in {community} under the title "{title}".',
    'Post {url} in the community {community}, titled "{title}".',
    'Submit a link to {community}: "{title}", {url}',
    'I found {url}. Show it to the people of {community} in a post called "{title}".',
    'Create a link post in {community} with the title "{title}" that leads to {url} .',
)
def post_link(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_community(page, slots["community"])
    yield from submit_post(page, slots["title"], url=slots["url"])
    yield from finish("The link is shared")


def _sample_crosspost(data: Data, rng: random.Random) -> TaskInstance | None:
    post, community = sample_post(data, rng, "url != ''"), sample_community(data, rng)
    if post is None or post["slug"] == community["slug"]:
        return None
    slots = {"title": post["title"], "community": community["title"]}
    return TaskInstance(slots, _check_post(community["slug"], post["title"], post["url"]))


@tasks.add(
    "crosspost",
    _sample_crosspost,
    'Share the link of the post "{title}" in {community} as well, under the same title.',
    'Repost "{title}" with its link to the community {community}.',
    'The post "{title}" has a link. Submit the same title and link to {community}',
    'Cross-post "{title}" to {community}: same title, same link.',
    'Put what "{title}" links to into {community} too, and keep the title.',
)
def crosspost(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    url = next(name for name in element_names(page, "link") if re.match(r"https?://", name))
    page = yield from go_to_community(page, slots["community"])
    yield from submit_post(page, slots["title"], url=url)
    yield from finish("The link is shared there too")


# --- own posts -----------------------------------------------------------------------------------


def _sample_edit_post(data: Data, rng: random.Random) -> TaskInstance | None:
    post = sample_post(data, rng, "post.author_id = 1")
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
    spec = page_includes(post_url(post), "#post .body", f"{post['body']} {line}")
    return TaskInstance({"title": post["title"], "line": line}, spec)


@tasks.add(
    "edit-post",
    _sample_edit_post,
    'Edit my post "{title}": add "{line}" at the end of its text.',
    'Add the sentence "{line}" to the text of my post "{title}".',
    'Append "{line}" to what I wrote in "{title}"',
    'In my post "{title}", keep the text and add "{line}" behind it.',
    'My post "{title}" needs an addition at its end: "{line}"',
)
def edit_post(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    page = yield from click(page, "Edit Post", "link", intent_phrase="")
    page, field = yield from scroll_to(page, "Text (optional)", "textbox")
    text = f"{page.elements[field].value} {slots['line']}"
    page = yield from type_text(page, "Text (optional)", text)
    yield from click(page, "Save Post", "button", intent_phrase="")
    yield from finish("The sentence is added")


def _sample_delete_post(data: Data, rng: random.Random) -> TaskInstance | None:
    post = sample_post(data, rng, "post.author_id = 1")
    return post and TaskInstance(
        {"title": post["title"]}, page_includes(post_url(post), "h1", "Page not found")
    )


@tasks.add(
    "delete-post",
    _sample_delete_post,
    'Delete my post "{title}".',
    'Remove the post "{title}" that I wrote.',
    'I regret my post "{title}". Take it down',
    'Get rid of my post with the title "{title}".',
    'Please delete "{title}", a post of mine.',
)
def delete_post(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_post(page, slots["title"])
    page = yield from click(page, "Delete Post", "link", intent_phrase="")
    yield from click(page, "Delete Post", "button", intent_phrase="", reason="It asks once more")
    yield from finish("The post is gone")
