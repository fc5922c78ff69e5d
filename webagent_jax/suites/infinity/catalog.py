"""Tasks of a checkout of WebArena-Infinity, with their splits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from webagent_jax.config import ConfigError, InfinityConfig
from webagent_jax.suites.infinity.exclusions import AUDITED_APPS, EXCLUDED_TASKS
from webagent_jax.suites.names import did_you_mean
from webagent_jax.types import Split, Task

_HELD_OUT_PERCENT = 20  # percentage of the training apps' tasks that test_split=tasks holds out


def read(config: InfinityConfig, names: Sequence[str] = ()) -> Mapping[Split, dict[str, Task]]:
    """Return the selected tasks of each split by name, such as "gmail/task_e1".

    Args:
        config: checkout, difficulties and splits.
        names: names of apps ("gmail") or tasks ("gmail/task_e1") to select; empty for all.

    Raises:
        ConfigError: there is no checkout at the path, or a name matches none of its tasks.
    """
    tasks = {task_name(task): task for task in read_all(config.path)}
    apps = sorted({app for task in tasks.values() for app in task.sites})
    for app in config.test_apps:
        _check_name(app, apps, "suite.infinity.test_apps")
    for name in names:
        # A name that matches a task of one split only is valid for both.
        _check_name(name, [*apps, *tasks], "suite.tasks")
    splits: dict[Split, dict[str, Task]] = {"train": {}, "test": {}}
    for name, task in tasks.items():
        split = _split(task, config)
        is_selected = not names or name in names or task.sites[0] in names
        has_difficulty = not config.difficulties or task.eval["difficulty"] in config.difficulties
        if split is not None and is_selected and has_difficulty:
            splits[split][name] = task
    return splits


def read_all(path: str) -> Iterator[Task]:
    """Yield all tasks of the audited apps of a checkout, including those that the suite excludes.

    `eval` of a task contains its difficulty and the path of its verifier.

    Raises:
        ConfigError: there is no checkout at the path, or a file of it is damaged.
    """
    files = sorted(Path(path).expanduser().glob("apps/*/real-tasks.json")) if path else []
    folders = [file.parent for file in files if file.parent.name in AUDITED_APPS]
    if not folders:
        raise ConfigError(
            f"suite.infinity.path={path!r} must be a checkout of WebArena-Infinity, with "
            "apps/*/real-tasks.json: git clone https://github.com/web-arena-x/webarena-infinity"
        )
    for folder in folders:
        for kind in ("real-tasks", "function-tasks"):
            file = folder / f"{kind}.json"
            try:
                yield from [_task(folder, entry) for entry in json.loads(file.read_text())]
            except (KeyError, TypeError, ValueError) as error:
                raise ConfigError(
                    f"{file} is not a task file of WebArena-Infinity ({error!r}): restore it, or "
                    "use another checkout"
                ) from error


def _task(folder: Path, entry: Mapping[str, str]) -> Task:
    return Task(
        id=f"infinity/{folder.name}/{entry['id']}",
        suite="infinity",
        sites=(folder.name,),
        intent=entry["instruction"],
        start_url="/",
        eval={
            "difficulty": entry.get("difficulty", "function"),
            "verifier": str(folder / entry["verify"]),
        },
    )


def task_name(task: Task) -> str:
    """Return the name of a task or of an attempt at it, such as "gmail/task_e1"."""
    return "/".join(task.id.split("/")[1:3])


def app_folder(task: Task) -> Path:
    """Return the folder of the task's app."""
    return Path(task.eval["verifier"]).parents[1]


def _split(task: Task, config: InfinityConfig) -> Split | None:
    """Return the split of a task; None if it is in neither."""
    name, (app,) = task_name(task), task.sites
    is_real = task.eval["difficulty"] != "function"
    if name in EXCLUDED_TASKS:
        return None
    if app in config.test_apps:
        return "test" if is_real and config.test_split == "apps" else None
    if is_real and _is_held_out(name):
        return "test" if config.test_split == "tasks" else None
    return "train"


def _is_held_out(name: str) -> bool:
    # A hash, so that a task stays in its split when others are added or excluded.
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < _HELD_OUT_PERCENT


def _check_name(name: str, valid_names: Sequence[str], option: str) -> None:
    """Check that the name is valid.

    Raises:
        ConfigError: it is not; the message suggests similar names.
    """
    if name not in valid_names:
        raise ConfigError(
            f"{option}: no audited app or task {name!r} in the checkout; "
            f"{did_you_mean(name, valid_names)}"
        )
