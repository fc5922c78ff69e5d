"""Suites by config: what each lists without a browser, and what is refused before one is opened."""

from __future__ import annotations

import dataclasses
import json

import pytest
from absl.testing import flagsaver

from tests.launchers import load_main
from webagent_jax import config
from webagent_jax.config import ArenaConfig, ConfigError, SuiteConfig, WebArenaConfig
from webagent_jax.suites import registry

LITE = "tests/suites/data/webarena_lite_test.json"


@pytest.mark.parametrize(
    ("suite", "count", "first"),
    [
        (SuiteConfig(), 130, "miniwob/ascending-numbers/1000000"),
        (SuiteConfig(tasks=("login-user",)), 1, "miniwob/login-user/1000000"),
        (
            SuiteConfig(name="webarena_lite", webarena=WebArenaConfig(test_file=LITE)),
            125,  # 40 need a judge
            "webarena/test/0",
        ),
        (
            SuiteConfig(name="browsergym", tasks=("browsergym/miniwob.click-test",)),
            1,
            "browsergym/miniwob.click-test/1000000",
        ),
    ],
)
def test_tasks_are_listed_without_browser_or_site(suite, count, first):
    tasks = list(registry.list_tasks(suite, "test"))
    assert (len(tasks), tasks[0].id) == (count, first)


ARENA = SuiteConfig(name="arena")


@pytest.fixture(scope="module")
def arena_names() -> dict[str, set[str]]:
    """Names of all tasks by split."""
    listed = {split: list(registry.list_tasks(ARENA, split)) for split in ("train", "test")}
    names = {s: {task.id.removeprefix("arena/") for task in of} for s, of in listed.items()}
    assert {split: len(of) for split, of in names.items()} == {"train": 647, "test": 165}
    assert not names["train"] & names["test"]
    return names


@pytest.mark.parametrize("parts", [1, 2, 3])  # a site, a template, a task
def test_the_arena_is_listed_by_site_template_or_task(arena_names, parts):
    kept = "/".join(min(arena_names["train"]).split("/")[:parts])
    listed = registry.list_tasks(dataclasses.replace(ARENA, tasks=(kept,)), "train")
    wanted = {name for name in arena_names["train"] if f"{name}/".startswith(f"{kept}/")}
    assert {task.id.removeprefix("arena/") for task in listed} == wanted != set()


def test_an_unknown_task_of_the_arena_is_refused():
    with pytest.raises(ConfigError, match="no arena task 'shop/by'; did you mean"):
        list(registry.list_tasks(dataclasses.replace(ARENA, tasks=("shop/by",)), "test"))


def test_fresh_tasks_of_the_arena_are_others(arena_names):
    fresh = dataclasses.replace(ARENA, arena=ArenaConfig(task_seed=3, num_generated_tasks=300))
    drawn = {task.id.removeprefix("arena/") for task in registry.list_tasks(fresh, "train")}
    assert len(drawn) == 300
    assert not drawn & (arena_names["train"] | arena_names["test"])


def test_what_a_suite_lacks_is_told_at_once(monkeypatch):
    for name in ("SHOPPING", "REDDIT", "GITLAB", "MAP", "WIKIPEDIA", "SHOPPING_ADMIN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"WA_{name}", raising=False)
    suite = SuiteConfig(name="webarena_lite", webarena=WebArenaConfig(test_file=LITE))
    with pytest.raises(ConfigError, match="SHOPPING"):
        registry.check_requirements(suite)


def test_the_launcher_prints_a_line_for_each(capsys):
    main = load_main("list_tasks")  # defines its flags
    settings = config.to_config_dict(config.RunConfig(suite=SuiteConfig(tasks=("login-user",))))
    with flagsaver.flagsaver(config=settings, split="train"):
        main(["list_tasks"])
    assert capsys.readouterr().out == "miniwob/login-user/0\n"
    settings.suite.tasks = ("click-tab",)
    with flagsaver.flagsaver(config=settings, json=True):
        main(["list_tasks"])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["id"] == "miniwob/click-tab/1000000"
