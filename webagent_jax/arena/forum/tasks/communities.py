"""Tasks on communities (subscribing, creating, moderating) and on the profile of the account."""

from __future__ import annotations

import random

from webagent_jax.arena.forum.data import MODERATED_SLUGS
from webagent_jax.arena.forum.post_lists import SORTS
from webagent_jax.arena.forum.tasks.helpers import (
    AGENT_USERNAME,
    FORUM,
    PERIOD_STARTS,
    fetch_rows,
    go_to_account_page,
    go_to_community,
    make_sentence_sampler,
    parse_post_rows,
    sample_community,
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
    page_lists,
)
from webagent_jax.expert_steps import (
    click,
    finish,
    scroll_to,
    select_option,
    set_checked,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("forum", "reddit")

_NOT_JOINED = "id NOT IN (SELECT community_id FROM subscription)"


def _check_subscribed(*slugs: str) -> EvalSpec:
    specs = (page_includes(f"{FORUM}/c/{slug}", ".banner button", "Unsubscribe") for slug in slugs)
    return all_of(*specs)


def _sample_subscribe(data: Data, rng: random.Random) -> TaskInstance | None:
    community = sample_community(data, rng, _NOT_JOINED)
    return TaskInstance({"community": community["title"]}, _check_subscribed(community["slug"]))


@tasks.add(
    "subscribe",
    _sample_subscribe,
    "Subscribe to the community {community}.",
    "Join the {community} community.",
    "I would like to follow {community}. Subscribe to it",
    "Make {community} one of my communities.",
    "Add {community} to my subscriptions.",
)
def subscribe(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_community(page, slots["community"])
    yield from click(page, "Subscribe", "button", intent_phrase="subscribe")
    yield from finish("I am subscribed")


def _sample_subscribe_three(data: Data, rng: random.Random) -> TaskInstance | None:
    communities = rng.sample(
        fetch_rows(data, f"SELECT * FROM community WHERE {_NOT_JOINED} ORDER BY id"), 3
    )
    slots = dict(
        zip(("first", "second", "third"), (row["title"] for row in communities), strict=True)
    )
    return TaskInstance(slots, _check_subscribed(*(row["slug"] for row in communities)))


@tasks.add(
    "subscribe-three",
    _sample_subscribe_three,
    "Subscribe to the communities {first}, {second} and {third}.",
    "Join {first}, {second} and {third}.",
    "I want to follow three communities: {first}, {second}, {third}. Subscribe to all of them",
    "Add {first}, {second} and {third} to my subscriptions.",
    "Make me a subscriber of {first}, of {second} and of {third}.",
)
def subscribe_three(slots: Slots, page: Observation) -> Expert:
    for name in ("first", "second", "third"):
        page = yield from go_to_community(page, slots[name])
        page = yield from click(page, "Subscribe", "button", intent_phrase="subscribe")
    yield from finish("I am subscribed to all three")


def _sample_subscribe_of_top(data: Data, rng: random.Random) -> TaskInstance | None:
    period, order = rng.choice(list(PERIOD_STARTS)), rng.choice(("top", "most commented"))
    key = "score" if order == "top" else "comments"
    columns = "community_id, up - down AS score, comments"
    sql = f"SELECT {columns} FROM post WHERE posted >= ? ORDER BY {key} DESC LIMIT 6"
    posts = fetch_rows(data, sql, PERIOD_STARTS[period])
    rank = rng.randint(1, 5)
    neighbors = posts[max(rank - 2, 0) : rank + 1]
    has_ties = len({row[key] for row in neighbors}) < len(neighbors)
    sql = f"SELECT slug FROM community WHERE id = ? AND {_NOT_JOINED}"
    communities = fetch_rows(data, sql, posts[rank - 1]["community_id"])
    if has_ties or not communities:
        return None
    slots = {"period": period, "order": order, "rank": str(rank)}
    return TaskInstance(slots, _check_subscribed(communities[0]["slug"]))


@tasks.add(
    "subscribe-of-top",
    _sample_subscribe_of_top,
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
    page = yield from click(page, "All", "link", intent_phrase="all")
    page = yield from click(page, slots["order"].capitalize(), "link", intent_phrase=slots["order"])
    page = yield from select_option(
        page, "From", f"Past {slots['period']}", intent_phrase=slots["period"]
    )
    row = next(row for row in parse_post_rows(page) if row.rank == slots["rank"])
    page = yield from click(
        page, row.title, "link", intent_phrase=slots["rank"], reason="Here it is"
    )
    community = row.details.split(",")[0]
    page = yield from click(page, community, "link", intent_phrase="community")
    yield from click(page, "Subscribe", "button", intent_phrase="subscribe")
    yield from finish("I am subscribed")


def _sample_unsubscribe(data: Data, rng: random.Random) -> TaskInstance | None:
    subscriptions = fetch_rows(
        data, f"SELECT * FROM community WHERE NOT ({_NOT_JOINED}) ORDER BY id"
    )
    first, second = rng.sample(subscriptions, 2)
    urls = [f"{FORUM}/c/{row['slug']}" for row in (first, second)]
    specs = [page_equals(url, ".banner button", "Subscribe") for url in urls]
    # A visitor who is not signed in sees the same button.
    specs.append(page_includes(urls[0], "header", AGENT_USERNAME))
    return TaskInstance({"first": first["title"], "second": second["title"]}, all_of(*specs))


@tasks.add(
    "unsubscribe",
    _sample_unsubscribe,
    "Unsubscribe from {first} and {second}.",
    "Leave the communities {first} and {second}.",
    "I read too much. Take {first} and {second} off my subscriptions",
    "Stop following {first} as well as {second}.",
    "My subscriptions to {first} and {second} should end.",
)
def unsubscribe(slots: Slots, page: Observation) -> Expert:
    for name in (slots["first"], slots["second"]):
        page = yield from click(
            page, "Mine", "button", intent_phrase="", reason="My communities are there"
        )
        page = yield from click(page, name, "link")
        page = yield from click(page, "Unsubscribe", "button", intent_phrase="unsubscribe")
    yield from finish("I have left both")


# --- creating and moderating communities ---------------------------------------------------------

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


def _check_texts(slug: str, text: str) -> EvalSpec:
    """Check that title, description and sidebar of a community, joined by ", ", match."""
    fields = "#title, #description, #sidebar"
    return page_lists(f"{FORUM}/c/{slug}/edit", "form.sheet", fields, text)


def _sample_create(data: Data, rng: random.Random) -> TaskInstance | None:
    slug, title, description = rng.choice(_SUBJECTS)
    rule = rng.choice(_RULES)
    spec = _check_texts(slug, f"{title}, {description}, {rule}")
    slots = {"slug": slug, "title": title, "description": description, "rule": rule}
    return TaskInstance(slots, spec)


@tasks.add(
    "create-community",
    _sample_create,
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
    page = yield from click(page, "Communities", "link", intent_phrase="community")
    page = yield from click(page, "Create Community", "link", intent_phrase="community")
    page = yield from type_text(page, "Name in the address", slots["slug"])
    page = yield from type_text(page, "Title", slots["title"])
    page = yield from type_text(page, "Description", slots["description"])
    page = yield from type_text(page, "Sidebar (optional)", slots["rule"])
    yield from click(page, "Create Community", "button", intent_phrase="")
    yield from finish("The community exists")


def _sample_add_rule(data: Data, rng: random.Random) -> TaskInstance | None:
    community = sample_community(data, rng, f"slug IN {MODERATED_SLUGS}")
    rule = rng.choice((*_RULES, "No politics.", "Search before you ask.", "English, please."))
    text = f"{community['sidebar']} {rule}"
    spec = _check_texts(community["slug"], text)
    return TaskInstance({"community": community["title"], "rule": rule}, spec)


@tasks.add(
    "add-rule",
    _sample_add_rule,
    'I moderate {community}. Add "{rule}" to the end of its sidebar.',
    'Add the rule "{rule}" behind the text in the sidebar of {community}.',
    'The sidebar of the {community} community should also say "{rule}", at its end',
    'Append "{rule}" to the sidebar of {community} and keep what is there.',
    'In {community}, which I moderate, extend the sidebar by "{rule}"',
)
def add_rule(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_community(page, slots["community"])
    page = yield from click(page, "Edit Community", "link", intent_phrase="sidebar")
    page, field = yield from scroll_to(page, "Sidebar (optional)", "textbox")
    text = f"{page.elements[field].value} {slots['rule']}"
    page = yield from type_text(page, "Sidebar (optional)", text)
    yield from click(page, "Save Community", "button", intent_phrase="")
    yield from finish("The rule is in the sidebar")


def _sample_describe(data: Data, rng: random.Random) -> TaskInstance | None:
    community = sample_community(data, rng, f"slug IN {MODERATED_SLUGS}")
    topic = rng.choice(make_sentence_sampler(rng, community["slug"]).words("doing"))
    text = f"All about {topic} and more"
    spec = page_equals(f"{FORUM}/c/{community['slug']}", "#description", text)
    return TaskInstance({"community": community["title"], "text": text}, spec)


@tasks.add(
    "describe-community",
    _sample_describe,
    'Change the description of {community} to "{text}".',
    'As the moderator of {community}, set its description to "{text}".',
    'The community {community} should be described as "{text}" from now on',
    'Edit {community}: its description should be "{text}".',
    'Replace the description of the {community} community by "{text}".',
)
def describe(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_community(page, slots["community"])
    page = yield from click(page, "Edit Community", "link", intent_phrase="description")
    page = yield from type_text(page, "Description", slots["text"])
    yield from click(page, "Save Community", "button", intent_phrase="")
    yield from finish("The description is changed")


# --- profile and settings ------------------------------------------------------------------------


def _sample_biography(data: Data, rng: random.Random) -> TaskInstance | None:
    one, other = rng.sample(
        fetch_rows(data, "SELECT title FROM community WHERE id < 25 ORDER BY id"), 2
    )
    text = rng.choice(("I am into {} and {}.", "{} by day, {} by night.", "From {} to {}."))
    text = text.format(one["title"].lower(), other["title"].lower())
    return TaskInstance({"text": text}, page_equals(f"{FORUM}/u/{AGENT_USERNAME}", "#bio", text))


@tasks.add(
    "biography",
    _sample_biography,
    'Change my biography to "{text}"',
    'Set the biography on my profile to "{text}"',
    'My profile should say "{text}" about me',
    'Replace my biography by "{text}"',
    'Update my bio. The new one is "{text}"',
)
def biography(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_account_page(page, "Settings")
    page = yield from type_text(page, "Biography", slots["text"])
    yield from click(page, "Save Settings", "button", intent_phrase="")
    yield from finish("The biography is changed")


def _sample_settings(data: Data, rng: random.Random) -> TaskInstance | None:
    (town,) = rng.sample(
        fetch_rows(data, "SELECT title FROM community WHERE id > 25 ORDER BY id"), 1
    )
    sort = rng.choice([text for key, (text, _) in SORTS.items() if key != "hot"])
    settings = f"{FORUM}/settings"
    spec = all_of(
        page_includes(f"{FORUM}/u/{AGENT_USERNAME}", ".profile", town["title"]),
        page_equals(settings, "#sort option:checked", sort),
        page_includes(settings, "label:has([name=mail]:checked)", "mail"),
    )
    return TaskInstance({"town": town["title"], "sort": sort}, spec)


@tasks.add(
    "settings",
    _sample_settings,
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
    page = yield from go_to_account_page(page, "Settings")
    page = yield from type_text(page, "Town", slots["town"])
    page = yield from select_option(page, "Sort posts by", slots["sort"])
    page = yield from set_checked(page, "Send me a mail when somebody replies")
    yield from click(page, "Save Settings", "button", intent_phrase="")
    yield from finish("The settings are changed")
