"""Evaluators: tables of answers and pages, and every task of WebArena-Lite on recorded worlds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from webagent_jax.config import ConfigError
from webagent_jax.suites import evaluators, task_file
from webagent_jax.suites.matching import LITE, WEBARENA, MatchingRules
from webagent_jax.types import InfraError, Task

ADDRESSES = {site: f"http://{site}.test" for site in task_file.SITES}
TASKS = task_file.load(Path(__file__).parent / "data" / "webarena_lite_test.json", ADDRESSES)
SHOP = ADDRESSES["shopping"]
WHOLE_PAGE = "document.documentElement.outerHTML"


# --- recorded worlds -----------------------------------------------------------------------------


@dataclass
class FakeWorld:
    """Pages by address: what each expression on them is worth. Any other expression throws."""

    at: str = "http://nowhere.test/"
    pages: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    shop: object = None  # what the REST API of the shop answers
    went: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def url(self) -> str:
        return self.at

    def goto(self, url: str) -> None:
        self.at = url
        self.went.append(url)

    def evaluate(self, script: str) -> Any:
        expressions = re.fullmatch(r"\(\) => \{ try \{ return \[(.*)\]; \} catch .*", script, re.S)
        assert expressions
        self.asked.append(expressions[1])
        page = self.pages.get(self.at, {})
        return [page[expressions[1]]] if expressions[1] in page else []

    def address(self, site: str) -> str:
        return ADDRESSES[site]

    def shop_json(self, path: str) -> Any:
        self.went.append(path)
        return self.shop


class DeadWorld(FakeWorld):
    """Sites that do not answer."""

    def url(self) -> str:
        raise InfraError("no answer")

    goto = evaluate = shop_json = lambda self, _: DeadWorld.url(self)


@dataclass
class ScriptedJudge:
    """Content with what contains the reference, whatever the case."""

    asked: list[tuple[str, str, str]] = field(default_factory=list)

    def same_meaning(self, intent: str, reference: str, answer: str) -> bool:
        self.asked.append((intent, reference, answer))
        return reference.lower() in answer.lower()

    unachievable = same_meaning


class DeadJudge(ScriptedJudge):
    def same_meaning(self, intent: str, reference: str, answer: str) -> bool:
        raise InfraError("no verdict")

    unachievable = same_meaning


def task_of(**spec: Any) -> Task:
    types = {
        "reference_answers": "string_match",
        "reference_url": "url_match",
        "program_html": "program_html",
    }
    spec = {"eval_types": [types[k] for k in spec if k in types], "string_note": ""} | spec
    spec.setdefault("url_note", "")
    return Task("webarena/1", "webarena", ("shopping",), "Do it", SHOP, eval=spec)


def target(locator: str, url: str = "last", prep: Sequence[str] = (), **wanted: Any) -> Any:
    return {"url": url, "locator": locator, "prep_actions": prep, "required_contents": wanted}


def scored(
    task: Task,
    answer: str | None = None,
    world: FakeWorld | None = None,
    rules: MatchingRules = LITE,
) -> float:
    return evaluators.score(task, answer, world or FakeWorld(), ScriptedJudge(), rules)


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("references", "answer", "reward"),
    [
        ({"exact_match": "N/A"}, None, 0.0),
        ({"exact_match": "N/A"}, "N/A", 1.0),
        ({"exact_match": "Yes"}, "\"'yes'\"", 1.0),
        ({"must_include": ["N/A"]}, None, 0.0),
        ({"must_include": ["1"]}, "", 0.0),
        ({"must_include": ["1"]}, "1", 1.0),
        ({"fuzzy_match": ["N/A"]}, None, 0.0),
        ({"fuzzy_match": ["N/A"]}, "N/A", 1.0),
        ({"fuzzy_match": "N/A"}, None, 0.0),
        ({"fuzzy_match": "N/A"}, "n/a", 1.0),
        ({"fuzzy_match": "N/A"}, "it is sold out", 1.0),
        ({"fuzzy_match": "N/A"}, "I ran out of time", 0.0),
        ({"fuzzy_match": ["2 h", "5 km"]}, "2 h, 5 km", 1.0),
        ({"fuzzy_match": ["2 h", "5 km"]}, "5 km, 2 h", 0.0),
        ({"must_include": ["Acadia"], "fuzzy_match": ["10h"]}, "Acadia 10h", 1.0),
        ({"must_include": ["Acadia"], "fuzzy_match": ["10h"]}, "Acadia", 0.0),
        ({"must_include": ["Acadia"], "fuzzy_match": ["10h"]}, "10h", 0.0),
    ],
)
def test_string_match(references: Any, answer: str | None, reward: float) -> None:
    task = task_of(reference_answers=references, string_note="sold out")
    assert scored(task, answer) == reward


def test_references_are_judged_one_by_one_by_the_rules_of_webarena() -> None:
    task = task_of(reference_answers={"fuzzy_match": ["2 h", "5 km"]})
    assert scored(task, "5 km, 2 h", rules=WEBARENA) == 1.0
    assert scored(task, "5 km", rules=WEBARENA) == 0.0


def test_the_judge_is_told_what_it_needs() -> None:
    judge = ScriptedJudge()
    task = task_of(reference_answers={"fuzzy_match": ["2 h", "5 km"]})
    evaluators.score(task, '"Two Hours"', FakeWorld(), judge)
    task = task_of(reference_answers={"fuzzy_match": "N/A"}, string_note="no such user")
    evaluators.score(task, "Gone", FakeWorld(), judge)
    assert judge.asked == [("Do it", "2 h, 5 km", "two hours"), ("Do it", "no such user", "gone")]


def test_the_judge_is_not_asked_when_a_rule_decides() -> None:
    task = task_of(reference_answers={"must_include": ["Acadia"], "fuzzy_match": ["10h"]})
    assert evaluators.score(task, "10h", FakeWorld(), DeadJudge()) == 0.0
    task = task_of(reference_answers={"fuzzy_match": "N/A"})
    assert evaluators.score(task, "N/A", FakeWorld(), DeadJudge()) == 1.0
    assert evaluators.score(task, None, FakeWorld(), DeadJudge()) == 0.0


# --- pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "wanted", "reward"),
    [
        ("Canceled", "Canceled", 1.0),
        ("Complete", "Canceled", 0.0),
        (1, "1", 1.0),
        (True, "true", 1.0),
        (None, "None", 1.0),
        (["a", "b"], "['a', 'b']", 1.0),
        ("", "1", 0.0),
        ("R&amp;D", "R&D", 0.0),
    ],
)
def test_a_value_is_compared_as_text(value: object, wanted: str, reward: float) -> None:
    world = FakeWorld("http://s/", {"http://s/": {"document.x": value}})
    assert (
        scored(task_of(program_html=[target("document.x", exact_match=wanted)]), None, world)
        == reward
    )


def test_entities_are_resolved_by_the_rules_of_webarena() -> None:
    task = task_of(program_html=[target("", must_include=["R&D 2.0"])])
    world = FakeWorld("http://s/", {"http://s/": {WHOLE_PAGE: "<b>R&amp;D 2.0</b>"}})
    assert scored(task, None, world, LITE) == 0.0
    assert scored(task, None, world, WEBARENA) == 1.0


def test_a_locator_that_throws_finds_nothing() -> None:
    assert scored(task_of(program_html=[target("document.x.y", exact_match="1")])) == 0.0


def test_a_page_is_opened_first() -> None:
    world = FakeWorld(pages={"http://s/a": {"document.x": "1"}})
    task = task_of(program_html=[target("document.x", "http://s/a", exact_match="1")])
    assert scored(task, None, world) == 1.0
    assert world.went == ["http://s/a"]


def test_the_last_page_is_where_the_world_is() -> None:
    pages = {"http://s/a": {"document.x": "1"}, "http://s/b": {"document.x": "2"}}
    last, opened = (
        target("document.x", exact_match="1"),
        target("document.x", "http://s/b", exact_match="2"),
    )
    assert scored(task_of(program_html=[last, opened]), None, FakeWorld("http://s/a", pages)) == 1.0
    assert scored(task_of(program_html=[opened, last]), None, FakeWorld("http://s/a", pages)) == 0.0


@pytest.mark.parametrize(
    "lost", ["about:blank", "chrome-error://chromewebdata/", "data:text/html,x"]
)
def test_a_page_that_is_none_holds_nothing(lost: str) -> None:
    called = target("document.x", "func:reddit_get_post_url('__last_url__')", exact_match="1")
    world = FakeWorld(lost, {lost: {"document.x": "1"}})
    assert scored(task_of(program_html=[called]), None, world) == 0.0
    assert world.went == []


def test_actions_come_before_the_look() -> None:
    clicks = ["document.a.click()", "document.b.click()"]
    world = FakeWorld("http://s/", {"http://s/": {"document.x": "1"}})
    task = task_of(program_html=[target("document.x", prep=clicks, exact_match="1")])
    assert scored(task, None, world) == 1.0  # though nothing of this world can be clicked
    assert world.asked == ["document.a.click(), document.b.click()", "document.x"]


def test_contents_of_a_page_may_be_judged() -> None:
    judge = ScriptedJudge()
    world = FakeWorld("http://s/", {"http://s/": {"document.x": "I want a Refund, it broke"}})
    task = task_of(program_html=[target("document.x", fuzzy_match=["refund", "it broke"])])
    assert evaluators.score(task, None, world, judge) == 1.0
    assert judge.asked == [("Do it", "refund, it broke", "I want a Refund, it broke")]


# --- what `func:` calls --------------------------------------------------------------------------


def test_every_function_of_the_files_is_there() -> None:
    assert set(evaluators.CALLS) == set(task_file.FUNCTIONS)


@pytest.mark.parametrize(
    ("url", "post"),
    [
        ("http://r/f/books/123/a-title", "http://r/f/books/123/"),
        ("http://r/f/books/123/a-title/-/comment/7?x=1#y", "http://r/f/books/123/"),
        ("http://r/f/books/123", "http://r/f/books/123/"),
        ("https://r:8080/f/books/123/t", "https://r:8080/f/books/123/"),
        ("http://r/f/books/", "http://r/f/books//"),
        ("http://r/f/books", "http://r/f/books"),
        ("http://r/user/anna/submissions", "http://r/user/anna/submissions"),
        ("http://r/", "http://r/"),
        ("about:blank", "about:blank"),
    ],
)
def test_post_url(url: str, post: str) -> None:
    assert evaluators.post_url(FakeWorld(), url) == post


def test_the_latest_order_is_asked_for() -> None:
    world = FakeWorld(shop={"items": [{"increment_id": "000000170"}, {"increment_id": "1"}]})
    assert evaluators.latest_order_url(world) == f"{SHOP}/sales/order/view/order_id/170/"
    asked = urlsplit(world.went[0])
    assert asked.path == "/rest/V1/orders"
    assert parse_qs(asked.query) == {
        "searchCriteria[sortOrders][0][field]": ["created_at"],
        "searchCriteria[sortOrders][0][direction]": ["DESC"],
        "searchCriteria[pageSize]": ["1"],
    }


def review(author: str, percent: int, rating: str = "Rating") -> dict[str, Any]:
    return {"nickname": author, "ratings": [{"rating_name": rating, "percent": percent}]}


@pytest.mark.parametrize(
    ("reviews", "author", "rating"),
    [
        ([], "", ""),
        ([review("Anna", 80)], "Anna", "80"),
        ([review("Anna", 80), review("Bert", 20)], "Bert", "20"),
    ],
)
def test_the_latest_review_is_the_last(reviews: Any, author: str, rating: str) -> None:
    world = FakeWorld(shop=reviews)
    assert evaluators.latest_review_author(world, "B00/1") == author
    assert evaluators.latest_review_rating(world, "B00/1") == rating
    assert set(world.went) == {"/rest/V1/products/B00%2F1/reviews"}


@pytest.mark.parametrize(
    "shop", [None, {}, {"items": []}, {"message": "no"}, [{}], [{"ratings": []}]]
)
def test_a_shop_that_answers_otherwise_is_a_fault(shop: object) -> None:
    for asked in (
        evaluators.latest_order_url,
        lambda world: evaluators.latest_review_author(world, "B"),
        lambda world: evaluators.latest_review_rating(world, "B"),
    ):
        with pytest.raises(InfraError, match="the shop"):
            asked(FakeWorld(shop=shop))


def test_another_kind_of_rating_is_a_fault() -> None:
    with pytest.raises(InfraError, match="no rating in the last review of B"):
        evaluators.latest_review_rating(FakeWorld(shop=[review("Anna", 80, "Value")]), "B")


def test_the_role_of_a_member_is_looked_up_by_name() -> None:
    world = FakeWorld()
    assert evaluators.member_role(world, 'o\'neil "x"') == ""
    (asked,) = world.asked
    assert r'name.outerText === "@o' in asked
    world.pages = {world.at: {asked: "Guest"}}
    assert evaluators.member_role(world, 'o\'neil "x"') == "Guest"


def test_reviews_are_looked_up_by_locators_too() -> None:
    locator = "func:shopping_get_sku_latest_review_rating('B0041MSF2S')"
    task = task_of(program_html=[target(locator, exact_match="100")])
    assert scored(task, None, FakeWorld(shop=[review("Anna", 100)])) == 1.0
    assert scored(task, None, FakeWorld(shop=[review("Anna", 80)])) == 0.0


# --- the product ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "at", "content", "reward"),
    [
        ("42", "http://s/a", "1", 1.0),
        ("41", "http://s/a", "1", 0.0),
        (None, "http://s/a", "1", 0.0),
        ("42", "http://s/b", "1", 0.0),
        ("42", "http://s/a", "2", 0.0),
    ],
)
def test_all_evaluators_must_be_content(
    answer: str | None, at: str, content: str, reward: float
) -> None:
    task = task_of(
        reference_answers={"must_include": ["42"]},
        reference_url="http://s/a",
        program_html=[target("document.x", "http://s/c", exact_match="1")],
    )
    world = FakeWorld(at, {"http://s/c": {"document.x": content}})
    assert scored(task, answer, world) == reward


def test_a_task_without_evaluators_has_no_score() -> None:
    with pytest.raises(ConfigError, match="webarena/0 has no eval"):
        scored(replace(TASKS[0], eval={}), "anything")


def test_without_a_judge_its_tasks_are_left_out() -> None:
    kept, left_out = evaluators.split_by_judge(TASKS)
    assert (len(kept), len(left_out)) == (125, 40)
    assert not any(map(task_file.needs_judge, kept))
    assert sorted(kept + left_out, key=TASKS.index) == list(TASKS)


def test_leaving_tasks_out_can_be_forbidden() -> None:
    kept, _ = evaluators.split_by_judge(TASKS)
    assert evaluators.split_by_judge(kept, require_judge_free=True) == (kept, ())
    with pytest.raises(ConfigError, match="40 of 165 tasks need a judge, webarena/1 first"):
        evaluators.split_by_judge(TASKS, require_judge_free=True)


# --- the 165 tasks of WebArena-Lite --------------------------------------------------------------


def pieces(contents: Mapping[str, Any], note: str = "") -> list[str]:
    """Texts that together meet the required contents, and each of which is needed."""
    fuzzy = contents.get("fuzzy_match", [])
    return [
        *([contents["exact_match"]] if "exact_match" in contents else []),
        *(reference.split(" |OR| ")[0] for reference in contents.get("must_include", [])),
        *([note] if fuzzy == "N/A" else [", ".join(fuzzy)] if fuzzy else []),
    ]


def right_answer(task: Task) -> str | None:
    if "reference_answers" not in task.eval:
        return None
    return "; ".join(pieces(task.eval["reference_answers"], task.eval["string_note"]))


def right_world(task: Task) -> FakeWorld:
    """The sites as a faultless agent leaves them."""
    targets = task.eval.get("program_html", [])
    at = task.eval.get("reference_url", f"{ADDRESSES['reddit']}/f/books").split(" |OR| ")[0]
    if any("reddit_get_post_url" in one["url"] for one in targets):
        at += "/777/a-title"
    pages: dict[str, dict[str, str]] = {}
    for one in targets:
        page = pages.setdefault(page_of(one, at), {})
        page[expression_of(one)] = "\n".join(
            [*filter(None, [page.get(expression_of(one))]), *pieces(one["required_contents"])]
        )
    return FakeWorld(at, pages, shop={"items": [{"increment_id": "000000321"}]})


def page_of(one: Mapping[str, Any], at: str) -> str:
    called = {
        "last": at,
        "func:shopping_get_latest_order_url()": f"{SHOP}/sales/order/view/order_id/321/",
        "func:reddit_get_post_url('__last_url__')": f"{at.rpartition('/')[0]}/",
    }
    return called.get(one["url"], one["url"])


def expression_of(one: Mapping[str, Any]) -> str:
    role = re.search(r"role\(__page__, '(\w+)'\)", one["locator"])
    if role is None:
        return one["locator"] or WHOLE_PAGE
    world = FakeWorld()
    evaluators.member_role(world, role[1])
    return world.asked[0]


def wrong_ends(task: Task) -> Iterator[tuple[str, str | None, FakeWorld]]:
    """Ends of an episode, each of which lacks one thing that the task wants."""
    answer, world = right_answer(task), right_world(task)
    if answer is not None:
        parts = pieces(task.eval["reference_answers"], task.eval["string_note"])
        yield "no answer", None, world
        yield "empty answer", "", world
        yield "wrong answer", "I do not know", world
        for i, part in enumerate(parts):
            yield f"answer without {part!r}", "; ".join(parts[:i] + parts[i + 1 :]), world
    if "reference_url" in task.eval:
        yield "another page", answer, replace(world, at=f"{SHOP}/nothing.html")
    for url, page in world.pages.items():
        yield f"{url} is gone", answer, replace(world, pages={**world.pages, url: {}})
        for expression, content in page.items():
            for line in content.split("\n"):
                less = content.replace(line, "")
                pages = {**world.pages, url: {**page, expression: less}}
                yield f"{url} without {line!r}", answer, replace(world, pages=pages)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_task_done_right_is_worth_one(task: Task) -> None:
    assert scored(task, right_answer(task), right_world(task)) == 1.0


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_task_that_lacks_anything_is_worth_nothing(task: Task) -> None:
    ends = list(wrong_ends(task))
    assert ends
    assert [why for why, answer, world in ends if scored(task, answer, world) != 0.0] == []


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_fault_is_never_a_score(task: Task) -> None:
    asks_world = task.eval["eval_types"] != ["string_match"]
    needs_judge = task_file.needs_judge(task)
    if asks_world:
        with pytest.raises(InfraError, match="no answer"):
            evaluators.score(task, right_answer(task), DeadWorld(), ScriptedJudge())
    if needs_judge:
        with pytest.raises(InfraError, match="no verdict"):
            evaluators.score(task, right_answer(task), right_world(task), DeadJudge())
        with pytest.raises(ConfigError, match=f"{task.id} needs a judge"):
            evaluators.score(task, right_answer(task), right_world(task))
    if not needs_judge:
        assert evaluators.score(task, right_answer(task), right_world(task)) == 1.0
