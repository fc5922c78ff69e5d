"""Suite of the arena: 812 tasks on five sites, each run in its own world."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from webagent_jax.arena import selection
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.registry import TEMPLATES, seed_data
from webagent_jax.arena.selection import GeneratedTask
from webagent_jax.arena.task import answer_forms, is_hedged
from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import ArenaConfig, ConfigError
from webagent_jax.suites import evaluators, matching, site_state, task_file
from webagent_jax.suites.browser_environment import BrowserEnvironment
from webagent_jax.suites.evaluators import SiteState
from webagent_jax.suites.names import did_you_mean
from webagent_jax.suites.site_state import BrowserSiteState
from webagent_jax.types import Expert, InfraError, ResetResult, Split, Task

VIEWPORT = (1280, 720)  # CSS pixels

_DEFAULTS = ArenaConfig()


class ArenaSuite:
    """Suite of the arena's tasks, which share one server and one pool of browsers.

    Args:
        pool: pool of browsers; the caller closes it.
        names: names of tasks ("shop/buy/3"), templates ("shop/buy") or sites ("shop") to select;
            empty for all tasks.
        config: generation of training tasks.
        latency: seconds by which the sites delay every response.

    Raises:
        ConfigError: a name matches no task.
        InfraError: the server does not start.
    """

    def __init__(
        self,
        pool: BrowserPool,
        names: Sequence[str] = (),
        config: ArenaConfig = _DEFAULTS,
        *,
        latency: float = 0.0,
    ) -> None:
        self._tasks = load_tasks(names, config)
        self._by_name = {**self._tasks["train"], **self._tasks["test"]}
        self._pool = pool
        self._config = config
        self._latency = latency
        self._lock = threading.Lock()  # held while a server that has ended is replaced
        self._server = ArenaServerHandle(latency)
        self._is_closed = False

    def task_names(self, split: Split) -> Sequence[str]:
        """Return the names of the tasks of a split."""
        return tuple(self._tasks[split])

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return all tasks of a split."""
        return [generated.task for generated in self._tasks[split].values()]

    def task(self, name: str, split: Split, index: int) -> Task:
        """Return the index-th attempt at a task; attempts start in the same world."""
        task = self._tasks[split][name].task
        return replace(task, id=f"{task.id}/{index}", seed=index) if index else task

    def make_env(self, task: Task) -> ArenaEnvironment:
        """Create an environment with a new world and a browser restricted to its origin.

        Raises:
            InfraError: the server or the browser fails.
        """
        # The world exists before its session, because its slot is the origin of the session.
        server = self._running_server()
        world = server.new()
        try:
            origins = [server.origin(world)]
            session = self._pool.session(origins=origins, viewport=VIEWPORT, reuse=True)
        except BaseException:
            server.drop(world)
            raise
        return ArenaEnvironment(server, world, session, task)

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Create the expert of the task's template.

        Raises:
            KeyError: the task belongs to another suite.
        """
        generated = self._by_name[_task_name(task)]
        return generated.template.expert(generated.instance.slots, reset_result.observation)

    def _running_server(self) -> ArenaServerHandle:
        """Return the server, started again if it has ended."""
        with self._lock:
            if self._is_closed:
                raise InfraError("the arena suite is closed")
            if self._server.has_ended:
                self._server.close()
                self._server = ArenaServerHandle(self._latency)
            return self._server

    def close(self) -> None:
        """Stop the server."""
        with self._lock:
            self._is_closed = True
            self._server.close()


def load_tasks(
    names: Sequence[str], config: ArenaConfig
) -> Mapping[Split, Mapping[str, GeneratedTask]]:
    """Return the tasks of each split by name, without a server.

    Generated training tasks never equal a task of the test split.

    Args:
        names: as in `ArenaSuite`.
        config: generation of training tasks.

    Raises:
        ConfigError: a name matches no task.
    """
    data = seed_data()
    selected = selection.select_tasks(TEMPLATES, data)
    if config.task_seed >= 0:
        # The test split stays that of the selection, so that its results are comparable.
        test = selected["test"]
        test_templates = {generated.template.name for generated in test}
        templates = [
            template
            for template in TEMPLATES
            if template.name in test_templates or not config.test_templates_only
        ]
        stream = selection.generate_tasks(templates, data, config.task_seed, excluded=test)
        selected["train"] = tuple(itertools.islice(stream, config.num_generated_tasks))
    for connection in data.values():
        connection.close()
    by_name: dict[Split, dict[str, GeneratedTask]] = {
        split: {_task_name(generated.task): generated for generated in tasks_of_split}
        for split, tasks_of_split in selected.items()
    }
    all_tasks = [
        generated for tasks_of_split in by_name.values() for generated in tasks_of_split.items()
    ]
    for name in names:
        # A name that matches a task of one split only is valid for both.
        if not any(_has_prefix(task, name) for task, _ in all_tasks):
            template_names = sorted({generated.template.name for _, generated in all_tasks})
            sites = sorted({template.partition("/")[0] for template in template_names})
            hint = did_you_mean(name, [*sites, *template_names])
            raise ConfigError(f"no arena task {name!r}; {hint}")
    return {
        split: {task: d for task, d in tasks.items() if _is_selected(task, names)}
        for split, tasks in by_name.items()
    }


def _task_name(task: Task) -> str:
    """Return the name of a task or of an attempt at it, such as "shop/buy/3"."""
    return "/".join(task.id.split("/")[1:4])


def _is_selected(task: str, names: Sequence[str]) -> bool:
    return not names or any(_has_prefix(task, name) for name in names)


def _has_prefix(task: str, name: str) -> bool:
    # The slashes prevent "shop/buy" from matching "shop/buyer/1".
    return f"{task}/".startswith(f"{name}/")


def score(task: Task, answer: str | None, site_state: SiteState) -> float:
    """Return 1.0 if all evaluators of the task pass and the answer is not hedged, else 0.0.

    Args:
        task: task of the arena, with the addresses of a world.
        answer: final message of the agent; None if it sent none.
        site_state: state of the sites directly after the episode.

    Raises:
        InfraError: the browser or a site fails.
    """
    if "string_match" not in task.eval.get("eval_types", ()):
        return evaluators.score(task, answer, site_state)
    if not accepts_answer(task, answer):
        return 0.0
    other_types = [name for name in task.eval["eval_types"] if name != "string_match"]
    state_task = replace(task, eval={**task.eval, "eval_types": other_types})
    return evaluators.score(state_task, answer, site_state)


def accepts_answer(task: Task, answer: str | None) -> bool:
    """Return whether a task with references for its answer accepts this one.

    One form of the answer must contain all references (`answer_forms`). No form may be hedged or
    contain an excluded text.
    """
    # A missing answer is not "N/A".
    if answer is None:
        return False
    forms = answer_forms(answer)
    if any(is_hedged(form, task.intent, dict(task.eval)) for form in forms):
        return False
    references = dict(task.eval["reference_answers"])
    excluded_texts = references.pop("must_exclude", ())
    # The comparisons normalize again, as in the harnesses (`matching.normalize`).
    texts = [matching.normalize(form, matching.LITE) for form in forms]
    if not all(matching.must_exclude(excluded_texts, text, matching.LITE) for text in texts):
        return False
    return any(
        all(_matches(text, *reference) for reference in references.items()) for text in texts
    )


def _matches(text: str, comparison: str, reference: Any) -> bool:
    if comparison == "exact_match":
        return matching.exact_match(reference, text, matching.LITE)
    return all(
        any(_contains(text, alternative) for alternative in alternatives.split(" |OR| "))
        for alternatives in reference
    )


def _contains(text: str, reference: str) -> bool:
    if not matching.must_include([reference], text, matching.LITE, page=False):
        return False
    # "159 minutes" is no part of "1159 minutes" or "1,159 minutes".
    pattern = rf"(?<!\d)(?<!\d[.,]){re.escape(reference.lower())}"
    return not reference[:1].isdigit() or re.search(pattern, text) is not None


class ArenaEnvironment(BrowserEnvironment):
    """Environment of one task in one world, in its own browser context."""

    def __init__(self, server: ArenaServerHandle, world: str, session: Session, task: Task) -> None:
        super().__init__(session)
        self._server, self._world = server, world
        self._addresses = server.addresses(world)
        self._task = replace(
            # The addresses of a world are known only here; tasks have placeholders until then.
            task,
            start_url=task_file.fill_placeholders(task.start_url, self._addresses),
            eval=task_file.fill_placeholders(dict(task.eval), self._addresses),
        )

    def reset(self) -> ResetResult:
        """Open the task's start page, and a tab for each further site.

        Raises:
            InfraError: the browser or a site fails.
        """
        site_state.open_tabs(self._session, task_file.start_urls(self._task))
        return ResetResult(self._task.intent, self._session.observe(), self._session.take_timings())

    def compute_reward(self, answer: str | None) -> float:
        """Return 1.0 if `score` accepts the answer and the state of the sites, else 0.0.

        Raises:
            InfraError: the browser or a site fails.
        """
        reward = score(self._task, answer, BrowserSiteState(self._session, self._addresses))
        if not reward:
            # A wrong answer may be the result of pages that did not load.
            self._server.check()
        return reward

    def close(self) -> None:
        """Close the browser context and delete the world."""
        super().close()
        try:
            self._server.drop(self._world)
        except InfraError:
            return  # the worlds of a server that has stopped need no deletion
