"""Which tasks there are: files, filters, what is left out, and what a task may change."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.suites.webarena_sites import page_holds, task
from webagent_jax.config import ConfigError, JudgeConfig, WebArenaConfig
from webagent_jax.suites import task_file
from webagent_jax.suites.webarena import catalog, suite

LITE = str(Path(__file__).parent / "data" / "webarena_lite_test.json")
JUDGE = JudgeConfig(url="http://judge.test/v1", model="m")

EXACT: Any = {"exact_match": "42"}
ROWS = [
    task(0, "gitlab", reference_answers=EXACT),
    task(1, "gitlab", reference_url="__GITLAB__/about", reference_answers=EXACT),
    task(2, "gitlab", program_html=[page_holds("last", "x")]),
    task(3, "reddit", reference_answers={"fuzzy_match": "N/A"}),
    task(4, "map", "shopping", reference_answers={"must_include": ["x"]}),
    task(5, "reddit", "gitlab", program_html=[page_holds("__GITLAB__/", "x")]),
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(ROWS))
    return str(path)


def read(file: str, *names: str, **options: Any) -> catalog.Catalog:
    return catalog.read(WebArenaConfig(test_file=file, judge=JUDGE, **options), names)


# --- files ----------------------------------------------------------------------------------------


def test_all_of_webarena_lite_is_there_with_a_judge_and_125_without() -> None:
    tasks = read(LITE)
    assert len(tasks.names("test")) == 165
    assert tasks.notes == ()
    assert tasks.sites == ("shopping", "shopping_admin", "reddit", "gitlab", "wikipedia", "map")
    without = catalog.read(WebArenaConfig(test_file=LITE))
    assert len(without.names("test")) == 125
    assert without.notes == (
        "40 of 165 test tasks need a judge and are skipped: "
        "set suite.webarena.judge.url and suite.webarena.judge.model to include them",
    )


def test_strict_refuses_what_cannot_be_scored(tmp_path: Path) -> None:
    strict = JudgeConfig(required=True)
    with pytest.raises(ConfigError, match="40 of 165 tasks need a judge"):
        catalog.read(WebArenaConfig(test_file=LITE, judge=strict))
    path = tmp_path / "instructions.json"
    path.write_text(json.dumps([{**ROWS[0], "eval": None}, ROWS[1] | {"task_id": 9}]))
    assert catalog.read(WebArenaConfig(test_file=str(path))).notes == (
        "1 of 2 test tasks have no eval in their file and are skipped",
    )
    with pytest.raises(ConfigError, match="1 of 2 test tasks have no eval"):
        catalog.read(WebArenaConfig(test_file=str(path), judge=strict))


def test_both_splits_may_count_from_zero(file: str) -> None:
    tasks = catalog.read(WebArenaConfig(train_file=file, test_file=file, judge=JUDGE))
    assert tasks.task("0", "train").id == "webarena/train/0"
    assert tasks.task("0", "test").id == "webarena/test/0"


def test_a_split_without_a_file_is_told(file: str) -> None:
    with pytest.raises(ConfigError, match=r"suite\.webarena\.train_file is empty"):
        read(file).names("train")
    with pytest.raises(ConfigError, match="must name a task file of WebArena"):
        catalog.read(WebArenaConfig())
    with pytest.raises(ConfigError, match="cannot read the task file"):
        read("/nowhere/tasks.json")


def test_a_file_may_come_with_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    package = tmp_path / "parent" / "tasks_of_others"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "test.raw.json").write_bytes(Path(file).read_bytes())
    monkeypatch.syspath_prepend(tmp_path / "parent")
    assert len(read("package:tasks_of_others/test.raw.json").names("test")) == 6
    assert "tasks_of_others" not in sys.modules


@pytest.mark.parametrize(
    "name", ["package:no_such_package/a.json", "package:", "package:no.such/a.json", "package:json"]
)
def test_a_package_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(ConfigError, match="must read package:NAME/FILE"):
        read(name)


# --- filters --------------------------------------------------------------------------------------


def test_tasks_and_sites_are_filtered(file: str) -> None:
    assert read(file, "5", "1").names("test") == ("1", "5")
    assert read(file, sites=("gitlab",)).names("test") == ("0", "1", "2")
    assert read(file, sites=("reddit", "gitlab")).sites == ("reddit", "gitlab")


@pytest.mark.parametrize(
    ("names", "sites", "message"),
    [
        (["7"], (), r"no task '7' in .*tasks\.json; choose from: 0, 1, 2, 3, 4, 5$"),
        ([], ("gitlb",), r"names 'gitlb'; choose from: shopping, "),
        (["0"], ("reddit",), "no task is left"),
    ],
)
def test_unknown_filters_name_the_valid_ones(
    file: str, names: list[str], sites: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(file, *names, sites=sites)


# --- what a task does to its sites ----------------------------------------------------------------


def test_a_task_changes_its_sites_unless_judged_by_answer_or_address(file: str) -> None:
    tasks = read(file)
    changed = {
        name: catalog.modified_sites(tasks.task(name, "test")) for name in tasks.names("test")
    }
    assert changed == {
        "0": (),
        "1": (),
        "2": ("gitlab",),
        "3": ("reddit",),  # cannot be done, but an agent may try
        "4": (),
        "5": ("reddit", "gitlab"),
    }


def test_not_half_of_webarena_lite_may_change_something() -> None:
    tasks = read(LITE)
    count = Counter(
        bool(catalog.modified_sites(tasks.task(n, "test"))) for n in tasks.names("test")
    )
    assert count == {True: 72, False: 93}


@pytest.mark.parametrize(
    ("state", "signed_in"),
    [
        (None, ("shopping", "reddit")),
        ("./.auth/reddit_state.json", ("reddit",)),
        ("./.auth/shopping.reddit_state.json", ("shopping", "reddit")),
        ("./.auth/gitlab_state.json", ("shopping", "reddit")),
    ],
)
def test_the_file_says_which_sites_are_signed_in_to(
    tmp_path: Path, state: str | None, signed_in: tuple[str, ...]
) -> None:
    path = tmp_path / "tasks.json"
    row = task(0, "shopping", "reddit", reference_answers=EXACT)
    path.write_text(json.dumps([row | {"storage_state": state}]))
    assert catalog.login_sites(read(str(path)).task("0", "test")) == signed_in


# --- where the sites are --------------------------------------------------------------------------


def test_without_sites_the_variables_are_named(file: str) -> None:
    config = WebArenaConfig(test_file="/nowhere/tasks.json")
    with pytest.raises(ConfigError, match=r"set SHOPPING \(or WA_SHOPPING\), .*MAP \(or WA_MAP\)"):
        suite.read(config, (), {})
    with pytest.raises(ConfigError, match=r"set SHOPPING \(.*REDDIT \(.*MAP \(or WA_MAP\) to http"):
        suite.read(WebArenaConfig(test_file=file, judge=JUDGE), (), {"GITLAB": "http://g"})


def test_only_the_sites_of_chosen_tasks_are_needed(file: str) -> None:
    config = WebArenaConfig(test_file=file, sites=("gitlab",))
    _, addresses = suite.read(config, (), {"GITLAB": "http://g:1 http://g:2"})
    assert addresses == {"gitlab": ("http://g:1", "http://g:2")}


def test_a_task_is_placed_where_its_replica_is(file: str) -> None:
    task = task_file.with_addresses(
        read(file).task("5", "test"), {"reddit": "http://r:1/", "gitlab": "http://g:2/gl"}
    )
    assert task.start_url == "http://r:1/"
    assert task.eval["program_html"][0]["url"] == "http://g:2/gl/"
