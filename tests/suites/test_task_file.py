"""Task files: what is read, what is mended, and how a file that cannot be read is refused."""

from __future__ import annotations

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from webagent_jax.config import ConfigError
from webagent_jax.suites import task_file
from webagent_jax.suites.task_file import Call
from webagent_jax.types import Task

LITE = Path(__file__).parent / "data" / "webarena_lite_test.json"
ADDRESSES = {site: f"http://{site}.test" for site in task_file.SITES}
ROW: dict[str, Any] = {
    "sites": ["gitlab"],
    "task_id": 7,
    "storage_state": "./.auth/gitlab_state.json",
    "start_url": "__GITLAB__/explore",
    "intent": "Find __GITLAB__",
    "eval": {
        "eval_types": ["string_match"],
        "reference_answers": {"must_include": ["42"]},
        "reference_url": "",
        "program_html": [],
        "string_note": "",
    },
}


@pytest.fixture
def row() -> dict[str, Any]:
    return copy.deepcopy(ROW)


@pytest.fixture(scope="module")
def lite() -> tuple[Task, ...]:
    return task_file.load(LITE, ADDRESSES)


def loaded(folder: Path, *rows: object, **addresses: str) -> tuple[Task, ...]:
    path = folder / "tests.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return task_file.load(path, ADDRESSES | addresses)


def changed(row: dict[str, Any], where: str, value: object) -> dict[str, Any]:
    """`row` with another value at a path such as "eval.url_note"."""
    row = copy.deepcopy(row)
    *path, last = where.split(".")
    part = row
    for name in path:
        part = part[int(name)] if isinstance(part, list) else part[name]
    part[last] = value
    return row


def test_half_a_character_is_replaced(tmp_path: Path, row: dict[str, Any]) -> None:
    (task,) = loaded(tmp_path, changed(row, "intent", "Find \ud83d"))
    assert task.intent == "Find \ufffd"


# --- the 165 tasks -------------------------------------------------------------------------------


def test_webarena_lite_is_read_whole(lite: tuple[Task, ...]) -> None:
    assert [task.id for task in lite] == [f"webarena/{i}" for i in range(165)]
    assert {task.suite for task in lite} == {"webarena"}
    sites = Counter(task.sites[0] if len(task.sites) == 1 else "several" for task in lite)
    assert sites == {
        "shopping": 45,
        "shopping_admin": 35,
        "gitlab": 30,
        "map": 26,
        "reddit": 19,
        "several": 10,
    }


def test_no_placeholder_is_left(lite: tuple[Task, ...]) -> None:
    text = json.dumps([[task.start_url, task.intent, dict(task.eval)] for task in lite])
    assert not [site for site in task_file.SITES if f"__{site.upper()}__" in text]
    assert "http://reddit.test/f/DIY/118903/separate-glued-plastic-parts" in text


def test_forty_tasks_need_a_judge(lite: tuple[Task, ...]) -> None:
    asked = [task for task in lite if task_file.needs_judge(task)]
    of_page = [task for task in asked if "program_html" in task.eval["eval_types"]]
    assert (len(asked), len(of_page)) == (40, 4)


def test_a_start_may_have_several_tabs(lite: tuple[Task, ...]) -> None:
    urls = task_file.start_urls(lite[103])
    assert len(urls) == 3
    assert all(url.startswith("http://shopping.test/") for url in urls)
    assert task_file.start_urls(lite[0]) == ("http://shopping_admin.test",)


def test_a_reference_that_is_no_list_is_a_list_of_one(lite: tuple[Task, ...]) -> None:
    assert lite[81].eval["reference_answers"] == {"must_include": ["yjlou"]}


def test_unachievable_is_kept_apart_from_an_answer_of_na(lite: tuple[Task, ...]) -> None:
    assert lite[114].eval["reference_answers"] == {"fuzzy_match": task_file.UNACHIEVABLE}
    assert lite[51].eval["reference_answers"] == {"fuzzy_match": ["N/A"]}


# --- one row -------------------------------------------------------------------------------------


def test_a_row_becomes_a_task(tmp_path: Path, row: dict[str, Any]) -> None:
    (task,) = loaded(tmp_path, row, gitlab="http://localhost:8023/")
    assert task == Task(
        id="webarena/7",
        suite="webarena",
        sites=("gitlab",),
        intent="Find http://localhost:8023",
        start_url="http://localhost:8023/explore",
        storage_state="./.auth/gitlab_state.json",
        eval={
            "eval_types": ["string_match"],
            "string_note": "",
            "reference_answers": {"must_include": ["42"]},
        },
    )


@pytest.mark.parametrize("state", [None, ""])
def test_no_state_is_none(tmp_path: Path, row: dict[str, Any], state: str | None) -> None:
    (task,) = loaded(tmp_path, changed(row, "storage_state", state))
    assert task.storage_state is None


def test_null_fields_are_not_there(tmp_path: Path, row: dict[str, Any]) -> None:
    answers = {"exact_match": None, "must_include": ["42"], "fuzzy_match": ""}
    (task,) = loaded(tmp_path, changed(row, "eval.reference_answers", answers))
    assert task.eval["reference_answers"] == {"must_include": ["42"]}
    assert not task_file.needs_judge(task)


def test_a_bare_instruction_can_be_played(tmp_path: Path) -> None:
    instruction = {"intent": "Star it", "sites": ["gitlab"], "start_url": "__GITLAB__"}
    first, second = loaded(tmp_path, instruction, instruction)
    assert (first.id, second.id) == ("webarena/0", "webarena/1")
    assert first.eval == {}
    assert not task_file.needs_judge(first)


def test_addresses_within_an_address_are_kept_apart(tmp_path: Path, row: dict[str, Any]) -> None:
    (task,) = loaded(tmp_path, changed(row, "start_url", "__SHOPPING_ADMIN__/x __SHOPPING__"))
    assert task.start_url == "http://shopping_admin.test/x http://shopping.test"


# --- what is refused -----------------------------------------------------------------------------

TARGET = {"url": "last", "locator": "", "required_contents": {"must_include": ["42"]}}


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        ("sites", None, "sites must be given"),
        ("sites", 5, 'sites must be a list of texts: ["..."]; it is 5'),
        ("sites", ["git lab"], "sites must be among shopping, shopping_admin, reddit"),
        ("intent", "", "intent must be given"),
        ("intent", 3, 'intent must be a text: "..."; it is 3'),
        ("start_url", None, "start_url must be given"),
        ("start_url", "__CLASSIFIEDS__", "start_url must be addresses, joined by ' |AND| '"),
        ("start_url", "file:///etc/passwd", "start_url must be addresses"),
        ("start_url", "__GITLAB__ |AND| x", "start_url must be addresses"),
        ("eval", "string_match", "eval must be an object: {...}"),
        ("eval.eval_types", [], "eval.eval_types must be given"),
        ("eval.eval_types", ["page_image_query"], "eval.eval_types must be among string_match"),
        ("eval.eval_types", ["url_match"], "eval.reference_url must be given"),
        ("eval.eval_types", ["program_html"], "eval.program_html must be given"),
        ("eval.reference_answers", None, "eval.reference_answers must be given"),
        ("eval.reference_answers", {"exact_match": None}, "exact_match must be given, or must"),
        ("eval.reference_answers", {"one_of": ["1"]}, "one_of must be replaced by exact_match or"),
        ("eval.reference_answers", {"exact_match": ["1"]}, 'exact_match must be a text: "..."'),
        ("eval.reference_answers", {"must_include": [1]}, "must_include must be a list of texts"),
        ("eval.string_note", ["no"], "eval.string_note must be a text"),
    ],
)
def test_a_malformed_row_is_refused(
    tmp_path: Path, row: dict[str, Any], where: str, value: object, words: str
) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, changed(row, where, value))
    assert str(error.value).startswith("tests.json, task 7: ")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        ("url", "", "program_html[0].url must be given"),
        ("url", "first", "url must be 'last', func:... or an address"),
        ("url", "__MAPS__/x", "url must be 'last', func:... or an address"),
        ("url", "func:os.system('true')", "url must read func:name('argument', ...)"),
        ("url", "func:exit()", "url must call one of shopping_get_latest"),
        (
            "url",
            "func:reddit_get_post_url()",
            "must call reddit_get_post_url with 1 quoted arguments",
        ),
        ("url", "function", "url must read func:"),
        ("locator", "window.name", "locator must be empty or begin with func:, document. or"),
        ("locator", "func:nothing(__page__)", "locator must call one of shopping_get_latest"),
        ("prep_actions", [1], "prep_actions must be a list of texts"),
        ("required_contents", None, "required_contents must be given"),
        ("required_contents", {"must_exclude": ["1"]}, "must_exclude must be replaced by"),
    ],
)
def test_a_malformed_target_is_refused(
    tmp_path: Path, row: dict[str, Any], where: str, value: object, words: str
) -> None:
    row["eval"] |= {"eval_types": ["program_html"], "program_html": [dict(TARGET)]}
    loaded(tmp_path, row)
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, changed(row, f"eval.program_html.0.{where}", value))
    assert "tests.json, task 7: eval.program_html[0]." in str(error.value)
    assert words in str(error.value)


def test_an_unknown_note_is_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    row["eval"] |= {"eval_types": ["url_match"], "reference_url": "__GITLAB__", "url_note": "IN"}
    with pytest.raises(ConfigError, match=r"url_note must be one of .* it is 'IN'"):
        loaded(tmp_path, row)


def test_targets_must_be_a_list(tmp_path: Path, row: dict[str, Any]) -> None:
    row["eval"] |= {"eval_types": ["program_html"], "program_html": TARGET}
    with pytest.raises(ConfigError, match="program_html must be a list of objects"):
        loaded(tmp_path, row)


def test_two_tasks_of_one_id_are_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="two tasks webarena/7"):
        loaded(tmp_path, row, row)


@pytest.mark.parametrize("content", ["{}", "[1]", "[", ""])
def test_a_file_that_is_no_list_of_tasks_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tests.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"tests\.json"):
        task_file.load(path, ADDRESSES)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the task file .*none\.json: No such file"):
        task_file.load(tmp_path / "none.json", ADDRESSES)


# --- addresses -----------------------------------------------------------------------------------


def test_all_missing_addresses_are_named() -> None:
    some = {"shopping": "http://shop.test", "reddit": "http://forum.test"}
    with pytest.raises(ConfigError) as error:
        task_file.load(LITE, some)
    told = str(error.value)
    assert "SHOPPING_ADMIN (or WA_SHOPPING_ADMIN), GITLAB (or WA_GITLAB)" in told
    assert "MAP (or WA_MAP)" in told
    assert "HOMEPAGE" not in told  # no task needs it
    assert " SHOPPING (" not in told


def test_a_site_counts_as_needed_without_a_placeholder(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "tests.json"
    path.write_text(json.dumps([changed(row, "sites", ["gitlab", "wikipedia"])]))
    with pytest.raises(ConfigError, match="WIKIPEDIA"):
        task_file.load(path, {"gitlab": "http://gitlab.test"})


def test_an_address_must_be_one(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="address of gitlab must begin with http://, unlike 'x'"):
        loaded(tmp_path, row, gitlab="x")


def test_both_spellings_of_the_environment_are_read() -> None:
    environ = {"GITLAB": "http://a", "WA_REDDIT": "http://b", "MAP": "", "HOME": "/root"}
    assert task_file.addresses_from_environment(environ) == {
        "gitlab": "http://a",
        "reddit": "http://b",
    }


def test_the_longer_spelling_counts() -> None:
    environ = {"MAP": "treasure", "WA_MAP": "http://map"}
    assert task_file.addresses_from_environment(environ) == {"map": "http://map"}


def test_the_environment_must_have_what_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"set GITLAB \(or WA_GITLAB\), MAP \(or WA_MAP\) to"):
        task_file.addresses_from_environment({"REDDIT": "http://b"}, ["map", "gitlab", "reddit"])


# --- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("last", None),
        ("document.title", None),
        ("", None),
        ("func:shopping_get_latest_order_url()", Call("shopping_get_latest_order_url", ())),
        (
            "func:reddit_get_post_url('__last_url__')",
            Call("reddit_get_post_url", ("__last_url__",)),
        ),
        ('func:reddit_get_post_url("a, b")', Call("reddit_get_post_url", ("a, b",))),
        ("func:reddit_get_post_url('')", Call("reddit_get_post_url", ("",))),
        (
            "func:gitlab_get_project_memeber_role(__page__, 'vinta')",
            Call("gitlab_get_project_memeber_role", ("vinta",)),
        ),
        (
            "func:gitlab_get_project_memeber_role( 'vinta',__page__ ) ",
            Call("gitlab_get_project_memeber_role", ("vinta",)),
        ),
    ],
)
def test_calls_are_read(text: str, read: Call | None) -> None:
    assert task_file.parse_call(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "func:",
        "func:reddit_get_post_url",
        "func:reddit_get_post_url(url)",
        "func:reddit_get_post_url('a' 'b')",
        "func:reddit_get_post_url('a',)",
        "func:reddit_get_post_url('a', 'b')",
        "func:reddit_get_post_url('a') or 1",
        "func:reddit_get_post_url('a' + __import__('os').getcwd())",
        "func:__import__('os')",
    ],
)
def test_no_other_call_is_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|only"):
        task_file.parse_call(text)
