"""Tests of suites of users: the example in examples/my_site, isolation, errors and the factory."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError, RunConfig, SuiteConfig
from webagent_jax.doctor import sites as doctor_sites
from webagent_jax.expert_steps import click
from webagent_jax.local_site import StaticSite
from webagent_jax.suites import registry
from webagent_jax.suites.site import SiteSuite, SiteTask
from webagent_jax.types import (
    Action,
    ActionKind,
    Element,
    InfraError,
    Observation,
    ResetResult,
    Task,
)

FACTORY = "examples.my_site.suite:make_suite"
CONFIG = SuiteConfig(factory=FACTORY, train_seeds_per_task=20)


@pytest.fixture(scope="module")
def pool() -> Iterator[BrowserPool]:
    with BrowserPool(BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)) as pool:
        yield pool


@pytest.fixture(scope="module")
def suite(pool: BrowserPool) -> Iterator[SiteSuite]:
    suite = registry.make_suite(CONFIG, BrowserConfig(), pool, print)
    assert isinstance(suite, SiteSuite)
    yield suite
    suite.close()


def make_suite(pool: BrowserPool, site: Path, **fields) -> SiteSuite:
    """Return a suite of one task on a page that shows the cookie of earlier episodes."""
    (site / "index.html").write_text(
        "<button onclick=\"document.cookie='visited=1'\">Go</button><p id=c></p>"
        "<script>c.textContent = 'cookie ' + document.cookie</script>"
    )
    task = SiteTask(**{"intent": "Go.", "reward": lambda page, answer: 1, **fields})
    return SiteSuite(pool, SuiteConfig(train_seeds_per_task=2), site, {"go": lambda rng: task})


def run_expert(suite: SiteSuite, task: Task, num_actions: int) -> tuple[float, bool]:
    """Execute the first actions of the expert; return the reward and whether the page ended."""
    environment = suite.make_env(task)
    try:
        start = environment.reset()
        expert = suite.make_expert(task, start)
        page, terminated = start.observation, False
        for number in range(num_actions):
            decision = expert.send(page) if number else next(expert)
            result = environment.step(decision.action)
            page, terminated = result.observation, result.terminated
        return environment.compute_reward(None), terminated
    finally:
        environment.close()


@pytest.mark.browser
@pytest.mark.parametrize(("name", "num_actions"), [("order", 1), ("save-name", 2)])
@pytest.mark.parametrize("split", ["train", "test"])
def test_only_complete_solution_of_example_is_rewarded(suite, name, num_actions, split):
    task = suite.task(name, split, 3)
    assert run_expert(suite, task, num_actions) == (1.0, True)
    assert run_expert(suite, task, num_actions - 1) == (0.0, False)


@pytest.mark.browser
def test_tasks_are_reproducible_and_splits_are_disjoint(suite):
    train, test = suite.tasks("train"), suite.tasks("test")
    assert len(train) == 2 * CONFIG.train_seeds_per_task
    assert len({task.intent for task in train}) > 6
    assert not {task.id for task in train} & {task.id for task in test}
    assert suite.task("order", "train", 5) == suite.task("order", "train", 5) in train
    with pytest.raises(IndexError):
        suite.task("order", "train", CONFIG.train_seeds_per_task)


@pytest.mark.browser
def test_episodes_have_separate_browser_contexts(pool, tmp_path):
    suite = make_suite(pool, tmp_path)
    environments = [suite.make_env(suite.task("go", "train", i)) for i in range(2)]
    observation = environments[0].reset().observation
    (button,) = observation.elements
    environments[0].step(Action(ActionKind.CLICK, button))
    assert "cookie visited=1" in environments[0].reset().observation.text
    assert "visited=1" not in environments[1].reset().observation.text
    for environment in environments:
        environment.close()
    suite.close()


@pytest.mark.browser
def test_storage_state_signs_in(pool, tmp_path):
    state = tmp_path / "user.json"
    suite = make_suite(pool, tmp_path, storage_state=str(state))
    task = suite.task("go", "test", 0)
    with pytest.raises(ConfigError, match=r"playwright install chromium\n.*--save-storage="):
        suite.make_env(task)
    state.write_text("{")
    with pytest.raises(ConfigError, match="missing or damaged"):
        suite.make_env(task)
    cookie = {"name": "user", "value": "ada", "url": suite._url}
    state.write_text(json.dumps({"cookies": [cookie]}))
    environment = suite.make_env(task)
    assert "cookie user=ada" in environment.reset().observation.text
    environment.close()
    suite.close()


@pytest.mark.browser
def test_start_page_of_address_with_slash(pool, tmp_path):
    (tmp_path / "index.html").write_text("start")
    task = SiteTask("Go.", lambda page, answer: 1)
    with StaticSite(tmp_path) as site:
        suite = SiteSuite(pool, SuiteConfig(), f"{site.url}/", {"go": lambda rng: task})
        environment = suite.make_env(suite.task("go", "test", 0))
        assert environment.reset().observation.url == f"{site.url}/"
        environment.close()


@pytest.mark.browser
def test_reset_runs_before_page_opens(pool, tmp_path):
    suite = make_suite(
        pool,
        tmp_path,
        start="page.html",
        reset=lambda: (tmp_path / "page.html").write_text("written by reset"),
    )
    environment = suite.make_env(suite.task("go", "test", 0))
    assert "written by reset" in environment.reset().observation.text
    environment.close()
    suite.close()


def _divide(page, answer):
    return 1 / 0


def _disconnect(page, answer):
    raise ConnectionRefusedError("server down")


def _read_missing_file(page, answer):
    return Path("/no/such/file").read_text() == answer


def _parse_json(page, answer):
    return json.loads("{")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("reward", "error", "message"),
    [
        (_divide, ConfigError, r"SiteTask.reward raised ZeroDivisionError.*test_site.py:\d+"),
        (_disconnect, InfraError, "server down"),
        (_read_missing_file, ConfigError, r"SiteTask.reward raised FileNotFoundError.*no/such"),
        (
            _parse_json,
            ConfigError,
            r"SiteTask.reward raised JSONDecodeError.* at .*test_site.py:\d+",
        ),
        (
            lambda page, answer: page.evaluate("a.b"),
            InfraError,
            r"^SiteTask.reward: .* a is not def",
        ),
        (lambda page, answer: None, ConfigError, r"reward returned None: return 0, 1 or a bool"),
        (lambda page, answer: "yes", ConfigError, r"reward returned 'yes': return 0, 1 or a bool"),
        (lambda page, answer: 2, ConfigError, r"returned 2: return 0, 1 or a bool"),
        (lambda page, answer: 0.5, ConfigError, r"returned 0.5: return 0, 1 or a bool"),
    ],
)
def test_reward_error_names_function(pool, tmp_path, reward, error, message):
    suite = make_suite(pool, tmp_path, reward=reward)
    environment = suite.make_env(suite.task("go", "test", 0))
    environment.reset()
    with pytest.raises(error, match=message):
        environment.compute_reward(None)
    environment.close()
    suite.close()


@pytest.mark.browser
@pytest.mark.parametrize("start", ["missing.html", "http://other.example/"])
def test_start_page_that_does_not_open_is_a_fault(pool, tmp_path, start):
    suite = make_suite(pool, tmp_path, start=start)
    environment = suite.make_env(suite.task("go", "test", 0))
    with pytest.raises(InfraError):
        environment.reset()
    environment.close()
    suite.close()


@pytest.mark.browser
def test_site_that_has_stopped_is_a_fault(pool, tmp_path):
    (tmp_path / "index.html").write_text("<a href=missing/>Go</a>")
    task = SiteTask("Go.", lambda session, answer: session.evaluate("window.cafe?.name") == "Ada")
    with StaticSite(tmp_path) as site:
        suite = SiteSuite(pool, SuiteConfig(), site.url, {"go": lambda rng: task})
        environment = suite.make_env(suite.task("go", "test", 0))
        (link,) = environment.reset().observation.elements
        assert environment.compute_reward(None) == 0
    result = environment.step(Action(ActionKind.CLICK, link))
    assert "ERR_CONNECTION_REFUSED" in str(result.observation.error)
    with pytest.raises(
        InfraError, match=r"^http://\S+/ did not load: net::ERR_CONNECTION_REFUSED$"
    ):
        environment.compute_reward(None)
    environment.close()


@pytest.mark.browser
@pytest.mark.parametrize(
    "request_data",
    [
        "fetch('data.html').catch(() => null)",
        "{ const xhr = new XMLHttpRequest(); xhr.open('GET', 'data.html'); xhr.send() }",
    ],
    ids=["fetch", "xhr"],
)
def test_site_that_stops_below_loaded_page_is_a_fault(pool, tmp_path, request_data):
    (tmp_path / "index.html").write_text(f'<button onclick="{request_data}">Go</button>')
    (tmp_path / "data.html").write_text("data")  # not cached without a request
    task = SiteTask("Go.", lambda session, answer: 0)
    with StaticSite(tmp_path) as site:
        suite = SiteSuite(pool, SuiteConfig(), site.url, {"go": lambda rng: task})
        environment = suite.make_env(suite.task("go", "test", 0))
        (button,) = environment.reset().observation.elements
        environment.step(Action(ActionKind.CLICK, button))
        assert environment.compute_reward(None) == 0
        # The page is not opened again unless a request has failed.
        environment.session.evaluate("window.isFirstPage = true")
        assert environment.compute_reward(None) == 0
        assert environment.session.evaluate("window.isFirstPage")
    environment.step(Action(ActionKind.CLICK, button))
    with pytest.raises(InfraError, match=r"did not load: net::ERR_CONNECTION_REFUSED$"):
        environment.compute_reward(None)
    environment.close()


@pytest.mark.browser
def test_failed_data_request_to_running_site_is_a_failure(pool, tmp_path):
    suite = make_suite(pool, tmp_path, reward=lambda session, answer: 0)
    (tmp_path / "index.html").write_text(
        "<button onclick=\"fetch('http://other.example/').catch(() => null)\">Go</button>"
    )
    environment = suite.make_env(suite.task("go", "test", 0))
    (button,) = environment.reset().observation.elements
    environment.step(Action(ActionKind.CLICK, button))
    environment.session.evaluate("window.isFirstPage = true")
    assert environment.compute_reward(None) == 0
    assert not environment.session.evaluate("window.isFirstPage ?? false")
    environment.close()
    suite.close()


@pytest.mark.browser
def test_page_that_does_not_load_from_running_site_is_a_failure(pool, tmp_path):
    suite = make_suite(pool, tmp_path, reward=lambda session, answer: 0)
    (tmp_path / "index.html").write_text("<a href=http://other.example/>Go</a>")
    environment = suite.make_env(suite.task("go", "test", 0))
    (link,) = environment.reset().observation.elements
    environment.step(Action(ActionKind.CLICK, link))
    assert environment.session.url.startswith("chrome-error:")
    assert environment.compute_reward(None) == 0
    environment.close()
    suite.close()


@pytest.mark.browser
def test_reward_receives_answer(pool, tmp_path):
    suite = make_suite(pool, tmp_path, reward=lambda page, answer: answer == "42")
    environment = suite.make_env(suite.task("go", "test", 0))
    environment.reset()
    assert [environment.compute_reward(answer) for answer in ("42", "41", None)] == [1, 0, 0]
    environment.close()
    suite.close()


@pytest.mark.browser
def test_repeated_name_counts_once(pool):
    config = SuiteConfig(factory=FACTORY, tasks=("save-name", "order", "save-name"))
    suite = registry.make_suite(config, BrowserConfig(), pool, print)
    assert suite.task_names("test") == ("save-name", "order")
    suite.close()


@pytest.mark.browser
def test_unknown_task_and_site_raise_config_error(pool, tmp_path):
    with pytest.raises(ConfigError, match="no task 'ordr'; did you mean: order"):
        registry.make_suite(
            SuiteConfig(factory=FACTORY, tasks=("ordr",)), BrowserConfig(), pool, print
        )
    for site in ("localhost:3000", tmp_path / "missing"):
        with pytest.raises(ConfigError, match="neither an address nor a folder"):
            SiteSuite(pool, SuiteConfig(), site, {})


@pytest.mark.browser
def test_task_without_expert_raises_key_error(pool, tmp_path):
    suite = make_suite(pool, tmp_path)
    task = suite.task("go", "test", 0)
    environment = suite.make_env(task)
    with pytest.raises(KeyError, match=r"set SiteTask\.expert"):
        suite.make_expert(task, environment.reset())
    environment.close()
    suite.close()


def test_tasks_without_names_raise_config_error():
    with pytest.raises(ConfigError, match="tasks of a SiteSuite are a list: use a dict"):
        SiteSuite(None, SuiteConfig(), "http://localhost:9", [lambda rng: None])


def test_user_functions_without_result_raise_config_error(tmp_path, monkeypatch):
    suite = SiteSuite(None, SuiteConfig(), "http://localhost:9", {"go": lambda rng: None})
    with pytest.raises(ConfigError, match="the function of task 'go' returns None: return a SiteT"):
        suite.task("go", "test", 0)
    (tmp_path / "no_result.py").write_text("def make_suite(pool, config):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = SuiteConfig(factory="no_result:make_suite")
    with pytest.raises(ConfigError, match="returns None: return a suite"):
        registry.make_suite(config, BrowserConfig(), None, print)


@pytest.mark.parametrize("intent", [None, "", " ", 7])
def test_task_without_instruction_raises_config_error(intent):
    task = SiteTask(intent, lambda page, answer: 1)
    suite = SiteSuite(None, SuiteConfig(), "http://localhost:9", {"go": lambda rng: task})
    with pytest.raises(ConfigError, match=rf"task 'go' .* intent={intent!r}: set the instruction"):
        suite.task("go", "test", 0)


def test_task_function_that_ignores_its_generator_raises_config_error():
    numbers = itertools.count()

    def draw(rng: random.Random) -> SiteTask:
        return SiteTask(f"Enter {next(numbers)}.", lambda page, answer: 1)

    suite = SiteSuite(None, SuiteConfig(), "http://localhost:9", {"enter": draw})
    task = suite.task("enter", "train", 0)
    with pytest.raises(ConfigError, match=r"'enter' returned 'Enter 0.', then 'Enter 1.' for the"):
        suite.make_env(task)


def test_call_with_wrong_arguments_names_no_line_of_the_library():
    suite = SiteSuite(None, SuiteConfig(), "http://localhost:9", {"go": lambda: None})
    with pytest.raises(ConfigError, match=r"raised TypeError\(.* but 1 was given'\): fix the func"):
        suite.task("go", "test", 0)


def test_error_of_expert_function_names_its_line():
    prices = {}
    task = SiteTask("Buy.", lambda page, answer: 1, expert=lambda page: prices["tea"])
    suite = SiteSuite(None, SuiteConfig(), "http://localhost:9", {"buy": lambda rng: task})
    result = ResetResult("Buy.", Observation("", ""))
    # A KeyError of `make_expert` is a task without an expert.
    with pytest.raises(ConfigError, match=r"SiteTask\.expert raised KeyError\('tea'\) at .*py:\d+"):
        suite.make_expert(suite.task("buy", "test", 0), result)


@pytest.mark.parametrize(
    "text",
    [
        "Jam | Kim\nbutton Close [1]\nVPN down | Lee\nbutton Close [2]",
        '<html> <td> Jam </td> <a id="1"> Close </a> <td> VPN down </td> <a id="2"> Close </a>',
    ],
)
def test_click_after_text_selects_row(text):
    page = Observation(text, "", elements={i: Element("button", "Close") for i in ("1", "2")})
    assert next(click(page, "Close")).action.element_id == "1"
    decision = next(click(page, "Close", after="VPN down"))
    assert decision.action == Action(ActionKind.CLICK, "2")
    assert (decision.thought, decision.intent_phrase) == ("VPN down: click Close [2]", "VPN down")


def test_click_without_element_after_text_raises_lookup_error():
    page = Observation("button Close [1]\nVPN down", "", elements={"1": Element("button", "Close")})
    with pytest.raises(LookupError, match="no element named 'Close' after 'VPN down' on"):
        next(click(page, "Close", after="VPN down"))


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("examples.my_site.suite", "must have the form module:function"),
        (":make_suite", "must have the form module:function"),
        ("./my_suite:make_suite", "must have the form module:function"),
        ("examples/my_site/suite:make_suite", "must have the form module:function"),
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("examples.no_such:f", "there is no module 'examples.no_such'"),
        ("examples.my_site.suite:f", "has no function 'f'"),
        ("examples.my_site.suite:DRINKS", "has no function 'DRINKS'"),
    ],
)
def test_invalid_factory_raises_config_error(factory, message):
    with pytest.raises(ConfigError, match=message):
        registry.check_requirements(SuiteConfig(factory=factory))


def test_factory_with_missing_package_names_package(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"importing needs_more failed.*no_such_package"):
        registry.load_factory("needs_more:f")


@pytest.mark.browser
def test_list_tasks_of_factory():
    tasks = list(registry.list_tasks(CONFIG, "test"))
    assert [task.id for task in tasks] == ["my_site/order/1000000", "my_site/save-name/1000000"]


@pytest.mark.browser
def test_doctor_opens_first_task_of_factory(tmp_path):
    (finding,) = doctor_sites.check(RunConfig(suite=CONFIG), tmp_path)
    assert FACTORY in str(finding) and "my_site/order/1000000 opened, with 8 elements" in str(
        finding
    )


@pytest.mark.browser
def test_doctor_refers_to_site_of_factory(tmp_path, monkeypatch):
    source = (
        "from webagent_jax.suites.site import SiteSuite, SiteTask\n"
        "task = lambda rng: SiteTask('Go.', lambda page, answer: 1)\n"
        "make = lambda pool, config: SiteSuite(pool, config, 'http://localhost:9', {'go': task})"
    )
    (tmp_path / "stopped_site.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    config = RunConfig(suite=SuiteConfig(factory="stopped_site:make"))
    (finding,) = doctor_sites.check(config, tmp_path)
    assert finding.fix.startswith("start the site, or check its address and SiteTask.start")


@pytest.mark.browser
def test_task_function_error_names_task(pool, tmp_path):
    def draw(rng: random.Random) -> SiteTask:
        raise KeyError("color")

    suite = SiteSuite(pool, SuiteConfig(), tmp_path, {"paint": draw})
    with pytest.raises(
        ConfigError, match=r"task 'paint' raised KeyError\('color'\) at .*test_site"
    ):
        suite.task("paint", "train", 0)
    suite.close()


@pytest.mark.browser
def test_malformed_origin_raises_config_error(pool, tmp_path):
    suite = SiteSuite(pool, SuiteConfig(), tmp_path, {}, origins=("cdn.example",))
    with pytest.raises(ConfigError, match=r"'cdn\.example' must have the form host:port"):
        pool.session(origins=suite._origins)
    suite.close()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(pool, config):\n    return missing", "raised NameError.*broken.py:2"),
        ("def f(pool, config:", "importing broken failed: SyntaxError"),
        ("1 / 0", "importing broken failed: ZeroDivisionError"),
    ],
)
def test_error_in_module_of_factory_is_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    (tmp_path / "broken.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(ConfigError, match=message):
        registry.make_suite(SuiteConfig(factory="broken:f"), BrowserConfig(), None, print)
