"""Tests on the apps of the real checkout: scripted solutions, attacks, the exclusions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.suites.infinity.conftest import open_pool, open_suite
from webagent_jax.config import InfinityConfig
from webagent_jax.suites.infinity import Infinity, audit, catalog
from webagent_jax.suites.infinity.exclusions import EXCLUDED_TASKS
from webagent_jax.suites.infinity.experts import SOLUTIONS, solve, steps
from webagent_jax.types import ActionKind, Observation, ResetResult, Task

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# The other solutions need elements that `webarena_lite` leaves out or labels in other ways.
LITE_SOLUTIONS = """
elation-clinical-records/task_e1
elation-clinical-records/task_e3
elation-clinical-records/task_m1
elation-clinical-records/task_m2
elation-clinical-records/task_h1
elation-clinical-records/task_h17
elation-patient-communication/task_e2
elation-patient-communication/task_e4
elation-patient-communication/task_m8
elation-patient-communication/task_m10
elation-patient-communication/task_h2
elation-patient-communication/task_h9
elation-prescriptions/task_e1
elation-prescriptions/task_e4
elation-prescriptions/task_m7
elation-prescriptions/task_h1
elation-prescriptions/task_h9
figma-text-and-typography/task_e4
figma-text-and-typography/task_e9
figma-text-and-typography/task_m7
gitlab-plan-and-track/task_e1
gitlab-plan-and-track/task_e3
gitlab-plan-and-track/task_m1
gitlab-plan-and-track/task_h35
gmail/task_e1
gmail/task_m16
gmail-accounts-and-contacts/task_e7
handshake-career-exploration/task_m3
handshake-career-exploration/task_m18
handshake-career-exploration/task_h15
superhuman-general/task_e1
superhuman-general/task_e12
superhuman-general/task_h6
""".split()


@pytest.fixture(scope="module")
def tasks(checkout: str) -> dict[str, Task]:
    return {catalog.task_name(task): task for task in catalog.read_all(checkout)}


@pytest.fixture(scope="module")
def suite(checkout: str) -> Iterator[Infinity]:
    with open_pool() as pool, open_suite(pool, checkout) as suite:
        yield suite


@pytest.fixture(scope="module")
def lite_suite(checkout: str) -> Iterator[Infinity]:
    with open_pool("webarena_lite") as pool, open_suite(pool, checkout) as suite:
        yield suite


def run_steps(suite: Infinity, task: Task, solution: tuple[steps.Step, ...]) -> float:
    """Return the reward after the steps."""
    environment = suite.make_env(task)
    try:
        page = environment.reset().observation
        expert = solve(solution, page)
        decision = next(expert)
        while decision.action.kind is not ActionKind.EXIT:
            page = environment.step(decision.action).observation
            assert page.error is None or page.error.startswith("the page does not scroll")
            decision = expert.send(page)
        return environment.compute_reward(decision.action.value)
    finally:
        environment.close()


@pytest.mark.parametrize("name", SOLUTIONS)
def test_solution_pays(suite: Infinity, tasks: dict[str, Task], name: str) -> None:
    assert run_steps(suite, tasks[name], SOLUTIONS[name]) == 1.0


@pytest.mark.parametrize("name", LITE_SOLUTIONS)
def test_solution_pays_in_webarena_lite(
    lite_suite: Infinity, tasks: dict[str, Task], name: str
) -> None:
    assert run_steps(lite_suite, tasks[name], SOLUTIONS[name]) == 1.0


def test_thought_names_the_element(suite: Infinity, tasks: dict[str, Task]) -> None:
    task = tasks["elation-clinical-records/task_e1"]
    environment = suite.make_env(task)
    try:
        decision = next(suite.make_expert(task, environment.reset()))
    finally:
        environment.close()
    element = decision.action.element_id
    assert decision.thought == f"click Johnson, Marcus [{element}]"


def test_tasks_without_solution_have_no_expert(suite: Infinity, tasks: dict[str, Task]) -> None:
    task = next(task for name, task in tasks.items() if name not in SOLUTIONS)
    page = ResetResult(task.intent, Observation("", url=""))
    with pytest.raises(KeyError, match=catalog.task_name(task)):
        suite.make_expert(task, page)


def test_no_task_pays_for_doing_nothing(checkout: str) -> None:
    with open_pool() as pool:
        solved = audit.tasks_solved_at_reset(pool, InfinityConfig(path=checkout, test_apps=()))
        names = {catalog.task_name(task) for task in solved}
    reason = "the verifier accepts the app as it opens"
    assert names == {name for name, why in EXCLUDED_TASKS.items() if why == reason}


def test_typed_script_does_not_follow_employer(suite: Infinity, tasks: dict[str, Task]) -> None:
    # The page of questions inserts their text as HTML.
    attack = (
        steps.click("Q&A"),
        steps.type_text(
            "<img src=x onerror=\"AppState.followEmployer('emp_13')\">", "Type your question"
        ),
        steps.click("Submit Question"),
        steps.click("My Questions"),
    )
    assert run_steps(suite, tasks["handshake-career-exploration/task_e1"], attack) == 0.0


def test_dropdown_of_contacts_never_selects(suite: Infinity, tasks: dict[str, Task]) -> None:
    solution = (
        steps.click("Settings", kind="item"),
        steps.click("Account"),
        steps.click("Authenticator app"),
        steps.click("Text message (SMS)"),
    )
    assert run_steps(suite, tasks["gmail-accounts-and-contacts/task_e9"], solution) == 0.0


def test_notification_settings_save_first_provider_only(
    suite: Infinity, tasks: dict[str, Task]
) -> None:
    solution = (
        steps.click("Settings"),
        steps.click("Admin Settings"),
        *steps.choose("Do not notify me", after_text="Michael Torres"),
        steps.click("Save Notification Settings"),
    )
    assert run_steps(suite, tasks["elation-patient-communication/task_41"], solution) == 0.0
