"""Sampling, evaluation and navigation helpers for the tasks of the code host."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from typing import Any

from webagent_jax.arena.code.activity_data import AGENT_USER_ID
from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.task import Data, EvalSpec, all_of, page_equals, page_includes, sample_row
from webagent_jax.expert_steps import (
    Moves,
    click,
    has_element,
    scroll_to,
    search,
    select_option,
)
from webagent_jax.types import Observation

CODE = "__GITLAB__"


# --- sampling ------------------------------------------------------------------------------------


def fetch_rows(data: Data, sql: str, *arguments: Any) -> Sequence[sqlite3.Row]:
    return data["code"].execute(sql, arguments).fetchall()


def sample_project(data: Data, rng: random.Random, role: str = "", where: str = "1") -> Any:
    """Return a project visible to the agent.

    Args:
        data: seed databases.
        rng: random generator.
        role: minimum role of the agent in the project, "" for none.
        where: SQL condition on the project.
    """
    roles = ROLES[ROLES.index(role) :] if role else ("", *ROLES)
    role_list = ", ".join(f"'{role_name}'" for role_name in roles)
    projects = fetch_rows(
        data,
        "SELECT project.*, namespace.path || '/' || slug AS path, namespace.path AS owner,"
        " coalesce(role, '') AS role FROM project JOIN namespace ON namespace.id = namespace_id"
        f" LEFT JOIN member ON project_id = project.id AND member.user_id = {AGENT_USER_ID}"
        f" WHERE coalesce(role, '') IN ({role_list}) AND {where}"
        " AND (project.visibility != 'private' OR role IS NOT NULL) ORDER BY project.id",
    )
    return sample_row(rng, projects)


def sample_issue(
    data: Data, rng: random.Random, project: Any, where: str = "state = 'open'"
) -> Any:
    return sample_row(
        rng,
        fetch_rows(
            data,
            "SELECT issue.*, author.name AS author, assignee.name AS assignee,"
            " milestone.title AS milestone FROM issue JOIN user author ON author.id ="
            " issue.author_id LEFT JOIN user assignee ON assignee.id = issue.assignee_id"
            " LEFT JOIN milestone ON milestone.id = issue.milestone_id"
            f" WHERE issue.project_id = ? AND issue.{where} ORDER BY issue.id",
            project["id"],
        ),
    )


def sample_merge_request(
    data: Data, rng: random.Random, project: Any, where: str = "state = 'open'"
) -> Any:
    return sample_row(
        rng,
        fetch_rows(
            data,
            "SELECT merge_request.*, author.name AS author, reviewer.name AS reviewer FROM"
            " merge_request JOIN user author ON author.id = author_id LEFT JOIN user reviewer"
            f" ON reviewer.id = reviewer_id WHERE project_id = ? AND {where} ORDER BY number",
            project["id"],
        ),
    )


def other_members(data: Data, project: Any) -> Sequence[sqlite3.Row]:
    """Return the members of a project other than the agent."""
    return fetch_rows(
        data,
        "SELECT user.*, role FROM member JOIN user ON user.id = user_id WHERE project_id = ?"
        f" AND user.id != {AGENT_USER_ID} ORDER BY name",
        project["id"],
    )


def non_members(data: Data, project: Any) -> Sequence[sqlite3.Row]:
    """Return the users who are not members of a project."""
    return fetch_rows(
        data,
        "SELECT * FROM user WHERE id NOT IN (SELECT user_id FROM member WHERE project_id = ?)"
        " ORDER BY id",
        project["id"],
    )


def next_free_number(data: Data, project: Any, table: str = "issue") -> int:
    sql = f"SELECT coalesce(max(number), 0) + 1 FROM {table} WHERE project_id = ?"
    return int(fetch_rows(data, sql, project["id"])[0][0])


# --- evaluation ----------------------------------------------------------------------------------


def closed_with_comment(url: str, comment: str) -> EvalSpec:
    """Check that an issue or merge request is closed and that the comment is its last one."""
    state = page_equals(url, ".head .state", "Closed")
    return all_of(state, page_includes(url, ".comment:last-of-type", comment))


# --- navigation ----------------------------------------------------------------------------------


def go_to_project(page: Observation, project: str) -> Moves:
    page = yield from search(
        page, "Search Slipway", project, reason="The search finds a project by its name"
    )
    link = project_link(page, project)
    return (
        yield from click(page, link, "link", intent_phrase=project, reason="This is the project")
    )


def project_link(page: Observation, project: str) -> str:
    """Return the link text of a project in a list, which starts with its owner."""
    return next(
        element.name
        for element in page.elements.values()
        if element.kind == "link" and element.name.endswith(f" / {project}")
    )


def go_to_project_page(page: Observation, project: str, page_name: str) -> Moves:
    """Open a page of a project, such as "Issues" or "Members"."""
    page = yield from go_to_project(page, project)
    return (
        yield from click(
            page, page_name, "link", intent_phrase="", reason=f"I need its {page_name.lower()}"
        )
    )


def go_to_issue(page: Observation, project: str, title: str, state: str = "") -> Moves:
    page = yield from go_to_project_page(page, project, "Issues")
    if state:
        page = yield from click(page, state, "link", reason="It is not among the open ones")
    page = yield from search(page, "Search issues", title, reason="There are many issues")
    return (yield from click(page, title, "link", reason="This is the issue"))


def go_to_merge_request(page: Observation, project: str, title: str, state: str = "") -> Moves:
    page = yield from go_to_project_page(page, project, "Merge Requests")
    if state:
        page = yield from click(page, state, "link", reason="It is not among the open ones")
    while not has_element(page, title, "link") and has_element(page, "Next", "link"):
        page = yield from click(page, "Next", "link", reason="It is not on this page")
    return (yield from click(page, title, "link", reason="This is the merge request"))


def go_to_account_page(page: Observation, entry: str) -> Moves:
    """Open an entry of the account menu."""
    page = yield from click(page, "Nora Whitfield", reason="The menu under my name has it")
    return (yield from click(page, entry, "link", intent_phrase=""))


def set_filter(page: Observation, name: str, option: str) -> Moves:
    """Set a filter of the list of issues."""
    if not has_element(page, name, "select"):
        page = yield from click(
            page, "Filters", "button", intent_phrase="", reason="The filters are hidden"
        )
    return (
        yield from select_option(page, name, option, reason="The filter leaves the wanted ones")
    )


def go_to_file(page: Observation, path: str) -> Moves:
    """Open a file from the page of its project, through the folders."""
    *folders, name = path.split("/")
    for folder in folders:
        page = yield from click(
            page, f"{folder}/", "link", intent_phrase=folder, reason=f"{path} is in it"
        )
    page, _ = yield from scroll_to(page, name, "link")
    return (yield from click(page, name, "link", reason="This is the file"))
