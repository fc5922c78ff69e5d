"""Questions about issues, merge requests, milestones and members."""

from __future__ import annotations

import random
import re

from webagent_jax.arena import random_data
from webagent_jax.arena.code.data import ROLES
from webagent_jax.arena.code.tasks.helpers import (
    fetch_rows,
    go_to_issue,
    go_to_merge_request,
    go_to_project_page,
    non_members,
    other_members,
    sample_issue,
    sample_merge_request,
    sample_project,
    set_filter,
)
from webagent_jax.arena.code.tasks.merge_requests import DELETE_BRANCH
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    date_formats,
    sample_row,
    unachievable,
)
from webagent_jax.expert_steps import (
    answer,
    click,
    element_names,
    extract_text,
    give_up,
    has_element,
    scroll_until,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("code", "gitlab")


# --- one issue, one merge request ----------------------------------------------------------------

_ISSUE_FACTS = {
    "author": r" by ([A-Z]\w+ [A-Z]\w+) ",
    "assignee": r"Assignee ([A-Z]\w+ [A-Z]\w+) Labels",
    "milestone": r"Milestone (.+?) Due",
}


def _sample_issue_fact(data: Data, rng: random.Random) -> TaskInstance | None:
    project, fact = sample_project(data, rng), rng.choice(list(_ISSUE_FACTS))
    issue = sample_issue(data, rng, project)
    if issue is None or not issue[fact]:
        return None
    slots = {"fact": fact, "title": issue["title"], "project": project["name"]}
    return TaskInstance(slots, answer_includes(issue[fact]))


@tasks.add(
    "issue-fact",
    _sample_issue_fact,
    'What is the {fact} of the issue "{title}" in {project}?',
    'Tell me the {fact} of the open issue "{title}" of {project}.',
    'Look at "{title}" among the issues of {project}. What is its {fact}?',
    'I need the {fact} of the issue titled "{title}" in the project {project}',
    'Project {project}, issue "{title}": what is the {fact}?',
)
def issue_fact(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_issue(page, slots["project"], slots["title"])
    page, match = yield from scroll_until(page, _ISSUE_FACTS[slots["fact"]])
    assert match is not None
    yield from answer(match[1], evidence=slots["fact"], reason="The page of the issue tells it")


_REQUEST_FACTS = {
    "author": r" by ([A-Z]\w+ [A-Z]\w+)",
    "reviewer": r"Reviewer ([A-Z]\w+ [A-Z]\w+) Approved",
    "source branch": r" by [A-Z]\w+ [A-Z]\w+ ?: (\S+) into",
}


def _sample_request_fact(data: Data, rng: random.Random) -> TaskInstance | None:
    project, fact = sample_project(data, rng), rng.choice(list(_REQUEST_FACTS))
    state = rng.choice(("open", "merged"))
    request = sample_merge_request(data, rng, project, f"state = '{state}'")
    value = request and request[fact.replace("source branch", "source")]
    if not value:
        return None
    slots = {"fact": fact, "title": request["title"], "project": project["name"], "state": state}
    return TaskInstance(slots, answer_includes(value))


@tasks.add(
    "request-fact",
    _sample_request_fact,
    'What is the {fact} of the {state} merge request "{title}" in {project}?',
    'Tell me the {fact} of the {state} merge request "{title}" of {project}.',
    'Look at "{title}" among the {state} merge requests of {project}. What is its {fact}?',
    'I need the {fact} of the merge request titled "{title}" ({state}) in {project}',
    'Project {project}, {state} merge request "{title}": what is the {fact}?',
)
def request_fact(slots: Slots, page: Observation) -> Expert:
    tab = "Merged" if slots["state"] == "merged" else ""
    page = yield from go_to_merge_request(page, slots["project"], slots["title"], tab)
    page, match = yield from scroll_until(page, _REQUEST_FACTS[slots["fact"]])
    assert match is not None
    yield from answer(match[1], evidence=slots["fact"], reason="The page tells it")


def _sample_comment_of(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    issue = sample_issue(data, rng, project)
    sql = (
        "SELECT name, body FROM comment JOIN user ON user.id = author_id WHERE issue_id = ?"
        " ORDER BY written"
    )
    comments = fetch_rows(data, sql, issue["id"]) if issue else ()
    comment = sample_row(rng, comments)
    if comment is None or [row["name"] for row in comments].count(comment["name"]) > 1:
        return None
    slots = {"person": comment["name"], "title": issue["title"], "project": project["name"]}
    return TaskInstance(slots, answer_includes(comment["body"].rstrip(".")))


@tasks.add(
    "comment-of",
    _sample_comment_of,
    'What did {person} say about the issue "{title}" in {project}?',
    'Tell me the comment of {person} on the issue "{title}" of {project}.',
    'In {project}, {person} commented on the issue "{title}". What does the comment say?',
    'Quote what {person} wrote below the issue "{title}" of the project {project}',
    'Find the comment by {person} on "{title}", an issue of {project}, and tell me its text.',
)
def comment_of(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_issue(page, slots["project"], slots["title"])
    end = r"(?= [A-Z]\w+ [A-Z]\w+, [A-Z][a-z]{2} \d+, \d{4}, \d| Write a comment)"
    page, match = yield from scroll_until(
        page, rf"{slots['person']}, \w+ \d+, \d+, \d+:\d+ (.+?){end}"
    )
    assert match is not None
    yield from answer(
        match[1], evidence=slots["person"], reason="The comment stands below the issue"
    )


# --- lists of issues -----------------------------------------------------------------------------

LABELS = tuple(name for name, _ in random_data.read_json("code_words")["labels"])


def _sample_count_labelled(data: Data, rng: random.Random) -> TaskInstance | None:
    project, label = sample_project(data, rng), rng.choice(LABELS)
    sql = (
        "SELECT count(*) FROM issue JOIN issue_label ON issue_id = issue.id JOIN label"
        " ON label.id = label_id WHERE issue.project_id = ? AND state = 'open' AND label.name = ?"
    )
    ((count,),) = fetch_rows(data, sql, project["id"], label)
    slots = {"label": label, "project": project["name"]}
    return TaskInstance(slots, answer_includes(str(count))) if count > 1 else None


@tasks.add(
    "count-labelled",
    _sample_count_labelled,
    'How many open issues of {project} have the label "{label}"?',
    'Count the open issues of {project} that are labelled "{label}".',
    'Tell me the number of open issues with the label "{label}" in {project}.',
    'In {project}, how many of the open issues carry the label "{label}"?',
    'I want to know how many open "{label}" issues there are in the project {project}',
)
def count_labelled(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Issues")
    page = yield from set_filter(page, "Label", slots["label"])
    count = extract_text(page, r"(\d+) issues? open")
    yield from answer(count, evidence="issues open", reason="The list tells how many it has")


def _sample_count_assigned(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    member = sample_row(rng, other_members(data, project))
    sql = "SELECT count(*) FROM issue WHERE project_id = ? AND state = 'open' AND assignee_id = ?"
    ((count,),) = fetch_rows(data, sql, project["id"], member["id"])
    slots = {"person": member["name"], "project": project["name"]}
    return TaskInstance(slots, answer_includes(str(count))) if count else None


@tasks.add(
    "count-assigned",
    _sample_count_assigned,
    "How many open issues of {project} are assigned to {person}?",
    "Count the open issues of {project} that {person} has to work on.",
    "Tell me the number of open issues assigned to {person} in {project}.",
    "In {project}, how many open issues does {person} have on the desk?",
    "{person} is the assignee of how many open issues in {project}?",
)
def count_assigned(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Issues")
    page = yield from set_filter(page, "Assignee", slots["person"])
    count = extract_text(page, r"(\d+) issues? open")
    yield from answer(count, evidence="issues open", reason="The list tells how many it has")


_ENDS = {"oldest": ("Oldest first", "created"), "newest": ("Newest first", "created DESC")}


def _sample_end_labelled(data: Data, rng: random.Random) -> TaskInstance | None:
    project, end, label = sample_project(data, rng), rng.choice(list(_ENDS)), rng.choice(LABELS[:5])
    sql = (
        "SELECT issue.title FROM issue JOIN issue_label ON issue_id = issue.id JOIN label"
        " ON label.id = label_id WHERE issue.project_id = ? AND state = 'open' AND label.name = ?"
        f" ORDER BY {_ENDS[end][1]}"
    )
    titles = [row["title"] for row in fetch_rows(data, sql, project["id"], label)]
    slots = {"end": end, "label": label, "project": project["name"]}
    return (
        TaskInstance(slots, answer_includes(titles[0], excluding=titles))
        if len(titles) > 1
        else None
    )


@tasks.add(
    "end-labelled",
    _sample_end_labelled,
    'What is the title of the {end} open issue with the label "{label}" in {project}?',
    'Tell me the title of the {end} open "{label}" issue of {project}.',
    'Which open issue of {project} labelled "{label}" is the {end}?',
    'Among the open issues of {project} with the label "{label}", name the {end} one',
    'Find the {end} of the open issues in {project} that carry the label "{label}".',
)
def end_labelled(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Issues")
    page = yield from set_filter(page, "Label", slots["label"])
    if slots["end"] == "oldest":
        page = yield from set_filter(page, "Sort by", "Oldest first")
    index = element_names(page, "link").index("Clear filters")
    title = element_names(page, "link")[index + 1]
    yield from answer(title, evidence="the first of the list", reason=f"It is the {slots['end']}")


# --- milestones and members ----------------------------------------------------------------------


def _sample_milestone_fact(data: Data, rng: random.Random) -> TaskInstance | None:
    project, kind = sample_project(data, rng), rng.choice(("due", "left"))
    milestone = sample_row(
        rng,
        fetch_rows(
            data,
            "SELECT milestone.*, (SELECT count(*) FROM issue WHERE milestone_id = milestone.id"
            " AND state = 'open') AS left, (SELECT count(*) FROM issue"
            " WHERE milestone_id = milestone.id) AS total FROM milestone"
            " WHERE project_id = ? AND state = 'open' ORDER BY id",
            project["id"],
        ),
    )
    if milestone is None:
        return None
    question = {
        "due": "when is it due",
        "left": "how many of its issues are still open",
    }[kind]
    left, total = milestone["left"], milestone["total"]
    # The page shows the numbers of all and of closed issues; copying them is no answer.
    shown = [number for number in (total - left, total) if left not in (total - left, total)]
    spec = (
        answer_includes(date_formats(milestone["due"]))
        if kind == "due"
        else answer_includes(str(left), known_numbers=shown)
    )
    slots = {"milestone": milestone["title"], "project": project["name"], "question": question}
    return TaskInstance(slots, spec)


@tasks.add(
    "milestone-fact",
    _sample_milestone_fact,
    'The open milestone "{milestone}" of {project}: {question}?',
    'Look at the milestone "{milestone}" in {project}: {question}?',
    '{project} has a milestone called "{milestone}". Tell me: {question}?',
    'Check the milestone "{milestone}" of the project {project}; {question}?',
    'About the milestone "{milestone}" of {project}, {question}?',
)
def milestone_fact(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Milestones")
    pattern = rf"{re.escape(slots['milestone'])} Due (\w+ \d+, \d+)\. (\d+) of (\d+) issues?"
    page, match = yield from scroll_until(page, pattern)
    assert match is not None
    if "due" in slots["question"]:
        yield from answer(match[1], evidence="Due", reason="The list of milestones tells it")
    else:
        num_open = str(int(match[3]) - int(match[2]))
        yield from answer(num_open, evidence=match[0], reason="All but the closed ones are open")


def _sample_member_role(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    member = sample_row(rng, other_members(data, project))
    slots = {"person": member["name"], "project": project["name"]}
    return TaskInstance(slots, answer_includes(member["role"], excluding=ROLES))


_MEMBER_ROLE = (
    "Which role does {person} have in {project}?",
    "What is the role of {person} in the project {project}?",
    "Tell me the role of the member {person} of {project}.",
    "Look up {person} among the members of {project}. Which role is it?",
    "As what does {person} take part in {project}: Guest, Reporter, Developer or more?",
)


@tasks.add("member-role", _sample_member_role, *_MEMBER_ROLE)
def member_role(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Members")
    pattern = rf"{slots['person']} @\S+ (Guest|Reporter|Developer|Maintainer|Owner)"
    page, match = yield from scroll_until(page, pattern)
    while match is None:
        page = yield from click(page, "Next", "link", intent_phrase="", reason="The list goes on")
        page, match = yield from scroll_until(page, pattern)
    yield from answer(match[1], evidence=slots["person"], reason="The role stands behind the name")


def _sample_member_missing(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng)
    person = rng.choice(non_members(data, project))
    slots = {"person": person["name"], "project": project["name"]}
    return TaskInstance(slots, unachievable("this person is no member of the project"))


@tasks.add("member-missing", _sample_member_missing, *_MEMBER_ROLE)
def member_missing(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Members")
    page, match = yield from scroll_until(page, slots["person"])
    while match is None and has_element(page, "Next", "link"):
        page = yield from click(page, "Next", "link", intent_phrase="", reason="The list goes on")
        page, match = yield from scroll_until(page, slots["person"])
    yield from give_up(f"{slots['person']} is no member of {slots['project']}")


def _sample_branch_missing(data: Data, rng: random.Random) -> TaskInstance | None:
    project = sample_project(data, rng, "Developer")
    branch = rng.choice(("release-2.0", "hotfix-login", "legacy", "staging", "nightly"))
    sql = "SELECT 1 FROM branch WHERE project_id = ? AND name = ?"
    if fetch_rows(data, sql, project["id"], branch):
        return None
    slots = {"branch": branch, "project": project["name"]}
    return TaskInstance(slots, unachievable("there is no such branch"))


@tasks.add("branch-missing", _sample_branch_missing, *DELETE_BRANCH)
def branch_missing(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_project_page(page, slots["project"], "Branches")
    page, match = yield from scroll_until(page, rf"{re.escape(slots['branch'])} ")
    while match is None and has_element(page, "Next", "link"):
        page = yield from click(page, "Next", "link", intent_phrase="", reason="The list goes on")
        page, match = yield from scroll_until(page, rf"{re.escape(slots['branch'])} ")
    yield from give_up(f"{slots['project']} has no branch {slots['branch']}")
