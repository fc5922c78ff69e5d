"""Tests of the suite on live Chromium, on a small app: rewards, attacks, faults, the clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.suites.infinity.conftest import open_pool, open_suite
from webagent_jax.browser import BrowserPool
from webagent_jax.config import InfinityConfig
from webagent_jax.suites.infinity import Infinity, audit, server
from webagent_jax.suites.infinity.experts.steps import find
from webagent_jax.suites.infinity.suite import InfinityEnvironment
from webagent_jax.types import Action, ActionKind, InfraError, Observation

pytestmark = pytest.mark.browser

# Each inserted text would pay if its script ran or its address were served.
INSERTED_SCRIPTS = (
    "<img src=x onerror=\"state.note = 'tea'; push()\">",
    "<iframe srcdoc=\"<script>parent.state.note = 'tea'; parent.push()</script>\"></iframe>",
    "<details open ontoggle=\"state.note = 'tea'; push()\">x</details>",
    "<a href=\"javascript:state.note = 'tea'; push()\">follow me</a>",
)
INSERTED_HTML = (
    *INSERTED_SCRIPTS,
    "<style>@import '/api/reset';</style><form action=/api/reset method=post><button>follow me",
)


@pytest.fixture(scope="module")
def pool() -> Iterator[BrowserPool]:
    with open_pool() as pool:
        yield pool


@pytest.fixture
def suite(pool: BrowserPool, small_checkout: Path) -> Iterator[Infinity]:
    with open_suite(pool, small_checkout) as suite:
        yield suite


@pytest.fixture
def environment(suite: Infinity) -> Iterator[InfinityEnvironment]:
    with open_environment(suite, "notes/task_h1") as environment:
        yield environment


@contextmanager
def open_environment(suite: Infinity, name: str) -> Iterator[InfinityEnvironment]:
    with closing(suite.make_env(suite.task(name, "train", 0))) as environment:
        yield environment


def click(environment: InfinityEnvironment, page: Observation, name: str) -> Observation:
    element = find(page, name)
    return environment.step(Action(ActionKind.CLICK, element)).observation


def add_note(environment: InfinityEnvironment, page: Observation, text: str) -> Observation:
    action = Action(ActionKind.TYPE, find(page, "Note", kind="textbox"), text)
    return click(environment, environment.step(action).observation, "Add")


def insert(environment: InfinityEnvironment, html: str) -> None:
    """Add a note with HTML, and follow its link or press its button."""
    page = add_note(environment, environment.reset().observation, html)
    assert bool(find(page, "follow me")) == ("follow me" in html)
    if "follow me" in html:
        click(environment, page, "follow me")


def test_reward_is_verdict_on_state(suite: Infinity) -> None:
    with open_environment(suite, "notes/task_e1") as environment:
        result = environment.reset()
        assert result.intent == "Count to two."
        rewards = [environment.compute_reward(None)]
        page = result.observation
        for _ in range(3):
            page = click(environment, page, "Count")
            rewards.append(environment.compute_reward("2"))
        assert rewards == [0.0, 0.0, 1.0, 0.0]


def test_state_survives_reload(environment: InfinityEnvironment) -> None:
    page = environment.reset().observation
    assert add_note(environment, page, "tea").error is None
    assert environment.compute_reward(None) == 1.0
    page = environment.step(Action(ActionKind.GOTO, value="/")).observation
    assert find(page, "Add") and "tea" in page.text
    assert environment.compute_reward(None) == 1.0


@pytest.mark.parametrize("html", INSERTED_HTML)
def test_inserted_html_runs_no_script(environment: InfinityEnvironment, html: str) -> None:
    insert(environment, html)
    assert json.loads(environment.read_state())["note"] == html
    assert environment.compute_reward(None) == 0.0


@pytest.mark.parametrize("html", INSERTED_SCRIPTS)
def test_inserted_script_pays_without_policy(
    pool: BrowserPool, small_checkout: Path, monkeypatch: pytest.MonkeyPatch, html: str
) -> None:
    monkeypatch.setattr(server, "_CONTENT_SECURITY_POLICY", "")
    with (
        open_suite(pool, small_checkout) as suite,
        open_environment(suite, "notes/task_h1") as environment,
    ):
        insert(environment, html)
        assert environment.compute_reward(None) == 1.0


@pytest.mark.parametrize(
    "path",
    ["/api/state", "/api/events", "/api/reset", "/real-tasks/task_h1.py", "/js/app.js", "/apps"],
)
def test_goto_shows_only_pages_of_app(environment: InfinityEnvironment, path: str) -> None:
    environment.reset()
    page = environment.step(Action(ActionKind.GOTO, value=path)).observation
    assert page.text.strip() == "There is no such page." and not page.elements


def test_goto_reaches_no_other_world_or_host(suite: Infinity) -> None:
    (task, *_) = suite.tasks("train")
    environments = [suite.make_env(task) for _ in range(2)]
    pages = [environment.reset().observation for environment in environments]
    for address in (pages[1].url, f"http://127.0.0.1:{suite._server.port}/", "file:///etc/passwd"):
        page = environments[0].step(Action(ActionKind.GOTO, value=address)).observation
        assert page.url == pages[0].url and "is not an http address on the origins" in page.error
    for environment in environments:
        environment.close()


def test_worlds_are_separate_and_contexts_are_reused(pool: BrowserPool, suite: Infinity) -> None:
    num_reused = pool.stats().contexts_reused
    for expected_count in (1, 1):
        with open_environment(suite, "notes/task_e1") as environment:
            click(environment, environment.reset().observation, "Count")
            assert json.loads(environment.read_state())["count"] == expected_count
    assert pool.stats().contexts_reused == num_reused + 1 and len(suite._server) == 0


def test_clock_of_pages_starts_at_fixed_time(suite: Infinity) -> None:
    with open_environment(suite, "notes/task_e1") as environment:
        environment.reset()
        assert json.loads(environment.read_state())["date"].startswith("2026-03-07T10:0")
        dates = environment._session.evaluate(
            "[new Date(0).getTime(), Date().slice(0, 15), new Date() instanceof Date,"
            " new Date(2026, 0, 2).getDate(), Date.UTC(1970, 0, 1),"
            " Math.abs(Date.now() - new Date()) < 60_000]"
        )
        assert dates == [0, "Sat Mar 07 2026", True, 2, 0, True]


def test_app_without_state_raises_infra_error(pool: BrowserPool, small_checkout: Path) -> None:
    script = small_checkout / "apps" / "notes" / "js" / "app.js"
    script.write_text("throw new Error();")
    with (
        open_suite(pool, small_checkout) as suite,
        open_environment(suite, "notes/task_e1") as environment,
        pytest.raises(InfraError, match="notes has not reported its state"),
    ):
        environment.reset()


def test_failed_verifier_raises_infra_error(
    small_checkout: Path, suite: Infinity, environment: InfinityEnvironment
) -> None:
    environment.reset()
    verifier = small_checkout / "apps" / "notes" / "real-tasks" / "task_h1.py"
    verifier.write_text("def verify(server_url): raise ValueError('bad seed')")
    with pytest.raises(InfraError, match="bad seed"):
        environment.compute_reward(None)


def test_audit_finds_task_solved_at_reset(pool: BrowserPool, small_checkout: Path) -> None:
    config = InfinityConfig(path=str(small_checkout), test_apps=())

    def solved() -> list[str]:
        return [task.id for task in audit.tasks_solved_at_reset(pool, config)]

    assert solved() == []
    task = small_checkout / "apps" / "notes" / "function-tasks" / "task_1.py"
    task.write_text(task.read_text().replace("== 1", "== 0"))
    assert solved() == ["infinity/notes/task_1"]


def test_suite_has_no_experts(suite: Infinity, environment: InfinityEnvironment) -> None:
    result = environment.reset()
    with pytest.raises(KeyError):
        suite.make_expert(suite.tasks("train")[0], result)
