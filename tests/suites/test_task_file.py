"""Tests of task files: parsing, normalization, error messages."""

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
    "intent_template_id": 41,
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
def lite_tasks() -> tuple[Task, ...]:
    return task_file.load(LITE, ADDRESSES)


def load_rows(folder: Path, *rows: object, **addresses: str) -> tuple[Task, ...]:
    path = folder / "tests.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return task_file.load(path, ADDRESSES | addresses)


def with_value(row: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return a copy of `row` with `value` at a path such as "eval.url_note"."""
    row = copy.deepcopy(row)
    *parents, last = path.split(".")
    container = row
    for name in parents:
        container = container[int(name)] if isinstance(container, list) else container[name]
    container[last] = value
    return row


def test_lone_surrogate_is_replaced(tmp_path: Path, row: dict[str, Any]) -> None:
    (task,) = load_rows(tmp_path, with_value(row, "intent", "Find \ud83d"))
    assert task.intent == "Find \ufffd"


# --- WebArena-Lite -------------------------------------------------------------------------------


def test_load_reads_all_webarena_lite_tasks(lite_tasks: tuple[Task, ...]) -> None:
    assert [task.id for task in lite_tasks] == [f"webarena/{i}" for i in range(165)]
    assert {task.suite for task in lite_tasks} == {"webarena"}
    sites = Counter(task.sites[0] if len(task.sites) == 1 else "several" for task in lite_tasks)
    assert sites == {
        "shopping": 45,
        "shopping_admin": 35,
        "gitlab": 30,
        "map": 26,
        "reddit": 19,
        "several": 10,
    }


def test_load_replaces_all_placeholders(lite_tasks: tuple[Task, ...]) -> None:
    text = json.dumps([[task.start_url, task.intent, dict(task.eval)] for task in lite_tasks])
    assert not [site for site in task_file.SITES if f"__{site.upper()}__" in text]
    assert "http://reddit.test/f/DIY/118903/separate-glued-plastic-parts" in text


def test_webarena_lite_has_40_judge_tasks(lite_tasks: tuple[Task, ...]) -> None:
    judge_tasks = [task for task in lite_tasks if task_file.needs_judge(task)]
    page_tasks = [task for task in judge_tasks if "program_html" in task.eval["eval_types"]]
    assert (len(judge_tasks), len(page_tasks)) == (40, 4)


def test_start_urls_contain_one_url_per_tab(lite_tasks: tuple[Task, ...]) -> None:
    urls = task_file.start_urls(lite_tasks[103])
    assert len(urls) == 3
    assert all(url.startswith("http://shopping.test/") for url in urls)
    assert task_file.start_urls(lite_tasks[0]) == ("http://shopping_admin.test",)


def test_scalar_reference_becomes_list(lite_tasks: tuple[Task, ...]) -> None:
    assert lite_tasks[81].eval["reference_answers"] == {"must_include": ["yjlou"]}


def test_unachievable_differs_from_na_answer(lite_tasks: tuple[Task, ...]) -> None:
    assert lite_tasks[114].eval["reference_answers"] == {"fuzzy_match": task_file.UNACHIEVABLE}
    assert lite_tasks[51].eval["reference_answers"] == {"fuzzy_match": ["N/A"]}


# --- rows ----------------------------------------------------------------------------------------


def test_load_converts_row_to_task(tmp_path: Path, row: dict[str, Any]) -> None:
    (task,) = load_rows(tmp_path, row, gitlab="http://localhost:8023/")
    assert task == Task(
        id="webarena/7",
        suite="webarena",
        sites=("gitlab",),
        intent="Find http://localhost:8023",
        start_url="http://localhost:8023/explore",
        storage_state="./.auth/gitlab_state.json",
        template="41",
        eval={
            "eval_types": ["string_match"],
            "string_note": "",
            "reference_answers": {"must_include": ["42"]},
            "webarena_id": 7,
        },
    )


def test_null_template_id_means_no_template(tmp_path: Path, row: dict[str, Any]) -> None:
    (task,) = load_rows(tmp_path, row | {"intent_template_id": None})
    assert task.template == ""
    (task,) = load_rows(tmp_path, row | {"intent_template_id": 0})
    assert task.template == "0"


def test_renumbered_task_keeps_number_in_webarena(tmp_path: Path, row: dict[str, Any]) -> None:
    (task,) = load_rows(tmp_path, row | {"old_task_id": 415})
    assert task.id == "webarena/7" and task.eval["webarena_id"] == 415


@pytest.mark.parametrize("state", [None, ""])
def test_empty_storage_state_becomes_none(
    tmp_path: Path, row: dict[str, Any], state: str | None
) -> None:
    (task,) = load_rows(tmp_path, with_value(row, "storage_state", state))
    assert task.storage_state is None


def test_null_references_are_dropped(tmp_path: Path, row: dict[str, Any]) -> None:
    answers = {"exact_match": None, "must_include": ["42"], "fuzzy_match": ""}
    (task,) = load_rows(tmp_path, with_value(row, "eval.reference_answers", answers))
    assert task.eval["reference_answers"] == {"must_include": ["42"]}
    assert not task_file.needs_judge(task)


def test_row_without_eval_loads(tmp_path: Path) -> None:
    instruction = {"intent": "Star it", "sites": ["gitlab"], "start_url": "__GITLAB__"}
    first, second = load_rows(tmp_path, instruction, instruction)
    assert (first.id, second.id) == ("webarena/0", "webarena/1")
    assert first.eval == {}
    assert not task_file.needs_judge(first)


def test_overlapping_placeholders_resolve_separately(tmp_path: Path, row: dict[str, Any]) -> None:
    (task,) = load_rows(tmp_path, with_value(row, "start_url", "__SHOPPING_ADMIN__/x __SHOPPING__"))
    assert task.start_url == "http://shopping_admin.test/x http://shopping.test"


# --- errors --------------------------------------------------------------------------------------

TARGET = {"url": "last", "locator": "", "required_contents": {"must_include": ["42"]}}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("sites", None, "sites must be given"),
        ("sites", 5, 'sites must be a list of strings: ["..."]; it is 5'),
        ("sites", ["git lab"], "sites must be among shopping, shopping_admin, reddit"),
        ("sites", ["crm"], "suite.webarena.addresses=NAME=http://host:port adds a site; it is"),
        ("intent", "", "intent must be given"),
        ("intent", 3, 'intent must be a string: "..."; it is 3'),
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
        ("eval.reference_answers", {"exact_match": ["1"]}, 'exact_match must be a string: "..."'),
        ("eval.reference_answers", {"must_include": [1]}, "must_include must be a list of strings"),
        ("eval.string_note", ["no"], "eval.string_note must be a string"),
    ],
)
def test_malformed_row_raises_error(
    tmp_path: Path, row: dict[str, Any], field: str, value: object, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load_rows(tmp_path, with_value(row, field, value))
    assert str(error.value).startswith("tests.json, task 7: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
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
        ("prep_actions", [1], "prep_actions must be a list of strings"),
        ("required_contents", None, "required_contents must be given"),
        ("required_contents", {"one_of": ["1"]}, "one_of must be replaced by"),
    ],
)
def test_malformed_target_raises_error(
    tmp_path: Path, row: dict[str, Any], field: str, value: object, message: str
) -> None:
    row["eval"] |= {"eval_types": ["program_html"], "program_html": [dict(TARGET)]}
    load_rows(tmp_path, row)
    with pytest.raises(ConfigError) as error:
        load_rows(tmp_path, with_value(row, f"eval.program_html.0.{field}", value))
    assert "tests.json, task 7: eval.program_html[0]." in str(error.value)
    assert message in str(error.value)


def test_unknown_url_note_raises_error(tmp_path: Path, row: dict[str, Any]) -> None:
    row["eval"] |= {"eval_types": ["url_match"], "reference_url": "__GITLAB__", "url_note": "IN"}
    with pytest.raises(ConfigError, match=r"url_note must be one of .* it is 'IN'"):
        load_rows(tmp_path, row)


def test_non_list_program_html_raises_error(tmp_path: Path, row: dict[str, Any]) -> None:
    row["eval"] |= {"eval_types": ["program_html"], "program_html": TARGET}
    with pytest.raises(ConfigError, match="program_html must be a list of objects"):
        load_rows(tmp_path, row)


def test_duplicate_task_id_raises_error(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="two tasks webarena/7"):
        load_rows(tmp_path, row, row)


@pytest.mark.parametrize("content", ["{}", "[1]", "[", ""])
def test_file_without_task_list_raises_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tests.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"tests\.json"):
        task_file.load(path, ADDRESSES)


def test_missing_file_error_names_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the task file .*none\.json: No such file"):
        task_file.load(tmp_path / "none.json", ADDRESSES)


# --- addresses -----------------------------------------------------------------------------------


def test_missing_addresses_error_names_all_sites() -> None:
    addresses = {"shopping": "http://shop.test", "reddit": "http://forum.test"}
    with pytest.raises(ConfigError) as error:
        task_file.load(LITE, addresses)
    message = str(error.value)
    assert "SHOPPING_ADMIN (or WA_SHOPPING_ADMIN), GITLAB (or WA_GITLAB)" in message
    assert "MAP (or WA_MAP)" in message
    assert "HOMEPAGE" not in message  # no task needs it
    assert " SHOPPING (" not in message


def test_site_without_placeholder_needs_address(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "tests.json"
    path.write_text(json.dumps([with_value(row, "sites", ["gitlab", "wikipedia"])]))
    with pytest.raises(ConfigError, match="WIKIPEDIA"):
        task_file.load(path, {"gitlab": "http://gitlab.test"})


def test_invalid_address_raises_error(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="address of gitlab must begin with http://, unlike 'x'"):
        load_rows(tmp_path, row, gitlab="x")


def test_environment_accepts_both_variable_names() -> None:
    environ = {"GITLAB": "http://a", "WA_REDDIT": "http://b", "MAP": "", "HOME": "/root"}
    assert task_file.addresses_from_environment(environ) == {
        "gitlab": "http://a",
        "reddit": "http://b",
    }


def test_wa_prefixed_variable_takes_precedence() -> None:
    environ = {"MAP": "treasure", "WA_MAP": "http://map"}
    assert task_file.addresses_from_environment(environ) == {"map": "http://map"}


def test_environment_error_names_missing_sites() -> None:
    with pytest.raises(ConfigError, match=r"set GITLAB \(or WA_GITLAB\), MAP \(or WA_MAP\) to"):
        task_file.addresses_from_environment({"REDDIT": "http://b"}, ["map", "gitlab", "reddit"])


# --- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_parse_call_returns_name_and_arguments(text: str, expected: Call | None) -> None:
    assert task_file.parse_call(text) == expected


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
def test_parse_call_rejects_other_expressions(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|only"):
        task_file.parse_call(text)
