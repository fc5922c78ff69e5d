"""HTTP tests of the code site."""

from __future__ import annotations

import re

import pytest

from tests.arena.conftest import SiteClient
from tests.arena.test_suite import first_task, open_pool, open_suite, run_expert
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.code.tasks import TEMPLATES

LANTERN = "/lanternworks/lantern"  # the signed-in user is a maintainer
MOTH_TRAP = "/fieldnotes/moth-trap"  # the signed-in user is not a member


@pytest.fixture
def code(server: ArenaServerHandle, world: str) -> SiteClient:
    return SiteClient(server, world, "code")


@pytest.mark.parametrize(
    "path",
    ["/", "/explore", "/starred", "/issues", "/merge-requests", "/to-dos", "/groups", "/profile"]
    + ["/search?q=boiler", "/projects/new", "/groups/new", "/sign-in", "/lanternworks"]
    + ["/whitfieldno33", LANTERN, f"{LANTERN}/tree/src", f"{LANTERN}/blob/src/main.rs"]
    + [f"{LANTERN}/{part}" for part in ("issues", "commits", "branches", "contributors")]
    + [f"{LANTERN}/{part}" for part in ("milestones", "members", "merge-requests", "settings")]
    + [f"{LANTERN}/{part}" for part in ("issues/1", "merge-requests/1", "issues/1/edit", "labels")],
)
def test_pages_return_200(code: SiteClient, path: str) -> None:
    assert code.get(path).status == 200


@pytest.mark.parametrize("path", ["/nobody", "/lanternworks/none", f"{LANTERN}/issues/9999"])
def test_missing_pages_return_404(code: SiteClient, path: str) -> None:
    page = code.get(path)
    assert page.status == 404 and "Slipway" in page.text


def test_private_project_is_hidden_from_non_members(code: SiteClient) -> None:
    assert code.get("/whitfieldno33/dotfiles").status == 200
    code.post("/sign-out")
    assert code.get("/whitfieldno33/dotfiles").status == 404
    assert code.get(LANTERN).status == 200
    assert "Dotfiles" not in code.get("/search?q=dotfiles").text
    assert code.get("/issues").location == "/sign-in?back=%2Fissues"


def test_issue_list_filters_searches_and_paginates(code: SiteClient) -> None:
    path = f"{LANTERN}/issues"
    last_page = code.get(f"{path}?state=all&page=99").text
    assert re.search(r"Page (\d+) of \1<", last_page)
    bug_page = code.get(f"{path}?label=bug&state=all").text
    rows = re.findall(r"<p>#\d+ .+? by .+?\. (.+?)\.", bug_page)
    assert rows and all("bug" in row for row in rows)
    assert "No issues found." in code.get(f"{path}?q=zebra").text
    assert code.get(f"{path}?q=&label=bug&author=").location == f"{path}?label=bug"


def test_issue_can_be_created_commented_and_closed(code: SiteClient) -> None:
    error_page = code.post(f"{LANTERN}/issues/new", title="", due="soon", assignee="9999")
    assert error_page.status == 422 and len(error_page.errors) == 3
    page = code.post(f"{LANTERN}/issues/new", title="A <b> title", body="Text", due="2023-07-01")
    assert "A &lt;b&gt; title" in page.text and "Jul 1, 2023" in page.text
    number = re.findall(r"#(\d+) opened", page.text)[0]
    path = f"{LANTERN}/issues/{number}"
    assert "says nothing" in code.post(f"{path}/comment", body=" ").text
    assert "1 comment<" in code.post(f"{path}/comment", body="I see it, too.").text
    assert "Reopen Issue" in code.post(f"{path}/state").text


def test_merge_request_can_be_approved_and_merged(
    server: ArenaServerHandle, world: str, code: SiteClient
) -> None:
    ((number, source),) = server.rows(
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


def test_non_members_cannot_edit_project(
    server: ArenaServerHandle, world: str, code: SiteClient
) -> None:
    for path in ("settings", "members/invite", "branches", "milestones/new", "edit/README.md"):
        page = code.post(f"{MOTH_TRAP}/{path}", name="mine", title="mine", content="mine")
        assert "do not have the permission" in page.text
    sql = "SELECT count(*) FROM branch WHERE name = 'mine'"
    assert server.rows(world, "code", sql) == [[0]]


def test_invitation_requires_existing_non_member(code: SiteClient) -> None:
    path = f"{LANTERN}/members/invite"
    assert code.post(path, user="nobody here", role="Guest").errors
    assert code.post(path, user="whitfieldno33", role="Guest").errors == [
        "This person is a member already."
    ]


def test_last_owner_cannot_be_demoted(
    server: ArenaServerHandle, world: str, code: SiteClient
) -> None:
    page = code.post("/whitfieldno33/recipe-box/members/1/role", role="Guest")
    assert "needs an owner" in page.text


def test_code_writes_stay_in_world(server: ArenaServerHandle, code: SiteClient) -> None:
    page = code.post("/projects/new", name="Kite Log", space="whitfieldno33", visibility="public")
    assert "The project Kite Log was created." in page.text
    other_world = server.new()
    assert SiteClient(server, other_world, "code").get("/whitfieldno33/kite-log").status == 404
    server.drop(other_world)
    error_page = code.post(
        "/projects/new", name="kite log", space="whitfieldno33", visibility="public"
    )
    assert error_page.errors == ["There is a project with this name already."]


@pytest.mark.slow
@pytest.mark.browser
def test_expert_solves_every_template() -> None:
    with open_pool("compact") as pool, open_suite(pool) as suite:
        for template in TEMPLATES:
            reward, _ = run_expert(suite, first_task(suite, template.name))
            assert reward == 1.0, template.name
