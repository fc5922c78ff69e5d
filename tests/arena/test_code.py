"""HTTP tests of the code site."""

from __future__ import annotations

import html
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.arena.conftest import SiteClient
from tests.arena.test_suite import first_task, open_pool, open_suite, run_expert
from webagent_jax.arena import selection
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.code import site as code_site
from webagent_jax.arena.code.tasks import TEMPLATES
from webagent_jax.arena.code.tasks.helpers import CODE
from webagent_jax.arena.site import format_day
from webagent_jax.arena.task import Data

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


def test_links_of_labels_have_the_url_of_the_filter(code: SiteClient) -> None:
    filtered = code.get(f"{LANTERN}/issues?q=&label=good+first+issue&author=").location
    assert filtered == f"{LANTERN}/issues?label=good+first+issue"
    assert f'href="{filtered}"' in code.get(f"{LANTERN}/labels").text


def test_lists_of_issues_show_their_dates(
    server: ArenaServerHandle, world: str, code: SiteClient
) -> None:
    sql = (
        "SELECT issue.title, project.slug, issue.number, issue.created FROM issue JOIN project"
        " ON project.id = project_id WHERE assignee_id = 1 AND state = 'open'"
        " ORDER BY issue.created DESC, issue.id DESC LIMIT 1"
    )
    ((title, slug, number, created),) = server.rows(world, "code", sql)
    shown = f"{slug} #{number}, {format_day(created)}"
    assert shown in code.get("/issues").text
    assert shown in code.get(f"/search?scope=issues&q={quote(title)}").text


def test_branch_with_open_request_offers_no_other(
    server: ArenaServerHandle, world: str, code: SiteClient
) -> None:
    sql = (
        "SELECT source FROM merge_request JOIN project ON project.id = project_id"
        " WHERE slug = 'lantern' AND state = 'open'"
    )
    sources = {source for (source,) in server.rows(world, "code", sql)}
    pages = [code.get(f"{LANTERN}/branches?page={page}").text for page in (1, 2, 3)]
    offered = set(re.findall(r"New merge request from ([^\"]+)", "".join(pages)))
    deletable = set(re.findall(r"Delete ([^\"]+)\"", "".join(pages)))
    assert sources and offered == deletable - sources


def test_groups_count_visible_projects(code: SiteClient) -> None:
    def homestead_count() -> int:
        match = re.search(r'"/homestead">.*?(\d+) projects', code.get("/groups").text)
        assert match
        return int(match[1])

    before = homestead_count()
    code.post("/projects/new", name="Secret", space="homestead", visibility="private")
    assert homestead_count() == before + 1
    code.post("/sign-out")
    assert homestead_count() <= before


def test_file_history_can_be_filtered(code: SiteClient) -> None:
    page = code.get(f"{LANTERN}/commits?path=src/main.rs&q=&author=")
    assert page.location == f"{LANTERN}/commits?path=src%2Fmain.rs"


def test_signed_out_account_cannot_write(
    server: ArenaServerHandle, world: str, code: SiteClient
) -> None:
    code.post("/sign-out")
    for path in ("/groups/new", "/profile", "/to-dos/all-done", f"{LANTERN}/issues/1/comment"):
        page = code.post(path, name="Ghosts", visibility="public", body="Boo")
        assert "Please sign in to go on." in page.text, path
    assert code.get("/starred").location == "/sign-in?back=%2Fstarred"
    sql = "SELECT count(*) FROM namespace WHERE path = 'ghosts'"
    assert server.rows(world, "code", sql) == [[0]]


def test_to_do_task_requires_that_others_stay_pending(code: SiteClient, data: Data) -> None:
    template = next(template for template in TEMPLATES if template.name == "code/to-do")
    item = next(selection.generate_tasks([template], data, seed=0))
    done_target, *pending_targets = item.task.eval["program_html"]
    sql = (
        "SELECT to_do.id FROM to_do LEFT JOIN issue ON issue.id = issue_id LEFT JOIN merge_request"
        " ON merge_request.id = merge_request_id WHERE to_do.user_id = 1"
        " AND ? IN (issue.title, merge_request.title) AND NOT done"
    )
    ((number,),) = data["code"].execute(sql, [item.instance.slots["title"]]).fetchall()

    def matches() -> list[bool]:
        """Return whether each page of pending to-dos has the required titles."""
        texts = [
            code.get(target["url"].removeprefix(CODE)).text.partition('id="to-dos"')[2]
            for target in pending_targets
        ]
        titles = [re.findall(r'<a href="/[^"]+/\d+">(.*?)</a>', text) for text in texts]
        return [
            html.unescape(" ; ".join(names)) == target["required_contents"]["exact_match"]
            for names, target in zip(titles, pending_targets, strict=True)
        ]

    code.post("/to-dos/done", to_do=number)
    assert matches() == [True, True]
    code.post("/to-dos/all-done")
    assert matches() == [False, False]
    assert "done" in done_target["url"]


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


def test_searches_ignore_case_of_all_letters(code: SiteClient) -> None:
    title = "Übersicht"
    code.post(f"{LANTERN}/issues/new", title=title, body="")
    code.post(f"{LANTERN}/edit/README.md", content="Text", message=title)
    for query in (quote("ÜBERSICHT"), quote("übersicht")):
        for path in ("/search?scope=issues&", f"{LANTERN}/issues?", f"{LANTERN}/commits?"):
            assert f"{title}<" in code.get(f"{path}q={query}").text, path


def test_issue_keeps_an_assignee_who_has_left(
    server: ArenaServerHandle, world: str, code: SiteClient
) -> None:
    sql = (
        "SELECT issue.number, user.id, user.name FROM issue JOIN user ON user.id = assignee_id"
        " JOIN project ON project.id = issue.project_id JOIN member"
        " ON member.project_id = project.id AND user_id = user.id"
        " WHERE slug = 'lantern' AND role != 'Owner' AND user.id != 1 LIMIT 1"
    )
    ((number, user, name),) = server.rows(world, "code", sql)
    code.post(f"{LANTERN}/members/{user}/remove")
    path = f"{LANTERN}/issues/{number}"
    form = code.get(f"{path}/edit").text
    assert re.findall(r'<option value="(\d*)" selected>([^<]*)', form)[0] == (str(user), name)
    page = code.post(f"{path}/edit", title="New title", assignee=user)
    assert "The issue was saved." in page.text and f'id="assignee">{name}<' in page.text
    code.post(f"{path}/edit", title="New title", assignee="")
    assert code.post(f"{path}/edit", title="New title", assignee=user).errors


def test_text_below_a_heading_is_rendered() -> None:
    html_text = code_site.render_markdown(
        "# One\n## Two\nA <b>\nline.\n- item\n\n# Three\n    code"
    )
    assert html_text == (
        "<h2>One</h2>\n<h3>Two</h3>\n<p>A &lt;b&gt; line.</p>\n<p class='item'>item</p>\n"
        "<h2>Three</h2>\n<pre>code</pre>"
    )
    assert code_site.render_markdown("#\n" * 2000).count("<h2>") == 2000


def test_days_are_stored_in_iso_format(
    server: ArenaServerHandle, world: str, code: SiteClient
) -> None:
    error_page = code.post(f"{LANTERN}/issues/new", title="A", due="20230630")
    assert error_page.errors == ["Enter a day, such as 2023-06-15."]
    code.post(f"{LANTERN}/milestones/new", title="Summer", due="6/30/2023")
    sql = "SELECT due FROM milestone WHERE title = 'Summer'"
    assert server.rows(world, "code", sql) == [["2023-06-30"]]


def test_texts_keep_their_lines() -> None:
    style = (Path(code_site.__file__).parent / "style.css").read_text()
    assert ".text, .comment p { white-space: pre-line; }" in style


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


def test_deleted_project_leaves_no_rows(
    server: ArenaServerHandle, world: str, code: SiteClient
) -> None:
    def rows(sql: str) -> list[list[object]]:
        return server.rows(world, "code", sql)

    path = "/whitfieldno33/recipe-box"
    code.post(f"{path}/new-file", path="a.txt", message="Add", content="a")
    code.post(f"{path}/labels", name="spicy")
    ((project, label),) = rows("SELECT project_id, id FROM label WHERE name = 'spicy'")
    code.post(f"{path}/issues/new", title="Salt", **{f"label-{label}": 1})
    page = code.post(f"{path}/fork", space="homestead", visibility="public")
    assert "The project was forked." in page.text
    code.post(f"{path}/delete", confirm=path[1:])
    tables = ("issue", "merge_request", "revision", "label", "milestone", "file", "member")
    for table in tables:
        assert rows(f"SELECT count(*) FROM {table} WHERE project_id = {project}") == [[0]], table
    for child, table in (
        *(("issue_label", "issue"), ("approval", "merge_request")),
        *(("revision_file", "revision"), ("comment", "issue"), ("project", "project")),
    ):
        column = "forked_from" if child == "project" else f"{table}_id"
        orphans = f"{column} NOT IN (SELECT id FROM {table})"
        assert rows(f"SELECT count(*) FROM {child} WHERE {orphans}") == [[0]], child


def test_deleted_fork_is_not_counted(code: SiteClient) -> None:
    def read_forks() -> str:
        return re.findall(r"\d+ forks?", code.get(MOTH_TRAP).text)[0]

    forks = read_forks()
    code.post(f"{MOTH_TRAP}/fork", space="whitfieldno33", visibility="public")
    assert read_forks() != forks
    code.post("/whitfieldno33/moth-trap/delete", confirm="whitfieldno33/moth-trap")
    assert read_forks() == forks


def test_names_of_pages_are_reserved(code: SiteClient) -> None:
    fields = {"space": "whitfieldno33", "visibility": "public"}
    page = code.post("/projects/new", name="Invite", **fields)
    assert page.errors == ["This name is reserved."]
    for name in ("Explore", "Search", "Issues", "Starred", "Projects"):
        page = code.post("/groups/new", name=name, visibility="public")
        assert page.errors == ["This name is reserved."], name


@pytest.mark.parametrize("name", ["what?.md", "50%.txt", "a#b", "docs/ü ö.md"])
def test_file_names_may_have_any_characters(code: SiteClient, name: str) -> None:
    page = code.post(f"{LANTERN}/new-file", path=name, message="Add", content="Hello")
    assert "Your changes were committed." in page.text and "Hello" in page.text
    (edit_path,) = re.findall(r'href="([^"]+)">Edit<', page.text)
    assert code.get(edit_path).status == 200
    folder = f"{LANTERN}/tree/docs" if "/" in name else LANTERN
    assert f'href="{LANTERN}/blob/{quote(name)}"' in code.get(folder).text


@pytest.mark.parametrize("name", ["/", "a//b", "../a"])
def test_file_names_have_no_empty_parts(code: SiteClient, name: str) -> None:
    page = code.post(f"{LANTERN}/new-file", path=name, message="Add", content="Hello")
    assert page.errors == ["Enter a file name, such as docs/notes.md."]


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
