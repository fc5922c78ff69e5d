"""Tasks on members, milestones, labels and settings of projects."""

from __future__ import annotations

import datetime
import random

from webagent_jax.arena.code.tasks.helpers import (
    CODE,
    fetch_rows,
    go_to_project_page,
    non_members,
    other_members,
    sample_project,
)
from webagent_jax.arena.common import TODAY
from webagent_jax.arena.site import format_day
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    all_of,
    page_equals,
    page_includes,
    page_lists,
    sample_row,
)
from webagent_jax.expert_steps import (
    Moves,
    click,
    finish,
    has_element,
    scroll_until,
    select_option,
    set_checked,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("code", "gitlab")

_ROLES = ("Guest", "Reporter", "Developer", "Maintainer")

# --- members -------------------------------------------------------------------------------------


def invite(page: Observation, person: str, role: str) -> Moves:
    """Invite a person from a page with the link to the form."""
    page = yield from click(page, "Invite Member", "link", intent_phrase="")
    page = yield from type_text(page, "User name, full name or email", person)
    page = yield from select_option(page, "Role", role)
    return (yield from click(page, "Invite", "button", intent_phrase=""))


def member_url(data: Data, project: str, user: int) -> str:
    return f"{CODE}/{project}/members/{user}"


def _sample_invite_one(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Maintainer")
    person, role = rng.choice(non_members(data, project)), rng.choice(_ROLES)
    name = rng.choice((person["name"], person["username"], person["email"]))
    slots = {"project": project["name"], "person": name, "role": role}
    url = member_url(data, project["path"], person["id"])
    return TaskInstance(slots, page_includes(url, ".facts", f"@{person['username']}, {role} of"))


@tasks.add(
    "invite",
    _sample_invite_one,
    "Invite {person} to {project} as {role}.",
    "Add {person} to the members of {project} with the role {role}.",
    "{person} should take part in {project} as {role}: send the invitation",
    "Make {person} a {role} of the project {project}; that person is no member yet.",
    "In {project}, invite a new member: {person}, role {role}.",
)
def invite_one(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Members")
    yield from invite(page, slots["person"], slots["role"])
    yield from finish("The invitation is sent")


def _sample_invite_two(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Maintainer")
    first_user, second_user = rng.sample(non_members(data, project), 2)
    first, second = rng.sample(_ROLES, 2)
    slots = {"project": project["name"], "one": first_user["name"], "first": first}
    slots |= {"other": second_user["name"], "second": second}
    invitations = [(first_user, first), (second_user, second)]
    spec = all_of(
        *(
            page_includes(
                member_url(data, project["path"], user["id"]),
                ".facts",
                f"@{user['username']}, {role} of",
            )
            for user, role in invitations
        )
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "invite-two",
    _sample_invite_two,
    "Invite {one} to {project} as {first} and {other} as {second}.",
    "Add two members to {project}: {one} with the role {first} and {other} with the role {second}.",
    "{one} ({first}) and {other} ({second}) should join {project}: invite both",
    "In {project}, invite {one} as {first}; invite {other}, too, as {second}.",
    "The team of {project} grows. Make {one} a {first} and {other} a {second} of it.",
)
def invite_two(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Members")
    page = yield from invite(page, slots["one"], slots["first"])
    yield from invite(page, slots["other"], slots["second"])
    yield from finish("Both are invited")


def _go_to_member(page: Observation, slots: Slots) -> Moves:
    page = yield from go_to_project_page(page, slots["project"], "Members")
    edit = f"Edit {slots['person']}"
    page, match = yield from scroll_until(page, rf"{slots['person']} @")
    if match is None:
        page = yield from click(page, "Next", "link", intent_phrase="", reason="The list goes on")
        while not has_element(page, edit, "link") and has_element(page, "Next", "link"):
            page = yield from click(
                page, "Next", "link", intent_phrase="", reason="The list goes on"
            )
    return (yield from click(page, edit, "link", intent_phrase=slots["person"]))


def _sample_change_role(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Maintainer")
    member, role = sample_row(rng, other_members(data, project)), rng.choice(_ROLES)
    if member["role"] in (role, "Owner"):
        return None
    slots = {"project": project["name"], "person": member["name"], "role": role}
    url = member_url(data, project["path"], member["id"])
    return TaskInstance(slots, page_includes(url, ".facts", f"@{member['username']}, {role} of"))


@tasks.add(
    "change-role",
    _sample_change_role,
    "Make {person} a {role} of {project}; the role is another one now.",
    "Change the role of {person} in {project} to {role}.",
    "{person} should be {role} in the project {project}: change the role",
    "In {project}, set the role of the member {person} to {role}.",
    "Give {person} the role {role} in {project} instead of the present one.",
)
def change_role(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_member(page, slots)
    page = yield from select_option(page, "Role", slots["role"])
    yield from click(page, "Save Role", "button", intent_phrase="")
    yield from finish("The role is changed")


def _sample_remove_member(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Maintainer")
    members = other_members(data, project)
    member = sample_row(rng, members)
    if member["role"] == "Owner" or len(members) > 8:
        return None
    names = [row["name"] for row in members if row["name"] != member["name"]]
    other_names = " ; ".join(sorted([*names, "Nora Whitfield"]))
    slots = {"project": project["name"], "person": member["name"]}
    url = f"{CODE}/{project['path']}/members"
    return TaskInstance(slots, page_equals(url, "#members div > a", other_names))


@tasks.add(
    "remove-member",
    _sample_remove_member,
    "Remove {person} from {project}.",
    "{person} has left us: remove this member from {project}.",
    "Take {person} out of the members of the project {project}",
    "In {project}, end the membership of {person}.",
    "{person} must not be a member of {project} any longer.",
)
def remove_member(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_member(page, slots)
    yield from click(page, "Remove Member", "button", intent_phrase="remove")
    yield from finish("The member is removed")


# --- milestones and labels -----------------------------------------------------------------------

_GOALS = (
    ("Winter release", "Everything that was promised in spring."),
    ("2.0", "The new format, and nothing else."),
    ("Translation", "Five languages by the end of the year."),
    ("Bug hunt", "No open bug older than a month."),
    ("Faster", "Half the time for everything."),
    ("Workshop", "What we want to show."),
)


def _sample_create_milestone(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Developer")
    title, description = rng.choice(_GOALS)
    due = (TODAY + datetime.timedelta(rng.randint(10, 200))).isoformat()
    slots = {"project": project["name"], "title": title, "about": description, "due": due}
    ((number,),) = fetch_rows(data, "SELECT max(id) + 1 FROM milestone")
    url = f"{CODE}/{project['path']}/milestones"
    line = f"{title}, Due {format_day(due)}. 0 of 0 issues closed"
    spec = all_of(
        page_lists(url, "main .list li", "a, p", line),
        page_includes(f"{url}/{number}", "main", description),
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "create-milestone",
    _sample_create_milestone,
    'Create the milestone "{title}" in {project}, due {due}, with the description "{about}".',
    'Add a milestone to {project}: title "{title}", description "{about}", due date {due}.',
    'In {project}, plan a milestone called "{title}" ("{about}") for {due}',
    'Set up the milestone "{title}" for {project}. It is due {due}. Description: "{about}"',
    'Make a new milestone of {project}. Title: "{title}". Due: {due}. Description: "{about}"',
)
def create_milestone(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Milestones")
    page = yield from click(page, "New Milestone", "link", intent_phrase="")
    page = yield from type_text(page, "Title", slots["title"])
    page = yield from type_text(page, "Description", slots["about"])
    page = yield from type_text(page, "Due date", slots["due"])
    yield from click(page, "Create Milestone", "button", intent_phrase="")
    yield from finish("The milestone is created")


def _sample_close_milestone(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Developer")
    sql = "SELECT * FROM milestone WHERE project_id = ? AND state = 'open' ORDER BY id"
    milestone = sample_row(rng, fetch_rows(data, sql, project["id"]))
    if milestone is None:
        return None
    url = f"{CODE}/{project['path']}/milestones/{milestone['id']}"
    slots = {"project": project["name"], "milestone": milestone["title"]}
    return TaskInstance(slots, page_equals(url, ".head .state", "Closed"))


@tasks.add(
    "close-milestone",
    _sample_close_milestone,
    'Close the milestone "{milestone}" of {project}.',
    'The milestone "{milestone}" in {project} is reached: close it.',
    'In {project}, close the milestone called "{milestone}"',
    'Mark the milestone "{milestone}" of the project {project} as closed.',
    'We are done with "{milestone}" in {project}. Close this milestone.',
)
def close_milestone(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Milestones")
    page = yield from click(page, slots["milestone"], "link")
    yield from click(page, "Close Milestone", "button", intent_phrase="close")
    yield from finish("The milestone is closed")


def _sample_create_label(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Maintainer")
    label = rng.choice(("urgent", "wontfix", "duplicate", "blocked", "design", "needs info"))
    slots = {"project": project["name"], "label": label}
    return TaskInstance(slots, page_includes(f"{CODE}/{project['path']}/labels", ".list", label))


@tasks.add(
    "create-label",
    _sample_create_label,
    'Create the label "{label}" in {project}.',
    'Add a new label called "{label}" to the project {project}.',
    'In {project}, issues should be able to have the label "{label}": create it',
    'The project {project} needs a label "{label}". Make it.',
    'Go to the settings of {project} and add the label "{label}" there.',
)
def create_label(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Settings")
    page = yield from click(page, "Labels", "link", intent_phrase="label")
    page = yield from type_text(page, "Name of new label", slots["label"])
    yield from click(page, "Create Label", "button", intent_phrase="")
    yield from finish("The label is there")


# --- settings ------------------------------------------------------------------------------------

_DESCRIPTIONS = (
    "Looking for a new maintainer",
    "Not ready for use yet",
    "Moved to maintenance mode",
    "A weekend project that got out of hand",
    "Under new management",
)
_NAMES = ("Nutshell", "Second Try", "Lighthouse", "Workbench", "Compass", "Driftwood")


def _sample_describe(data: Data, rng: random.Random) -> TaskInstance | None:
    project, description = sample_project(data, rng, "Maintainer"), rng.choice(_DESCRIPTIONS)
    slots = {"project": project["name"], "about": description}
    return TaskInstance(
        slots, page_equals(f"{CODE}/{project['path']}", ".head div > p", description)
    )


@tasks.add(
    "describe",
    _sample_describe,
    'Change the description of {project} to "{about}".',
    'The description of {project} should read "{about}".',
    'Set the description of the project {project} to "{about}"',
    'In the settings of {project}, replace the description by "{about}".',
    'Describe {project} as "{about}" from now on.',
)
def describe(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Settings")
    page = yield from type_text(page, "Description", slots["about"])
    yield from click(page, "Save Changes", "button", intent_phrase="")
    yield from finish("The description is changed")


def _sample_rename_project(data: Data, rng: random.Random) -> TaskInstance | None:
    project, name = sample_project(data, rng, "Maintainer"), rng.choice(_NAMES)
    visibility = rng.choice(("Public", "Internal", "Private"))
    if project["visibility"] == visibility.lower():
        return None
    slots = {"project": project["name"], "name": name, "visibility": visibility}
    return TaskInstance(
        slots, page_equals(f"{CODE}/{project['path']}", "h1", f"{name} {visibility}")
    )


@tasks.add(
    "rename-project",
    _sample_rename_project,
    "Rename {project} to {name} and set its visibility to {visibility}.",
    "The project {project} should be called {name}, and its visibility should be {visibility}.",
    "Change the name of {project} to {name} and the visibility to {visibility}",
    "In the settings of {project}, choose the visibility {visibility} and the new name {name}.",
    "Set {project} to {visibility} and give it the name {name}.",
)
def rename_project(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Settings")
    page = yield from type_text(page, "Project name", slots["name"])
    page = yield from set_checked(page, slots["visibility"])
    yield from click(page, "Save Changes", "button", intent_phrase="")
    yield from finish("Name and visibility are changed")
