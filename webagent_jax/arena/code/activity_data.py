"""Activity in the projects: commits, milestones, issues, merge requests and comments."""

from __future__ import annotations

import datetime
import random
import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from webagent_jax.arena import random_data
from webagent_jax.arena.code.sample_projects import Team, pluralize
from webagent_jax.arena.common import NOW
from webagent_jax.arena.database import insert_rows
from webagent_jax.arena.site import to_slug

AGENT_USER_ID = 1  # user id of the agent's account


class _TextSampler:
    """Source of texts for a project: fills the {braces} of patterns with its nouns."""

    def __init__(self, rng: random.Random, team: Team) -> None:
        self.rng, self.team = rng, team
        self.words: Any = random_data.read_json("code_words")

    def sample_text(self, choices: Sequence[str]) -> str:
        noun, other = self.rng.sample(self.team.plan.nouns, 2)
        text = self.rng.choice(choices).format(
            noun=noun,
            nouns=pluralize(noun),
            Noun=noun.capitalize(),
            other=other,
            others=pluralize(other),
            count=self.rng.choice((3, 5, 12, 20, 40, 75, 120, 300)),
            minor=self.rng.randint(2, 19),
        )
        return re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", text)

    def sample_new_text(self, choices: Sequence[str], used_texts: set[str]) -> str:
        """Return a text that is not in `used_texts`, and add it."""
        text = self.sample_text(choices)
        while text in used_texts:
            text = self.sample_text(choices)
        used_texts.add(text)
        return text

    def sample_time(self, start: datetime.datetime, end: datetime.datetime) -> datetime.datetime:
        """Return a time between 7:00 and 23:00, to the minute."""
        time = start + (end - start) * self.rng.random()
        return time.replace(
            hour=self.rng.randint(7, 22), minute=self.rng.randrange(60), second=0, microsecond=0
        )


def fill(connection: sqlite3.Connection, teams: Sequence[Team], users: Sequence[int]) -> None:
    rng = random_data.random_stream("code", "work")
    sizes = [round(150 / (rank + 3) ** 0.55) for rank in range(len(teams))]
    rng.shuffle(sizes)
    for team, size in zip(teams, sizes, strict=True):
        writer = _TextSampler(rng, team)
        _fill_commits(connection, writer, size)
        milestones = _fill_milestones(connection, writer)
        _fill_issues(connection, writer, size, milestones, users)
        _fill_requests(connection, writer, size)
    connection.execute(
        "UPDATE project SET active = max("
        "(SELECT max(written) FROM revision WHERE project_id = project.id),"
        " (SELECT max(created) FROM issue WHERE project_id = project.id))"
    )
    _fill_to_dos(connection)


def _committers(writer: _TextSampler) -> list[int]:
    """Return the users who may push, each repeated 0.66 times as often as the previous one."""
    pushers = [
        user
        for user, role in writer.team.members.items()
        if role in ("Developer", "Maintainer", "Owner")
    ]
    writer.rng.shuffle(pushers)
    return [
        user for rank, user in enumerate(pushers) for _ in range(max(1, round(30 * 0.66**rank)))
    ]


def _fill_commits(connection: sqlite3.Connection, writer: _TextSampler, size: int) -> None:
    rng, team = writer.rng, writer.team
    authors = _committers(writer)
    paths = sorted(team.paths)
    code = [path for path in paths if "/" in path and not path.startswith("docs")] or paths
    end = NOW - datetime.timedelta(hours=20)
    times = sorted(writer.sample_time(team.created, end) for _ in range(size * 2))
    owner = next(user for user, role in team.members.items() if role == "Owner")
    _commit(connection, writer, owner, ("main", "First version", team.created, paths))
    for time in times:
        changed_paths = rng.sample(code, min(len(code), rng.choice((1, 1, 2, 3))))
        title = writer.sample_text(writer.words["commits"])
        if title == "Update change log":
            changed_paths = ["CHANGELOG.md"]
        elif " docs" in title or title.startswith("Document"):
            changed_paths = ["docs/usage.md"]
        author = rng.choice(authors)
        _commit(connection, writer, author, ("main", title, time, changed_paths))
    insert_rows(connection, "branch", [(team.id, "main", times[-1].isoformat(" "), 1)])
    for stem in rng.sample(("experiment", "next", "cleanup", "docs-rewrite", "async", "v2"), 3):
        name = f"{stem}-{rng.choice(team.plan.nouns)}"
        time = writer.sample_time(NOW - datetime.timedelta(60), end)
        _commit(
            connection,
            writer,
            rng.choice(authors),
            (name, writer.sample_text(writer.words["commits"]), time, rng.sample(code, 1)),
        )
        insert_rows(connection, "branch", [(team.id, name, time.isoformat(" "), 0)])


def _commit(
    connection: sqlite3.Connection,
    writer: _TextSampler,
    author: int,
    revision: tuple[str, str, datetime.datetime, Sequence[str]],
) -> None:
    branch, title, moment, changed_paths = revision
    sha = f"{writer.rng.getrandbits(32):08x}"
    row = (None, writer.team.id, branch, sha, author, title, moment.isoformat(" "))
    number = connection.execute("INSERT INTO revision VALUES (?, ?, ?, ?, ?, ?, ?)", row).lastrowid
    changes = []
    for path in changed_paths:
        lines = writer.team.paths[path].count("\n")
        start = 1 if title == "First version" else writer.rng.randint(1, max(1, lines - 4))
        num_added = lines if title == "First version" else writer.rng.randint(1, 8)
        num_removed = 0 if title == "First version" else writer.rng.randint(0, 6)
        changes.append((number, path, start, num_added, num_removed))
    insert_rows(connection, "revision_file", changes)


def _fill_milestones(connection: sqlite3.Connection, writer: _TextSampler) -> list[tuple[int, str]]:
    """Insert the milestones and return id and state of each."""
    milestones, titles = [], set[str]()
    for _ in range(writer.rng.randint(3, 5)):
        title = writer.sample_new_text(writer.words["milestones"], titles)
        due = (NOW + datetime.timedelta(writer.rng.randint(-200, 160))).date()
        state = "closed" if due < NOW.date() and writer.rng.random() < 0.8 else "open"
        note = writer.rng.choice(writer.words["milestone_notes"])
        row = (None, writer.team.id, title, note, due.isoformat(), state)
        number = connection.execute("INSERT INTO milestone VALUES (?, ?, ?, ?, ?, ?)", row)
        milestones.append((number.lastrowid or 0, state))
    return milestones


def _fill_issues(
    connection: sqlite3.Connection,
    writer: _TextSampler,
    size: int,
    milestones: Sequence[tuple[int, str]],
    users: Sequence[int],
) -> None:
    rng, team, words = writer.rng, writer.team, writer.words
    labels: dict[str, int] = {}
    for name, hue in words["labels"]:
        row = (None, team.id, name, hue)
        cursor = connection.execute("INSERT INTO label VALUES (?, ?, ?, ?)", row)
        labels[name] = cursor.lastrowid or 0
    members, titles = list(team.members), set[str]()
    kinds = list(words["issues"])
    is_visible = team.plan.visibility != "private"
    moments = sorted(writer.sample_time(team.created, NOW) for _ in range(size))
    for number, created in enumerate(moments, 1):
        created = min(created, NOW - datetime.timedelta(minutes=rng.randint(30, 600)))
        kind = rng.choices(kinds, (34, 28, 10, 8, 6, 4, 5, 5))[0]
        title = writer.sample_new_text(words["issues"][kind], titles)
        body = writer.sample_text(words["bodies"].get(kind, words["bodies"]["other"]))
        age = (NOW - created).days
        state = "closed" if rng.random() < min(0.75, 0.15 + age / 500) else "open"
        candidates = [
            m for m, milestone_state in milestones if milestone_state == "open" or state == "closed"
        ]
        author = rng.choice(users if is_visible and rng.random() < 0.35 else members)
        assignee = rng.choice(members) if rng.random() < 0.68 else None
        milestone = rng.choice(candidates) if candidates and rng.random() < 0.45 else None
        due = (NOW + datetime.timedelta(rng.randint(3, 90))).date().isoformat()
        updated = min(created + datetime.timedelta(rng.randint(0, 40)), NOW).isoformat(" ")
        facts = (None, team.id, number, title, body, state, author, assignee, milestone)
        times = (due if rng.random() < 0.15 else None, created.isoformat(" "), updated)
        issue = connection.execute(
            f"INSERT INTO issue VALUES ({', '.join('?' * 12)})", (*facts, *times)
        ).lastrowid
        label_names = {kind, *rng.sample(("help wanted", "good first issue"), rng.random() < 0.25)}
        insert_rows(
            connection, "issue_label", [(issue, labels[name]) for name in sorted(label_names)]
        )
        _fill_comments(connection, writer, (issue, None), created)


def _fill_comments(
    connection: sqlite3.Connection,
    writer: _TextSampler,
    parent_ids: tuple[int | None, int | None],
    start: datetime.datetime,
) -> None:
    count = writer.rng.choices((0, 1, 2, 3, 4), (34, 28, 20, 12, 6))[0]
    end = min(start + datetime.timedelta(20), NOW)
    times = sorted(start + (end - start) * writer.rng.random() for _ in range(count))
    texts = set[str]()
    for time in times:
        text = writer.sample_new_text(writer.words["comments"], texts)
        author = writer.rng.choice(list(writer.team.members))
        time_text = time.replace(second=0, microsecond=0).isoformat(" ")
        row = (None, *parent_ids, author, text, time_text)
        connection.execute("INSERT INTO comment VALUES (?, ?, ?, ?, ?, ?)", row)


def _fill_requests(connection: sqlite3.Connection, writer: _TextSampler, size: int) -> None:
    rng, team, words = writer.rng, writer.team, writer.words
    authors = sorted(set(_committers(writer)))
    reviewers = [u for u, role in team.members.items() if role in ("Maintainer", "Owner")]
    code = sorted(path for path in team.paths if "/" in path)
    moments = sorted(writer.sample_time(team.created, NOW) for _ in range(4 + size // 4))
    titles = set[str]()
    for number, created in enumerate(moments, 1):
        created = min(created, NOW - datetime.timedelta(hours=rng.randint(2, 30)))
        title = writer.sample_new_text(words["requests"], titles)
        age = (NOW - created).days
        is_open = rng.random() < (0.6 if age < 60 else 0.15)
        state = "open" if is_open else rng.choices(("merged", "closed"), (85, 15))[0]
        source = to_slug(title)
        author = rng.choice(authors)
        reviewer = rng.choice(reviewers) if rng.random() < 0.75 else None
        updated = min(created + datetime.timedelta(rng.randint(0, 12)), NOW).isoformat(" ")
        row = (None, team.id, number, title, writer.sample_text(words["request_bodies"]), state)
        other_columns = (source, "main", author, reviewer, created.isoformat(" "), updated)
        request = connection.execute(
            f"INSERT INTO merge_request VALUES ({', '.join('?' * 12)})", (*row, *other_columns)
        ).lastrowid
        changed_paths = rng.sample(code, min(len(code), rng.randint(1, 2)))
        _commit(connection, writer, author, (source, title, created, changed_paths))
        if state == "open":
            insert_rows(connection, "branch", [(team.id, source, updated, 0)])
        approvers = [user for user in team.members if user not in (author, AGENT_USER_ID)]
        approvals = rng.sample(approvers, rng.choice((0, 0, 1, 2) if is_open else (1, 2)))
        if approvals and state != "closed":
            insert_rows(connection, "approval", [(request, user) for user in sorted(approvals)])
        _fill_comments(connection, writer, (None, request), created)


def _fill_to_dos(connection: sqlite3.Connection) -> None:
    """Insert to-dos of the agent from the latest issues and merge requests assigned to it."""
    rng = random_data.random_stream("code", "to-dos")
    issues = connection.execute(
        "SELECT id, author_id, created FROM issue WHERE assignee_id = ? AND author_id != ?"
        " AND state = 'open' ORDER BY created DESC LIMIT 9",
        (AGENT_USER_ID, AGENT_USER_ID),
    ).fetchall()
    requests = connection.execute(
        "SELECT id, author_id, created FROM merge_request WHERE reviewer_id = ? AND author_id != ?"
        " AND state = 'open' ORDER BY created DESC LIMIT 6",
        (AGENT_USER_ID, AGENT_USER_ID),
    ).fetchall()
    rows: list[tuple[Any, ...]] = []
    for number, author, created in issues:
        action = rng.choice(("assigned you", "assigned you", "mentioned you in"))
        rows.append((AGENT_USER_ID, author, action, number, None, created))
    for number, author, created in requests:
        rows.append((AGENT_USER_ID, author, "asked you to review", None, number, created))
    rows.sort(key=lambda row: row[-1])
    insert_rows(connection, "to_do", [(None, *row, int(i < 3)) for i, row in enumerate(rows)])
