"""HTTP tests of the forum site."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from tests.arena.conftest import SiteClient
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.forum.data import NUM_POSTS
from webagent_jax.arena.task import Data

NEXT_POST_ID = NUM_POSTS + 1
USER = "whitfieldno33"


@pytest.fixture
def forum(server: ArenaServerHandle, world: str) -> SiteClient:
    return SiteClient(server, world, "forum")


def read_points(page: str) -> int:
    """Return the points of the post on `page`."""
    match = re.search(r'class="points">(-?[\d,]+) point', page)
    assert match is not None
    return int(match[1].replace(",", ""))


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/all?sort=top&period=week", "/c/gardening", "/c/gardening/edit", "/communities"),
        *("/communities/new", "/communities?q=dog", "/search?q=chain", "/saved", "/settings"),
        *("/messages", "/messages/1", "/messages/sent", "/messages/new", f"/u/{USER}", "/register"),
        *(f"/u/{USER}/comments", "/sign-in", "/c/books/submit", "/comment/50/reply"),
    ],
)
def test_pages_return_200(forum: SiteClient, path: str) -> None:
    page = forum.get(path)
    assert page.status == 200 and "<h1>" in page.text


@pytest.mark.parametrize("path", ["/c/none", "/c/books/99999", "/u/nobody", "/c/books/edit"])
def test_missing_or_forbidden_pages_return_404(forum: SiteClient, path: str) -> None:
    page = forum.get(path)
    assert page.status == 404 and "Fencepost" in page.text


def test_search_finds_communities_and_reports_no_match(forum: SiteClient) -> None:
    assert "No posts found" in forum.get("/search?q=zebra+chain").text
    assert 'href="/c/worthit"' in forum.get("/search?q=worth+it").text
    assert forum.get("/search?q=").location == "/communities"
    assert forum.get("/all?sort=top&period=").location == "/all?sort=top"


def test_search_ignores_case_of_all_letters(forum: SiteClient) -> None:
    forum.post("/c/books/submit", title="Über die Öfen", url="", body="")
    for query in ("ÜBER", "über öFEN"):
        assert "No posts found" not in forum.get(f"/search?q={quote(query)}").text


def test_search_takes_percent_and_underscore_literally(forum: SiteClient) -> None:
    assert "No posts found" in forum.get("/search?q=____").text
    forum.post("/c/books/submit", title="50%_off", url="", body="")
    page = forum.get("/search?q=0%25_O")
    assert 'href="/c/books/' in page.text and "No posts found" not in page.text


def test_post_can_be_created_edited_and_deleted(forum: SiteClient) -> None:
    error_page = forum.post("/c/books/submit", title="", url="example", body="")
    assert error_page.status == 422 and len(error_page.errors) == 2
    page = forum.post("/c/books/submit", title="Hm <b>", url="", body="Well.")
    assert "Your post is online." in page.text and "Hm &lt;b&gt;" in page.text
    assert read_points(page.text) == 1
    path = f"/c/books/{NEXT_POST_ID}"
    assert "Better" in forum.post(f"{path}/edit", title="Better", url="", body="Well.").text
    assert forum.get(f"/c/movies/{NEXT_POST_ID}").status == 404
    assert "Your post was deleted." in forum.post(f"{path}/delete").text
    assert forum.get(path).status == 404
    assert "online" in forum.post("/c/books/submit", title="Again", url="", body="").text


def test_replies_follow_comments_and_survive_deletion(
    server: ArenaServerHandle, world: str, forum: SiteClient
) -> None:
    forum.post("/c/books/submit", title="A post", url="", body="")
    assert forum.post(f"/c/books/{NEXT_POST_ID}", body=" ").errors == ["This is a required field."]
    forum.post(f"/c/books/{NEXT_POST_ID}", body="The comment")
    ((comment_id,),) = server.rows(world, "forum", "SELECT max(id) FROM comment")
    forum.post(f"/comment/{comment_id}/reply", body="The reply")
    text = forum.get(f"/c/books/{NEXT_POST_ID}").text
    assert "2 comments" in text and text.index("The comment") < text.index("1.1</span>")
    final_text = forum.post(f"/comment/{comment_id}/delete").text
    assert (
        "The comment" not in final_text and "1 deleted" in final_text and "The reply" in final_text
    )


def test_repeat_vote_cancels_and_opposite_vote_replaces(forum: SiteClient, data: Data) -> None:
    sql = "SELECT post.id, slug FROM post JOIN community ON community.id = community_id"
    post_id, slug = data["forum"].execute(f"{sql} WHERE author_id > 1 AND post.id > 9").fetchone()
    path, vote_path = f"/c/{slug}/{post_id}", f"/vote/post/{post_id}"
    initial_points = read_points(forum.get(path).text)
    vote_points = [
        read_points(forum.post(vote_path, direction=direction, back=path).text)
        for direction in (1, 1, 1, -1)
    ]
    assert vote_points == [
        initial_points + 1,
        initial_points,
        initial_points + 1,
        initial_points - 1,
    ]
    assert forum.post(vote_path, direction=7, back=path).status == 404


def test_icon_buttons_have_titles(forum: SiteClient) -> None:
    for path in ("/", "/c/gardening", "/c/gardening?sort=top"):
        buttons = re.findall(r"<button[^>]*></button>", forum.get(path).text)
        assert buttons and all(re.search(r'title="[\w ]+ \d+"', button) for button in buttons)


def test_vote_ignores_external_redirect_target(forum: SiteClient) -> None:
    assert forum.post("/vote/post/50", direction=1, back="//elsewhere.example").status == 200


def test_forum_writes_stay_in_world(server: ArenaServerHandle, forum: SiteClient) -> None:
    forum.post("/c/books/subscribe")
    forum.post("/c/books/submit", title="Only here", url="", body="")
    other_world = server.new()
    assert SiteClient(server, other_world, "forum").get(f"/c/books/{NEXT_POST_ID}").status == 404
    server.drop(other_world)


def test_edits_require_ownership_and_sign_in(forum: SiteClient, data: Data) -> None:
    sql = "SELECT id FROM comment WHERE author_id > 1"
    (comment_id,) = data["forum"].execute(sql).fetchone()
    assert forum.post(f"/comment/{comment_id}/edit", body="Mine now").status == 404
    assert forum.post("/c/books/edit", title="x", description="y", sidebar="").status == 404
    forum.post("/sign-out")
    assert forum.get("/settings").location == "/sign-in?back=%2Fsettings"
    assert "Please sign in" in forum.post("/c/books/subscribe").text
    assert forum.get("/messages/1").location == "/sign-in?back=%2Fmessages%2F1"
    assert "Please sign in" in forum.post("/messages/1/read").text
    error_page = forum.post("/sign-in", username=USER, password="guess")
    assert error_page.errors == ["The user name or the password is wrong."]


def test_community_requires_unique_name(forum: SiteClient) -> None:
    error_page = forum.post("/communities/new", slug="Books", title="Books", description="")
    assert error_page.status == 422 and len(error_page.errors) == 3
    page = forum.post("/communities/new", slug="bees", title="Bees", description="Buzz", sidebar="")
    assert "was created" in page.text and "Edit Community" in page.text


def test_edited_community_requires_unique_title(forum: SiteClient) -> None:
    fields = {"description": "Buzz", "sidebar": ""}
    error_page = forum.post("/c/gardening/edit", title="BOOKS", **fields)
    assert error_page.errors == ["There is a community with this title already."]
    assert "was changed" in forum.post("/c/gardening/edit", title="Gardening", **fields).text


def test_messages_require_existing_recipient(forum: SiteClient) -> None:
    error_page = forum.post("/messages/new", to="nobody", subject="Hi", body="")
    assert error_page.errors[0] == "There is no member of this name."
    assert "was sent" in forum.post("/messages/new", to="biancab85", subject="Hi", body="Ho").text


def test_block_hides_posts_of_member(forum: SiteClient, data: Data) -> None:
    sql = "SELECT username FROM post JOIN member ON member.id = author_id WHERE author_id > 1"
    (username,) = data["forum"].execute(sql).fetchone()
    assert 'class="title"' in forum.get(f"/u/{username}").text
    assert "is blocked" in forum.post(f"/u/{username}/block").text
    assert 'class="title"' not in forum.get(f"/u/{username}").text
