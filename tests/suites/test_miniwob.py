"""The suite on live pages: every page loads, seeds decide, and the page's verdict is the reward."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pytest

from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError
from webagent_jax.suites.miniwob import (
    FIRST_TEST_SEED,
    GRADED_PAGES,
    MiniWob,
    all_pages,
)
from webagent_jax.suites.miniwob_experts import EXPERTS
from webagent_jax.types import Action, ActionKind, InfraError, Observation, ResetResult, Task

BUSY_MACHINE = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)
MAX_STEPS = 40
THREADS = 4  # sessions at once: a single one mostly waits

# Set on the document that holds the seeded problem, and cleared when it makes another one.
_MARK = """
() => {
  window.holdsSeeded = true;
  const make = genProblem;
  genProblem = () => { window.holdsSeeded = false; make(); };
}
"""
_RESTART = "() => window.core?.cover_div?.onclick()"
_EASY_PAGES = ("click-test", "focus-text")  # one click solves any problem of theirs

_BY_THE_CLOCK = {"simon-says", "stock-market"}  # they show something else at every look

A = TypeVar("A")
B = TypeVar("B")


@pytest.fixture(scope="module")
def suite() -> Iterator[MiniWob]:
    with BrowserPool(BUSY_MACHINE) as pool:
        suite = MiniWob(pool)
        yield suite
        suite.close()


def at_once(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(work, items))


def started(suite: MiniWob, task: Task) -> ResetResult:
    environment = suite.make_env(task)
    try:
        return environment.reset()
    finally:
        environment.close()


def after(suite: MiniWob, task: Task, *names: str) -> tuple[float, bool]:
    """Reward and end of an episode in which the elements of these names are clicked."""
    environment = suite.make_env(task)
    try:
        page, done = environment.reset().observation, False
        for name in names:
            step = environment.step(Action(ActionKind.CLICK, id_of(page, name)))
            page, done = step.observation, step.terminated
        return environment.compute_reward(None), done
    finally:
        environment.close()


def solved(suite: MiniWob, task: Task) -> float:
    """Reward of the expert's episode."""
    environment = suite.make_env(task)
    try:
        start = environment.reset()
        expert = suite.make_expert(task, start)
        decision = next(expert)
        for _ in range(MAX_STEPS):
            step = environment.step(decision.action)
            assert step.observation.error is None, f"{task.id}: {step.observation.error}"
            if step.terminated:
                break
            decision = expert.send(step.observation)
        return environment.compute_reward(None)
    finally:
        environment.close()


def id_of(page: Observation, name: str) -> str:
    return next(i for i, element in page.elements.items() if element.name == name)


# --- tasks ----------------------------------------------------------------------------------------


def test_the_splits_never_share_a_seed(suite: MiniWob) -> None:
    train, test = suite.tasks("train"), suite.tasks("test")
    assert len(train) == 130 * 10_000
    assert train[-1].seed < FIRST_TEST_SEED <= test[0].seed
    assert len({task.seed for task in test[:260]}) == 2


def test_tasks_go_round_the_pages(suite: MiniWob) -> None:
    tasks = suite.tasks("test")
    assert [task.sites for task in tasks[:130]] == [(page,) for page in all_pages()]
    assert tasks[130 + 7] == suite.task(suite.pages[7], "test", 1)
    assert tasks[0].id == f"miniwob/{suite.pages[0]}/{FIRST_TEST_SEED}"
    with pytest.raises(IndexError):
        tasks[len(tasks)]


def test_unknown_page_names_close_ones(suite: MiniWob) -> None:
    with pytest.raises(ConfigError, match="login-user"):
        suite.task("login-usr", "train", 0)


def test_too_many_training_seeds_are_refused() -> None:
    with BrowserPool(BrowserConfig()) as pool, pytest.raises(ConfigError, match="train_seeds"):
        MiniWob(pool, train_seeds=FIRST_TEST_SEED + 1)


def test_a_wiped_context_shows_what_a_fresh_one_shows(suite: MiniWob) -> None:
    def clicked(suite: MiniWob, task: Task) -> list[object]:
        environment = suite.make_env(task)
        try:
            start = environment.reset()
            step = environment.step(Action(ActionKind.CLICK, "1"))
            seen = [start.observation, step.observation]
            return [start.intent, *((o.text, o.title, o.error) for o in seen), step.terminated]
        finally:
            environment.close()

    pages = [page for page in all_pages() if page not in _BY_THE_CLOCK][::4]
    tasks = [suite.task(page, "train", 5) for page in pages]
    wiped = at_once(lambda task: clicked(suite, task), tasks)
    with BrowserPool(replace(BUSY_MACHINE, reuse_contexts=False)) as pool:
        other = MiniWob(pool)
        assert at_once(lambda task: clicked(other, task), tasks) == wiped
        other.close()
        assert pool.stats().contexts_reused == 0
    assert suite._pool.stats().contexts_reused > len(pages) / 2


def test_experts_and_graded_pages_are_pages() -> None:
    assert set(EXPERTS) | GRADED_PAGES <= set(all_pages())


# --- live pages -----------------------------------------------------------------------------------


@pytest.mark.browser
def test_every_page_tells_an_intent_and_shows_something(suite: MiniWob) -> None:
    starts = at_once(lambda page: started(suite, suite.task(page, "test", 0)), all_pages())
    for page, start in zip(all_pages(), starts, strict=True):
        assert start.intent and start.observation.text, page
        assert start.intent not in start.observation.text, page
        assert "Last reward" not in start.observation.text, page
        assert "START" not in start.observation.text.splitlines(), page


@pytest.mark.browser
@pytest.mark.parametrize("page", ["book-flight", "email-inbox", "enter-time", "login-user-popup"])
def test_the_seed_decides_the_page(suite: MiniWob, page: str) -> None:
    tasks = [suite.task(page, "train", index) for index in (3, 3, 4)]
    first, again, other = at_once(lambda task: started(suite, task), tasks)
    assert first == again
    assert first.intent != other.intent


@pytest.mark.browser
def test_clicking_wrong_ends_the_episode_with_nothing(suite: MiniWob) -> None:
    task = suite.task("click-button-sequence", "train", 0)
    assert after(suite, task, "TWO", "ONE") == (0.0, True)
    assert after(suite, task, "ONE", "TWO") == (1.0, True)


@pytest.mark.browser
def test_doing_nothing_is_worth_nothing(suite: MiniWob) -> None:
    task = suite.task("click-button-sequence", "train", 0)
    assert after(suite, task) == (0.0, False)


@pytest.mark.browser
def test_a_part_of_the_point_is_no_success(suite: MiniWob) -> None:
    task = suite.task("find-greatest", "train", 0)
    numbers = [e.name for e in started(suite, task).observation.elements.values()][:3]
    least, *_, greatest = sorted(numbers, key=int)
    assert after(suite, task, least, "Submit") == (0.0, True)
    assert after(suite, task, greatest, "Submit") == (1.0, True)


@pytest.mark.browser
def test_a_refused_action_is_told_and_the_episode_goes_on(suite: MiniWob) -> None:
    environment = suite.make_env(suite.task("login-user", "train", 0))
    environment.reset()
    step = environment.step(Action(ActionKind.CLICK, "99"))
    environment.close()
    assert step.observation.error is not None
    assert not step.terminated


@pytest.mark.browser
def test_a_page_that_does_not_answer_is_no_reward_of_nothing(suite: MiniWob) -> None:
    environment = suite.make_env(suite.task("login-user", "train", 0))
    environment.reset()
    environment.close()
    with pytest.raises(InfraError):
        environment.compute_reward(None)


@pytest.mark.browser
def test_no_expert_is_a_key_error(suite: MiniWob) -> None:
    task = suite.task("drag-cube", "train", 0)
    with pytest.raises(KeyError):
        suite.make_expert(task, ResetResult("Drag.", Observation("", "")))


# --- one problem an episode -----------------------------------------------------------------------


@pytest.mark.browser
def test_goto_is_refused_and_the_problem_stays(suite: MiniWob) -> None:
    environment = suite.make_env(suite.task("click-button-sequence", "train", 0))
    start = environment.reset()
    for url in ("click-test.html", "click-button-sequence.html", "#top", "about:blank"):
        step = environment.step(Action(ActionKind.GOTO, value=url))
        assert step.observation.error == f"{url} is not opened: this task stays on its page"
        assert (step.observation.text, step.terminated) == (start.observation.text, False)
    for name in ("ONE", "TWO"):
        step = environment.step(Action(ActionKind.CLICK, id_of(start.observation, name)))
    assert (environment.compute_reward(None), step.terminated) == (1.0, True)
    environment.close()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("html", "url"),
    [
        ("<a href=click-test.html>away</a>", "click-test.html"),
        ("<form action=click-test.html><button>away</button></form>", "click-test.html?"),
        ("<button onclick='location = `click-test.html`'>away</button>", "click-test.html"),
        ("<button onclick='location.reload()'>away</button>", "click-button-sequence.html"),
    ],
)
def test_what_would_replace_the_page_is_refused(suite: MiniWob, html: str, url: str) -> None:
    environment = suite.make_env(suite.task("click-button-sequence", "train", 0))
    environment.reset()
    script = "html => document.body.insertAdjacentHTML('beforeend', html)"
    environment._session.evaluate(script, html)
    page = environment._session.observe()
    step = environment.step(Action(ActionKind.CLICK, id_of(page, "away")))
    refusal = f"{suite._site.url}/miniwob/{url} is not opened: this task stays on its page"
    assert step.observation.error == refusal
    assert (step.observation.text, step.terminated) == (page.text, False)
    step = environment.step(Action(ActionKind.CLICK, id_of(page, "ONE")))
    assert step.observation.error is None
    environment.step(Action(ActionKind.CLICK, id_of(page, "TWO")))
    assert environment.compute_reward(None) == 1.0
    environment.close()


@pytest.mark.browser
def test_links_within_the_page_and_the_history_of_them_work(suite: MiniWob) -> None:
    environment = suite.make_env(suite.task("click-button-sequence", "train", 0))
    environment.reset()
    environment._session.evaluate("() => { location.hash = 'here'; }")
    for kind in (ActionKind.GO_BACK, ActionKind.GO_FORWARD, ActionKind.GO_BACK):
        step = environment.step(Action(kind))
        assert (step.observation.error, step.terminated) == (None, False)
    step = environment.step(Action(ActionKind.GO_BACK))
    assert step.observation.error == "there is no page to go back to"
    assert not step.terminated
    environment.close()


@pytest.mark.browser
@pytest.mark.parametrize("page", ["click-test", "click-button-sequence"])
def test_a_problem_that_was_left_is_lost(suite: MiniWob, page: str) -> None:
    environment = suite.make_env(suite.task("click-button-sequence", "train", 0))
    environment.reset()
    environment._session.goto(f"{suite._site.url}/miniwob/{page}.html")
    assert environment.compute_reward(None) == 0.0
    environment._session.evaluate(_RESTART)
    for name in {"click-test": ["Click Me!"]}.get(page, ["ONE", "TWO"]):
        observation = environment._session.observe()
        step = environment.step(Action(ActionKind.CLICK, id_of(observation, name)))
        assert step.terminated
    assert environment._session.evaluate("() => WOB_RAW_REWARD_GLOBAL") == 1
    assert environment.compute_reward(None) == 0.0
    environment.close()


@pytest.mark.browser
def test_a_tab_of_another_problem_is_worth_nothing(suite: MiniWob) -> None:
    environment = suite.make_env(suite.task("search-engine", "train", 0))
    start = environment.reset()
    found = environment.step(Action(ActionKind.CLICK, id_of(start.observation, "Search")))
    link = next(i for i, e in found.observation.elements.items() if e.kind == "link")
    step = environment.step(Action(ActionKind.PRESS, link, "Control+Enter"))
    assert "[tab 1, open]" in step.observation.text
    assert (environment.compute_reward(None), step.terminated) == (0.0, True)
    environment.close()


@pytest.mark.browser
def test_a_document_has_one_problem(suite: MiniWob) -> None:
    environment = suite.make_env(suite.task("click-test", "train", 0))
    start = environment.reset()
    environment._session.evaluate(_MARK)
    environment._session.evaluate("() => core.endEpisode(-1)")
    environment._session.evaluate(_RESTART)
    step = environment.step(Action(ActionKind.CLICK, id_of(start.observation, "Click Me!")))
    assert environment._session.evaluate("() => holdsSeeded")
    assert (environment.compute_reward(None), step.terminated) == (0.0, True)
    environment.close()


@pytest.mark.browser
@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_only_the_seeded_problem_is_ever_rewarded(suite: MiniWob, count: int) -> None:
    stride = 3 if count < len(suite.pages) else 1
    pages = [suite.pages[stride * i % len(suite.pages)] for i in range(count)]
    at_once(
        lambda i: wander(suite, suite.task(pages[i], "train", i), random.Random(i)), range(count)
    )


def wander(suite: MiniWob, task: Task, rng: random.Random) -> None:
    """Move at random, and check that a reward is of the seeded problem.

    In every second episode some moves go around the environment, which refuses them.
    """
    environment = suite.make_env(task)
    session = environment._session
    around = rng.random() < 0.5
    try:
        observation = environment.reset().observation
        session.evaluate(_MARK)
        for _ in range(10):
            match rng.choice(["goto", "history", "reload", "restart", *["click"] * 4]):
                case "goto":
                    page = rng.choice([rng.choice(_EASY_PAGES), rng.choice(suite.pages)])
                    if around:
                        session.goto(f"{suite._site.url}/miniwob/{page}.html")
                    action = Action(ActionKind.GOTO, value=f"{page}.html")
                case "history":
                    action = Action(rng.choice([ActionKind.GO_BACK, ActionKind.GO_FORWARD]))
                case "reload":
                    session.evaluate("() => location.reload()")
                    action = Action(ActionKind.PRESS, value="F5")
                case "restart":
                    if around:
                        session.evaluate(_RESTART)
                    action = Action(ActionKind.PRESS, value="Control+Enter")
                case _:
                    action = Action(ActionKind.CLICK, any_id(observation, rng))
            observation = environment.step(action).observation
            if environment.compute_reward(None) > 0.0:
                assert session.evaluate("() => window.holdsSeeded"), task.id
                return
    finally:
        environment.close()


def any_id(page: Observation, rng: random.Random) -> str:
    """An element to click: START where it covers the page."""
    covers = [i for i, element in page.elements.items() if element.name == "START"]
    return rng.choice(covers or list(page.elements) or ["1"])


# --- experts --------------------------------------------------------------------------------------


@pytest.mark.browser
def test_every_expert_solves_its_page(suite: MiniWob) -> None:
    tasks = [suite.task(page, "train", 0) for page in EXPERTS]
    rewards = at_once(lambda task: solved(suite, task), tasks)
    assert [task.id for task, r in zip(tasks, rewards, strict=True) if r != 1.0] == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("page", EXPERTS)
def test_an_expert_solves_its_page_at_any_seed(suite: MiniWob, page: str) -> None:
    tasks = [suite.task(page, "test", index) for index in range(5)]
    assert at_once(lambda task: solved(suite, task), tasks) == [1.0] * 5
