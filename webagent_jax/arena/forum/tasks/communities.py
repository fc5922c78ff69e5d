"""Communities to join, leave, begin and look after; what a member tells of herself."""

from __future__ import annotations

import random

from webagent_jax.arena.expert_steps import bring, choose, click, done, tick, type_text
from webagent_jax.arena.forum.data import MODERATED
from webagent_jax.arena.forum.post_lists import SORTS
from webagent_jax.arena.forum.tasks.helpers import (
    FORUM,
    MY_NAME,
    PERIODS,
    Slots,
    a_community,
    listed,
    rows,
    to_community,
    to_my,
    voice,
)
from webagent_jax.arena.task import (
    Data,
    Instance,
    Spec,
    Templates,
    both,
    page_has,
    page_is,
    page_lists,
)
from webagent_jax.types import Expert, Observation

tasks = Templates("forum", "reddit")

_NOT_JOINED = "id NOT IN (SELECT community_id FROM subscription)"


def _joined(*slugs: str) -> Spec:
    specs = (page_has(f"{FORUM}/c/{slug}", ".banner button", "Unsubscribe") for slug in slugs)
    return both(*specs)


def _subscribe(data: Data, rng: random.Random) -> Instance | None:
    community = a_community(data, rng, _NOT_JOINED)
    return Instance({"community": community["title"]}, _joined(community["slug"]))


@tasks.add(
    "subscribe",
    _subscribe,
    "Subscribe to the community {community}.",
    "Join the {community} community.",
    "I would like to follow {community}. Subscribe to it",
    "Make {community} one of my communities.",
    "Add {community} to my subscriptions.",
)
def subscribe(slots: Slots, page: Observation) -> Expert:
    page = yield from to_community(page, slots["community"])
    yield from click(page, "Subscribe", "button", about="subscribe")
    yield from done("I am subscribed")


def _subscribe_three(data: Data, rng: random.Random) -> Instance | None:
    found = rng.sample(rows(data, f"SELECT * FROM community WHERE {_NOT_JOINED} ORDER BY id"), 3)
    slots = dict(zip(("first", "second", "third"), (row["title"] for row in found), strict=True))
    return Instance(slots, _joined(*(row["slug"] for row in found)))


@tasks.add(
    "subscribe-three",
    _subscribe_three,
    "Subscribe to the communities {first}, {second} and {third}.",
    "Join {first}, {second} and {third}.",
    "I want to follow three communities: {first}, {second}, {third}. Subscribe to all of them",
    "Add {first}, {second} and {third} to my subscriptions.",
    "Make me a subscriber of {first}, of {second} and of {third}.",
)
def subscribe_three(slots: Slots, page: Observation) -> Expert:
    for name in ("first", "second", "third"):
        page = yield from to_community(page, slots[name])
        page = yield from click(page, "Subscribe", "button", about="subscribe")
    yield from done("I am subscribed to all three")


def _subscribe_top(data: Data, rng: random.Random) -> Instance | None:
    period, order = rng.choice(list(PERIODS)), rng.choice(("top", "most commented"))
    key = "score" if order == "top" else "comments"
    columns = "community_id, up - down AS score, comments"
    sql = f"SELECT {columns} FROM post WHERE posted >= ? ORDER BY {key} DESC LIMIT 6"
    posts = rows(data, sql, PERIODS[period])
    rank = rng.randint(1, 5)
    near = posts[max(rank - 2, 0) : rank + 1]
    ties = len({row[key] for row in near}) < len(near)
    sql = f"SELECT slug FROM community WHERE id = ? AND {_NOT_JOINED}"
    found = rows(data, sql, posts[rank - 1]["community_id"])
    if ties or not found:
        return None
    slots = {"period": period, "order": order, "rank": str(rank)}
    return Instance(slots, _joined(found[0]["slug"]))


@tasks.add(
    "subscribe-of-top",
    _subscribe_top,
    "Among all communities, which one has the number {rank} of the {order} posts of the past "
    "{period}? Subscribe to it.",
    "Subscribe to the community of the {order} post number {rank} of the past {period} on the "
    "whole site.",
    "Look at the {order} posts of the past {period} on all of Fencepost, and join the community "
    "of number {rank}",
    "Take the list of {order} posts of the past {period} over all communities; subscribe to the "
    "community that number {rank} is in.",
    "Follow the community in which number {rank} of the {order} posts of the past {period} was "
    "written, counting all communities.",
)
def subscribe_of_top(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "All", "link", about="all")
    page = yield from click(page, slots["order"].capitalize(), "link", about=slots["order"])
    page = yield from choose(page, "From", f"Past {slots['period']}", about=slots["period"])
    row = next(row for row in listed(page) if row.rank == slots["rank"])
    page = yield from click(page, row.title, "link", about=slots["rank"], why="Here it is")
    community = row.told.split(",")[0]
    page = yield from click(page, community, "link", about="community")
    yield from click(page, "Subscribe", "button", about="subscribe")
    yield from done("I am subscribed")


def _unsubscribe(data: Data, rng: random.Random) -> Instance | None:
    joined = rows(data, f"SELECT * FROM community WHERE NOT ({_NOT_JOINED}) ORDER BY id")
    first, second = rng.sample(joined, 2)
    specs = (
        page_is(f"{FORUM}/c/{row['slug']}", ".banner button", "Subscribe")
        for row in (first, second)
    )
    return Instance({"first": first["title"], "second": second["title"]}, both(*specs))


@tasks.add(
    "unsubscribe",
    _unsubscribe,
    "Unsubscribe from {first} and {second}.",
    "Leave the communities {first} and {second}.",
    "I read too much. Take {first} and {second} off my subscriptions",
    "Stop following {first} as well as {second}.",
    "My subscriptions to {first} and {second} should end.",
)
def unsubscribe(slots: Slots, page: Observation) -> Expert:
    for name in (slots["first"], slots["second"]):
        page = yield from click(page, "Mine", "button", about="", why="My communities are there")
        page = yield from click(page, name, "link")
        page = yield from click(page, "Unsubscribe", "button", about="unsubscribe")
    yield from done("I have left both")


# --- beginning and looking after one -------------------------------------------------------------

_SUBJECTS = (
    ("bees", "Beekeeping", "Hives, honey and swarms"),
    ("kites", "Kites", "String, wind and patience"),
    ("sourdough", "Sourdough", "Starters, crumbs and crusts"),
    ("typewriters", "Typewriters", "Ribbons, keys and bells"),
    ("puzzles", "Jigsaw Puzzles", "A thousand pieces and one missing"),
    ("choir", "Choir Singing", "Four voices, one breath"),
    ("chess", "Chess Club", "Openings, endings and regrets"),
    ("houseplants", "Houseplants", "Green things on windowsills"),
    ("radio", "Amateur Radio", "Antennas, codes and far voices"),
    ("pottery", "Pottery", "Clay, glaze and luck"),
    ("swimming", "Open Water Swimming", "Cold lakes and warm tea"),
    ("mushrooms", "Mushroom Hunting", "Look, smell, never guess"),
)
_RULES = ("Be kind.", "No ads.", "Pictures welcome.", "Beginners first.", "One topic a post.")


def _told(slug: str, text: str) -> Spec:
    """A part of what a community tells of itself: title, description, sidebar."""
    fields = "#title, #description, #sidebar"
    return page_lists(f"{FORUM}/c/{slug}/edit", "form.sheet", fields, text)


def _create(data: Data, rng: random.Random) -> Instance | None:
    slug, title, description = rng.choice(_SUBJECTS)
    rule = rng.choice(_RULES)
    spec = _told(slug, f"{title}, {description}, {rule}")
    slots = {"slug": slug, "title": title, "description": description, "rule": rule}
    return Instance(slots, spec)


@tasks.add(
    "create-community",
    _create,
    'Create a community {title} with the name "{slug}" in its address, the description '
    '"{description}" and the sidebar "{rule}"',
    'Start a new community. Name: {slug}, title: {title}, description: "{description}", sidebar: '
    '"{rule}"',
    'I want a community for this: "{description}". Call it {title}, address name {slug}, and put '
    '"{rule}" into the sidebar',
    'Found the community "{title}" ({slug}) described by "{description}", with "{rule}" in the '
    "sidebar.",
    'Open a community named {slug} and titled {title}. It is about "{description}". The sidebar '
    'says "{rule}"',
)
def create(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Communities", "link", about="community")
    page = yield from click(page, "Create Community", "link", about="community")
    page = yield from type_text(page, "Name in the address", slots["slug"])
    page = yield from type_text(page, "Title", slots["title"])
    page = yield from type_text(page, "Description", slots["description"])
    page = yield from type_text(page, "Sidebar (optional)", slots["rule"])
    yield from click(page, "Create Community", "button", about="")
    yield from done("The community exists")


def _add_rule(data: Data, rng: random.Random) -> Instance | None:
    community = a_community(data, rng, f"slug IN {MODERATED}")
    rule = rng.choice((*_RULES, "No politics.", "Search before you ask.", "English, please."))
    text = f"{community['sidebar']} {rule}"
    spec = _told(community["slug"], text)
    return Instance({"community": community["title"], "rule": rule}, spec)


@tasks.add(
    "add-rule",
    _add_rule,
    'I moderate {community}. Add "{rule}" to the end of its sidebar.',
    'Add the rule "{rule}" behind the text in the sidebar of {community}.',
    'The sidebar of the {community} community should also say "{rule}", at its end',
    'Append "{rule}" to the sidebar of {community} and keep what is there.',
    'In {community}, which I moderate, extend the sidebar by "{rule}"',
)
def add_rule(slots: Slots, page: Observation) -> Expert:
    page = yield from to_community(page, slots["community"])
    page = yield from click(page, "Edit Community", "link", about="sidebar")
    page, field = yield from bring(page, "Sidebar (optional)", "textbox")
    text = f"{page.elements[field].value} {slots['rule']}"
    page = yield from type_text(page, "Sidebar (optional)", text)
    yield from click(page, "Save Community", "button", about="")
    yield from done("The rule is in the sidebar")


def _describe(data: Data, rng: random.Random) -> Instance | None:
    community = a_community(data, rng, f"slug IN {MODERATED}")
    topic = rng.choice(voice(rng, community["slug"]).words("doing"))
    text = f"All about {topic} and more"
    spec = page_is(f"{FORUM}/c/{community['slug']}", "#description", text)
    return Instance({"community": community["title"], "text": text}, spec)


@tasks.add(
    "describe-community",
    _describe,
    'Change the description of {community} to "{text}".',
    'As the moderator of {community}, set its description to "{text}".',
    'The community {community} should be described as "{text}" from now on',
    'Edit {community}: its description should be "{text}".',
    'Replace the description of the {community} community by "{text}".',
)
def describe(slots: Slots, page: Observation) -> Expert:
    page = yield from to_community(page, slots["community"])
    page = yield from click(page, "Edit Community", "link", about="description")
    page = yield from type_text(page, "Description", slots["text"])
    yield from click(page, "Save Community", "button", about="")
    yield from done("The description is changed")


# --- oneself -------------------------------------------------------------------------------------


def _bio(data: Data, rng: random.Random) -> Instance | None:
    one, other = rng.sample(rows(data, "SELECT title FROM community WHERE id < 25 ORDER BY id"), 2)
    text = rng.choice(("I am into {} and {}.", "{} by day, {} by night.", "From {} to {}."))
    text = text.format(one["title"].lower(), other["title"].lower())
    return Instance({"text": text}, page_is(f"{FORUM}/u/{MY_NAME}", "#bio", text))


@tasks.add(
    "biography",
    _bio,
    'Change my biography to "{text}"',
    'Set the biography on my profile to "{text}"',
    'My profile should say "{text}" about me',
    'Replace my biography by "{text}"',
    'Update my bio. The new one is "{text}"',
)
def biography(slots: Slots, page: Observation) -> Expert:
    page = yield from to_my(page, "Settings")
    page = yield from type_text(page, "Biography", slots["text"])
    yield from click(page, "Save Settings", "button", about="")
    yield from done("The biography is changed")


def _settings(data: Data, rng: random.Random) -> Instance | None:
    (town,) = rng.sample(rows(data, "SELECT title FROM community WHERE id > 25 ORDER BY id"), 1)
    sort = rng.choice([text for key, (text, _) in SORTS.items() if key != "hot"])
    settings = f"{FORUM}/settings"
    spec = both(
        page_has(f"{FORUM}/u/{MY_NAME}", ".profile", town["title"]),
        page_is(settings, "#sort option:checked", sort),
        page_has(settings, "label:has([name=mail]:checked)", "mail"),
    )
    return Instance({"town": town["title"], "sort": sort}, spec)


@tasks.add(
    "settings",
    _settings,
    'I have moved to {town}. Put that into my settings, sort posts by "{sort}" and have mails sent '
    "to me when somebody replies.",
    'Set my town to {town}, the order of posts to "{sort}" and turn on mails about replies.',
    'In my settings, change the town to {town}, sort posts by "{sort}", and ask for a mail when '
    "somebody replies",
    'Update my settings: town {town}, posts sorted by "{sort}", a mail for each reply.',
    'My town is {town} now, I prefer posts sorted by "{sort}", and I want to get mails about '
    "replies. Change the settings accordingly.",
)
def settings(slots: Slots, page: Observation) -> Expert:
    page = yield from to_my(page, "Settings")
    page = yield from type_text(page, "Town", slots["town"])
    page = yield from choose(page, "Sort posts by", slots["sort"])
    page = yield from tick(page, "Send me a mail when somebody replies")
    yield from click(page, "Save Settings", "button", about="")
    yield from done("The settings are changed")
