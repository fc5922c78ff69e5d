"""How one gets about on the code host, and what tasks of it are drawn from and judged by."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.expert_steps import Moves, bring, choose, click, has, search
from webagent_jax.arena.task import Data, Spec, both, page_has, page_is, pick
from webagent_jax.types import Observation

CODE = "__GITLAB__"
ME = 1  # user id of whose browser it is

Slots = Mapping[str, str]


# --- drawing -------------------------------------------------------------------------------------


def rows(data: Data, sql: str, *arguments: Any) -> Sequence[sqlite3.Row]:
    return data["code"].execute(sql, arguments).fetchall()


def a_project(data: Data, rng: random.Random, role: str = "", where: str = "1") -> Any:
    """One that I see; with a role: one in which I am at least that."""
    roles = ROLES[ROLES.index(role) :] if role else ("", *ROLES)
    wanted = ", ".join(f"'{each}'" for each in roles)
    found = rows(
        data,
        "SELECT project.*, namespace.path || '/' || slug AS path, namespace.path AS owner,"
        " coalesce(role, '') AS role FROM project JOIN namespace ON namespace.id = namespace_id"
        f" LEFT JOIN member ON project_id = project.id AND member.user_id = {ME}"
        f" WHERE coalesce(role, '') IN ({wanted}) AND {where}"
        " AND (project.visibility != 'private' OR role IS NOT NULL) ORDER BY project.id",
    )
    return pick(rng, found)


def an_issue(data: Data, rng: random.Random, project: Any, where: str = "state = 'open'") -> Any:
    return pick(
        rng,
        rows(
            data,
            "SELECT issue.*, author.name AS author, assignee.name AS assignee,"
            " milestone.title AS milestone FROM issue JOIN user author ON author.id ="
            " issue.author_id LEFT JOIN user assignee ON assignee.id = issue.assignee_id"
            " LEFT JOIN milestone ON milestone.id = issue.milestone_id"
            f" WHERE issue.project_id = ? AND issue.{where} ORDER BY issue.id",
            project["id"],
        ),
    )


def a_request(data: Data, rng: random.Random, project: Any, where: str = "state = 'open'") -> Any:
    return pick(
        rng,
        rows(
            data,
            "SELECT merge_request.*, author.name AS author, reviewer.name AS reviewer FROM"
            " merge_request JOIN user author ON author.id = author_id LEFT JOIN user reviewer"
            f" ON reviewer.id = reviewer_id WHERE project_id = ? AND {where} ORDER BY number",
            project["id"],
        ),
    )


def the_members(data: Data, project: Any) -> Sequence[sqlite3.Row]:
    """But for me."""
    return rows(
        data,
        "SELECT user.*, role FROM member JOIN user ON user.id = user_id WHERE project_id = ?"
        f" AND user.id != {ME} ORDER BY name",
        project["id"],
    )


def outsiders(data: Data, project: Any) -> Sequence[sqlite3.Row]:
    """Users who are no members."""
    return rows(
        data,
        "SELECT * FROM user WHERE id NOT IN (SELECT user_id FROM member WHERE project_id = ?)"
        " ORDER BY id",
        project["id"],
    )


def next_number(data: Data, project: Any, table: str = "issue") -> int:
    sql = f"SELECT coalesce(max(number), 0) + 1 FROM {table} WHERE project_id = ?"
    return int(rows(data, sql, project["id"])[0][0])


# --- judging -------------------------------------------------------------------------------------


def closed_with(url: str, comment: str) -> Spec:
    """An issue or a merge request is closed, and this was said last."""
    state = page_is(url, ".head .state", "Closed")
    return both(state, page_has(url, ".comment:last-of-type", comment))


# --- ways ----------------------------------------------------------------------------------------


def to_project(page: Observation, project: str) -> Moves:
    page = yield from search(
        page, "Search Slipway", project, why="The search finds a project by its name"
    )
    link = project_link(page, project)
    return (yield from click(page, link, "link", about=project, why="This is the project"))


def project_link(page: Observation, project: str) -> str:
    """Its name in a list: with the owner before it."""
    return next(
        element.name
        for element in page.elements.values()
        if element.kind == "link" and element.name.endswith(f" / {project}")
    )


def to_part(page: Observation, project: str, part: str) -> Moves:
    """A page of a project, such as Issues or Members."""
    page = yield from to_project(page, project)
    return (yield from click(page, part, "link", about="", why=f"I need its {part.lower()}"))


def to_issue(page: Observation, project: str, title: str, state: str = "") -> Moves:
    page = yield from to_part(page, project, "Issues")
    if state:
        page = yield from click(page, state, "link", why="It is not among the open ones")
    page = yield from search(page, "Search issues", title, why="There are many issues")
    return (yield from click(page, title, "link", why="This is the issue"))


def to_request(page: Observation, project: str, title: str, state: str = "") -> Moves:
    page = yield from to_part(page, project, "Merge Requests")
    if state:
        page = yield from click(page, state, "link", why="It is not among the open ones")
    while not has(page, title, "link") and has(page, "Next", "link"):
        page = yield from click(page, "Next", "link", why="It is not on this page")
    return (yield from click(page, title, "link", why="This is the merge request"))


def to_mine(page: Observation, entry: str) -> Moves:
    """An entry of the menu under my name."""
    page = yield from click(page, "Nora Whitfield", why="The menu under my name has it")
    return (yield from click(page, entry, "link", about=""))


def narrow(page: Observation, name: str, option: str) -> Moves:
    """Chooses one of the filters of the issues."""
    if not has(page, name, "select"):
        page = yield from click(page, "Filters", "button", about="", why="The filters are hidden")
    return (yield from choose(page, name, option, why="The filter leaves the wanted ones"))


def to_file(page: Observation, path: str) -> Moves:
    """From the page of a project, through the folders."""
    *folders, name = path.split("/")
    for folder in folders:
        page = yield from click(page, f"{folder}/", "link", about=folder, why=f"{path} is in it")
    page, _ = yield from bring(page, name, "link")
    return (yield from click(page, name, "link", why="This is the file"))
