"""Which tasks there are to play: the files of both splits, filtered, and what is left out of them.

A task changes its sites unless it is judged by its answer or an address alone. `require_reset` says
nothing: it is false in every published file, for tasks that post, delete and buy as well. Among
those judged by their answer, the ones that cannot be done count as changes too, because many ask
for one ("Delete all negative reviews ..."), and an agent may do a part of it. Only sites with an
account can be changed; encyclopedia and map cannot.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from webagent_jax.config import ConfigError, WebArenaConfig
from webagent_jax.suites import evaluators, task_file
from webagent_jax.suites.task_file import UNACHIEVABLE
from webagent_jax.types import Split, Task

ACCOUNT_SITES = ("shopping", "shopping_admin", "reddit", "gitlab")
"""The sites that are signed in to, and so can be changed."""

_PACKAGE = "package:"
_SHOWN = 12  # names in a message


@dataclass(frozen=True)
class Catalogue:
    """The tasks of each split by name, which is the task_id of its file."""

    splits: Mapping[Split, Mapping[str, Task]]
    notes: tuple[str, ...]  # what was left out and why, for people

    @property
    def sites(self) -> tuple[str, ...]:
        """All that some task needs."""
        tasks = [task for split in self.splits.values() for task in split.values()]
        return tuple(site for site in task_file.SITES if any(site in t.sites for t in tasks))

    def names(self, split: Split) -> tuple[str, ...]:
        """Raises ConfigError where no file of the split is given."""
        return tuple(self._of(split))

    def task(self, name: str, split: Split) -> Task:
        """Raises ConfigError for a name that the split does not hold."""
        tasks = self._of(split)
        _check_names([name], tasks, f"the {split} split")
        return tasks[name]

    def _of(self, split: Split) -> Mapping[str, Task]:
        if split not in self.splits:
            raise ConfigError(
                f"suite.webarena.{split}_file is empty: give the task file of the {split} split; "
                "see docs/webarena.md"
            )
        return self.splits[split]


def read(config: WebArenaConfig, names: Sequence[str] = ()) -> Catalogue:
    """The tasks of both files. `names`: only these; empty means all.

    Raises:
        ConfigError: no file is given, a file cannot be read, a name or site is unknown, nothing is
            left, or `judge.strict` and some task cannot be scored.
    """
    files: dict[Split, str] = {"train": config.train_file, "test": config.test_file}
    given = {split: file for split, file in files.items() if file}
    if not given:
        raise ConfigError(
            "suite.webarena.test_file (and train_file, to train) must name a task file of WebArena;"
            " see docs/webarena.md"
        )
    _check_sites(config.sites)
    loaded = {split: _load(file, split) for split, file in given.items()}
    _check_names(names, set().union(*loaded.values()), ", ".join(given.values()))
    splits: dict[Split, Mapping[str, Task]] = {}
    notes: list[str] = []
    for split, tasks in loaded.items():
        chosen = {
            name: task
            for name, task in tasks.items()
            if (not names or name in names)
            and (not config.sites or set(task.sites) <= set(config.sites))
        }
        splits[split], note = _scorable(chosen, split, config)
        notes += note
    if not any(splits.values()):
        raise ConfigError("no task is left: widen suite.tasks and suite.webarena.sites")
    return Catalogue(splits, tuple(notes))


def changes(task: Task) -> tuple[str, ...]:
    """The sites that a task may change; see the head of this module."""
    answers = task.eval.get("reference_answers", {}).values()
    cannot_be_done = any(answer in (UNACHIEVABLE, [UNACHIEVABLE]) for answer in answers)
    if "program_html" not in task.eval["eval_types"] and not cannot_be_done:
        return ()
    return tuple(site for site in task.sites if site in ACCOUNT_SITES)


def signed_in(task: Task) -> tuple[str, ...]:
    """The sites that a task begins signed in to: those that its file names a state of, else all.

    A state is told as `./.auth/gitlab.reddit_state.json`. Two shops of one host name cannot both be
    signed in to, because cookies do not know ports, so that the files name one of them.
    """
    file = Path(task.storage_state or "").name.removesuffix("_state.json")
    sites = tuple(site for site in task.sites if site in ACCOUNT_SITES)
    return tuple(site for site in sites if site in file.split(".")) or sites


# --- files ---------------------------------------------------------------------------------------


def _load(file: str, split: Split) -> dict[str, Task]:
    tasks = task_file.load(_path(file), task_file.NOWHERE)
    names = [task.id.removeprefix("webarena/") for task in tasks]
    return {  # both splits count from 0
        name: replace(task, id=f"webarena/{split}/{name}")
        for name, task in zip(names, tasks, strict=True)
    }


def _path(file: str) -> Path:
    """A path, or `package:NAME/FILE` for a file that comes with an installed package.

    The package is found, not imported: WebArena's refuses to be without its variables.
    """
    if not file.startswith(_PACKAGE):
        return Path(file)
    package, _, inside = file.removeprefix(_PACKAGE).partition("/")
    try:
        spec = importlib.util.find_spec(package) if package else None
    except (ImportError, ValueError):  # a parent of it is missing, or it is no name
        spec = None
    if spec is None or not spec.submodule_search_locations or not inside:
        raise ConfigError(
            f"{file!r} must read package:NAME/FILE, of an installed package; WebArena's tasks are "
            "package:webarena/test.raw.json of `pip install --no-deps libwebarena`"
        )
    return Path(spec.submodule_search_locations[0]) / inside


# --- filters -------------------------------------------------------------------------------------


def _scorable(
    tasks: Mapping[str, Task], split: Split, config: WebArenaConfig
) -> tuple[Mapping[str, Task], list[str]]:
    """The tasks that can be scored, and a note on each kind that cannot."""
    notes = []
    kept = {name: task for name, task in tasks.items() if task.eval}
    if len(kept) < len(tasks):
        count = f"{len(tasks) - len(kept)} of {len(tasks)} {split} tasks"
        if config.judge.strict:
            raise ConfigError(f"{count} have no eval in their file: they cannot be scored")
        notes.append(f"{count} have no eval in their file and are left out")
    if not config.judge.url:
        decided, asking = evaluators.without_judge(kept.values(), strict=config.judge.strict)
        if asking:
            notes.append(
                f"{len(asking)} of {len(kept)} {split} tasks need a judge and are left out: "
                "set suite.webarena.judge.url and .model to have them"
            )
        ids = {task.id for task in decided}
        kept = {name: task for name, task in kept.items() if task.id in ids}
    return kept, notes


def _check_names(names: Sequence[str], known: Collection[str], where: str) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        close = difflib.get_close_matches(unknown[0], sorted(known), n=3)
        valid = close or sorted(known, key=lambda name: (len(name), name))
        more = f", ... ({len(valid)} in all)" if len(valid) > _SHOWN else ""
        raise ConfigError(
            f"no task {unknown[0]!r} in {where}; there are: {', '.join(valid[:_SHOWN])}{more}"
        )


def _check_sites(sites: Sequence[str]) -> None:
    for site in sites:
        if site not in task_file.SITES:
            raise ConfigError(
                f"suite.webarena.sites names {site!r}; there are: {', '.join(task_file.SITES)}"
            )
