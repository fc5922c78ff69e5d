"""The code host over HTTP: what its pages refuse, and what they do."""

from __future__ import annotations

import re

import pytest

from tests.arena.conftest import Visitor
from tests.arena.test_suite import first_of, opened, played
from webagent_jax.arena import database
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.code.data import DATABASE
from webagent_jax.arena.code.tasks import TEMPLATES

LANTERN = "/lanternworks/lantern"  # I am a maintainer of it
MOTHS = "/fieldnotes/moth-trap"  # I am nobody there


@pytest.fixture
def code(host: ArenaServerHandle, world: str) -> Visitor:
    return Visitor(host, world, "code")


@pytest.mark.parametrize(
    "path",
    ["/", "/explore", "/starred", "/issues", "/merge-requests", "/to-dos", "/groups", "/profile"]
    + ["/search?q=boiler", "/projects/new", "/groups/new", "/sign-in", "/lanternworks"]
    + ["/whitfieldno33", LANTERN, f"{LANTERN}/tree/src", f"{LANTERN}/blob/src/main.rs"]
    + [f"{LANTERN}/{part}" for part in ("issues", "commits", "branches", "contributors")]
    + [f"{LANTERN}/{part}" for part in ("milestones", "members", "merge-requests", "settings")]
    + [f"{LANTERN}/{part}" for part in ("issues/1", "merge-requests/1", "issues/1/edit", "labels")],
)
def test_every_page_answers(code: Visitor, path: str) -> None:
    assert code.get(path).status == 200


@pytest.mark.parametrize("path", ["/nobody", "/lanternworks/none", f"{LANTERN}/issues/9999"])
def test_what_is_not_there_is_told_in_the_layout_of_the_site(code: Visitor, path: str) -> None:
    page = code.get(path)
    assert page.status == 404 and "Slipway" in page.text


def test_the_data_are_the_same_every_time() -> None:
    assert database.build_image(DATABASE) == database.build_image(DATABASE)


def test_what_is_private_is_hidden_from_those_who_are_no_members(code: Visitor) -> None:
    assert code.get("/whitfieldno33/dotfiles").status == 200
    code.post("/sign-out")
    assert code.get("/whitfieldno33/dotfiles").status == 404
    assert code.get(LANTERN).status == 200
    assert "Dotfiles" not in code.get("/search?q=dotfiles").text
    assert code.get("/issues").location == "/sign-in?back=%2Fissues"


def test_issues_are_narrowed_searched_and_paged(code: Visitor) -> None:
    path = f"{LANTERN}/issues"
    every = code.get(f"{path}?state=all&page=99").text
    assert re.search(r"Page (\d+) of \1<", every)
    labelled = code.get(f"{path}?label=bug&state=all").text
    rows = re.findall(r"<p>#\d+ .+? by .+?\. (.+?)\.", labelled)
    assert rows and all("bug" in row for row in rows)
    assert "No issues found." in code.get(f"{path}?q=zebra").text
    assert code.get(f"{path}?q=&label=bug&author=").location == f"{path}?label=bug"


def test_an_issue_from_writing_to_closing(code: Visitor) -> None:
    refused = code.post(f"{LANTERN}/issues/new", title="", due="soon", assignee="9999")
    assert refused.status == 422 and len(refused.errors) == 3
    page = code.post(f"{LANTERN}/issues/new", title="A <b> title", body="Text", due="2023-07-01")
    assert "A &lt;b&gt; title" in page.text and "Jul 1, 2023" in page.text
    number = re.findall(r"#(\d+) opened", page.text)[0]
    path = f"{LANTERN}/issues/{number}"
    assert "says nothing" in code.post(f"{path}/comment", body=" ").text
    assert "1 comment<" in code.post(f"{path}/comment", body="I see it, too.").text
    assert "Reopen Issue" in code.post(f"{path}/state").text


def test_a_merge_request_is_approved_and_merged(
    host: ArenaServerHandle, world: str, code: Visitor
) -> None:
    ((number, source),) = host.rows(
        world,
        "code",
        "SELECT number, source FROM merge_request JOIN project ON project.id = project_id"
        " WHERE slug = 'lantern' AND state = 'open' ORDER BY number LIMIT 1",
    )
    path = f"{LANTERN}/merge-requests/{number}"
    assert "Revoke Approval" in code.post(f"{path}/approve").text
    assert ">Merged<" in code.post(f"{path}/merge").text
    assert f"Merge branch &#39;{source}&#39;" in code.get(f"{LANTERN}/commits").text
    assert f">{source}<" not in code.get(f"{LANTERN}/branches").text


def test_who_is_nobody_in_a_project_cannot_change_it(
    host: ArenaServerHandle, world: str, code: Visitor
) -> None:
    for path in ("settings", "members/invite", "branches", "milestones/new", "edit/README.md"):
        page = code.post(f"{MOTHS}/{path}", name="mine", title="mine", content="mine")
        assert "do not have the permission" in page.text
    mine = "SELECT count(*) FROM branch WHERE name = 'mine'"
    assert host.rows(world, "code", mine) == [[0]]


def test_members_are_invited_once_and_by_a_name_that_exists(code: Visitor) -> None:
    path = f"{LANTERN}/members/invite"
    assert code.post(path, user="nobody here", role="Guest").errors
    assert code.post(path, user="whitfieldno33", role="Guest").errors == [
        "This person is a member already."
    ]


def test_a_project_needs_an_owner(host: ArenaServerHandle, world: str, code: Visitor) -> None:
    page = code.post("/whitfieldno33/recipe-box/members/1/role", role="Guest")
    assert "needs an owner" in page.text


def test_what_one_world_writes_no_other_sees(host: ArenaServerHandle, code: Visitor) -> None:
    page = code.post("/projects/new", name="Kite Log", space="whitfieldno33", visibility="public")
    assert "The project Kite Log was created." in page.text
    other = host.new()
    assert Visitor(host, other, "code").get("/whitfieldno33/kite-log").status == 404
    host.drop(other)
    again = code.post("/projects/new", name="kite log", space="whitfieldno33", visibility="public")
    assert again.errors == ["There is a project with this name already."]


@pytest.mark.slow
@pytest.mark.browser
def test_oracles_win() -> None:
    for suite in opened("compact"):
        for template in TEMPLATES:
            reward, _ = played(suite, first_of(suite, template.name))
            assert reward == 1.0, template.name
