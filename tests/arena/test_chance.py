"""What can be won without reading the task: 3 % of the test split at most, on every way tried."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import numpy as np
import pytest

from webagent_jax.arena import selection
from webagent_jax.arena.registry import TEMPLATES
from webagent_jax.arena.selection import GeneratedTask
from webagent_jax.arena.task import Data
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig
from webagent_jax.suites import evaluators
from webagent_jax.suites.arena import ArenaSuite
from webagent_jax.suites.evaluators import SiteState
from webagent_jax.types import Action, ActionKind, Observation, Split, Task

LIMIT = 0.03
CONSTANTS = ("", "N/A", "done", "0", "1", "2", "yes", "no")
MAX_TURNS = 16

Answer = Callable[[Task], str]


@pytest.fixture(scope="module")
def drafts(data: Data) -> dict[Split, tuple[GeneratedTask, ...]]:
    return selection.select_tasks(TEMPLATES, data)


# --- answers that know nothing of the task -------------------------------------------------------


class _NoWorld:
    """For tasks that an answer alone decides."""

    def url(self) -> str:
        return "about:blank"


_NO_WORLD = cast(SiteState, _NoWorld())


def reference(draft: GeneratedTask) -> str:
    """An answer that the task would take; empty when it asks for none."""
    wanted = draft.task.eval.get("reference_answers", {}).values()
    texts = [text for part in wanted for text in ([part] if isinstance(part, str) else part)]
    return ", ".join(text.split(" |OR| ")[0] for text in texts)


def most_frequent(drafts: Sequence[GeneratedTask], count: int) -> list[str]:
    given = collections.Counter(filter(None, map(reference, drafts)))
    return [text for text, _ in given.most_common(count)]


def of_its_site(training: Sequence[GeneratedTask]) -> Answer:
    """The most frequent answer of the site, or of the set of sites."""
    parted: dict[tuple[str, ...], list[GeneratedTask]] = {}
    for draft in training:
        parted.setdefault(draft.task.sites, []).append(draft)
    known = {sites: most_frequent(drafts, 1) for sites, drafts in parted.items()}
    return lambda task: next(iter(known.get(task.sites, ())), "")


def answers(training: Sequence[GeneratedTask]) -> dict[str, Answer]:
    """Ways to answer by their names."""
    constant = dict.fromkeys((*CONSTANTS, *most_frequent(training, 10)))
    ways: dict[str, Answer] = {repr(text): always(text) for text in constant}
    return {**ways, "the most frequent of the site": of_its_site(training)}


def always(text: str) -> Answer:
    return lambda task: text


def test_no_answer_that_knows_nothing_of_the_task_wins_more(
    drafts: dict[Split, tuple[GeneratedTask, ...]],
) -> None:
    answered = [d.task for d in drafts["test"] if d.task.eval["eval_types"] == ["string_match"]]
    for way, answer in answers(drafts["train"]).items():
        won = sum(evaluators.score(task, answer(task), _NO_WORLD) for task in answered)
        assert won / len(drafts["test"]) <= LIMIT, way


# --- live ----------------------------------------------------------------------------------------


class AtRandom:
    """Any action that fits any element, with words of the task and of the page."""

    _PLAIN = (
        ActionKind.SCROLL_UP,
        ActionKind.SCROLL_DOWN,
        ActionKind.PRESS_ENTER,
        ActionKind.GO_BACK,
        ActionKind.GO_FORWARD,
    )
    _ON_ALL = (ActionKind.CLICK, ActionKind.RIGHT_CLICK, ActionKind.HOVER)
    _ON_SOME: Mapping[str, tuple[ActionKind, ...]] = {
        "textbox": (ActionKind.TYPE, ActionKind.SEARCH),
        "select": (ActionKind.SELECT,),
    }

    def __init__(self, intent: str, seed: Sequence[int]) -> None:
        self._intent, self._rng = intent, np.random.default_rng(seed)

    def act(self, page: Observation) -> Action:
        words = [*self._intent.split(), *page.text.split()]
        element = str(self._rng.choice(list(page.elements))) if page.elements else None
        fitting = [*self._PLAIN, ActionKind.SWITCH_TAB, ActionKind.EXIT]
        if element is not None:
            fitting += [*self._ON_ALL, *self._ON_SOME.get(page.elements[element].kind, ())]
        kind = fitting[self._rng.integers(len(fitting))]
        match kind:
            case ActionKind.EXIT:
                return Action(kind, value=str(self._rng.choice(["", *words])))
            case ActionKind.SWITCH_TAB:
                return Action(kind, value=str(self._rng.integers(3)))
            case ActionKind.TYPE | ActionKind.SEARCH | ActionKind.SELECT:
                return Action(kind, element, str(self._rng.choice(words)))
        return Action(kind, None if kind in self._PLAIN else element)


def wander(suite: ArenaSuite, task: Task, seed: int) -> float:
    """The reward of an episode at random."""
    environment = suite.make_env(task)
    try:
        page = environment.reset().observation
        agent = AtRandom(task.intent, [seed, *task.id.encode()])
        for _ in range(MAX_TURNS):
            action = agent.act(page)
            if action.kind is ActionKind.EXIT:
                return environment.compute_reward(action.value)
            page = environment.step(action).observation
        return environment.compute_reward(None)
    finally:
        environment.close()


def exit_at_once(suite: ArenaSuite, task: Task) -> float:
    """The reward of doing nothing but giving each of the constant answers; the best of them."""
    environment = suite.make_env(task)
    try:
        environment.reset()
        return max(environment.compute_reward(answer) for answer in CONSTANTS)
    finally:
        environment.close()


def live_share(play: Callable[[ArenaSuite, Task], float]) -> float:
    busy_machine = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)
    with BrowserPool(busy_machine) as pool, ThreadPoolExecutor(4) as threads:
        suite = ArenaSuite(pool)
        rewards = list(threads.map(lambda task: play(suite, task), suite.tasks("test")))
        suite.close()
    return float(np.mean(rewards))


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", [0, 1])
def test_who_acts_at_random_wins_next_to_nothing(seed: int) -> None:
    assert live_share(lambda suite, task: wander(suite, task, seed)) <= LIMIT


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(1_800)
def test_no_task_is_done_before_it_begins() -> None:
    """But for those that an answer alone decides, which are counted above."""
    done = live_share(
        lambda suite, task: (
            0.0 if task.eval["eval_types"] == ["string_match"] else exit_at_once(suite, task)
        )
    )
    assert done == 0.0
