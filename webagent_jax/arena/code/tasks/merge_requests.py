"""Tasks on merge requests, branches and files."""

from __future__ import annotations

import random
from typing import Any

from webagent_jax.arena.code.activity_data import AGENT_USER_ID
from webagent_jax.arena.code.tasks.helpers import (
    CODE,
    closed_with_comment,
    fetch_rows,
    go_to_file,
    go_to_merge_request,
    go_to_project,
    go_to_project_page,
    next_free_number,
    other_members,
    sample_merge_request,
    sample_project,
    sample_row,
)
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    all_of,
    page_equals,
    page_includes,
)
from webagent_jax.expert_steps import click, finish, select_option, type_text
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("code", "gitlab")


def url_of(project: Any, number: int) -> str:
    return f"{CODE}/{project['path']}/merge-requests/{number}"


# --- merge requests ------------------------------------------------------------------------------


def _sample_approve(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Developer")
    approved_sql = f"SELECT merge_request_id FROM approval WHERE user_id = {AGENT_USER_ID}"
    request = sample_merge_request(
        data, rng, project, f"state = 'open' AND merge_request.id NOT IN ({approved_sql})"
    )
    if request is None:
        return None
    slots = {"title": request["title"], "project": project["name"]}
    return TaskInstance(
        slots, page_includes(url_of(project, request["number"]), "#approvals", "Nora Whitfield")
    )


@tasks.add(
    "approve",
    _sample_approve,
    'Approve the merge request "{title}" of {project}.',
    'In {project}, approve the open merge request "{title}".',
    'I have read the merge request "{title}" of {project} and like it. Approve it',
    'Give my approval to "{title}", a merge request of {project}.',
    'The merge request "{title}" in the project {project} needs my approval: give it.',
)
def approve(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_merge_request(page, slots["project"], slots["title"])
    yield from click(page, "Approve", "button", intent_phrase="")
    yield from finish("It is approved")


def _sample_merge(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Developer")
    request = sample_merge_request(data, rng, project)
    if request is None:
        return None
    slots = {"title": request["title"], "project": project["name"]}
    return TaskInstance(
        slots, page_equals(url_of(project, request["number"]), ".head .state", "Merged")
    )


@tasks.add(
    "merge",
    _sample_merge,
    'Merge the merge request "{title}" of {project}.',
    'In {project}, merge the open merge request "{title}".',
    'The merge request "{title}" of {project} is ready: merge it',
    'Bring "{title}", a merge request of {project}, into main.',
    'Please merge "{title}" in the project {project}.',
)
def merge(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_merge_request(page, slots["project"], slots["title"])
    yield from click(page, "Merge", "button", intent_phrase="merge")
    yield from finish("It is merged")


_REASONS = (
    "Not needed any more.",
    "We decided against it.",
    "Replaced by a smaller change.",
    "Please split this into two.",
    "No news for months, closing.",
)


def _sample_decline(data: Data, rng: random.Random) -> TaskInstance | None:
    project, text = sample_project(data, rng, "Developer"), rng.choice(_REASONS)
    request = sample_merge_request(data, rng, project)
    if request is None:
        return None
    slots = {"title": request["title"], "project": project["name"], "text": text}
    return TaskInstance(slots, closed_with_comment(url_of(project, request["number"]), text))


@tasks.add(
    "decline",
    _sample_decline,
    'Close the merge request "{title}" of {project} with the comment "{text}".',
    'Comment "{text}" on the merge request "{title}" in {project} and close it without merging.',
    'We do not want the merge request "{title}" of {project}: write "{text}" and close it',
    'Decline "{title}", a merge request of {project}: comment "{text}", then close it.',
    'In {project}, close the open merge request "{title}" after commenting "{text}".',
)
def decline(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_merge_request(page, slots["project"], slots["title"])
    page = yield from type_text(page, "Write a comment", slots["text"])
    page = yield from click(page, "Comment", "button", intent_phrase="")
    yield from click(page, "Close Merge Request", "button", intent_phrase="close")
    yield from finish("It is closed")


def _sample_comment_request(data: Data, rng: random.Random) -> TaskInstance | None:
    project, text = (
        sample_project(data, rng),
        rng.choice(
            (
                "Any progress here?",
                "Thank you!",
                "Is this ready for review?",
                "Can I help?",
                "Nice work.",
            )
        ),
    )
    request = sample_merge_request(data, rng, project)
    if request is None:
        return None
    slots = {"title": request["title"], "project": project["name"], "text": text}
    spec = page_includes(
        url_of(project, request["number"]), ".comment:last-of-type", "Nora Whitfield", text
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "comment-request",
    _sample_comment_request,
    'Comment "{text}" on the merge request "{title}" of {project}.',
    'Write "{text}" below the open merge request "{title}" in {project}.',
    'Add the comment "{text}" to the merge request "{title}" of {project}',
    'Say "{text}" to the author of "{title}", an open merge request of {project}.',
    'In {project}, answer the merge request "{title}" with "{text}"',
)
def comment_request(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_merge_request(page, slots["project"], slots["title"])
    page = yield from type_text(page, "Write a comment", slots["text"])
    yield from click(page, "Comment", "button", intent_phrase="")
    yield from finish("The comment is written")


_TITLES = ("Merge my experiment", "Bring this to main", "Small clean-up", "New parser", "Draft")


def _sample_open_request(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Developer")
    sql = (
        "SELECT name FROM branch WHERE project_id = ?1 AND NOT is_default AND name NOT IN"
        " (SELECT source FROM merge_request WHERE project_id = ?1) ORDER BY name"
    )
    branch = sample_row(rng, fetch_rows(data, sql, project["id"]))
    member, title = sample_row(rng, other_members(data, project)), rng.choice(_TITLES)
    if branch is None:
        return None
    slots = {"branch": branch["name"], "project": project["name"], "title": title}
    slots |= {"person": member["name"]}
    url = url_of(project, next_free_number(data, project, "merge_request"))
    spec = all_of(
        page_equals(url, "h1", title),
        page_includes(url, ".by", f"{branch['name']} into main"),
        page_equals(url, "#reviewer", member["name"]),
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "open-request",
    _sample_open_request,
    'Open a merge request from {branch} into main in {project}: title "{title}", reviewer '
    "{person}.",
    'In {project}, create a merge request titled "{title}" for the branch {branch} and ask '
    "{person} "
    "to review it.",
    'Submit the branch {branch} of {project} for merging into main. Title: "{title}". Reviewer: '
    "{person}",
    'Make a merge request of {branch} in {project}. Call it "{title}"; {person} is the reviewer.',
    "{person} should review a merge request in {project} that merges {branch} into main and is "
    'called "{title}". Create it.',
)
def open_request(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Merge Requests")
    page = yield from click(page, "New Merge Request", "link", intent_phrase="")
    page = yield from select_option(page, "Source branch", slots["branch"])
    page = yield from type_text(page, "Title", slots["title"])
    page = yield from select_option(page, "Reviewer", slots["person"])
    yield from click(page, "Create Merge Request", "button", intent_phrase="")
    yield from finish("The merge request is open")


# --- branches and files --------------------------------------------------------------------------


def _sample_create_branch(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Developer")
    name = rng.choice(("release", "fix", "try", "feature"))
    branch = f"{name}-{rng.choice(('login', 'import', 'search', 'colours', 'speed', '2024'))}"
    spec = page_includes(f"{CODE}/{project['path']}/branches", "main .list", branch)
    return TaskInstance({"branch": branch, "project": project["name"]}, spec)


@tasks.add(
    "create-branch",
    _sample_create_branch,
    "Create a branch called {branch} in {project}.",
    "Make a new branch {branch} in the project {project}.",
    "In {project}, start the branch {branch} from main",
    "I want to work on {project} in a branch of its own: create {branch}.",
    "Add the branch {branch} to the repository {project}.",
)
def create_branch(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Branches")
    page = yield from type_text(page, "Name of new branch", slots["branch"])
    yield from click(page, "Create Branch", "button", intent_phrase="")
    yield from finish("The branch is there")


def _sample_delete_branch(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Developer")
    sql = (
        "SELECT name FROM branch WHERE project_id = ? ORDER BY is_default DESC, updated DESC, name"
    )
    branches = [row["name"] for row in fetch_rows(data, sql, project["id"])]
    # The evaluator compares the page exactly, so all branches must fit on one page.
    if not 3 <= len(branches) <= 6:
        return None
    branch = rng.choice(branches[1:])
    other_branches = [name for name in branches if name != branch]
    url = f"{CODE}/{project['path']}/branches"
    spec = page_equals(url, "main .list li > div > a", " ; ".join(other_branches))
    return TaskInstance({"branch": branch, "project": project["name"]}, spec)


DELETE_BRANCH = (
    "Delete the branch {branch} of {project}.",
    "Remove the branch {branch} from the project {project}.",
    "The branch {branch} in {project} is not needed any more: delete it",
    "Clean up {project}: its branch {branch} can go.",
    "Please delete {branch}, a branch of {project}.",
)


@tasks.add("delete-branch", _sample_delete_branch, *DELETE_BRANCH)
def delete_branch(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Branches")
    yield from click(page, f"Delete {slots['branch']}", "button", intent_phrase=slots["branch"])
    yield from finish("The branch is gone")


_FILES = (
    ("AUTHORS.md", "Everybody who sent a change."),
    ("docs/faq.md", "Nobody has asked anything yet."),
    ("SECURITY.md", "Write to us before you write about us."),
    ("CODEOWNERS", "* @whitfieldno33"),
    ("docs/roadmap.md", "First faster, then prettier."),
    ("NEWS.md", "Nothing new this month."),
)


def _sample_add_file(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Developer")
    path, content = rng.choice(_FILES)
    message = rng.choice(("Add a missing file", "Tell who we are", "As agreed", "More docs"))
    slots = {"path": path, "content": content, "project": project["name"], "message": message}
    url = f"{CODE}/{project['path']}/blob/{path}"
    spec = all_of(page_includes(url, "main", content), page_includes(url, ".latest", message))
    return TaskInstance(slots, spec)


@tasks.add(
    "add-file",
    _sample_add_file,
    'Add the file {path} to {project} with the content "{content}". Commit message: "{message}"',
    'Create {path} in {project}. It should contain "{content}"; the commit message is "{message}".',
    'Commit a new file {path} to {project} with the text "{content}" and the message "{message}"',
    'In {project}, put "{content}" into a new file {path} and commit it as "{message}".',
    'Write the file {path} for {project}: "{content}". Use "{message}" as commit message.',
)
def add_file(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project(page, slots["project"])
    page = yield from click(page, "New File", "link", intent_phrase="")
    page = yield from type_text(page, "File name", slots["path"])
    page = yield from type_text(page, "Content", slots["content"])
    page = yield from type_text(page, "Commit message", slots["message"])
    yield from click(page, "Commit Changes", "button", intent_phrase="")
    yield from finish("The file is committed")


def _sample_rewrite_file(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Developer")
    path = rng.choice(("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "docs/design.md"))
    content = rng.choice(
        ("Under construction.", "This text has moved to our wiki.", "See the web site.", "Later.")
    )
    slots = {"path": path, "content": content, "project": project["name"]}
    url = f"{CODE}/{project['path']}/blob/{path}"
    selector = ".source" if path == "LICENSE" else ".readme"
    return TaskInstance(slots, page_equals(url, selector, content))


@tasks.add(
    "rewrite-file",
    _sample_rewrite_file,
    'Replace the whole content of {path} in {project} by "{content}".',
    'The file {path} of {project} should say nothing but "{content}".',
    'Edit {path} in the project {project} so that all it contains is "{content}"',
    'In {project}, overwrite {path} with the text "{content}" and commit.',
    'Commit a new version of {path} to {project}. Its only text is "{content}"',
)
def rewrite_file(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project(page, slots["project"])
    page = yield from go_to_file(page, slots["path"])
    page = yield from click(page, "Edit", "link", intent_phrase="")
    page = yield from type_text(page, "Content", slots["content"])
    yield from click(page, "Commit Changes", "button", intent_phrase="")
    yield from finish("The change is committed")
