"""The suite on live Chromium: oracles win in both formats, and who does nothing wins nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from webagent_jax.arena.expert_steps import page_text
from webagent_jax.arena.registry import TEMPLATES
from webagent_jax.browser import BrowserPool
from webagent_jax.config import ArenaConfig, BrowserConfig, ObservationFormat
from webagent_jax.suites.arena import ArenaSuite
from webagent_jax.types import Action, ActionKind, Decision, Observation, Task

pytestmark = pytest.mark.browser

SOME = ("shop/buy", "shop/spent-in-month", "shop/reviewers-who-say", "shop/rated-sorted")


@pytest.fixture(scope="module", params=["compact", "webarena_lite"])
def suite(request: pytest.FixtureRequest) -> Iterator[ArenaSuite]:
    yield from opened(request.param)


def opened(
    observation: ObservationFormat, config: ArenaConfig | None = None
) -> Iterator[ArenaSuite]:
    busy_machine = BrowserConfig(
        observation_format=observation, call_timeout=60.0, navigation_timeout=60.0
    )
    with BrowserPool(busy_machine) as pool:
        suite = ArenaSuite(pool, config=config or ArenaConfig())
        yield suite
        suite.close()


def first_of(suite: ArenaSuite, template: str) -> Task:
    tasks = [*suite.tasks("test"), *suite.tasks("train")]
    return next(task for task in tasks if task.id.startswith(f"arena/{template}/"))


def played(suite: ArenaSuite, task: Task) -> tuple[float, list[Decision]]:
    """Reward and decisions of the oracle's episode."""
    environment = suite.make_env(task)
    try:
        start = environment.reset()
        expert = suite.make_expert(task, start)
        decisions = [next(expert)]
        while decisions[-1].action.kind is not ActionKind.EXIT:
            page = environment.step(decisions[-1].action).observation
            assert page.error in (None, "the page does not scroll further down")
            decisions.append(expert.send(page))
        return environment.compute_reward(decisions[-1].action.value), decisions
    finally:
        environment.close()


@pytest.mark.parametrize("template", SOME)
def test_oracles_win(suite: ArenaSuite, template: str) -> None:
    reward, decisions = played(suite, first_of(suite, template))
    assert reward == 1.0 and len(decisions) > 3


@pytest.mark.parametrize("template", SOME)
def test_who_exits_at_once_wins_nothing(suite: ArenaSuite, template: str) -> None:
    task = first_of(suite, template)
    environment = suite.make_env(task)
    try:
        environment.reset()
        assert environment.compute_reward("") == 0.0 and environment.compute_reward(None) == 0.0
    finally:
        environment.close()


@pytest.mark.slow
@pytest.mark.parametrize("template", [template.name for template in TEMPLATES])
def test_every_oracle_wins(suite: ArenaSuite, template: str) -> None:
    reward, _ = played(suite, first_of(suite, template))
    assert reward == 1.0


def test_long_thoughts_tell_the_task_what_is_done_and_why() -> None:
    for suite in opened("compact", ArenaConfig(expert_thoughts="long")):
        task = first_of(suite, "shop/sku")
        reward, decisions = played(suite, task)
        assert reward == 1.0
        assert all(task.intent in decision.thought for decision in decisions)
        assert "Done so far: search" in decisions[1].thought
        assert "It is among the details" in decisions[-1].thought


def test_restating_thoughts_name_the_task_before_the_same_decisions() -> None:
    for other in opened("compact"):
        short = played(other, first_of(other, "shop/sku"))[1]
    for other in opened("compact", ArenaConfig(expert_thoughts="restate")):
        task = first_of(other, "shop/sku")
        reward, decisions = played(other, task)
        assert reward == 1.0
        assert [decision.action for decision in decisions] == [each.action for each in short]
        for decision, each in zip(decisions, short, strict=True):
            assert decision.thought == f"Task: {task.intent} Next: {each.thought}"


def test_fresh_tasks_are_played_like_the_others() -> None:
    for suite in opened("compact", ArenaConfig(task_seed=5, num_generated_tasks=20)):
        task = suite.tasks("train")[0]
        assert "fresh-5" in task.id and len(suite.tasks("train")) == 20
        assert played(suite, task)[0] == 1.0


def test_worlds_end_with_their_episodes(suite: ArenaSuite) -> None:
    environment = suite.make_env(first_of(suite, "shop/sku"))
    environment.reset()
    live = suite._server._call("count")
    environment.close()
    assert suite._server._call("count") == live - 1


def test_both_formats_have_the_same_words() -> None:
    words: list[str] = []
    for observation in ("compact", "webarena_lite"):
        for suite in opened(observation):
            environment = suite.make_env(first_of(suite, "shop/order-status"))
            page = environment.reset().observation
            for name in ("Account", "My Orders"):
                page = environment.step(Action(ActionKind.CLICK, id_of(page, name))).observation
            words.append(page_text(page))
            environment.close()
    compact, lite = (text[text.index("My orders") :] for text in words)
    assert compact == lite and "$" in compact


def id_of(page: Observation, name: str) -> str:
    return next(i for i, element in page.elements.items() if element.name == name)
