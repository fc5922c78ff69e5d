"""Tests of the arena suite on live Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from webagent_jax.arena.registry import TEMPLATES
from webagent_jax.browser import BrowserPool
from webagent_jax.config import ArenaConfig, BrowserConfig, ObservationFormat
from webagent_jax.expert_steps import page_text
from webagent_jax.suites.arena import ArenaSuite
from webagent_jax.types import Action, ActionKind, Decision, Observation, Task

pytestmark = pytest.mark.browser

TEMPLATE_NAMES = ("shop/buy", "shop/spent-in-month", "shop/reviewers-who-say", "shop/rated-sorted")


@pytest.fixture(scope="module", params=["compact", "webarena_lite"])
def suite(request: pytest.FixtureRequest) -> Iterator[ArenaSuite]:
    yield from open_suite(request.param)


def open_suite(
    observation: ObservationFormat, config: ArenaConfig | None = None
) -> Iterator[ArenaSuite]:
    # Long timeouts: test machines are often busy.
    browser_config = BrowserConfig(
        observation_format=observation, call_timeout=60.0, navigation_timeout=60.0
    )
    with BrowserPool(browser_config) as pool:
        suite = ArenaSuite(pool, config=config or ArenaConfig())
        yield suite
        suite.close()


def first_task(suite: ArenaSuite, template: str) -> Task:
    tasks = [*suite.tasks("test"), *suite.tasks("train")]
    return next(task for task in tasks if task.id.startswith(f"arena/{template}/"))


def run_expert(
    suite: ArenaSuite, task: Task, *, has_mistakes: bool = False
) -> tuple[float, list[Decision]]:
    """Return the reward and the decisions of the expert's episode."""
    environment = suite.make_env(task)
    try:
        reset_result = environment.reset()
        expert = suite.make_expert(task, reset_result)
        decisions = [next(expert)]
        while decisions[-1].action.kind is not ActionKind.EXIT:
            page = environment.step(decisions[-1].action).observation
            assert has_mistakes or page.error in (None, "the page does not scroll further down")
            decisions.append(expert.send(page))
        return environment.compute_reward(decisions[-1].action.value), decisions
    finally:
        environment.close()


@pytest.mark.parametrize("template", TEMPLATE_NAMES)
def test_expert_solves_task(suite: ArenaSuite, template: str) -> None:
    reward, decisions = run_expert(suite, first_task(suite, template))
    assert reward == 1.0 and len(decisions) > 3


@pytest.mark.parametrize("template", TEMPLATE_NAMES)
def test_immediate_exit_gets_no_reward(suite: ArenaSuite, template: str) -> None:
    task = first_task(suite, template)
    environment = suite.make_env(task)
    try:
        environment.reset()
        assert environment.compute_reward("") == 0.0 and environment.compute_reward(None) == 0.0
    finally:
        environment.close()


@pytest.mark.slow
@pytest.mark.parametrize("template", [template.name for template in TEMPLATES])
def test_expert_solves_every_template(suite: ArenaSuite, template: str) -> None:
    reward, _ = run_expert(suite, first_task(suite, template))
    assert reward == 1.0


def test_long_thoughts_contain_intent_history_and_reason() -> None:
    for suite in open_suite("compact", ArenaConfig(expert_thoughts="long")):
        task = first_task(suite, "shop/sku")
        reward, decisions = run_expert(suite, task)
        assert reward == 1.0
        assert all(task.intent in decision.thought for decision in decisions)
        assert "Done so far: search" in decisions[1].thought
        assert "It is among the details" in decisions[-1].thought


def test_restate_thoughts_prepend_task_to_short_thoughts() -> None:
    for suite in open_suite("compact"):
        short_decisions = run_expert(suite, first_task(suite, "shop/sku"))[1]
    for suite in open_suite("compact", ArenaConfig(expert_thoughts="restate")):
        task = first_task(suite, "shop/sku")
        reward, decisions = run_expert(suite, task)
        assert reward == 1.0
        assert [decision.action for decision in decisions] == [
            expected.action for expected in short_decisions
        ]
        for decision, expected in zip(decisions, short_decisions, strict=True):
            assert decision.thought == f"Task: {task.intent} Next: {expected.thought}"


@pytest.mark.parametrize("template", ["shop/sku", "shop/buy", "forum/comment"])
def test_expert_corrects_every_mistake(template: str) -> None:
    for suite in open_suite("compact"):
        expected = run_expert(suite, first_task(suite, template))[1]
    for suite in open_suite("compact", ArenaConfig(mistake_rate=1.0)):
        reward, decisions = run_expert(suite, first_task(suite, template), has_mistakes=True)
    assert reward == 1.0
    mistakes = [decision for decision in decisions if decision.is_mistake]
    assert len(mistakes) >= len(expected) - 1
    # Each decision still occurs once, after its mistake and perhaps Go Backward.
    corrected = [d for d in decisions if not d.is_mistake and d.thought != "go back"]
    assert [d.action for d in corrected] == [d.action for d in expected]


def test_mistakes_are_reproducible_and_keep_other_decisions() -> None:
    config = ArenaConfig(mistake_rate=0.5, expert_thoughts="restate")
    runs = []
    for _ in range(2):
        for suite in open_suite("compact", config):
            task = first_task(suite, "shop/sku")
            runs.append(run_expert(suite, task, has_mistakes=True)[1])
    assert runs[0] == runs[1]
    assert {decision.is_mistake for decision in runs[0]} == {False, True}
    assert all(decision.thought.startswith("Task: ") for decision in runs[0])


def test_expert_solves_generated_tasks() -> None:
    for suite in open_suite("compact", ArenaConfig(task_seed=5, num_generated_tasks=20)):
        task = suite.tasks("train")[0]
        assert "fresh-5" in task.id and len(suite.tasks("train")) == 20
        assert run_expert(suite, task)[0] == 1.0


def test_environment_close_drops_world(suite: ArenaSuite) -> None:
    environment = suite.make_env(first_task(suite, "shop/sku"))
    environment.reset()
    num_worlds = suite._server._call("count")
    environment.close()
    assert suite._server._call("count") == num_worlds - 1


def test_observation_formats_contain_same_text() -> None:
    texts: list[str] = []
    for observation in ("compact", "webarena_lite"):
        for suite in open_suite(observation):
            environment = suite.make_env(first_task(suite, "shop/order-status"))
            page = environment.reset().observation
            for name in ("Account", "My Orders"):
                page = environment.step(
                    Action(ActionKind.CLICK, element_id(page, name))
                ).observation
            texts.append(page_text(page))
            environment.close()
    compact, lite = (text[text.index("My orders") :] for text in texts)
    assert compact == lite and "$" in compact


def element_id(page: Observation, name: str) -> str:
    return next(i for i, element in page.elements.items() if element.name == name)
