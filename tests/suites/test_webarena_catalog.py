"""Tests of the WebArena task catalog: files, filters, modified sites, addresses."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.suites.webarena_sites import make_row, page_target
from webagent_jax.config import ConfigError, JudgeConfig, WebArenaConfig
from webagent_jax.suites import task_file
from webagent_jax.suites.webarena import catalog, suite

LITE = str(Path(__file__).parent / "data" / "webarena_lite_test.json")
JUDGE = JudgeConfig(url="http://judge.test/v1", model="m")

EXACT: Any = {"exact_match": "42"}
ROWS = [
    make_row(0, "gitlab", reference_answers=EXACT),
    make_row(1, "gitlab", reference_url="__GITLAB__/about", reference_answers=EXACT),
    make_row(2, "gitlab", program_html=[page_target("last", "x")]),
    make_row(3, "reddit", reference_answers={"fuzzy_match": "N/A"}),
    make_row(4, "map", "shopping", reference_answers={"must_include": ["x"]}),
    make_row(5, "reddit", "gitlab", program_html=[page_target("__GITLAB__/", "x")]),
]


@pytest.fixture
def tasks_path(tmp_path: Path) -> str:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(ROWS))
    return str(path)


def read_catalog(tasks_path: str, *names: str, **options: Any) -> catalog.Catalog:
    return catalog.read(WebArenaConfig(test_file=tasks_path, judge=JUDGE, **options), names)


# --- files ----------------------------------------------------------------------------------------


def test_webarena_lite_has_165_tasks_with_judge_and_125_without() -> None:
    tasks = read_catalog(LITE)
    assert len(tasks.names("test")) == 165
    assert tasks.notes == ()
    assert tasks.sites == ("shopping", "shopping_admin", "reddit", "gitlab", "wikipedia", "map")
    catalog_without_judge = catalog.read(WebArenaConfig(test_file=LITE))
    assert len(catalog_without_judge.names("test")) == 125
    assert catalog_without_judge.notes == (
        "40 of 165 test tasks need a judge and are skipped: "
        "set suite.webarena.judge.url and suite.webarena.judge.model to include them",
    )


def test_required_judge_rejects_unscorable_tasks(tmp_path: Path) -> None:
    required_judge = JudgeConfig(required=True)
    with pytest.raises(ConfigError, match="40 of 165 tasks need a judge"):
        catalog.read(WebArenaConfig(test_file=LITE, judge=required_judge))
    path = tmp_path / "instructions.json"
    path.write_text(json.dumps([{**ROWS[0], "eval": None}, ROWS[1] | {"task_id": 9}]))
    assert catalog.read(WebArenaConfig(test_file=str(path))).notes == (
        "1 of 2 test tasks have no eval in their file and are skipped",
    )
    with pytest.raises(ConfigError, match="1 of 2 test tasks have no eval"):
        catalog.read(WebArenaConfig(test_file=str(path), judge=required_judge))


def test_splits_may_share_task_numbers(tasks_path: str) -> None:
    tasks = catalog.read(WebArenaConfig(train_file=tasks_path, test_file=tasks_path, judge=JUDGE))
    assert tasks.task("0", "train").id == "webarena/train/0"
    assert tasks.task("0", "test").id == "webarena/test/0"


def test_missing_task_file_raises_error(tasks_path: str) -> None:
    with pytest.raises(ConfigError, match=r"suite\.webarena\.train_file is empty"):
        read_catalog(tasks_path).names("train")
    with pytest.raises(ConfigError, match="must name a task file of WebArena"):
        catalog.read(WebArenaConfig())
    with pytest.raises(ConfigError, match="cannot read the task file"):
        read_catalog("/nowhere/tasks.json")


def test_test_split_needs_no_training_file(tasks_path: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "train.json")
    tasks = read_catalog(tasks_path, "0", train_file=missing)
    assert tasks.names("test") == ("0",)
    assert tasks.notes == (f"there is no training file {missing}: only the test split has tasks",)
    with pytest.raises(ConfigError, match="train_file is empty or does not exist"):
        tasks.names("train")
    with pytest.raises(ConfigError, match=r"cannot read the task file .*train"):
        catalog.read(WebArenaConfig(train_file=missing))


def test_task_file_loads_from_package_without_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks_path: str
) -> None:
    package = tmp_path / "parent" / "tasks_of_others"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "test.raw.json").write_bytes(Path(tasks_path).read_bytes())
    monkeypatch.syspath_prepend(tmp_path / "parent")
    assert len(read_catalog("package:tasks_of_others/test.raw.json").names("test")) == 6
    assert "tasks_of_others" not in sys.modules


@pytest.mark.parametrize(
    "name", ["package:no_such_package/a.json", "package:", "package:no.such/a.json", "package:json"]
)
def test_invalid_package_path_raises_error(name: str) -> None:
    with pytest.raises(ConfigError, match="must have the form package:NAME/FILE"):
        read_catalog(name)


# --- filters --------------------------------------------------------------------------------------


def test_catalog_filters_tasks_and_sites(tasks_path: str) -> None:
    assert read_catalog(tasks_path, "5", "1").names("test") == ("1", "5")
    assert read_catalog(tasks_path, sites=("gitlab",)).names("test") == ("0", "1", "2")
    assert read_catalog(tasks_path, sites=("reddit", "gitlab")).sites == ("reddit", "gitlab")


@pytest.mark.parametrize(
    ("names", "sites", "message"),
    [
        (["7"], (), r"no task '7' in .*tasks\.json; valid names: 0, 1, 2, \.\.\.; webagent"),
        ([], ("gitlb",), r"names 'gitlb'; choose from: shopping, "),
        (["0"], ("reddit",), "no tasks remain"),
    ],
)
def test_unknown_filter_error_lists_valid_values(
    tasks_path: str, names: list[str], sites: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_catalog(tasks_path, *names, sites=sites)


# --- modified sites -------------------------------------------------------------------------------


def test_modified_sites_depend_on_evaluators(tasks_path: str) -> None:
    tasks = read_catalog(tasks_path)
    sites_by_task = {
        name: catalog.modified_sites(tasks.task(name, "test")) for name in tasks.names("test")
    }
    assert sites_by_task == {
        "0": (),
        "1": (),
        "2": ("gitlab",),
        "3": ("reddit",),  # unachievable, but an agent may modify the site
        "4": (),
        "5": ("reddit", "gitlab"),
    }


def test_webarena_lite_has_72_modifying_tasks() -> None:
    tasks = read_catalog(LITE)
    count = Counter(
        bool(catalog.modified_sites(tasks.task(n, "test"))) for n in tasks.names("test")
    )
    assert count == {True: 72, False: 93}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, ("shopping", "reddit")),
        ("./.auth/reddit_state.json", ("reddit",)),
        ("./.auth/shopping.reddit_state.json", ("shopping", "reddit")),
        ("./.auth/gitlab_state.json", ("shopping", "reddit")),
    ],
)
def test_login_sites_follow_storage_state(
    tmp_path: Path, state: str | None, expected: tuple[str, ...]
) -> None:
    path = tmp_path / "tasks.json"
    row = make_row(0, "shopping", "reddit", reference_answers=EXACT)
    path.write_text(json.dumps([row | {"storage_state": state}]))
    assert catalog.login_sites(read_catalog(str(path)).task("0", "test")) == expected


# --- addresses ------------------------------------------------------------------------------------


def test_missing_addresses_error_names_variables(tasks_path: str) -> None:
    config = WebArenaConfig(test_file="/nowhere/tasks.json")
    with pytest.raises(ConfigError, match=r"set SHOPPING \(or WA_SHOPPING\), .*MAP \(or WA_MAP\)"):
        suite.read(config, (), {})
    with pytest.raises(ConfigError, match=r"set SHOPPING \(.*REDDIT \(.*MAP \(or WA_MAP\) to http"):
        suite.read(WebArenaConfig(test_file=tasks_path, judge=JUDGE), (), {"GITLAB": "http://g"})


def test_addresses_cover_only_sites_of_selected_tasks(tasks_path: str) -> None:
    config = WebArenaConfig(test_file=tasks_path, sites=("gitlab",))
    _, addresses = suite.read(config, (), {"GITLAB": "http://g:1 http://g:2"})
    assert addresses == {"gitlab": ("http://g:1", "http://g:2")}


def test_with_addresses_inserts_replica_addresses(tasks_path: str) -> None:
    task = task_file.with_addresses(
        read_catalog(tasks_path).task("5", "test"),
        {"reddit": "http://r:1/", "gitlab": "http://g:2/gl"},
    )
    assert task.start_url == "http://r:1/"
    assert task.eval["program_html"][0]["url"] == "http://g:2/gl/"


# --- sites of users -------------------------------------------------------------------------------


def test_sites_of_users_are_those_with_address(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    rows = [
        make_row(0, "crm", start="__CRM__/ |AND| __BACK_OFFICE__/", reference_answers=EXACT),
        make_row(1, "crm", "gitlab", program_html=[page_target("last", "x")]),
    ]
    path.write_text(json.dumps(rows))
    with pytest.raises(ConfigError, match=r"must be among shopping.*homepage"):
        catalog.read(WebArenaConfig(test_file=str(path)))
    config = WebArenaConfig(
        test_file=str(path), addresses=("crm=http://crm.test:80", "back_office=http://back.test")
    )
    tasks, addresses = suite.read(config, (), {"GITLAB": "http://gitlab.test"})
    assert tasks.sites == ("gitlab", "crm")
    # Spelled as in browsers.
    assert addresses == {"crm": ("http://crm.test",), "gitlab": ("http://gitlab.test",)}
    assert catalog.modified_sites(tasks.task("1", "test")) == ("crm", "gitlab")
    assert catalog.login_sites(tasks.task("1", "test")) == ("gitlab",)
    task = task_file.with_addresses(
        tasks.task("0", "test"), {"crm": "http://a", "back_office": "http://b"}
    )
    assert task.start_url == "http://a/ |AND| http://b/"
    with pytest.raises(ConfigError, match=r"set GITLAB \(or WA_GITLAB\)"):
        suite.read(config, (), {})


@pytest.mark.parametrize("entry", ["crm", "crm=", "=http://crm.test", "CRM=http://crm.test"])
def test_malformed_address_raises_error(tasks_path: str, entry: str) -> None:
    with pytest.raises(ConfigError, match=r"must have the form site=http://host:port"):
        read_catalog(tasks_path, addresses=(entry,))
