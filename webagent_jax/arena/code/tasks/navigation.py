"""Tasks that end on a page."""

from __future__ import annotations

import random
import re
from urllib.parse import urlencode

from webagent_jax.arena.code.dashboard import LANGUAGES
from webagent_jax.arena.code.tasks.helpers import (
    CODE,
    fetch_rows,
    go_to_account_page,
    go_to_file,
    go_to_issue,
    go_to_project,
    go_to_project_page,
    other_members,
    sample_issue,
    sample_project,
    set_filter,
)
from webagent_jax.arena.code.tasks.issue_questions import LABELS
from webagent_jax.arena.code.tasks.repository_questions import contributors
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    sample_row,
    url_equals,
)
from webagent_jax.expert_steps import click, element_names, finish, page_text, select_option
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("code", "gitlab")


def _sample_open_file(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    path = sample_row(
        rng,
        fetch_rows(data, "SELECT path FROM file WHERE project_id = ? ORDER BY path", project["id"]),
    )["path"]
    slots = {"path": path, "project": project["name"]}
    return TaskInstance(slots, url_equals(f"{CODE}/{project['path']}/blob/{path}"))


@tasks.add(
    "open-file",
    _sample_open_file,
    "Open the file {path} of {project}.",
    "Show me {path} in the project {project}.",
    "Go to {project} and open {path}",
    "I want to read {path} from the repository {project}. Bring it up.",
    "Find the file {path} in {project} and leave it open.",
)
def open_file(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project(page, slots["project"])
    yield from go_to_file(page, slots["path"])
    yield from finish("The file is open")


def _sample_file_history(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    path = sample_row(
        rng,
        fetch_rows(data, "SELECT path FROM file WHERE project_id = ? ORDER BY path", project["id"]),
    )["path"]
    query = urlencode({"path": path})
    slots = {"path": path, "project": project["name"]}
    return TaskInstance(slots, url_equals(f"{CODE}/{project['path']}/commits?{query}"))


@tasks.add(
    "file-history",
    _sample_file_history,
    "Show the history of {path} in {project}.",
    "Open the list of commits that changed {path} of {project}.",
    "I want to see all commits to {project} that touched the file {path}",
    "Bring up the history of the file {path} in the project {project}.",
    "Which commits changed {path} in {project}? Show me the list.",
)
def file_history(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project(page, slots["project"])
    page = yield from go_to_file(page, slots["path"])
    yield from click(page, "History", "link", reason="The page of the file leads to its history")
    yield from finish("These are the commits of the file")


def _sample_issues_labelled(data: Data, rng: random.Random) -> TaskInstance | None:
    project, label = sample_project(data, rng), rng.choice(LABELS)
    state = rng.choice(("open", "closed"))
    slots = {"state": state, "label": label, "project": project["name"]}
    url, query = f"{CODE}/{project['path']}/issues", urlencode({"label": label})
    # The filters may be set in either order.
    queries = [f"state=closed&{query}", f"{query}&state=closed"] if state == "closed" else [query]
    return TaskInstance(slots, url_equals(*(f"{url}?{query}" for query in queries)))


@tasks.add(
    "issues-labelled",
    _sample_issues_labelled,
    'Show the {state} issues of {project} with the label "{label}".',
    'List all {state} issues labelled "{label}" in {project}.',
    'Open the list of {state} issues of {project} that carry the label "{label}"',
    'In {project}, filter the {state} issues by the label "{label}".',
    'I want to see only the {state} "{label}" issues of the project {project}.',
)
def issues_labelled(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Issues")
    if slots["state"] == "closed":
        page = yield from click(page, "Closed", "link", intent_phrase="closed")
    yield from set_filter(page, "Label", slots["label"])
    yield from finish("The list is filtered")


def _sample_issues_of_person(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    member = sample_row(rng, other_members(data, project))
    word, name = rng.choice((("assigned to", "assignee"), ("opened by", "author")))
    query = urlencode({name: member["username"]})
    slots = {"word": word, "person": member["name"], "project": project["name"]}
    return TaskInstance(slots, url_equals(f"{CODE}/{project['path']}/issues?{query}"))


@tasks.add(
    "issues-of-person",
    _sample_issues_of_person,
    "Show the open issues of {project} that are {word} {person}.",
    "List all open issues {word} {person} in {project}.",
    "Open the list of the open issues {word} {person} in the project {project}",
    "In {project}, filter the open issues: only those {word} {person}.",
    "Which open issues of {project} are {word} {person}? Bring up the list.",
)
def issues_of_person(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Issues")
    field = "Assignee" if slots["word"] == "assigned to" else "Author"
    yield from set_filter(page, field, slots["person"])
    yield from finish("The list is filtered")


def _sample_commits_of_person(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    name, _ = rng.choice(contributors(data, project["id"]))
    ((username,),) = fetch_rows(data, "SELECT username FROM user WHERE name = ?", name)
    slots = {"person": name, "project": project["name"]}
    return TaskInstance(slots, url_equals(f"{CODE}/{project['path']}/commits?author={username}"))


@tasks.add(
    "commits-of-person",
    _sample_commits_of_person,
    "Show the commits of {person} to {project}.",
    "List all commits in {project} that {person} made.",
    "Open the list of commits of {project}, only those by {person}",
    "In {project}, filter the commits by the author {person}.",
    "What did {person} commit to {project}? Bring up the list of commits.",
)
def commits_of_person(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Commits")
    yield from select_option(page, "Author", slots["person"])
    yield from finish("The list is filtered")


_SORTS = {
    "most stars first": ("stars", "Most stars"),
    "newest first": ("created", "Newest"),
    "by name": ("name", "Name"),
}


def _sample_explore(data: Data, rng: random.Random) -> TaskInstance | None:
    language, order = rng.choice(LANGUAGES), rng.choice(list(_SORTS))
    query = urlencode({"language": language, "sort": _SORTS[order][0]})
    return TaskInstance(
        {"language": language, "order": order}, url_equals(f"{CODE}/explore?{query}")
    )


@tasks.add(
    "explore",
    _sample_explore,
    "Show all {language} projects on Slipway, {order}.",
    "List the projects in {language} that one can explore here, {order}.",
    "Explore the projects written in {language} and sort them {order}",
    "I am looking for {language} projects. Bring up the list of all of them, {order}.",
    "Open the list of everybody's {language} projects, sorted {order}.",
)
def explore(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Explore", "link", intent_phrase="")
    page = yield from select_option(page, "Language", slots["language"])
    yield from select_option(
        page, "Sort by", _SORTS[slots["order"]][1], intent_phrase=slots["order"]
    )
    yield from finish("The list is filtered and sorted")


_OWN_LISTS = {
    "open issues that are assigned to me": ("My Issues", "/issues"),
    "open merge requests I wrote": ("My Merge Requests", "/merge-requests"),
    "merge requests that wait for my review": (
        "My Merge Requests",
        "/merge-requests?role=reviewer",
    ),
    "projects I starred": ("Starred", "/starred"),
    "finished to-dos of mine": ("", "/to-dos?state=done"),
}


def _sample_own_list(data: Data, rng: random.Random) -> TaskInstance | None:
    entry = rng.choice(list(_OWN_LISTS))
    return TaskInstance({"what": entry}, url_equals(CODE + _OWN_LISTS[entry][1]))


@tasks.add(
    "mine",
    _sample_own_list,
    "Show me the {what}.",
    "Open the list of {what}.",
    "Where are the {what}? Bring them up.",
    "Go to the page with the {what}",
    "I want to look through the {what}.",
)
def own_list(slots: Slots, page: Observation) -> Expert:
    entry, path = _OWN_LISTS[slots["what"]]
    if entry:
        page = yield from go_to_account_page(page, entry)
    else:
        page = yield from click(page, "To-Dos", "link", intent_phrase="to-dos")
        page = yield from click(page, "Done", "link", intent_phrase="finished")
    if "reviewer" in path:
        page = yield from click(page, "To review", "link", intent_phrase="wait for my review")
    yield from finish("This is the list")


def _sample_open_closed_issue(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    issue = sample_issue(data, rng, project, "state = 'closed'")
    if issue is None:
        return None
    slots = {"title": issue["title"], "project": project["name"]}
    return TaskInstance(slots, url_equals(f"{CODE}/{project['path']}/issues/{issue['number']}"))


@tasks.add(
    "open-closed-issue",
    _sample_open_closed_issue,
    'Open the closed issue "{title}" of {project}.',
    'Show me the issue "{title}" in {project}; it is closed already.',
    'Go to {project} and open the closed issue titled "{title}"',
    'I want to read again the closed issue "{title}" of the project {project}. Bring it up.',
    'Find "{title}" among the closed issues of {project} and leave it open on the screen.',
)
def open_closed_issue(slots: Slots, page: Observation) -> Expert:
    yield from go_to_issue(page, slots["project"], slots["title"], "Closed")
    yield from finish("The issue is open")


_STATES = {"open": "", "merged": "Merged", "closed": "Closed"}


def _sample_latest_request(data: Data, rng: random.Random) -> TaskInstance | None:
    project, state = sample_project(data, rng), rng.choice(list(_STATES))
    sql = (
        "SELECT number FROM merge_request WHERE project_id = ? AND state = ?"
        " ORDER BY created DESC, id DESC LIMIT 1"
    )
    requests = fetch_rows(data, sql, project["id"], state)
    if not requests:
        return None
    slots = {"state": state, "project": project["name"]}
    url = f"{CODE}/{project['path']}/merge-requests/{requests[0]['number']}"
    return TaskInstance(slots, url_equals(url))


@tasks.add(
    "latest-request",
    _sample_latest_request,
    "Open the latest {state} merge request of {project}.",
    "Show me the newest {state} merge request in {project}.",
    "Go to the most recently created merge request of {project} that is {state}",
    "Bring up the {state} merge request of {project} that was opened last.",
    "In {project}, find the newest of the {state} merge requests and open it.",
)
def latest_request(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Merge Requests")
    tab = _STATES[slots["state"]]
    if tab:
        page = yield from click(page, tab, "link", intent_phrase=slots["state"])
    links = element_names(page, "link")
    first = links[links.index("All") + 1]
    yield from click(page, first, "link", intent_phrase="latest", reason="The newest come first")
    yield from finish("The merge request is open")


def _sample_top_profile(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    ranking = contributors(data, project["id"])
    if ranking[0][1] == ranking[1][1]:
        return None
    ((username,),) = fetch_rows(data, "SELECT username FROM user WHERE name = ?", ranking[0][0])
    return TaskInstance({"project": project["name"]}, url_equals(f"{CODE}/{username}"))


@tasks.add(
    "top-profile",
    _sample_top_profile,
    "Open the profile of whoever made the most commits to {project}.",
    "Show me the profile page of the top contributor of {project}.",
    "Go to the page of the person with the most commits in {project}",
    "Who contributed most commits to {project}? Bring up that profile.",
    "Find the most active committer of {project} and open their profile.",
)
def top_profile(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Contributors")
    contributor_rows = re.findall(r"([A-Z]\w+ [A-Z]\w+) (\d+) commits?, latest", page_text(page))
    name = contributor_rows[0][0]
    yield from click(
        page, name, "link", intent_phrase="most commits", reason="The most active come first"
    )
    yield from finish("This is the profile")
