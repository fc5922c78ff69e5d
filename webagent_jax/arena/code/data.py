"""Users, groups, projects and their members, drawn from the lists in data/."""

from __future__ import annotations

import datetime
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from webagent_jax.arena import common, random_data
from webagent_jax.arena.code import activity_data, sample_projects
from webagent_jax.arena.code.sample_projects import Team
from webagent_jax.arena.common import TODAY, Person
from webagent_jax.arena.database import Database, insert_rows

NUM_USERS = 220
FIRST_GROUP_ID = (
    1001  # first namespace id of groups; the namespace of a user has the id of the user
)
ROLES = ("Guest", "Reporter", "Developer", "Maintainer", "Owner")
AGENT_ROLES = {
    "homestead": "Owner",
    "lanternworks": "Maintainer",
    "openpantry": "Maintainer",
    "cartwright": "Developer",
    "greenline": "Developer",
    "northpier": "Reporter",
}
"""Roles of the agent's account in the groups."""


def fill(connection: sqlite3.Connection) -> None:
    people = common.persons()[:NUM_USERS]
    _fill_users(connection, people)
    teams = _fill_projects(connection, people)
    _fill_stars(connection, teams)
    activity_data.fill(connection, teams, [person.id for person in people])


def _fill_users(connection: sqlite3.Connection, people: Sequence[Person]) -> None:
    rng = random_data.random_stream("code", "users")
    bios = random_data.read_json("code_words")["bios"]
    users, spaces = [], []
    for person in people:
        join_date = (datetime.date(2020, 3, 2) + datetime.timedelta(rng.randrange(900))).isoformat()
        columns = (person.id, person.username, person.name, person.email, person.password)
        users.append((*columns, rng.choice(bios), person.city.name, "", join_date))
        spaces.append((person.id, person.username, person.name, person.id, "", "public", join_date))
    insert_rows(connection, "user", users)
    insert_rows(connection, "namespace", spaces)
    follows = {
        (follower.id, rng.choice(people).id)
        for follower in people
        for _ in range(rng.randint(0, 5))
    }
    insert_rows(connection, "follow", sorted(pair for pair in follows if pair[0] != pair[1] != 1))


def _fill_projects(connection: sqlite3.Connection, people: Sequence[Person]) -> list[Team]:
    rng = random_data.random_stream("code", "projects")
    by_id = {person.id: person for person in people}
    groups: dict[str, tuple[int, dict[int, str]]] = {}  # id and members by path
    names: dict[str, str] = {}
    teams: list[Team] = []
    for plan in sample_projects.plans():
        if isinstance(plan, sample_projects.Group):
            groups[plan.path] = (
                FIRST_GROUP_ID + len(groups),
                _group_members(rng, plan.path, people),
            )
            names[plan.path] = plan.name
            created_day = f"2020-{rng.randint(1, 12):02}-11"
            row = (
                groups[plan.path][0],
                plan.path,
                plan.name,
                None,
                plan.description,
                "public",
                created_day,
            )
            insert_rows(connection, "namespace", [row])
            group_rows = [(row[0], user, role) for user, role in groups[plan.path][1].items()]
            insert_rows(connection, "group_member", group_rows)
            continue
        if plan.owner in groups:
            space, members = groups[plan.owner][0], dict(groups[plan.owner][1])
            owner, holder = plan.owner, f"the {names[plan.owner]} authors"
        else:
            person = by_id[int(plan.owner)]
            space, members = person.id, {person.id: "Owner"}
            owner, holder = person.username, person.name
        for person in rng.sample(people[1:], rng.randint(3, 6)):
            role = rng.choices(ROLES[:4], (15, 20, 45, 20))[0]
            members.setdefault(person.id, role)
        created = datetime.datetime(2020, 9, 1, 9) + datetime.timedelta(rng.randrange(800))
        contents = sample_projects.files(plan, owner, holder, str(created.year))
        team = Team(len(teams) + 1, plan, created, members, contents)
        teams.append(team)
        _fill_project(connection, rng, team, space)
    return teams


def _group_members(rng: random.Random, path: str, people: Sequence[Person]) -> dict[int, str]:
    """Return the role of each user in a group; the first is the owner."""
    others = [person.id for person in rng.sample(people[1:], rng.randint(5, 8))]
    members = {others[0]: "Owner", others[1]: "Maintainer"}
    members |= {user: rng.choice(("Developer", "Developer", "Reporter")) for user in others[2:]}
    return members | ({1: AGENT_ROLES[path]} if path in AGENT_ROLES else {})


def _fill_project(
    connection: sqlite3.Connection, rng: random.Random, team: Team, space: int
) -> None:
    plan, created = team.plan, team.created.isoformat(" ")
    facts = (plan.visibility, plan.language, plan.license, plan.topics, None, created, created)
    row = (team.id, space, plan.name, plan.slug, plan.description, *facts, 0, 0)
    insert_rows(connection, "project", [row])
    roles = []
    for user, role in team.members.items():
        owner_join_date = created[:10] if role == "Owner" else None
        join_time = team.created + datetime.timedelta(
            rng.randrange((TODAY - team.created.date()).days)
        )
        roles.append((team.id, user, role, owner_join_date or join_time.date().isoformat()))
    insert_rows(connection, "member", roles)
    files = [(None, team.id, path, team.paths[path]) for path in sorted(team.paths)]
    insert_rows(connection, "file", files)


def _fill_stars(connection: sqlite3.Connection, teams: Sequence[Team]) -> None:
    """Insert stars: many for few projects, none for private ones."""
    rng = random_data.random_stream("code", "stars")
    visible_teams = [team for team in teams if team.plan.visibility != "private"]
    rng.shuffle(visible_teams)
    users = [person.id for person in common.persons()[1:NUM_USERS]]
    rows = []
    for rank, team in enumerate(visible_teams):
        count = round(190 / (rank / 6 + 1)) + rng.randint(0, 4)
        rows += [(user, team.id) for user in sorted(rng.sample(users, count))]
    rows += [(1, team.id) for team in rng.sample(visible_teams, 4)]
    insert_rows(connection, "star", rows)
    connection.execute(
        "UPDATE project SET stars = (SELECT count(*) FROM star WHERE project_id = project.id)"
    )


DATABASE = Database(
    name="code",
    schema=(Path(__file__).parent / "schema.sql").read_text(encoding="utf-8"),
    fill=fill,
)
