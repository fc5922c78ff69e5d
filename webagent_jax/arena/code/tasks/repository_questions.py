"""Questions about commits, contributors, stars and files."""

from __future__ import annotations

import datetime
import random
import re

from webagent_jax.arena.code.dashboard import LANGUAGES
from webagent_jax.arena.code.tasks.helpers import (
    fetch_rows,
    go_to_file,
    go_to_project,
    go_to_project_page,
    sample_project,
)
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    sample_row,
)
from webagent_jax.expert_steps import (
    answer,
    click,
    extract_text,
    has_element,
    page_text,
    scroll_to,
    scroll_until,
    select_option,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("code", "gitlab")

_BY_AUTHOR = (
    "SELECT user.id, name, username, count(*) AS commits FROM revision JOIN user"
    " ON user.id = author_id WHERE project_id = ? AND branch = 'main' GROUP BY user.id"
    " ORDER BY commits DESC, name"
)


def contributors(data: Data, project: object) -> list[tuple[str, int]]:
    """Return name and number of commits of each contributor, the most active first."""
    contributor_rows = fetch_rows(data, _BY_AUTHOR, project)
    return [(row["name"], row["commits"]) for row in contributor_rows]


# --- commits -------------------------------------------------------------------------------------


def _sample_commits_of(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    author, count = rng.choice(contributors(data, project["id"]))
    slots = {"author": author, "project": project["name"]}
    return TaskInstance(slots, answer_includes(str(count))) if count > 3 else None


@tasks.add(
    "commits-of",
    _sample_commits_of,
    "How many commits did {author} make to {project}?",
    "Tell me the number of commits by {author} in {project}.",
    "In the project {project}, how often did {author} commit to main?",
    "Count the commits of {author} to the main branch of {project}",
    "How many of the commits of {project} are by {author}?",
)
def commits_of(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Contributors")
    page, match = yield from scroll_until(page, rf"{slots['author']} (\d+) commits?")
    assert match is not None
    yield from answer(
        match[1], evidence=match[0], reason="The page counts the commits of everybody"
    )


_RANKS = {"most": 0, "second most": 1, "third most": 2}


def _sample_top_contributor(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    place = rng.choice(list(_RANKS))
    ranking = contributors(data, project["id"])
    index = _RANKS[place]
    if len(ranking) <= index + 1:
        return None
    counts = [count for _, count in ranking]
    if counts.count(counts[index]) > 1:
        return None
    spec = answer_includes(ranking[index][0], excluding=[name for name, _ in ranking])
    return TaskInstance({"place": place, "project": project["name"]}, spec)


@tasks.add(
    "top-contributor",
    _sample_top_contributor,
    "Who made the {place} commits to {project}?",
    "Tell me the full name of the contributor with the {place} commits in {project}.",
    "Which person has the {place} commits to the main branch of {project}?",
    "Name the one with the {place} commits in the repository {project}",
    "Look at the contributors of {project}: who has the {place} commits?",
)
def top_contributor(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Contributors")
    contributor_rows = re.findall(r"([A-Z]\w+ [A-Z]\w+) (\d+) commits?, latest", page_text(page))
    name, count = contributor_rows[_RANKS[slots["place"]]]
    yield from answer(name, evidence=f"{name} {count} commits", reason="The most active come first")


def _sample_commits_in_month(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    commit = sample_row(
        rng,
        fetch_rows(
            data,
            "SELECT written, user.id, name FROM revision JOIN user ON user.id = author_id"
            " WHERE project_id = ? AND branch = 'main' AND written > '2022-10' ORDER BY written",
            project["id"],
        ),
    )
    if commit is None:
        return None
    sql = (
        "SELECT count(*) FROM revision WHERE project_id = ? AND author_id = ?"
        " AND branch = 'main' AND written LIKE ?"
    )
    month = f"{commit['written'][:7]}-%"
    ((count,),) = fetch_rows(data, sql, project["id"], commit["id"], month)
    month_text = f"{datetime.date.fromisoformat(commit['written'][:10]):%B %Y}"
    slots = {"author": commit["name"], "project": project["name"], "month": month_text}
    return TaskInstance(slots, answer_includes(str(count)))


@tasks.add(
    "commits-in-month",
    _sample_commits_in_month,
    "How many commits did {author} make to {project} in {month}?",
    "Tell me how often {author} committed to {project} in {month}.",
    "Count the commits of {author} to {project} from {month}.",
    "In {month}, how many commits to {project} came from {author}?",
    "I want to know the number of commits by {author} in {project} during {month}",
)
def commits_in_month(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Commits")
    page = yield from select_option(page, "Author", slots["author"])
    month = datetime.datetime.strptime(slots["month"], "%B %Y")
    matching_days: list[str] = []
    while True:
        days = [datetime.datetime.strptime(day, "%b %d, %Y") for day in _parse_days(page)]
        matching_days += [
            f"{day:%b %d}" for day in days if (day.year, day.month) == (month.year, month.month)
        ]
        if (days and days[-1] < month) or not has_element(page, "Next", "link"):
            break
        page = yield from click(page, "Next", "link", reason="Older commits follow")
    yield from answer(
        str(len(matching_days)), evidence=", ".join(matching_days), reason="I count them"
    )


def _parse_days(page: Observation) -> list[str]:
    """Return the day of each commit in the list."""
    return re.findall(r" [A-Z]\w+ [A-Z]\w+, ([A-Z][a-z]{2} \d+, \d{4})", page_text(page))


def _sample_last_change(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    path = sample_row(
        rng,
        fetch_rows(data, "SELECT path FROM file WHERE project_id = ? ORDER BY path", project["id"]),
    )["path"]
    sql = (
        "SELECT name FROM revision JOIN user ON user.id = author_id JOIN revision_file"
        " ON revision_id = revision.id WHERE project_id = ? AND branch = 'main' AND path = ?"
        " ORDER BY written DESC, revision.id DESC LIMIT 1"
    )
    ((name,),) = fetch_rows(data, sql, project["id"], path)
    return TaskInstance({"path": path, "project": project["name"]}, answer_includes(name))


@tasks.add(
    "last-change",
    _sample_last_change,
    "Who changed the file {path} of {project} last?",
    "Tell me the name of the person who made the latest change to {path} in {project}.",
    "In {project}, by whom is the last commit that touched {path}?",
    "Find out who last edited {path} in the repository {project}",
    "Whose change to {path} of {project} is the most recent one?",
)
def last_change(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project(page, slots["project"])
    page = yield from go_to_file(page, slots["path"])
    name = extract_text(page, r"Last change: ([A-Z]\w+ [A-Z]\w+),")
    yield from answer(name, evidence="Last change", reason="The page of the file tells it")


# --- files and projects --------------------------------------------------------------------------


def _sample_clone_address(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    return TaskInstance(
        {"project": project["name"]}, answer_includes(f"git@slipway.example:{project['path']}.git")
    )


@tasks.add(
    "clone-address",
    _sample_clone_address,
    "What is the SSH address to clone {project}?",
    "Give me the clone URL of {project} for SSH.",
    "I want to clone {project} with SSH. Which address do I use?",
    "Show me the command line address (SSH) of the repository {project}",
    "Find the SSH clone address of {project} and tell me.",
)
def clone_address(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project(page, slots["project"])
    page, element = yield from scroll_to(page, "Clone with SSH", "textbox")
    address = page.elements[element].value
    yield from answer(address, evidence="Clone with SSH", reason="It is on the page of the project")


def _sample_setting_in_docs(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    setting = rng.choice(("limit", "keep_days"))
    sql = "SELECT content FROM file WHERE project_id = ? AND path = 'docs/usage.md'"
    ((text,),) = fetch_rows(data, sql, project["id"])
    value = re.search(rf"{setting} = (\d+)", text)
    assert value is not None
    return TaskInstance({"setting": setting, "project": project["name"]}, answer_includes(value[1]))


@tasks.add(
    "setting-in-docs",
    _sample_setting_in_docs,
    "Which value of {setting} do the usage notes (docs/usage.md) of {project} show?",
    "In docs/usage.md of {project}, what is {setting} set to?",
    "Look into docs/usage.md of {project} and tell me the value of {setting}.",
    "What does the example in docs/usage.md of {project} give for {setting}?",
    "Read docs/usage.md in {project}: what number stands behind {setting}?",
)
def setting_in_docs(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project(page, slots["project"])
    page = yield from go_to_file(page, "docs/usage.md")
    page, match = yield from scroll_until(page, rf"{slots['setting']} = (\d+)")
    assert match is not None
    yield from answer(match[1], evidence=match[0], reason="The example shows it")


def _sample_stars_together(data: Data, rng: random.Random) -> TaskInstance | None:
    first_project, second_project = sample_project(data, rng), sample_project(data, rng)
    if first_project["id"] == second_project["id"]:
        return None
    slots = {"one": first_project["name"], "other": second_project["name"]}
    stars = first_project["stars"], second_project["stars"]
    return TaskInstance(slots, answer_includes(str(sum(stars)), known_numbers=stars))


@tasks.add(
    "stars-together",
    _sample_stars_together,
    "How many stars do {one} and {other} have together?",
    "Add up the stars of {one} and of {other}.",
    "What is the sum of the stars of the projects {one} and {other}?",
    "Tell me how many stars {one} and {other} have in all",
    "If you count the stars of {one} and those of {other}, what is the total?",
)
def stars_together(slots: Slots, page: Observation) -> Expert:
    counts = []
    for name in (slots["one"], slots["other"]):
        page = yield from go_to_project(page, name)
        counts.append(int(extract_text(page, r"(\d+) stars?, \d+ fork")))
    total = str(sum(counts))
    yield from answer(
        total, evidence=f"{counts[0]} + {counts[1]}", reason="Both pages tell their stars"
    )


def _sample_starred_most(data: Data, rng: random.Random) -> TaskInstance | None:
    language, place = rng.choice(LANGUAGES), rng.choice(("most", "second most", "third most"))
    sql = (
        "SELECT name, stars FROM project WHERE language = ? AND visibility != 'private'"
        " ORDER BY stars DESC LIMIT 5"
    )
    projects = fetch_rows(data, sql, language)
    stars = [row["stars"] for row in projects]
    index = _RANKS[place]
    if stars.count(stars[index]) > 1:
        return None
    names = [row["name"] for row in projects]
    spec = answer_includes(names[index], str(stars[index]), excluding=names)
    return TaskInstance({"language": language, "place": place}, spec)


@tasks.add(
    "starred-most",
    _sample_starred_most,
    "Which {language} project has the {place} stars here, and how many?",
    "Name the project in {language} with the {place} stars, and its number of stars.",
    "Of all projects written in {language}, which has the {place} stars? Tell me how many, too.",
    "Find the {language} project with the {place} stars and tell me its name and its stars",
    "Explore the {language} projects: which one has the {place} stars and how many are they?",
)
def starred_most(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Explore", "link", intent_phrase="")
    page = yield from select_option(page, "Language", slots["language"])
    page = yield from select_option(page, "Sort by", "Most stars", intent_phrase=slots["place"])
    links = [e.name for e in page.elements.values() if e.kind == "link" and " / " in e.name]
    link = links[_RANKS[slots["place"]]]
    stars = extract_text(page, rf"{re.escape(link)} .*?(\d+) stars?")
    name = link.split(" / ")[1]
    yield from answer(f"{name}, {stars} stars", evidence=link, reason="The most starred come first")


def _sample_latest_commit(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    author, count = rng.choice(contributors(data, project["id"])[:5])
    sql = (
        "SELECT title FROM revision JOIN user ON user.id = author_id WHERE project_id = ?"
        " AND branch = 'main' AND name = ? ORDER BY written DESC, revision.id DESC LIMIT 1"
    )
    ((title,),) = fetch_rows(data, sql, project["id"], author)
    slots = {"author": author, "project": project["name"]}
    return TaskInstance(slots, answer_includes(title)) if count > 1 else None


@tasks.add(
    "latest-commit",
    _sample_latest_commit,
    "What is the message of the latest commit of {author} to {project}?",
    "Tell me the title of the most recent commit by {author} in {project}.",
    "What did {author} commit last to {project}? Give me the message.",
    "Find the newest commit of {author} in {project} and tell me what its message says",
    "In {project}, which message has the last commit made by {author}?",
)
def latest_commit(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Commits")
    page = yield from select_option(page, "Author", slots["author"])
    links = [e.name for e in page.elements.values() if e.kind == "link"]
    titles = [
        name
        for name in links
        if re.search(rf"{re.escape(name)} {slots['author']}, ", page_text(page))
    ]
    yield from answer(titles[0], evidence=slots["author"], reason="The newest commit comes first")
