"""Tests of the suite registry: task lists and requirement checks without a browser."""

from __future__ import annotations

import dataclasses
import json

import pytest
from absl.testing import flagsaver

from tests.launchers import load_main
from webagent_jax import config
from webagent_jax.config import (
    ArenaConfig,
    BrowserConfig,
    ConfigError,
    SuiteConfig,
    WebArenaConfig,
)
from webagent_jax.seeds import task_seeds
from webagent_jax.suites import registry

LITE = "tests/suites/data/webarena_lite_test.json"


@pytest.mark.parametrize("seeds", [0, 1_000_001])
def test_number_of_train_seeds_is_checked(seeds):
    with pytest.raises(ConfigError, match=f"train_seeds_per_task={seeds} must be between 1 and"):
        task_seeds(seeds)


@pytest.mark.parametrize(
    ("suite", "count", "first"),
    [
        (SuiteConfig(), 129, "miniwob/ascending-numbers/1000000"),
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
def test_list_tasks_needs_no_browser_or_sites(suite, count, first):
    tasks = list(registry.list_tasks(suite, "test"))
    assert (len(tasks), tasks[0].id) == (count, first)


ARENA = SuiteConfig(name="arena")


@pytest.fixture(scope="module")
def arena_names() -> dict[str, set[str]]:
    """Return the names of all tasks by split."""
    tasks_by_split = {split: list(registry.list_tasks(ARENA, split)) for split in ("train", "test")}
    names = {
        split: {task.id.removeprefix("arena/") for task in split_tasks}
        for split, split_tasks in tasks_by_split.items()
    }
    assert {split: len(split_tasks) for split, split_tasks in names.items()} == {
        "train": 647,
        "test": 165,
    }
    assert not names["train"] & names["test"]
    return names


@pytest.mark.parametrize("num_parts", [1, 2, 3])  # site, template, task
def test_arena_tasks_filter_by_site_template_or_task(arena_names, num_parts):
    prefix = "/".join(min(arena_names["train"]).split("/")[:num_parts])
    tasks = registry.list_tasks(dataclasses.replace(ARENA, tasks=(prefix,)), "train")
    expected = {name for name in arena_names["train"] if f"{name}/".startswith(f"{prefix}/")}
    assert {task.id.removeprefix("arena/") for task in tasks} == expected != set()


def test_unknown_arena_task_raises_error():
    with pytest.raises(ConfigError, match="no arena task 'shop/by'; did you mean"):
        list(registry.list_tasks(dataclasses.replace(ARENA, tasks=("shop/by",)), "test"))


def test_generated_arena_tasks_are_new(arena_names):
    suite = dataclasses.replace(ARENA, arena=ArenaConfig(task_seed=3, num_generated_tasks=300))
    generated_names = {
        task.id.removeprefix("arena/") for task in registry.list_tasks(suite, "train")
    }
    assert len(generated_names) == 300
    assert not generated_names & (arena_names["train"] | arena_names["test"])


def test_generated_arena_tasks_of_test_templates():
    generation = ArenaConfig(task_seed=3, num_generated_tasks=300, test_templates_only=True)
    suite = dataclasses.replace(ARENA, arena=generation)
    test_templates = {task.template for task in registry.list_tasks(ARENA, "test")}
    tasks = list(registry.list_tasks(suite, "train"))
    assert len(tasks) == 300
    # The template has one instance, which is in the test split, so no training task remains.
    assert {task.template for task in tasks} == test_templates - {"shop/newsletter"}


def test_make_suite_passes_options_to_embedded_suites(monkeypatch):
    for name in ("MiniWob", "ArenaSuite"):
        monkeypatch.setattr(registry, name, lambda *args, **options: (args, options))

    def make_suite(**options):
        cfg = SuiteConfig(tasks=("a",), response_delay_ms=250.0, **options)
        return registry.make_suite(cfg, BrowserConfig(), "pool", print)

    latency = {"latency": 0.25}  # seconds
    assert make_suite(train_seeds_per_task=7) == (("pool", ("a",), 7), latency)
    arena = ArenaConfig(task_seed=3)
    assert make_suite(name="arena", arena=arena) == (("pool", ("a",), arena), latency)


def test_check_requirements_names_missing_addresses(monkeypatch):
    for name in ("SHOPPING", "REDDIT", "GITLAB", "MAP", "WIKIPEDIA", "SHOPPING_ADMIN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"WA_{name}", raising=False)
    suite = SuiteConfig(name="webarena_lite", webarena=WebArenaConfig(test_file=LITE))
    with pytest.raises(ConfigError, match="SHOPPING"):
        registry.check_requirements(suite)


def test_launcher_prints_one_line_per_task(capsys):
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
