"""The arena as a suite: 812 tasks on five sites, each played in a world of its own."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from webagent_jax.arena import expert_steps, selection
from webagent_jax.arena.client import ArenaHost
from webagent_jax.arena.registry import TEMPLATES, seed_data
from webagent_jax.arena.selection import Draft
from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import ArenaConfig, ConfigError
from webagent_jax.suites import evaluators, site_state, task_file
from webagent_jax.suites.site_state import LiveWorld
from webagent_jax.types import Action, Expert, InfraError, Split, Start, Step, Task

VIEWPORT = (1280, 720)  # CSS pixels

_DEFAULTS = ArenaConfig()


class ArenaSuite:
    """The suite. All its tasks share one server and one pool of browsers.

    Args:
        pool: browsers, owned and closed by the caller.
        names: of tasks ("shop/buy/3"), templates ("shop/buy") or sites ("shop") to keep; empty
            keeps all.
        config: what oracles think, and whether training tasks are drawn anew.
        latency: seconds by which every answer of the sites is late.

    Raises:
        ConfigError: a name fits no task.
        InfraError: the server does not come up.
    """

    def __init__(
        self,
        pool: BrowserPool,
        names: Sequence[str] = (),
        config: ArenaConfig = _DEFAULTS,
        *,
        latency: float = 0.0,
    ) -> None:
        self._drafts = drafts(names, config)
        self._by_name = {**self._drafts["train"], **self._drafts["test"]}
        self._pool = pool
        self._thoughts = config.thoughts
        self._host = ArenaHost(latency=latency)

    def names(self, split: Split) -> Sequence[str]:
        return tuple(self._drafts[split])

    def tasks(self, split: Split) -> Sequence[Task]:
        return [draft.task for draft in self._drafts[split].values()]

    def task(self, name: str, split: Split, index: int) -> Task:
        """The index-th try at a task: the same world, at first, in each."""
        task = self._drafts[split][name].task
        return replace(task, id=f"{task.id}/{index}", seed=index) if index else task

    def open(self, task: Task) -> ArenaEnvironment:
        """A fresh world and a browser held to its place. Raises InfraError."""
        world = self._host.new()
        try:
            origins = [self._host.origin(world)]
            session = self._pool.session(origins=origins, viewport=VIEWPORT, reuse=True)
        except BaseException:
            self._host.drop(world)
            raise
        return ArenaEnvironment(self._host, world, session, task)

    def expert(self, task: Task, start: Start) -> Expert:
        """The oracle of the task's template. Raises KeyError for a task of another suite."""
        draft = self._by_name[_name(task)]
        expert = draft.template.oracle(draft.instance.slots, start.observation)
        if self._thoughts == "restate":
            return expert_steps.restate(expert, task.intent)
        if self._thoughts == "long":
            return expert_steps.deliberate(expert, task.intent, start.observation)
        return expert

    def close(self) -> None:
        self._host.close()


def drafts(
    names: Sequence[str] = (), config: ArenaConfig = _DEFAULTS
) -> Mapping[Split, Mapping[str, Draft]]:
    """The tasks by name, as `ArenaSuite` is asked for them; no server is needed.

    Fresh training tasks are never drawn like one of the test split. Raises ConfigError.
    """
    data = seed_data()
    chosen = selection.select(TEMPLATES, data)
    if config.fresh_seed >= 0:
        source = selection.fresh(TEMPLATES, data, config.fresh_seed, besides=chosen["test"])
        chosen["train"] = tuple(itertools.islice(source, config.fresh_tasks))
    for connection in data.values():
        connection.close()
    named: dict[Split, dict[str, Draft]] = {
        split: {_name(draft.task): draft for draft in of_split}
        for split, of_split in chosen.items()
    }
    everything = [draft for of_split in named.values() for draft in of_split.items()]
    for name in names:
        if not any(_is_of(task, name) for task, _ in everything):
            known = sorted({draft.template.name for _, draft in everything})
            close = difflib.get_close_matches(name, known, n=3) or known[:3]
            raise ConfigError(f"no arena task {name!r}; did you mean: {', '.join(close)}?")
    return {
        split: {task: d for task, d in tasks.items() if _fits(task, names)}
        for split, tasks in named.items()
    }


def _name(task: Task) -> str:
    """Of a task, or of a further try at it: "shop/buy/3"."""
    return "/".join(task.id.split("/")[1:4])


def _fits(task: str, names: Sequence[str]) -> bool:
    return not names or any(_is_of(task, name) for name in names)


def _is_of(task: str, name: str) -> bool:
    return f"{task}/".startswith(f"{name}/")


class ArenaEnvironment:
    """One task in one world, live in a browser context of its own."""

    def __init__(self, host: ArenaHost, world: str, session: Session, task: Task) -> None:
        self._host, self._world, self._session = host, world, session
        self._addresses = host.addresses(world)
        self._task = replace(
            task,
            start_url=task_file.filled(task.start_url, self._addresses),
            eval=task_file.filled(dict(task.eval), self._addresses),
        )

    def start(self) -> Start:
        """Opens the task's first page, and a tab for each further site. Raises InfraError."""
        site_state.open_tabs(self._session, task_file.start_urls(self._task))
        return Start(self._task.intent, self._session.observe(), self._session.spent())

    def step(self, action: Action) -> Step:
        """Raises InfraError when the browser fails; what the page refuses is told to the agent."""
        error = self._session.act(action)
        return Step(self._session.observe(error), done=False, seconds=self._session.spent())

    def reward(self, answer: str | None) -> float:
        """1.0 if all evaluators of the task are content. Raises InfraError."""
        return evaluators.score(self._task, answer, LiveWorld(self._session, self._addresses))

    def picture(self) -> bytes:
        """JPEG of the page."""
        return self._session.picture()

    def close(self) -> None:
        """The browser context and the world."""
        self._session.close()
        try:
            self._host.drop(self._world)
        except InfraError:
            return  # the server is gone, and its worlds with it
