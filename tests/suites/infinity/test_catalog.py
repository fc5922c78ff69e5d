"""Tests of the tasks of a checkout and their splits."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from configs import infinity
from webagent_jax.config import (
    ConfigError,
    InfinityConfig,
    RunConfig,
    SuiteConfig,
)
from webagent_jax.suites import registry
from webagent_jax.suites.infinity import catalog
from webagent_jax.suites.infinity.exclusions import EXCLUDED_TASKS


def write_checkout(folder: Path, apps: dict[str, int]) -> InfinityConfig:
    """Write apps with a number of real tasks and as many function tasks."""
    for app, num_tasks in apps.items():
        (folder / "apps" / app).mkdir(parents=True)
        for kind, fields in (("real", {"difficulty": "easy"}), ("function", {})):
            tasks = [
                {"id": f"{kind}_{i}", "instruction": "Do it.", "verify": f"{kind}/{i}.py"} | fields
                for i in range(num_tasks)
            ]
            (folder / "apps" / app / f"{kind}-tasks.json").write_text(json.dumps(tasks))
    (folder / "apps" / "manuals").mkdir()
    return InfinityConfig(path=str(folder), test_apps=("mail",))


def test_splits_are_disjoint_and_function_tasks_are_for_training(tmp_path: Path) -> None:
    config = write_checkout(tmp_path, {"mail": 10, "notes": 300})
    splits = catalog.read(config)
    held_out = catalog.read(replace(config, test_split="tasks"))
    assert splits["train"] == held_out["train"]
    names = [set(splits["train"]), set(splits["test"]), set(held_out["test"])]
    assert len(set.union(*names)) == sum(map(len, names)) == 10 + 300 + 300
    assert splits["test"].keys() == {f"mail/real_{i}" for i in range(10)}
    assert all(name.startswith("notes/real_") for name in held_out["test"])
    # A task is held out with probability 0.2; 300 tasks are within 40 to 80 with odds above 0.999.
    assert 40 <= len(held_out["test"]) <= 80
    difficulties = Counter(task.eval["difficulty"] for task in splits["train"].values())
    assert difficulties == {"easy": 300 - len(held_out["test"]), "function": 300}


def test_held_out_tasks_do_not_depend_on_other_tasks(tmp_path: Path) -> None:
    configs = [
        replace(write_checkout(tmp_path / str(n), {"mail": 1, "notes": n}), test_split="tasks")
        for n in (40, 80)
    ]
    small, large = (catalog.read(config)["test"].keys() for config in configs)
    assert small == {name for name in large if int(name.rpartition("_")[2]) < 40} != large


def test_excluded_tasks_are_in_no_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_checkout(tmp_path, {"mail": 2, "notes": 2})
    excluded = {"mail/real_0": "solved", "notes/function_1": "unsolvable"}
    monkeypatch.setattr(catalog, "EXCLUDED_TASKS", excluded)
    for test_split in ("apps", "tasks"):
        splits = catalog.read(replace(config, test_split=test_split))
        assert not excluded.keys() & (splits["train"].keys() | splits["test"].keys())


def test_apps_without_audit_are_left_out(tmp_path: Path) -> None:
    config = write_checkout(tmp_path, {"mail": 2, "notes": 2, "paypal-my-wallet": 2})
    assert {task.sites for task in catalog.read_all(config.path)} == {("mail",), ("notes",)}
    with pytest.raises(ConfigError, match="no audited app or task 'paypal-my-wallet'"):
        catalog.read(config, ["paypal-my-wallet"])


def test_tasks_filter_by_app_name_and_difficulty(tmp_path: Path) -> None:
    config = write_checkout(tmp_path, {"mail": 3, "notes": 3, "calendar": 3})
    assert {task.sites for task in catalog.read(config, ["notes"])["train"].values()} == {
        ("notes",)
    }
    splits = catalog.read(config, ["mail/real_1", "calendar/function_2"])
    assert {split: list(tasks) for split, tasks in splits.items()} == {
        "train": ["calendar/function_2"],
        "test": ["mail/real_1"],
    }
    functions = catalog.read(replace(config, difficulties=("function",)))
    assert len(functions["train"]) == 6 and not functions["test"]


@pytest.mark.parametrize(
    ("options", "names", "message"),
    [
        ({"path": ""}, [], "must be a checkout of WebArena-Infinity"),
        ({"path": "/no/such"}, [], "path='/no/such' must be a checkout"),
        ({"test_apps": ("male",)}, [], "test_apps: no audited app or task 'male'.*mean: mail"),
        ({}, ["notes/real_9"], "no audited app or task 'notes/real_9'.*did you mean: notes/"),
    ],
)
def test_invalid_option_raises_config_error(tmp_path: Path, options, names, message) -> None:
    config = replace(write_checkout(tmp_path, {"mail": 1, "notes": 2}), **options)
    with pytest.raises(ConfigError, match=message):
        catalog.read(config, names)
    with pytest.raises(ConfigError, match=message):
        registry.check_requirements(
            SuiteConfig(name="infinity", tasks=tuple(names), infinity=config)
        )


@pytest.mark.parametrize("options", [{"difficulties": ("simple",)}, {"verifier_timeout": 0.0}])
def test_invalid_config_is_rejected(options) -> None:
    with pytest.raises(ConfigError, match=r"suite\.infinity"):
        RunConfig(suite=SuiteConfig(infinity=InfinityConfig(**options)))


def test_list_tasks_needs_no_browser(tmp_path: Path) -> None:
    config = write_checkout(tmp_path, {"mail": 2, "notes": 2})
    suite = SuiteConfig(name="infinity", infinity=config)
    tasks = list(registry.list_tasks(suite, "test"))
    assert [task.id for task in tasks] == ["infinity/mail/real_0", "infinity/mail/real_1"]
    assert tasks[0].intent == "Do it." and tasks[0].eval["difficulty"] == "easy"


def test_config_file_needs_only_a_path(tmp_path: Path) -> None:
    suite = infinity.get_config().suite
    with pytest.raises(ConfigError, match="must be a checkout"):
        registry.check_requirements(suite)
    checkout = write_checkout(tmp_path, {"mail": 1})
    suite = replace(suite, infinity=replace(checkout, test_apps=("mail",)))
    assert [task.id for task in registry.list_tasks(suite, "test")] == ["infinity/mail/real_0"]


# --- the real checkout ----------------------------------------------------------------------------


def test_real_tasks_have_verifiers_and_exclusions_exist(checkout: str) -> None:
    tasks = {catalog.task_name(task): task for task in catalog.read_all(checkout)}
    assert all(Path(task.eval["verifier"]).is_file() for task in tasks.values())
    assert EXCLUDED_TASKS.keys() <= tasks.keys()


def test_default_splits_of_real_checkout(checkout: str) -> None:
    splits = catalog.read(InfinityConfig(path=checkout))
    assert {task.sites[0] for task in splits["test"].values()} == {
        "gitlab-plan-and-track",
        "superhuman-general",
    }
    held_out = catalog.read(InfinityConfig(path=checkout, test_split="tasks"))["test"]
    assert not held_out.keys() & (splits["train"].keys() | splits["test"].keys())


@pytest.mark.parametrize("text", ["[{}]", "{", "[7]"])
def test_damaged_task_file_is_an_error_with_its_path(small_checkout: Path, text: str) -> None:
    (small_checkout / "apps" / "notes" / "real-tasks.json").write_text(text)
    config = InfinityConfig(path=str(small_checkout))
    with pytest.raises(ConfigError, match=r"notes/real-tasks\.json is not a task file"):
        catalog.read(config)
