"""Tasks on creating, forking and starring projects, on groups, profile and to-dos."""

from __future__ import annotations

import random

from webagent_jax.arena.code.activity_data import AGENT_USER_ID
from webagent_jax.arena.code.dashboard import LANGUAGES, TO_DOS_PER_PAGE
from webagent_jax.arena.code.tasks.helpers import (
    CODE,
    fetch_rows,
    go_to_account_page,
    go_to_project,
    go_to_project_page,
    sample_project,
)
from webagent_jax.arena.code.tasks.members import invite
from webagent_jax.arena.common import agent_user
from webagent_jax.arena.site import to_slug
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    all_of,
    page_equals,
    page_includes,
    sample_row,
)
from webagent_jax.expert_steps import (
    Moves,
    click,
    element_names,
    extract_text,
    finish,
    go_back,
    search,
    select_option,
    set_checked,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("code", "gitlab")

_NAMES = (
    "Awesome Notes", "Bread Calendar", "Cloud Atlas", "Desk Lamp", "Echo Chamber", "Fig Tree",
    "Grain Silo", "Honey Jar", "Iron Kettle", "Jigsaw", "Kite Log", "Lemon Press",
)  # fmt: skip
_VISIBILITIES = ("Public", "Internal", "Private")


# --- projects and groups -------------------------------------------------------------------------


def _fill_new_project(page: Observation, slots: Slots) -> Moves:
    page = yield from click(page, "New Project", "link", intent_phrase="")
    page = yield from type_text(page, "Project name", slots["name"])
    return (yield from set_checked(page, slots["visibility"]))


def _sample_create_project(data: Data, rng: random.Random) -> TaskInstance | None:
    name, visibility = rng.choice(_NAMES), rng.choice(_VISIBILITIES)
    url = f"{CODE}/{agent_user().username}/{to_slug(name)}"
    spec = all_of(
        page_equals(url, "h1", f"{name} {visibility}"), page_includes(url, ".tree", "README.md")
    )
    return TaskInstance({"name": name, "visibility": visibility}, spec)


@tasks.add(
    "create-project",
    _sample_create_project,
    "Create a new project {name} with the visibility {visibility} and a README.",
    "Start a project called {name}. Its visibility is {visibility}; let it begin with a README.",
    "Make a new {visibility} project named {name} that has a README from the start",
    "I need a project {name} (visibility: {visibility}) with a README file.",
    "Set up {name} as a new project with a README and the visibility {visibility}.",
)
def create_project(slots: Slots, page: Observation) -> Expert:
    page = yield from _fill_new_project(page, slots)
    page = yield from set_checked(page, "Add a README")
    yield from click(page, "Create Project", "button", intent_phrase="")
    yield from finish("The project is created")


_STARTS = {
    "Python library": "pyproject.toml",
    "Static web site": "index.html",
    "Go service": "Dockerfile",
}


def _sample_create_team_project(data: Data, rng: random.Random) -> TaskInstance | None:
    name, visibility, start = rng.choice(_NAMES), rng.choice(_VISIBILITIES), rng.choice([*_STARTS])
    first_user, second_user = rng.sample(
        fetch_rows(data, "SELECT * FROM user WHERE id != 1 ORDER BY id"), 2
    )
    role = rng.choice(("Developer", "Maintainer", "Reporter"))
    url = f"{CODE}/{agent_user().username}/{to_slug(name)}"
    slots = {"name": name, "visibility": visibility, "start": start, "role": role}
    slots |= {"one": first_user["name"], "other": second_user["name"]}
    spec = all_of(
        page_equals(url, "h1", f"{name} {visibility}"),
        page_includes(url, ".tree", _STARTS[start]),
        *(
            page_includes(f"{url}/members/{user['id']}", ".facts", f"{role} of {name}")
            for user in (first_user, second_user)
        ),
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "create-team-project",
    _sample_create_team_project,
    'Create the project {name} ({visibility}) from the template "{start}" and invite {one} and '
    "{other} as {role}.",
    'Start a new {visibility} project called {name} with the template "{start}", then add {one} '
    "and {other} to it, both with the role {role}.",
    'Set up {name}, a new project with the visibility {visibility} that starts from "{start}". '
    "{one} and {other} are to be invited as {role}",
    "{one} and {other} should work with me on {name}, each as {role}. Create that project from "
    '"{start}" with the visibility {visibility} and invite them.',
    'Make a new project {name} from "{start}", visibility {visibility}. Members: {one} ({role}) '
    "and {other} ({role}).",
)
def create_team_project(slots: Slots, page: Observation) -> Expert:
    page = yield from _fill_new_project(page, slots)
    page = yield from select_option(page, "Start from", slots["start"])
    page = yield from click(page, "Create Project", "button", intent_phrase="")
    page = yield from click(page, "Members", "link", intent_phrase="")
    for person in (slots["one"], slots["other"]):
        page = yield from invite(page, person, slots["role"])
    yield from finish("The project and its team are there")


_GROUPS = (
    "Night Owls", "Paper Planes", "Quick Fixers", "River Data", "Slow Software", "Tea Makers",
    "Upper Deck", "Window Seat", "Yellow House", "Zebra Crossing",
)  # fmt: skip


def _sample_create_group(data: Data, rng: random.Random) -> TaskInstance | None:
    name, visibility = rng.choice(_GROUPS), rng.choice(_VISIBILITIES)
    first_user, second_user = rng.sample(
        fetch_rows(data, "SELECT * FROM user WHERE id != 1 ORDER BY id"), 2
    )
    role = rng.choice(("Developer", "Maintainer", "Guest"))
    slots = {"name": name, "visibility": visibility, "role": role}
    slots |= {"one": first_user["name"], "other": second_user["name"]}
    url = f"{CODE}/{to_slug(name)}"
    spec = all_of(
        page_equals(url, "h1", f"{name} {visibility}"),
        page_includes(
            url, "#members", f"{first_user['name']} {role}", f"{second_user['name']} {role}"
        ),
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "create-group",
    _sample_create_group,
    "Create a group {name} with the visibility {visibility} and the members {one} and {other}, "
    "both as {role}.",
    "Make a new {visibility} group called {name} and invite {one} and {other} as {role}.",
    "I want a group named {name} (visibility {visibility}). {one} and {other} should be in it as "
    "{role}",
    "Start the group {name}, visibility {visibility}, then invite {one} and {other}, each with "
    "the role {role}.",
    "Set up a group for {one} and {other}: name {name}, visibility {visibility}, role of both "
    "{role}.",
)
def create_group(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_account_page(page, "Groups")
    page = yield from click(page, "New Group", "link", intent_phrase="")
    page = yield from type_text(page, "Group name", slots["name"])
    page = yield from set_checked(page, slots["visibility"])
    page = yield from click(page, "Create Group", "button", intent_phrase="")
    for person in (slots["one"], slots["other"]):
        page = yield from invite(page, person, slots["role"])
    yield from finish("The group is there")


def _sample_fork(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, where="project.visibility = 'public'")
    spaces = [agent_user().username, "homestead", "lanternworks", "openpantry"]
    space, visibility = rng.choice(spaces), rng.choice(_VISIBILITIES)
    if project["owner"] == space:
        return None
    slots = {"project": project["name"], "space": space, "visibility": visibility}
    url = f"{CODE}/{space}/{project['slug']}"
    spec = all_of(
        page_equals(url, "h1", f"{project['name']} {visibility}"),
        page_includes(url, "main", f"Forked from {project['name']}"),
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "fork",
    _sample_fork,
    "Fork {project} into {space} with the visibility {visibility}.",
    "Make a fork of {project} under {space}; its visibility should be {visibility}.",
    "Copy the project {project} to {space} as a fork with visibility {visibility}",
    "I want to try something with {project}. Fork it into {space}, visibility {visibility}.",
    "Create a fork of the project {project} in {space}, visibility {visibility}.",
)
def fork(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project(page, slots["project"])
    page = yield from click(page, "Fork", "link", intent_phrase="fork")
    page = yield from select_option(page, "Fork into", slots["space"])
    page = yield from set_checked(page, slots["visibility"])
    yield from click(page, "Fork Project", "button", intent_phrase="")
    yield from finish("The project is forked")


def _sample_delete_project(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Owner")
    slots = {"project": project["name"]}
    url = f"{CODE}/{project['path']}"
    spec = all_of(
        page_equals(url, "h1", "Page not found"),
        # A visitor who is not signed in does not find private projects either.
        page_includes(url, "header", agent_user().name),
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "delete-project",
    _sample_delete_project,
    "Delete my project {project}.",
    "I do not need {project} any more: delete the project.",
    "Remove the project {project} from Slipway for good",
    "The project {project} can go. Delete it, I am its owner.",
    "Get rid of {project}: delete it in its settings and confirm.",
)
def delete_project(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Settings")
    page = yield from click(page, "Delete Project", "link", intent_phrase="delete")
    path = extract_text(page, r"Type (\S+/\S+)")
    page = yield from type_text(page, "Path of the project", path)
    yield from click(page, "Delete Project", "button", intent_phrase="delete")
    yield from finish("The project is gone")


# --- stars, people, to-dos -----------------------------------------------------------------------


def _sample_star_top(data: Data, rng: random.Random) -> TaskInstance | None:
    language, count = rng.choice(LANGUAGES), rng.choice((2, 3))
    projects = fetch_rows(
        data,
        "SELECT project.*, namespace.path || '/' || slug AS path FROM project JOIN namespace"
        " ON namespace.id = namespace_id WHERE language = ? AND project.visibility != 'private'"
        " ORDER BY stars DESC LIMIT 5",
        language,
    )
    if projects[count - 1]["stars"] == projects[count]["stars"]:
        return None
    starred_ids = {
        row["project_id"]
        for row in fetch_rows(data, f"SELECT * FROM star WHERE user_id = {AGENT_USER_ID}")
    }
    if starred_ids & {row["id"] for row in projects[:count]}:
        return None
    texts = ["Unstar"] * count
    # The next project stays as it is.
    texts.append("Unstar" if projects[count]["id"] in starred_ids else "Star")
    specs = [
        page_equals(f"{CODE}/{row['path']}", ".head button", text)
        for row, text in zip(projects, texts, strict=False)
    ]
    return TaskInstance({"language": language, "count": str(count)}, all_of(*specs))


@tasks.add(
    "star-top",
    _sample_star_top,
    "Star the {count} most starred {language} projects.",
    "Give a star to each of the {count} {language} projects that have the most stars.",
    "Find the top {count} projects in {language} by stars and star all of them",
    "Explore the {language} projects and star the {count} with the most stars.",
    "The {count} {language} projects with the most stars deserve one of mine as well: star them.",
)
def star_top(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Explore", "link", intent_phrase="")
    page = yield from select_option(page, "Language", slots["language"])
    page = yield from select_option(page, "Sort by", "Most stars", intent_phrase="most stars")
    links = [name for name in element_names(page, "link") if " / " in name][: int(slots["count"])]
    for link in links:
        page = yield from click(
            page, link, "link", intent_phrase="", reason="It is among the first"
        )
        page = yield from click(page, "Star", "button", intent_phrase="star")
        while link not in element_names(page, "link"):
            page = yield from go_back("The list goes on")
    yield from finish("They have my star")


def _sample_star_two(data: Data, rng: random.Random) -> TaskInstance | None:
    first_project, second_project = sample_project(data, rng), sample_project(data, rng)
    starred_ids = {
        row["project_id"]
        for row in fetch_rows(data, f"SELECT * FROM star WHERE user_id = {AGENT_USER_ID}")
    }
    if first_project["id"] == second_project["id"] or starred_ids & {
        first_project["id"],
        second_project["id"],
    }:
        return None
    specs = [
        page_equals(f"{CODE}/{row['path']}", ".head button", "Unstar")
        for row in (first_project, second_project)
    ]
    return TaskInstance(
        {"one": first_project["name"], "other": second_project["name"]}, all_of(*specs)
    )


@tasks.add(
    "star-two",
    _sample_star_two,
    "Star the projects {one} and {other}.",
    "Give a star to {one} and another one to {other}.",
    "I like {one} and {other}: star both",
    "Put a star on each of these projects: {one}, {other}.",
    "Add {one} and {other} to the projects I starred.",
)
def star_two(slots: Slots, page: Observation) -> Expert:
    for project in (slots["one"], slots["other"]):
        page = yield from go_to_project(page, project)
        page = yield from click(page, "Star", "button", intent_phrase="star")
    yield from finish("Both have my star")


def _sample_follow(data: Data, rng: random.Random) -> TaskInstance | None:
    users = fetch_rows(
        data,
        "SELECT * FROM user WHERE id != 1 AND id NOT IN (SELECT followed_id FROM follow"
        " WHERE follower_id = 1) ORDER BY id",
    )
    first_user, second_user = rng.sample(users, 2)
    specs = [
        page_equals(f"{CODE}/{user['username']}", ".head button", "Unfollow")
        for user in (first_user, second_user)
    ]
    return TaskInstance({"one": first_user["name"], "other": second_user["name"]}, all_of(*specs))


@tasks.add(
    "follow",
    _sample_follow,
    "Follow {one} and {other}.",
    "I want to hear from {one} and {other} on Slipway: follow both.",
    "Find the people {one} and {other} and follow them",
    "Make me a follower of {one} and of {other}.",
    "Go to the profiles of {one} and {other} and follow each.",
)
def follow(slots: Slots, page: Observation) -> Expert:
    for person in (slots["one"], slots["other"]):
        page = yield from search(page, "Search Slipway", person)
        page = yield from click(page, "People", "link", intent_phrase="")
        page = yield from click(page, person, "link")
        page = yield from click(page, "Follow", "button", intent_phrase="follow")
    yield from finish("I follow both")


_STATUSES = (
    "On holiday", "Busy until Friday", "Reviewing all week", "At a conference", "Back in July",
    "Enjoying life", "Out for lunch", "Working from a train",
)  # fmt: skip


def _sample_profile(data: Data, rng: random.Random) -> TaskInstance | None:
    status = rng.choice(_STATUSES)
    url = f"{CODE}/{agent_user().username}"
    if rng.random() < 0.5:
        return TaskInstance(
            {"field": "status", "value": status}, page_equals(url, "#status", status)
        )
    bio = rng.choice(("Gardens and compilers", "Ask me about maps", "Slow but thorough", "Reader"))
    return TaskInstance({"field": "bio", "value": bio}, page_equals(url, "#bio", bio))


@tasks.add(
    "profile",
    _sample_profile,
    'Set my {field} to "{value}".',
    'Change the {field} in my profile to "{value}".',
    'My {field} here should say "{value}"',
    'Update my profile: {field} "{value}".',
    'Let others read "{value}" as my {field}.',
)
def profile(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_account_page(page, "Edit Profile")
    page = yield from type_text(page, slots["field"].capitalize(), slots["value"])
    yield from click(page, "Save Profile", "button", intent_phrase="")
    yield from finish("My profile is saved")


def _sample_to_do(data: Data, rng: random.Random) -> TaskInstance | None:
    to_dos = fetch_rows(
        data,
        "SELECT to_do.id, coalesce(issue.title, merge_request.title) AS title, user.name FROM to_do"
        " JOIN user ON user.id = to_do.author_id LEFT JOIN issue ON issue.id = issue_id"
        " LEFT JOIN merge_request ON merge_request.id = merge_request_id"
        f" WHERE to_do.user_id = {AGENT_USER_ID} AND NOT done"
        " ORDER BY to_do.written DESC, to_do.id DESC",
    )
    target = sample_row(rng, to_dos)
    if [row["title"] for row in to_dos].count(target["title"]) > 1:
        return None
    slots = {"title": target["title"], "person": target["name"]}
    done_spec = page_includes(f"{CODE}/to-dos?state=done", "#to-dos", target["title"])
    # All others are still pending, on one or two pages.
    others = [row["title"] for row in to_dos if row["id"] != target["id"]]
    pages = [others[:TO_DOS_PER_PAGE], others[TO_DOS_PER_PAGE:]]
    pending_specs = [
        page_equals(f"{CODE}/to-dos?page={number}", "#to-dos a", " ; ".join(titles))
        for number, titles in enumerate(pages, 1)
        if titles
    ]
    return TaskInstance(slots, all_of(done_spec, *pending_specs))


@tasks.add(
    "to-do",
    _sample_to_do,
    'Mark the to-do about "{title}" from {person} as done.',
    'I have taken care of "{title}", which {person} wanted: mark this to-do as done.',
    'Among my to-dos, the one by {person} on "{title}" is done. Mark it',
    'Tick off what {person} wanted of me concerning "{title}" in my to-dos.',
    'Set my to-do "{title}" (by {person}) to done.',
)
def to_do(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "To-Dos", "link", intent_phrase="to-do")
    while slots["title"] not in element_names(page, "link"):
        page = yield from click(
            page, "Next", "link", intent_phrase="", reason="It is not on this page"
        )
    elements = list(page.elements.values())
    index = next(i for i, element in enumerate(elements) if element.name == slots["title"])
    button = next(element.name for element in elements[index:] if element.kind == "button")
    yield from click(page, button, "button", intent_phrase="done", reason="The button behind it")
    yield from finish("The to-do is done")
