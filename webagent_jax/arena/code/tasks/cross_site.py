"""Tasks that need the code host and the forum."""

from __future__ import annotations

import random
import re
from typing import Any

from webagent_jax.arena.code.tasks.helpers import (
    CODE,
    fetch_rows,
    go_to_project,
    go_to_project_page,
    next_free_number,
    sample_project,
)
from webagent_jax.arena.forum.tasks.helpers import (
    FORUM,
    NEXT_POST_ID,
    go_to_community,
    go_to_post,
    go_to_sorted_posts,
    sample_community,
    sample_post,
    submit_post,
)
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    page_equals,
    page_includes,
)
from webagent_jax.expert_steps import (
    answer,
    click,
    element_names,
    element_names_after,
    extract_text,
    finish,
    scroll_to,
    search,
    switch_tab,
    type_text,
)
from webagent_jax.types import Expert, Observation

from_code = TemplateRegistry("across", "gitlab", "reddit")
from_forum = TemplateRegistry("across", "reddit", "gitlab")


# --- starting on the code host -------------------------------------------------------------------


def _sample_new_post(data: Data, rng: random.Random) -> tuple[Any, Any, str]:
    """Return a project, a community, and the address of its next post."""
    project = sample_project(data, rng, where="project.visibility = 'public'")
    community = sample_community(data, rng)
    return project, community, f"{FORUM}/c/{community['slug']}/{NEXT_POST_ID}"


def _sample_post_clone_address(data: Data, rng: random.Random) -> TaskInstance | None:
    project, community, url = _sample_new_post(data, rng)
    slots = {"project": project["name"], "community": community["title"]}
    address = f"git@slipway.example:{project['path']}.git"
    return TaskInstance(slots, page_includes(url, "#post", project["name"], address))


@from_code.add(
    "post-clone-address",
    _sample_post_clone_address,
    'Post the SSH clone address of {project} in the forum\'s community "{community}", with the '
    "name of the project as title.",
    'In "{community}" on the forum, create a post titled with the name {project} whose text is the '
    "SSH address to clone that project on Slipway.",
    "Look up how {project} is cloned with SSH on Slipway and post this address in the community "
    '"{community}"; the title is the name of the project',
    'Tell the forum community "{community}" the SSH clone address of {project}: a post whose title '
    "is the project's name and whose text has the address.",
    'Write a post for "{community}" on the forum. Title: {project}. Text: the SSH clone address of '
    "this project.",
)
def post_clone_address(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project(page, slots["project"])
    page, element = yield from scroll_to(page, "Clone with SSH", "textbox")
    address = page.elements[element].value
    page = yield from switch_tab(1, "The forum is open in the other tab")
    page = yield from go_to_community(page, slots["community"])
    yield from submit_post(page, slots["project"], body=address)
    yield from finish("The address is posted")


def _sample_post_stars(data: Data, rng: random.Random) -> TaskInstance | None:
    project, community, url = _sample_new_post(data, rng)
    slots = {"project": project["name"], "community": community["title"]}
    stars = f"{project['stars']} star{'' if project['stars'] == 1 else 's'}"
    return TaskInstance(slots, page_includes(url, "#post h1", f"{project['name']} has {stars}"))


@from_code.add(
    "post-stars",
    _sample_post_stars,
    'Create a post in the forum community "{community}" titled "{project} has N stars", where N is '
    "the number of stars of that project on Slipway.",
    'How many stars does {project} have on Slipway? Tell "{community}" on the forum with a post '
    'that is titled "{project} has N stars", with the number for N.',
    'Post in "{community}" on the forum. The title is "{project} has N stars"; put the real number '
    "of stars of the project for N",
    'Look up the stars of {project} and let "{community}" know in a post with the title "{project} '
    'has N stars" (N is the number).',
    'The members of "{community}" should read a post "{project} has N stars" on the forum. Find '
    "out N on Slipway and post it.",
)
def post_stars(slots: Slots, page: Observation) -> Expert:
    project = slots["project"]
    page = yield from go_to_project(page, project)
    stars = extract_text(page, r"(\d+ stars?), \d+ fork")
    page = yield from switch_tab(1, "The forum is open in the other tab")
    page = yield from go_to_community(page, slots["community"])
    yield from submit_post(page, f"{project} has {stars}")
    yield from finish("The stars are told")


# --- starting in the forum -----------------------------------------------------------------------


def _sample_author(data: Data, rng: random.Random) -> tuple[Any, Any] | None:
    """Return a post, and its author as a user of the code host."""
    post = sample_post(data, rng, "author_id BETWEEN 2 AND 220")
    users = post and fetch_rows(data, "SELECT * FROM user WHERE username = ?", post["username"])
    return (post, users[0]) if users else None


def _sample_author_name(data: Data, rng: random.Random) -> TaskInstance | None:
    pair = _sample_author(data, rng)
    return pair and TaskInstance({"title": pair[0]["title"]}, answer_includes(pair[1]["name"]))


@from_forum.add(
    "author-name",
    _sample_author_name,
    'The author of the forum post "{title}" has the same user name on Slipway. What is the full '
    "name?",
    'Who wrote "{title}" on the forum? Tell me the full name that Slipway knows for this user '
    "name.",
    'Find out the real name of whoever posted "{title}" on the forum: Slipway has the same user '
    "names",
    'Look up the author of "{title}" in the forum, then the full name of that user on Slipway.',
    "What is the full name, according to Slipway, of the person who wrote the forum post "
    '"{title}"?',
)
def author_name(slots: Slots, page: Observation) -> Expert:
    page, name = yield from _go_to_profile(page, slots)
    yield from answer(name, evidence="the profile", reason="The profile tells the full name")


def _go_to_profile(page: Observation, slots: Slots) -> Any:
    """Open the Slipway profile of the author of a post; return its page and the full name."""
    page = yield from go_to_post(page, slots["title"])
    links = element_names(page, "link")
    username = next(name for name in links if re.fullmatch(r"[a-z][a-z.]*\d*", name))
    page = yield from switch_tab(1, "Slipway is open in the other tab")
    page = yield from search(page, "Search Slipway", username)
    page = yield from click(page, "People", "link", intent_phrase="")
    name = element_names_after(page, "People", "link")[0]
    return (yield from click(page, name, "link", intent_phrase="author")), name


def _sample_follow_author(data: Data, rng: random.Random) -> TaskInstance | None:
    pair = _sample_author(data, rng)
    sql = "SELECT 1 FROM follow WHERE follower_id = 1 AND followed_id = ?"
    if pair is None or fetch_rows(data, sql, pair[1]["id"]):
        return None
    spec = page_equals(f"{CODE}/{pair[1]['username']}", ".head button", "Unfollow")
    return TaskInstance({"title": pair[0]["title"]}, spec)


@from_forum.add(
    "follow-author",
    _sample_follow_author,
    'Follow the author of the forum post "{title}" on Slipway, where the user name is the same.',
    'Who wrote "{title}" on the forum? Follow this user on Slipway.',
    'I like the forum post "{title}". Follow its author on Slipway, too',
    'Find out the user name behind "{title}" in the forum and follow that user on Slipway.',
    'On Slipway, follow whoever posted "{title}" on the forum; the user names are the same.',
)
def follow_author(slots: Slots, page: Observation) -> Expert:
    page, _ = yield from _go_to_profile(page, slots)
    yield from click(page, "Follow", "button", intent_phrase="follow")
    yield from finish("I follow the author")


def _sample_issue_from_post(data: Data, rng: random.Random) -> TaskInstance | None:
    project, community = sample_project(data, rng), sample_community(data, rng)
    sql = "SELECT title FROM post WHERE community_id = ? ORDER BY posted DESC, id DESC LIMIT 1"
    ((title,),) = data["forum"].execute(sql, [community["id"]]).fetchall()
    if "  " in title or len(title) > 150:
        return None
    slots = {"project": project["name"], "community": community["title"]}
    url = f"{CODE}/{project['path']}/issues/{next_free_number(data, project)}"
    return TaskInstance(slots, page_equals(url, "h1", title))


@from_forum.add(
    "issue-from-post",
    _sample_issue_from_post,
    "Open an issue in {project} on Slipway with the title of the newest post in the forum "
    "community "
    '"{community}".',
    'Take the title of the latest post in "{community}" and make it the title of a new issue of '
    "the Slipway project {project}.",
    'The newest post of "{community}" on the forum belongs into {project}: create an issue there '
    "with the same title",
    "Create an issue in the project {project}. Its title is that of the most recent post in "
    '"{community}" on the forum.',
    'Look at the newest post in "{community}" and report it as an issue of {project}, under the '
    "same title.",
)
def issue_from_post(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_sorted_posts(page, slots["community"], "New")
    title = element_names_after(page, "Most commented", "link")[0]
    page = yield from switch_tab(1, "Slipway is open in the other tab")
    page = yield from go_to_project_page(page, slots["project"], "Issues")
    page = yield from click(page, "New Issue", "link", intent_phrase="")
    page = yield from type_text(page, "Title", title)
    yield from click(page, "Create Issue", "button", intent_phrase="")
    yield from finish("The issue is there")


tasks = (*from_code, *from_forum)
