"""Tasks on creating, editing, commenting and closing issues."""

from __future__ import annotations

import datetime
import random
from typing import Any

from webagent_jax.arena.code.tasks.helpers import (
    CODE,
    closed_with_comment,
    fetch_rows,
    go_to_issue,
    go_to_project_page,
    next_free_number,
    other_members,
    sample_issue,
    sample_project,
    set_filter,
)
from webagent_jax.arena.code.tasks.issue_questions import LABELS
from webagent_jax.arena.common import TODAY
from webagent_jax.arena.site import format_day
from webagent_jax.arena.task import (
    Data,
    EvalSpec,
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
    element_names_after,
    finish,
    has_element,
    select_option,
    set_checked,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("code", "gitlab")

_NEW_ISSUES = (
    ("Tests fail on a clean checkout", "The first run stops with an import error."),
    ("Wrong colours in print", "Printed pages are much too dark."),
    ("Please tag a release", "The last one is four months old."),
    ("Support the new export format", "The old one will go away in autumn."),
    ("Typo on the first page", "It says recieve instead of receive."),
    ("Startup takes ten seconds", "Most of it is spent looking for plug-ins."),
    ("Window forgets its size", "After a restart it is small again."),
    ("Add a French translation", "I can translate, if somebody shows me where."),
    ("Numbers are rounded twice", "The sum of the rows is not what the last line says."),
    ("Log in English only", "Half of the messages are German."),
)


def url_of(project: Any, number: int) -> str:
    return f"{CODE}/{project['path']}/issues/{number}"


def facts(url: str, **expected: str) -> EvalSpec:
    """Check the fields of an issue: assignee, labels, milestone, due."""
    return all_of(*(page_equals(url, f"#{name}", text) for name, text in expected.items()))


# --- new issues ----------------------------------------------------------------------------------


def _sample_create_issue(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    title, body = rng.choice(_NEW_ISSUES)
    url = url_of(project, next_free_number(data, project))
    spec = all_of(page_equals(url, "h1", title), page_includes(url, ".text", body))
    return TaskInstance({"project": project["name"], "title": title, "body": body}, spec)


@tasks.add(
    "create-issue",
    _sample_create_issue,
    'Open an issue in {project} with the title "{title}" and the description "{body}".',
    'Report "{title}" as a new issue of {project}. Description: "{body}"',
    'Create an issue titled "{title}" in the project {project} that says "{body}"',
    'File a new issue in {project}: "{title}", description "{body}".',
    'Write an issue for {project}. Its title is "{title}", its description "{body}".',
)
def create_issue(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Issues")
    page = yield from _fill_new_issue(page, slots)
    yield from click(page, "Create Issue", "button", intent_phrase="")
    yield from finish("The issue is created")


def _fill_new_issue(page: Observation, slots: Slots) -> Moves:
    page = yield from click(page, "New Issue", "link", intent_phrase="")
    page = yield from type_text(page, "Title", slots["title"])
    return (yield from type_text(page, "Description", slots["body"]))


def _sample_create_full_issue(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Reporter")
    title, body = rng.choice(_NEW_ISSUES)
    member, label = sample_row(rng, other_members(data, project)), rng.choice(LABELS)
    due = TODAY + datetime.timedelta(rng.randint(5, 120))
    milestone = _sample_open_milestone(data, rng, project)
    if milestone is None:
        return None
    url = url_of(project, next_free_number(data, project))
    slots = {"project": project["name"], "title": title, "body": body, "label": label}
    slots |= {"person": member["name"], "milestone": milestone, "due": due.isoformat()}
    fields = {"assignee": member["name"], "labels": label, "milestone": milestone}
    spec = all_of(
        page_equals(url, "h1", title),
        page_includes(url, ".text", body),
        facts(url, due=format_day(due.isoformat()), **fields),
    )
    return TaskInstance(slots, spec)


def _sample_open_milestone(data: Data, rng: random.Random, project: Any) -> str | None:
    sql = "SELECT title FROM milestone WHERE project_id = ? AND state = 'open' ORDER BY id"
    milestone = sample_row(rng, fetch_rows(data, sql, project["id"]))
    return milestone and str(milestone["title"])


@tasks.add(
    "create-full-issue",
    _sample_create_full_issue,
    'Create the issue "{title}" in {project}: description "{body}", assignee {person}, milestone '
    '"{milestone}", label "{label}", due {due}.',
    'Open an issue in {project} titled "{title}" with the description "{body}". Assign it to '
    '{person}, label it "{label}", put it into the milestone "{milestone}"; it is due {due}',
    'File a new issue in {project}. Title: "{title}". Description: "{body}". Label: "{label}". '
    'Milestone: "{milestone}". Assignee: {person}. Due date: {due}.',
    '{person} should look after a new issue in {project}, titled "{title}" and described as '
    '"{body}". It belongs to the milestone "{milestone}", has the label "{label}" and is due '
    "{due}.",
    'Report "{title}" ("{body}") in {project} for the milestone "{milestone}", due {due}, with the '
    'label "{label}", and assign it to {person}.',
)
def create_full_issue(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Issues")
    page = yield from _fill_new_issue(page, slots)
    page = yield from select_option(page, "Assignee", slots["person"])
    page = yield from select_option(page, "Milestone", slots["milestone"])
    page = yield from type_text(page, "Due date", slots["due"])
    page = yield from set_checked(page, slots["label"])
    yield from click(page, "Create Issue", "button", intent_phrase="")
    yield from finish("The issue is created with everything")


# --- editing one issue ---------------------------------------------------------------------------


def _go_to_edit_form(page: Observation, slots: Slots) -> Moves:
    page = yield from go_to_issue(page, slots["project"], slots["title"])
    return (yield from click(page, "Edit", "link", intent_phrase=""))


def _sample_assign_issue(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Reporter")
    issue, member = sample_issue(data, rng, project), sample_row(rng, other_members(data, project))
    if issue is None or issue["assignee"] == member["name"]:
        return None
    slots = {"title": issue["title"], "project": project["name"], "person": member["name"]}
    return TaskInstance(slots, facts(url_of(project, issue["number"]), assignee=member["name"]))


@tasks.add(
    "assign-issue",
    _sample_assign_issue,
    'Assign the issue "{title}" of {project} to {person}.',
    'In {project}, give the issue "{title}" to {person}.',
    '{person} will take care of "{title}" in {project}: set the assignee of the issue',
    'Make {person} the assignee of the issue "{title}" in the project {project}.',
    'Set the assignee of "{title}", an issue of {project}, to {person}.',
)
def assign_issue(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_edit_form(page, slots)
    page = yield from select_option(page, "Assignee", slots["person"])
    yield from click(page, "Save Changes", "button", intent_phrase="")
    yield from finish("The issue is assigned")


def _sample_label_issue(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Reporter")
    issue, label = sample_issue(data, rng, project), rng.choice(LABELS)
    sql = "SELECT name FROM issue_label JOIN label ON label.id = label_id WHERE issue_id = ?"
    issue_labels = {row["name"] for row in fetch_rows(data, sql, issue["id"])} if issue else set()
    if issue is None or label in issue_labels:
        return None
    labels_text = ", ".join(name for name in LABELS if name in issue_labels | {label})
    slots = {"title": issue["title"], "project": project["name"], "label": label}
    return TaskInstance(slots, facts(url_of(project, issue["number"]), labels=labels_text))


@tasks.add(
    "label-issue",
    _sample_label_issue,
    'Add the label "{label}" to the issue "{title}" of {project}.',
    'In {project}, label the issue "{title}" as "{label}" as well.',
    'The issue "{title}" in {project} should also carry the label "{label}"',
    'Give the issue "{title}" of the project {project} one more label: "{label}".',
    'Put "{label}" on "{title}" in {project}, and keep the labels that the issue has.',
)
def label_issue(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_edit_form(page, slots)
    page = yield from set_checked(page, slots["label"])
    yield from click(page, "Save Changes", "button", intent_phrase="")
    yield from finish("The issue has the label")


def _sample_schedule_issue(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Reporter")
    issue, milestone = sample_issue(data, rng, project), _sample_open_milestone(data, rng, project)
    due = (TODAY + datetime.timedelta(rng.randint(5, 90))).isoformat()
    if issue is None or milestone is None or issue["milestone"] == milestone:
        return None
    slots = {"title": issue["title"], "project": project["name"]}
    slots |= {"milestone": milestone, "due": due}
    spec = facts(url_of(project, issue["number"]), milestone=milestone, due=format_day(due))
    return TaskInstance(slots, spec)


@tasks.add(
    "schedule-issue",
    _sample_schedule_issue,
    'Put the issue "{title}" of {project} into the milestone "{milestone}" and make it due {due}.',
    'In {project}, set the milestone of "{title}" to "{milestone}" and its due date to {due}.',
    'The issue "{title}" of {project} belongs to the milestone "{milestone}"; it is due on {due}',
    'Plan "{title}" in {project}: milestone "{milestone}", due date {due}.',
    'Set the due date {due} and the milestone "{milestone}" for the issue "{title}" of {project}.',
)
def schedule_issue(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_edit_form(page, slots)
    page = yield from select_option(page, "Milestone", slots["milestone"])
    page = yield from type_text(page, "Due date", slots["due"])
    yield from click(page, "Save Changes", "button", intent_phrase="")
    yield from finish("The issue is planned")


_TITLES = ("Crash after start", "Make it faster", "Sort by name", "Tidy up the docs", "Wrong sum")


def _sample_rename_issue(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Reporter")
    issue, new_title = sample_issue(data, rng, project), rng.choice(_TITLES)
    if issue is None:
        return None
    slots = {"title": issue["title"], "project": project["name"], "new": new_title}
    return TaskInstance(slots, page_equals(url_of(project, issue["number"]), "h1", new_title))


@tasks.add(
    "rename-issue",
    _sample_rename_issue,
    'Rename the issue "{title}" of {project} to "{new}".',
    'Change the title of the issue "{title}" in {project} to "{new}".',
    'The issue "{title}" of {project} should be called "{new}"',
    'Give the issue "{title}" in the project {project} the new title "{new}".',
    'Edit "{title}", an issue of {project}: its title should read "{new}".',
)
def rename_issue(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_edit_form(page, slots)
    page = yield from type_text(page, "Title", slots["new"])
    yield from click(page, "Save Changes", "button", intent_phrase="")
    yield from finish("The issue has its new title")


_COMMENTS = (
    "Thanks, I will look at it on Friday.",
    "Fixed on main, please try again.",
    "Could you attach the log?",
    "I see the same on two machines.",
    "Let us talk about this at the next meeting.",
    "This has to wait for the next release.",
    "lgtm",
)


def _sample_comment_issue(data: Data, rng: random.Random) -> TaskInstance | None:
    project, text = sample_project(data, rng), rng.choice(_COMMENTS)
    issue = sample_issue(data, rng, project)
    if issue is None:
        return None
    slots = {"title": issue["title"], "project": project["name"], "text": text}
    spec = page_includes(
        url_of(project, issue["number"]), ".comment:last-of-type", "Nora Whitfield", text
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "comment-issue",
    _sample_comment_issue,
    'Comment "{text}" on the issue "{title}" of {project}.',
    'Write "{text}" below the issue "{title}" in {project}.',
    'Answer the issue "{title}" of {project} with the comment "{text}"',
    'Add the comment "{text}" to "{title}", an issue of {project}.',
    'In {project}, tell the others on the issue "{title}": "{text}"',
)
def comment_issue(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_issue(page, slots["project"], slots["title"])
    page = yield from type_text(page, "Write a comment", slots["text"])
    yield from click(page, "Comment", "button", intent_phrase="")
    yield from finish("The comment is written")


def _sample_close_issue(data: Data, rng: random.Random) -> TaskInstance | None:
    project, text = sample_project(data, rng, "Reporter"), rng.choice(_COMMENTS)
    issue = sample_issue(data, rng, project)
    if issue is None:
        return None
    slots = {"title": issue["title"], "project": project["name"], "text": text}
    return TaskInstance(slots, closed_with_comment(url_of(project, issue["number"]), text))


@tasks.add(
    "close-issue",
    _sample_close_issue,
    'Close the issue "{title}" of {project} with the comment "{text}".',
    'Comment "{text}" on the issue "{title}" in {project}, then close it.',
    'The issue "{title}" of {project} is done: write "{text}" and close it',
    'Close "{title}" in the project {project} and leave the comment "{text}" there.',
    'In {project}, end the issue "{title}" with the words "{text}" and close it.',
)
def close_issue(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_issue(page, slots["project"], slots["title"])
    page = yield from type_text(page, "Write a comment", slots["text"])
    page = yield from click(page, "Comment", "button", intent_phrase="")
    yield from click(page, "Close Issue", "button", intent_phrase="close")
    yield from finish("The issue is closed")


def _sample_reopen_issue(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Reporter")
    issue = sample_issue(data, rng, project, "state = 'closed'")
    if issue is None:
        return None
    slots = {"title": issue["title"], "project": project["name"]}
    return TaskInstance(
        slots, page_equals(url_of(project, issue["number"]), ".head .state", "Open")
    )


@tasks.add(
    "reopen-issue",
    _sample_reopen_issue,
    'Reopen the issue "{title}" of {project}.',
    'The closed issue "{title}" in {project} is back: reopen it.',
    'Open the closed issue "{title}" of {project} again',
    'Somebody closed "{title}" in {project} too early. Reopen this issue.',
    'In {project}, the issue "{title}" should be open again.',
)
def reopen_issue(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_issue(page, slots["project"], slots["title"], "Closed")
    yield from click(page, "Reopen Issue", "button", intent_phrase="reopen")
    yield from finish("The issue is open again")


# --- many issues ---------------------------------------------------------------------------------


def _sample_close_labelled(data: Data, rng: random.Random) -> TaskInstance | None:
    project, label = sample_project(data, rng, "Reporter"), rng.choice(LABELS)
    sql = (
        "SELECT issue.number FROM issue JOIN issue_label ON issue_id = issue.id JOIN label"
        " ON label.id = label_id WHERE issue.project_id = ? AND state = 'open' AND label.name = ?"
    )
    issue_rows = fetch_rows(data, sql, project["id"], label)
    if not 2 <= len(issue_rows) <= 3:
        return None
    numbers = {row["number"] for row in issue_rows}
    open_sql = "SELECT number FROM issue WHERE project_id = ? AND state = 'open'"
    open_numbers = {row["number"] for row in fetch_rows(data, open_sql, project["id"])}
    expected_states = dict.fromkeys(sorted(numbers), "Closed")
    # One other issue suffices: an agent that ignores the label closes the newest, listed first.
    expected_states |= dict.fromkeys(sorted(open_numbers - numbers)[-1:], "Open")
    states = [
        page_equals(url_of(project, number), ".head .state", state)
        for number, state in expected_states.items()
    ]
    return TaskInstance({"project": project["name"], "label": label}, all_of(*states))


@tasks.add(
    "close-labelled",
    _sample_close_labelled,
    'Close all open issues of {project} with the label "{label}".',
    'Every open issue labelled "{label}" in {project} should be closed.',
    'Close each of the open "{label}" issues in the project {project}',
    'In {project}, no issue with the label "{label}" may stay open: close them.',
    'Go through the open issues of {project} that carry the label "{label}" and close them all.',
)
def close_labelled(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Issues")
    page = yield from set_filter(page, "Label", slots["label"])
    titles = [name for name in element_names_after(page, "Clear filters", "link") if name != "Next"]
    for title in titles:
        if not has_element(page, title, "link"):
            page = yield from click(page, "Issues", "link", intent_phrase="")
            page = yield from set_filter(page, "Label", slots["label"])
        page = yield from click(page, title, "link", intent_phrase="", reason="It has the label")
        page = yield from click(page, "Close Issue", "button", intent_phrase="close")
    yield from finish("They are all closed")
