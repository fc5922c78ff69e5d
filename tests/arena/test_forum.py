"""The forum over HTTP: what its pages refuse, and what they do."""

from __future__ import annotations

import re

import pytest

from tests.arena.conftest import Visitor
from webagent_jax.arena import database
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.forum.data import DATABASE, NUM_POSTS
from webagent_jax.arena.task import Data

NEXT = NUM_POSTS + 1
ME = "whitfieldno33"


@pytest.fixture
def forum(host: ArenaServerHandle, world: str) -> Visitor:
    return Visitor(host, world, "forum")


def points(page: str) -> int:
    """Of the post on its page."""
    found = re.search(r'class="points">(-?[\d,]+) point', page)
    assert found is not None
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/all?sort=top&period=week", "/c/gardening", "/c/gardening/edit", "/communities"),
        *("/communities/new", "/communities?q=dog", "/search?q=chain", "/saved", "/settings"),
        *("/messages", "/messages/1", "/messages/sent", "/messages/new", f"/u/{ME}", "/register"),
        *(f"/u/{ME}/comments", "/sign-in", "/c/books/submit", "/comment/50/reply"),
    ],
)
def test_every_page_answers(forum: Visitor, path: str) -> None:
    page = forum.get(path)
    assert page.status == 200 and "<h1>" in page.text


@pytest.mark.parametrize("path", ["/c/none", "/c/books/99999", "/u/nobody", "/c/books/edit"])
def test_what_is_not_there_or_not_mine_is_told(forum: Visitor, path: str) -> None:
    page = forum.get(path)
    assert page.status == 404 and "Fencepost" in page.text


def test_search_finds_all_words_and_says_when_there_is_nothing(forum: Visitor) -> None:
    assert "No posts found" in forum.get("/search?q=zebra+chain").text
    assert 'href="/c/worthit"' in forum.get("/search?q=worth+it").text
    assert forum.get("/search?q=").location == "/communities"
    assert forum.get("/all?sort=top&period=").location == "/all?sort=top"


def test_a_post_is_written_changed_and_deleted(forum: Visitor) -> None:
    refused = forum.post("/c/books/submit", title="", url="example", body="")
    assert refused.status == 422 and len(refused.errors) == 2
    shown = forum.post("/c/books/submit", title="Hm <b>", url="", body="Well.")
    assert "Your post is online." in shown.text and "Hm &lt;b&gt;" in shown.text
    assert points(shown.text) == 1
    path = f"/c/books/{NEXT}"
    assert "Better" in forum.post(f"{path}/edit", title="Better", url="", body="Well.").text
    assert forum.get(f"/c/movies/{NEXT}").status == 404
    assert "Your post was deleted." in forum.post(f"{path}/delete").text
    assert forum.get(path).status == 404
    assert "online" in forum.post("/c/books/submit", title="Again", url="", body="").text


def test_replies_stand_below_what_they_reply_to(
    host: ArenaServerHandle, world: str, forum: Visitor
) -> None:
    forum.post("/c/books/submit", title="A post", url="", body="")
    assert forum.post(f"/c/books/{NEXT}", body=" ").errors == ["This is a required field."]
    forum.post(f"/c/books/{NEXT}", body="The comment")
    ((number,),) = host.rows(world, "forum", "SELECT max(id) FROM comment")
    forum.post(f"/comment/{number}/reply", body="The reply")
    page = forum.get(f"/c/books/{NEXT}").text
    assert "2 comments" in page and page.index("The comment") < page.index("1.1</span>")
    gone = forum.post(f"/comment/{number}/delete").text
    assert "The comment" not in gone and "1 deleted" in gone and "The reply" in gone


def test_the_same_vote_twice_is_none_and_the_other_one_counts_twice(
    forum: Visitor, data: Data
) -> None:
    sql = "SELECT post.id, slug FROM post JOIN community ON community.id = community_id"
    number, slug = data["forum"].execute(f"{sql} WHERE author_id > 1 AND post.id > 9").fetchone()
    path, vote = f"/c/{slug}/{number}", f"/vote/post/{number}"
    before = points(forum.get(path).text)
    after = [points(forum.post(vote, direction=d, back=path).text) for d in (1, 1, 1, -1)]
    assert after == [before + 1, before, before + 1, before - 1]
    assert forum.post(vote, direction=7, back=path).status == 404


def test_buttons_without_words_are_told_by_their_titles(forum: Visitor) -> None:
    for path in ("/", "/c/gardening", "/c/gardening?sort=top"):
        buttons = re.findall(r"<button[^>]*></button>", forum.get(path).text)
        assert buttons and all(re.search(r'title="[\w ]+ \d+"', button) for button in buttons)


def test_a_vote_does_not_lead_to_other_sites(forum: Visitor) -> None:
    assert forum.post("/vote/post/50", direction=1, back="//elsewhere.example").status == 200


def test_what_is_written_is_seen_in_its_world_alone(
    host: ArenaServerHandle, forum: Visitor
) -> None:
    forum.post("/c/books/subscribe")
    forum.post("/c/books/submit", title="Only here", url="", body="")
    other = host.new()
    assert Visitor(host, other, "forum").get(f"/c/books/{NEXT}").status == 404
    host.drop(other)


def test_nobody_changes_what_is_not_theirs(forum: Visitor, data: Data) -> None:
    sql = "SELECT id FROM comment WHERE author_id > 1"
    (comment,) = data["forum"].execute(sql).fetchone()
    assert forum.post(f"/comment/{comment}/edit", body="Mine now").status == 404
    assert forum.post("/c/books/edit", title="x", description="y", sidebar="").status == 404
    forum.post("/sign-out")
    assert forum.get("/settings").location == "/sign-in?back=%2Fsettings"
    assert "Please sign in" in forum.post("/c/books/subscribe").text
    wrong = forum.post("/sign-in", username=ME, password="guess")
    assert wrong.errors == ["The user name or the password is wrong."]


def test_a_community_needs_a_name_of_its_own(forum: Visitor) -> None:
    refused = forum.post("/communities/new", slug="Books", title="Books", description="")
    assert refused.status == 422 and len(refused.errors) == 3
    made = forum.post("/communities/new", slug="bees", title="Bees", description="Buzz", sidebar="")
    assert "was created" in made.text and "Edit Community" in made.text


def test_messages_reach_members_alone(forum: Visitor) -> None:
    refused = forum.post("/messages/new", to="nobody", subject="Hi", body="")
    assert refused.errors[0] == "There is no member of this name."
    assert "was sent" in forum.post("/messages/new", to="biancab85", subject="Hi", body="Ho").text


def test_blocked_members_are_not_read(forum: Visitor, data: Data) -> None:
    sql = "SELECT username FROM post JOIN member ON member.id = author_id WHERE author_id > 1"
    (name,) = data["forum"].execute(sql).fetchone()
    assert 'class="title"' in forum.get(f"/u/{name}").text
    assert "is blocked" in forum.post(f"/u/{name}/block").text
    assert 'class="title"' not in forum.get(f"/u/{name}").text


@pytest.mark.slow
def test_two_builds_are_the_same_bytes() -> None:
    assert database.build_image(DATABASE) == database.build_image(DATABASE)
