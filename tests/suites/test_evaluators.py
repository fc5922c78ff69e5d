"""Tests of the evaluators: answers, URLs, pages, and every WebArena-Lite task on fake sites."""

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
PAGE_HTML = "document.documentElement.outerHTML"


# --- fakes ---------------------------------------------------------------------------------------


@dataclass
class FakeSiteState:
    """Fake sites: values of JavaScript expressions by page URL; other expressions fail."""

    current_url: str = "http://nowhere.test/"
    pages: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    shop: object = None  # response of the REST API of the shop
    visits: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)

    def url(self) -> str:
        return self.current_url

    def goto(self, url: str) -> None:
        self.current_url = url
        self.visits.append(url)

    def evaluate(self, script: str) -> Any:
        expressions = re.fullmatch(r"\(\) => \{ try \{ return \[(.*)\]; \} catch .*", script, re.S)
        assert expressions
        self.scripts.append(expressions[1])
        page = self.pages.get(self.current_url, {})
        return [page[expressions[1]]] if expressions[1] in page else []

    def address(self, site: str) -> str:
        return ADDRESSES[site]

    def shop_json(self, path: str) -> Any:
        self.visits.append(path)
        return self.shop


class FailingSiteState(FakeSiteState):
    """Sites that do not respond."""

    def url(self) -> str:
        raise InfraError("no answer")

    goto = evaluate = shop_json = lambda self, _: FailingSiteState.url(self)


@dataclass
class ScriptedJudge:
    """Judge that accepts answers containing the reference, ignoring case."""

    calls: list[tuple[str, str, str]] = field(default_factory=list)

    def same_meaning(self, intent: str, reference: str, answer: str) -> bool:
        self.calls.append((intent, reference, answer))
        return reference.lower() in answer.lower()

    unachievable = same_meaning


class FailingJudge(ScriptedJudge):
    def same_meaning(self, intent: str, reference: str, answer: str) -> bool:
        raise InfraError("no verdict")

    unachievable = same_meaning


def make_task(**spec: Any) -> Task:
    types = {
        "reference_answers": "string_match",
        "reference_url": "url_match",
        "program_html": "program_html",
    }
    spec = {"eval_types": [types[k] for k in spec if k in types], "string_note": ""} | spec
    spec.setdefault("url_note", "")
    return Task("webarena/1", "webarena", ("shopping",), "Do it", SHOP, eval=spec)


def make_target(locator: str, url: str = "last", prep: Sequence[str] = (), **contents: Any) -> Any:
    return {"url": url, "locator": locator, "prep_actions": prep, "required_contents": contents}


def compute_score(
    task: Task,
    answer: str | None = None,
    state: FakeSiteState | None = None,
    rules: MatchingRules = LITE,
) -> float:
    return evaluators.score(task, answer, state or FakeSiteState(), ScriptedJudge(), rules)


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("references", "answer", "reward"),
    [
        ({"exact_match": "N/A"}, None, 0.0),
        ({"exact_match": "N/A"}, "N/A", 1.0),
        ({"exact_match": "Yes"}, "\"'yes'\"", 1.0),
        ({"must_include": ["N/A"]}, None, 0.0),
        ({"must_include": ["1"]}, "", 0.0),
        ({"must_include": ["Teofila"], "must_exclude": ["Emerald"]}, "teofila", 1.0),
        ({"must_include": ["Teofila"], "must_exclude": ["Emerald"]}, "Teofila, emerald", 0.0),
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
def test_string_match_scores_answers(references: Any, answer: str | None, reward: float) -> None:
    task = make_task(reference_answers=references, string_note="sold out")
    assert compute_score(task, answer) == reward


def test_webarena_rules_judge_each_reference() -> None:
    task = make_task(reference_answers={"fuzzy_match": ["2 h", "5 km"]})
    assert compute_score(task, "5 km, 2 h", rules=WEBARENA) == 1.0
    assert compute_score(task, "5 km", rules=WEBARENA) == 0.0


def test_judge_receives_intent_reference_and_answer() -> None:
    judge = ScriptedJudge()
    task = make_task(reference_answers={"fuzzy_match": ["2 h", "5 km"]})
    evaluators.score(task, '"Two Hours"', FakeSiteState(), judge)
    task = make_task(reference_answers={"fuzzy_match": "N/A"}, string_note="no such user")
    evaluators.score(task, "Gone", FakeSiteState(), judge)
    assert judge.calls == [("Do it", "2 h, 5 km", "two hours"), ("Do it", "no such user", "gone")]


def test_judge_is_not_called_if_rule_decides() -> None:
    task = make_task(reference_answers={"must_include": ["Acadia"], "fuzzy_match": ["10h"]})
    assert evaluators.score(task, "10h", FakeSiteState(), FailingJudge()) == 0.0
    task = make_task(reference_answers={"fuzzy_match": "N/A"})
    assert evaluators.score(task, "N/A", FakeSiteState(), FailingJudge()) == 1.0
    assert evaluators.score(task, None, FakeSiteState(), FailingJudge()) == 0.0


# --- pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected", "reward"),
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
def test_page_value_is_compared_as_text(value: object, expected: str, reward: float) -> None:
    state = FakeSiteState("http://s/", {"http://s/": {"document.x": value}})
    assert (
        compute_score(
            make_task(program_html=[make_target("document.x", exact_match=expected)]), None, state
        )
        == reward
    )


def test_webarena_rules_decode_html_entities() -> None:
    task = make_task(program_html=[make_target("", must_include=["R&D 2.0"])])
    state = FakeSiteState("http://s/", {"http://s/": {PAGE_HTML: "<b>R&amp;D 2.0</b>"}})
    assert compute_score(task, None, state, LITE) == 0.0
    assert compute_score(task, None, state, WEBARENA) == 1.0


def test_failing_locator_scores_zero() -> None:
    assert (
        compute_score(make_task(program_html=[make_target("document.x.y", exact_match="1")])) == 0.0
    )


def test_target_url_is_opened() -> None:
    state = FakeSiteState(pages={"http://s/a": {"document.x": "1"}})
    task = make_task(program_html=[make_target("document.x", "http://s/a", exact_match="1")])
    assert compute_score(task, None, state) == 1.0
    assert state.visits == ["http://s/a"]


def test_last_url_is_current_page() -> None:
    pages = {"http://s/a": {"document.x": "1"}, "http://s/b": {"document.x": "2"}}
    last_target, url_target = (
        make_target("document.x", exact_match="1"),
        make_target("document.x", "http://s/b", exact_match="2"),
    )
    assert (
        compute_score(
            make_task(program_html=[last_target, url_target]),
            None,
            FakeSiteState("http://s/a", pages),
        )
        == 1.0
    )
    assert (
        compute_score(
            make_task(program_html=[url_target, last_target]),
            None,
            FakeSiteState("http://s/a", pages),
        )
        == 0.0
    )


@pytest.mark.parametrize(
    "url", ["about:blank", "chrome-error://chromewebdata/", "data:text/html,x"]
)
def test_blank_or_error_page_scores_zero(url: str) -> None:
    func_target = make_target(
        "document.x", "func:reddit_get_post_url('__last_url__')", exact_match="1"
    )
    state = FakeSiteState(url, {url: {"document.x": "1"}})
    assert compute_score(make_task(program_html=[func_target]), None, state) == 0.0
    assert state.visits == []


def test_prep_actions_run_before_locator() -> None:
    clicks = ["document.a.click()", "document.b.click()"]
    state = FakeSiteState("http://s/", {"http://s/": {"document.x": "1"}})
    task = make_task(program_html=[make_target("document.x", prep=clicks, exact_match="1")])
    assert compute_score(task, None, state) == 1.0  # although no element can be clicked
    assert state.scripts == ["document.a.click(), document.b.click()", "document.x"]


def test_judge_scores_page_contents() -> None:
    judge = ScriptedJudge()
    state = FakeSiteState("http://s/", {"http://s/": {"document.x": "I want a Refund, it broke"}})
    task = make_task(program_html=[make_target("document.x", fuzzy_match=["refund", "it broke"])])
    assert evaluators.score(task, None, state, judge) == 1.0
    assert judge.calls == [("Do it", "refund, it broke", "I want a Refund, it broke")]


# --- functions of `func:` locators ---------------------------------------------------------------


def test_all_task_file_functions_are_implemented() -> None:
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
def test_post_url_strips_title_and_comment(url: str, post: str) -> None:
    assert evaluators.post_url(FakeSiteState(), url) == post


def test_latest_order_url_queries_newest_order() -> None:
    state = FakeSiteState(shop={"items": [{"increment_id": "000000170"}, {"increment_id": "1"}]})
    assert evaluators.latest_order_url(state) == f"{SHOP}/sales/order/view/order_id/170/"
    query = urlsplit(state.visits[0])
    assert query.path == "/rest/V1/orders"
    assert parse_qs(query.query) == {
        "searchCriteria[sortOrders][0][field]": ["created_at"],
        "searchCriteria[sortOrders][0][direction]": ["DESC"],
        "searchCriteria[pageSize]": ["1"],
    }


def make_review(author: str, percent: int, rating: str = "Rating") -> dict[str, Any]:
    return {"nickname": author, "ratings": [{"rating_name": rating, "percent": percent}]}


@pytest.mark.parametrize(
    ("reviews", "author", "rating"),
    [
        ([], "", ""),
        ([make_review("Anna", 80)], "Anna", "80"),
        ([make_review("Anna", 80), make_review("Bert", 20)], "Bert", "20"),
    ],
)
def test_latest_review_is_last_in_list(reviews: Any, author: str, rating: str) -> None:
    state = FakeSiteState(shop=reviews)
    assert evaluators.latest_review_author(state, "B00/1") == author
    assert evaluators.latest_review_rating(state, "B00/1") == rating
    assert set(state.visits) == {"/rest/V1/products/B00%2F1/reviews"}


@pytest.mark.parametrize(
    "shop", [None, {}, {"items": []}, {"message": "no"}, [{}], [{"ratings": []}]]
)
def test_unexpected_shop_response_raises_infra_error(shop: object) -> None:
    for query in (
        evaluators.latest_order_url,
        lambda state: evaluators.latest_review_author(state, "B"),
        lambda state: evaluators.latest_review_rating(state, "B"),
    ):
        with pytest.raises(InfraError, match="the shop"):
            query(FakeSiteState(shop=shop))


def test_missing_rating_raises_infra_error() -> None:
    with pytest.raises(InfraError, match="no rating in the last review of B"):
        evaluators.latest_review_rating(FakeSiteState(shop=[make_review("Anna", 80, "Value")]), "B")


def test_member_role_looks_up_member_by_name() -> None:
    state = FakeSiteState()
    assert evaluators.member_role(state, 'o\'neil "x"') == ""
    (script,) = state.scripts
    assert r'name.outerText === "@o' in script
    state.pages = {state.current_url: {script: "Guest"}}
    assert evaluators.member_role(state, 'o\'neil "x"') == "Guest"


def test_locator_may_call_review_function() -> None:
    locator = "func:shopping_get_sku_latest_review_rating('B0041MSF2S')"
    task = make_task(program_html=[make_target(locator, exact_match="100")])
    assert compute_score(task, None, FakeSiteState(shop=[make_review("Anna", 100)])) == 1.0
    assert compute_score(task, None, FakeSiteState(shop=[make_review("Anna", 80)])) == 0.0


# --- scores --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "url", "content", "reward"),
    [
        ("42", "http://s/a", "1", 1.0),
        ("41", "http://s/a", "1", 0.0),
        (None, "http://s/a", "1", 0.0),
        ("42", "http://s/b", "1", 0.0),
        ("42", "http://s/a", "2", 0.0),
    ],
)
def test_score_requires_all_evaluators(
    answer: str | None, url: str, content: str, reward: float
) -> None:
    task = make_task(
        reference_answers={"must_include": ["42"]},
        reference_url="http://s/a",
        program_html=[make_target("document.x", "http://s/c", exact_match="1")],
    )
    state = FakeSiteState(url, {"http://s/c": {"document.x": content}})
    assert compute_score(task, answer, state) == reward


def test_task_without_eval_raises_error() -> None:
    with pytest.raises(ConfigError, match="webarena/0 has no eval"):
        compute_score(replace(TASKS[0], eval={}), "anything")


def test_split_by_judge_separates_judge_tasks() -> None:
    rule_tasks, judge_tasks = evaluators.split_by_judge(TASKS)
    assert (len(rule_tasks), len(judge_tasks)) == (125, 40)
    assert not any(map(task_file.needs_judge, rule_tasks))
    assert sorted(rule_tasks + judge_tasks, key=TASKS.index) == list(TASKS)


def test_strict_split_by_judge_raises_error() -> None:
    rule_tasks, _ = evaluators.split_by_judge(TASKS)
    assert evaluators.split_by_judge(rule_tasks, require_judge_free=True) == (rule_tasks, ())
    with pytest.raises(ConfigError, match="40 of 165 tasks need a judge, webarena/1 first"):
        evaluators.split_by_judge(TASKS, require_judge_free=True)


# --- tasks of WebArena-Lite ----------------------------------------------------------------------


def list_required_texts(contents: Mapping[str, Any], note: str = "") -> list[str]:
    """Return texts that together meet the required contents; each of them is necessary."""
    fuzzy = contents.get("fuzzy_match", [])
    return [
        *([contents["exact_match"]] if "exact_match" in contents else []),
        *(reference.split(" |OR| ")[0] for reference in contents.get("must_include", [])),
        *([note] if fuzzy == "N/A" else [", ".join(fuzzy)] if fuzzy else []),
    ]


def make_correct_answer(task: Task) -> str | None:
    if "reference_answers" not in task.eval:
        return None
    return "; ".join(list_required_texts(task.eval["reference_answers"], task.eval["string_note"]))


def make_correct_state(task: Task) -> FakeSiteState:
    """Return the sites as a correct episode leaves them."""
    targets = task.eval.get("program_html", [])
    url = task.eval.get("reference_url", f"{ADDRESSES['reddit']}/f/books").split(" |OR| ")[0]
    if any("reddit_get_post_url" in target["url"] for target in targets):
        url += "/777/a-title"
    pages: dict[str, dict[str, str]] = {}
    for target in targets:
        page = pages.setdefault(resolve_url(target, url), {})
        page[find_expression(target)] = "\n".join(
            [
                *filter(None, [page.get(find_expression(target))]),
                *list_required_texts(target["required_contents"]),
            ]
        )
    return FakeSiteState(url, pages, shop={"items": [{"increment_id": "000000321"}]})


def resolve_url(target: Mapping[str, Any], current_url: str) -> str:
    func_urls = {
        "last": current_url,
        "func:shopping_get_latest_order_url()": f"{SHOP}/sales/order/view/order_id/321/",
        "func:reddit_get_post_url('__last_url__')": f"{current_url.rpartition('/')[0]}/",
    }
    return func_urls.get(target["url"], target["url"])


def find_expression(target: Mapping[str, Any]) -> str:
    role = re.search(r"role\(__page__, '(\w+)'\)", target["locator"])
    if role is None:
        return target["locator"] or PAGE_HTML
    state = FakeSiteState()
    evaluators.member_role(state, role[1])
    return state.scripts[0]


def iterate_wrong_outcomes(task: Task) -> Iterator[tuple[str, str | None, FakeSiteState]]:
    """Yield final answers and states that each miss one requirement of the task."""
    answer, state = make_correct_answer(task), make_correct_state(task)
    if answer is not None:
        parts = list_required_texts(task.eval["reference_answers"], task.eval["string_note"])
        yield "no answer", None, state
        yield "empty answer", "", state
        yield "wrong answer", "I do not know", state
        for i, part in enumerate(parts):
            yield f"answer without {part!r}", "; ".join(parts[:i] + parts[i + 1 :]), state
    if "reference_url" in task.eval:
        yield "another page", answer, replace(state, current_url=f"{SHOP}/nothing.html")
    for url, page in state.pages.items():
        yield f"{url} is gone", answer, replace(state, pages={**state.pages, url: {}})
        for expression, content in page.items():
            for line in content.split("\n"):
                content_without_line = content.replace(line, "")
                pages = {**state.pages, url: {**page, expression: content_without_line}}
                yield f"{url} without {line!r}", answer, replace(state, pages=pages)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_correct_outcome_scores_one(task: Task) -> None:
    assert compute_score(task, make_correct_answer(task), make_correct_state(task)) == 1.0


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_incomplete_outcome_scores_zero(task: Task) -> None:
    outcomes = list(iterate_wrong_outcomes(task))
    assert outcomes
    assert [
        reason for reason, answer, state in outcomes if compute_score(task, answer, state) != 0.0
    ] == []


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_fault_raises_error_instead_of_score(task: Task) -> None:
    needs_state = task.eval["eval_types"] != ["string_match"]
    needs_judge = task_file.needs_judge(task)
    if needs_state:
        with pytest.raises(InfraError, match="no answer"):
            evaluators.score(task, make_correct_answer(task), FailingSiteState(), ScriptedJudge())
    if needs_judge:
        with pytest.raises(InfraError, match="no verdict"):
            evaluators.score(
                task, make_correct_answer(task), make_correct_state(task), FailingJudge()
            )
        with pytest.raises(ConfigError, match=f"{task.id} needs a judge"):
            evaluators.score(task, make_correct_answer(task), make_correct_state(task))
    if not needs_judge:
        assert evaluators.score(task, make_correct_answer(task), make_correct_state(task)) == 1.0
