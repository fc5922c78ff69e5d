"""Tests of suites as gymnasium environments, and as BrowserGym tasks if it is installed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import webagent_jax.gym
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError, SuiteConfig
from webagent_jax.seeds import FIRST_TEST_SEED
from webagent_jax.suites.miniwob import MiniWob, all_task_names
from webagent_jax.types import InfraError, Observation, ResetResult, StepResult, Task

pytestmark = pytest.mark.browser
LONG_TIMEOUTS = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)


def element_id(text: str, name: str) -> str:
    match = re.search(rf"{re.escape(name)} \[(\d+)\]", text)
    assert match, text
    return match[1]


def click_action(text: str, name: str) -> str:
    return (
        f'<think> it is asked for </think> do(action="Click", element="{element_id(text, name)}")'
    )


@pytest.fixture(scope="module")
def suite() -> Iterator[MiniWob]:
    with BrowserPool(LONG_TIMEOUTS) as pool:
        suite = MiniWob(pool, ("click-button-sequence",), train_seeds=50)
        yield suite
        suite.close()


@pytest.fixture
def env(suite: MiniWob) -> Iterator[webagent_jax.gym.WebEnv]:
    env = webagent_jax.gym.WebEnv(suite, suite.tasks("train"), max_turns=3)
    yield env
    env.close()


def test_all_miniwob_tasks_are_registered():
    names = {f"webagent_jax/miniwob.{name}" for name in all_task_names()}
    assert names <= set(gymnasium.registry)


def test_env_passes_gymnasium_checker():
    env = gymnasium.make(
        "webagent_jax/miniwob.login-user", browser=LONG_TIMEOUTS, render_mode="rgb_array"
    )
    env.reset(seed=0)
    assert env.render().shape == (400, 500, 3)
    check_env(env.unwrapped, skip_render_check=True, skip_close_check=True)
    env.close()


def test_make_env_rejects_unknown_task():
    with pytest.raises(ConfigError, match="login-user"):
        webagent_jax.gym.make_env(SuiteConfig(tasks=("login-usr",)))


def test_arena_site_is_registered():
    env = gymnasium.make("webagent_jax/arena.shop", split="test", browser=LONG_TIMEOUTS)
    _, info = env.reset(seed=0)
    assert info["task"].startswith("arena/shop/")
    assert "link Cart 0" in info["page"]
    env.close()


def test_step_returns_reward_of_page(env):
    text, info = env.reset(seed=3)
    assert 'do(action="Click", element="ID")' in info["system_message"]
    assert text.startswith(f"Task: {info['intent']}\n")
    assert info["task"].startswith("miniwob/click-button-sequence/")
    text, reward, terminated, truncated, info = env.step(click_action(text, "ONE"))
    assert (reward, terminated, truncated) == (0.0, False, False)
    _, reward, terminated, truncated, _ = env.step(click_action(text, "TWO"))
    assert (reward, terminated, truncated) == (1.0, True, False)


def test_reset_seed_selects_task(env):
    text, info = env.reset(seed=3)
    assert env.reset(seed=3)[0] == text
    assert env.reset(seed=4)[1]["task"] != info["task"]
    assert env.reset(options={"task": 7})[1]["task"] == "miniwob/click-button-sequence/7"
    task_id = "miniwob/click-button-sequence/9"
    assert env.reset(options={"task": task_id})[1]["task"] == task_id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task_name": "a"}, "reset has no option 'task_name': set task, an index or a task id"),
        ({"task": "miniwob/a"}, "no task 'miniwob/a': set an index from 0 to 0, or a task id such"),
        ({"task": 1}, "no task 1: set an index from 0 to 0"),
        ({"task": [0]}, "no task .0.: set an index"),
    ],
)
def test_reset_rejects_unknown_options(options, message):
    env = webagent_jax.gym.WebEnv(None, [Task("t", "s", ("p",), "Do it", "")])
    with pytest.raises(ConfigError, match=message):
        env.reset(options=options)


def test_step_reports_parse_error(env):
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step("I am not sure.")
    assert "holds no action" in info["parse_error"]
    assert f"Error: {info['parse_error']}\n" in text
    assert (reward, terminated, truncated) == (0.0, False, False)
    text, *_, info = env.step('do(action="Click", element="99")')
    assert info["parse_error"] is None
    assert "99" in info["error"]


def test_max_turns_truncates_episode(env):
    env.reset(seed=0)
    results = [env.step("hm")[1:4] for _ in range(3)]
    assert results == [(0.0, False, False), (0.0, False, False), (0.0, False, True)]


def test_async_vector_env_names_its_option():
    envs = [lambda: webagent_jax.gym.WebEnv(None, [Task("t", "s", ("p",), "Do it", "")])]
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.vector.AsyncVectorEnv(envs)


def test_truncated_episode_has_reward_if_task_is_done():
    class NonTerminatingSuite:
        """Suite whose task is done from the start and whose environment never terminates."""

        tasks = (Task("t", "s", ("p",), "Do it", "http://a:1/"),)
        answers: ClassVar[list[str | None]] = []

        def make_env(self, task):
            return self

        def reset(self):
            return ResetResult("Do it", Observation("page", "http://a:1/"))

        def step(self, action):
            return StepResult(Observation("page", "http://a:1/"), terminated=False)

        def compute_reward(self, answer):
            self.answers.append(answer)
            return 1.0

        def close(self):
            pass

    task_suite = NonTerminatingSuite()
    env = webagent_jax.gym.WebEnv(task_suite, task_suite.tasks, max_turns=2)
    env.reset(seed=0)
    assert env.step('do(action="Wait")')[1:4] == (0.0, False, False)
    assert env.step('do(action="Wait")')[1:4] == (1.0, False, True)
    env.reset(seed=0)
    assert env.step('exit(message="42")')[1:4] == (1.0, True, False)
    env.reset(seed=0)
    assert env.step("exit()")[1:4] == (1.0, True, False)
    assert task_suite.answers == [None, "42", ""]


def test_exit_terminates_episode_without_earlier_error(env):
    env.reset(seed=0)
    assert env.step('do(action="Click", element="99")')[4]["error"]
    text, *result, info = env.step('exit(message="done")')
    assert result == [0.0, True, False]
    assert info["error"] is None and "Error" not in text


def test_step_before_reset_is_rejected(env):
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("hm")


def test_browser_fault_raises_infra_error(env):
    env.reset(seed=0)
    env._require_env()._session.close()
    with pytest.raises(InfraError):
        env.step('do(action="Scroll Down")')


def test_browsergym_task_returns_reward_of_page(monkeypatch):
    pytest.importorskip("browsergym.core", reason="BrowserGym is not installed: docs/browsergym.md")
    import browsergym.core.env
    from browsergym.utils.obs import flatten_axtree_to_str

    importlib.import_module("webagent_jax.gym.browsergym")  # registers
    from webagent_jax.browser import chromium
    from webagent_jax.suites.browsergym.worker import Messages

    monkeypatch.setattr(browsergym.core.env, "Chat", Messages)
    make_env = partial(
        gymnasium.make,
        "browsergym/webagent_jax.miniwob.click-button-sequence",
        pw_chromium_kwargs={"executable_path": chromium.find_executable()},
        disable_env_checker=True,
    )
    for options, is_test in (({}, False), ({"task_kwargs": {"split": "test"}}, True)):
        env = make_env(**options)
        _, info = env.reset(seed=0)
        seed = int(info["task_info"]["task"].rpartition("/")[2])
        assert (seed >= FIRST_TEST_SEED) == is_test
        env.close()
    env = make_env()

    def press_button(obs, name):
        bid = re.search(rf"\[(\w+)\] button '{name}'", flatten_axtree_to_str(obs["axtree_object"]))
        return env.step(f"click('{bid[1]}')")

    obs, info = env.reset(seed=0)
    assert info["task_info"]["task"].startswith("miniwob/click-button-sequence/")
    obs, reward, terminated, *_ = press_button(obs, "ONE")
    assert (reward, terminated) == (0.0, False)
    assert press_button(obs, "TWO")[1:3] == (1.0, True)
    obs, _ = env.reset(seed=0)
    obs, *_ = press_button(obs, "TWO")
    assert press_button(obs, "ONE")[1:3] == (0.0, True)
    env.reset(seed=0)
    assert env.step("send_msg_to_user('done')")[1:3] == (0.0, True)
    for action in (f"goto('{obs['url'].replace('button-sequence', 'test')}')", "tab_close()"):
        env.reset(seed=0)
        assert env.step(action)[1:3] == (0.0, True)
    env.close()
