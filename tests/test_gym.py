"""Our suites as gymnasium environments, and as tasks of BrowserGym where that is installed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import ClassVar

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import webagent_jax.gym
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError
from webagent_jax.suites.miniwob import MiniWob, all_pages
from webagent_jax.types import InfraError, Observation, ResetResult, StepResult, Task

pytestmark = pytest.mark.browser
PATIENT = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)


def id_of(text: str, name: str) -> str:
    found = re.search(rf"{re.escape(name)} \[(\d+)\]", text)
    assert found, text
    return found[1]


def click(text: str, name: str) -> str:
    return f'<think> it is asked for </think> do(action="Click", element="{id_of(text, name)}")'


@pytest.fixture(scope="module")
def suite() -> Iterator[MiniWob]:
    with BrowserPool(PATIENT) as pool:
        suite = MiniWob(pool, ("click-button-sequence",), train_seeds=50)
        yield suite
        suite.close()


@pytest.fixture
def env(suite: MiniWob) -> Iterator[webagent_jax.gym.WebEnv]:
    env = webagent_jax.gym.WebEnv(suite, suite.tasks("train"), max_turns=3)
    yield env
    env.close()


def test_every_page_is_registered():
    names = {f"webagent_jax/miniwob.{page}" for page in all_pages()}
    assert names <= set(gymnasium.registry)


def test_gymnasium_finds_no_fault():
    env = gymnasium.make("webagent_jax/miniwob.login-user", config=PATIENT, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (400, 500, 3)
    check_env(env.unwrapped, skip_render_check=True, skip_close_check=True)
    env.close()


def test_an_unknown_page_is_refused_and_nothing_stays_open():
    with pytest.raises(ConfigError, match="login-user"):
        webagent_jax.gym.make_miniwob_env("login-usr")


def test_what_the_page_judges_is_the_reward(env):
    text, info = env.reset(seed=3)
    assert text.startswith(f"Task: {info['intent']}\n")
    assert info["task"].startswith("miniwob/click-button-sequence/")
    text, reward, terminated, truncated, info = env.step(click(text, "ONE"))
    assert (reward, terminated, truncated) == (0.0, False, False)
    _, reward, terminated, truncated, _ = env.step(click(text, "TWO"))
    assert (reward, terminated, truncated) == (1.0, True, False)


def test_the_seed_draws_the_task(env):
    first, info = env.reset(seed=3)
    assert env.reset(seed=3)[0] == first
    assert env.reset(seed=4)[1]["task"] != info["task"]
    assert env.reset(options={"task": 7})[1]["task"] == "miniwob/click-button-sequence/7"


def test_a_reply_without_an_action_is_told(env):
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step("I am not sure.")
    assert "holds no action" in info["parse_error"]
    assert f"Error: {info['parse_error']}\n" in text
    assert (reward, terminated, truncated) == (0.0, False, False)
    text, *_, info = env.step('do(action="Click", element="99")')
    assert info["parse_error"] is None
    assert "99" in info["error"]


def test_too_many_turns_truncate(env):
    env.reset(seed=0)
    ends = [env.step("hm")[1:4] for _ in range(3)]
    assert ends == [(0.0, False, False), (0.0, False, False), (0.0, False, True)]


def test_what_is_done_when_turns_run_out_counts():
    class Done:
        """A world that never ends by itself, in which the task is done."""

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

    world = Done()
    env = webagent_jax.gym.WebEnv(world, world.tasks, max_turns=2)
    env.reset(seed=0)
    assert env.step('do(action="Wait")')[1:4] == (0.0, False, False)
    assert env.step('do(action="Wait")')[1:4] == (1.0, False, True)
    env.reset(seed=0)
    assert env.step('exit(message="42")')[1:4] == (1.0, True, False)
    assert world.answers == [None, "42"]


def test_an_answer_ends_the_episode(env):
    env.reset(seed=0)
    assert env.step('exit(message="done")')[1:4] == (0.0, True, False)


def test_a_step_before_the_first_reset_is_refused(env):
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("hm")


def test_a_browser_fault_is_no_reward(env):
    env.reset(seed=0)
    env._require_env()._session.close()
    with pytest.raises(InfraError):
        env.step('do(action="Scroll Down")')


def test_a_page_as_a_task_of_browsergym(monkeypatch):
    pytest.importorskip("browsergym.core", reason="BrowserGym is not installed: docs/browsergym.md")
    import browsergym.core.env
    from browsergym.utils.obs import flatten_axtree_to_str

    importlib.import_module("webagent_jax.gym.browsergym")  # registers
    from webagent_jax.browser import chromium
    from webagent_jax.suites.browsergym.worker import Messages

    monkeypatch.setattr(browsergym.core.env, "Chat", Messages)
    env = gymnasium.make(
        "browsergym/webagent_jax.miniwob.click-button-sequence",
        pw_chromium_kwargs={"executable_path": chromium.find_executable()},
        disable_env_checker=True,
    )

    def press(seen, name):
        bid = re.search(rf"\[(\w+)\] button '{name}'", flatten_axtree_to_str(seen["axtree_object"]))
        return env.step(f"click('{bid[1]}')")

    seen, info = env.reset(seed=0)
    assert info["task_info"]["task"].startswith("miniwob/click-button-sequence/")
    seen, reward, terminated, *_ = press(seen, "ONE")
    assert (reward, terminated) == (0.0, False)
    assert press(seen, "TWO")[1:3] == (1.0, True)
    seen, _ = env.reset(seed=0)
    seen, *_ = press(seen, "TWO")
    assert press(seen, "ONE")[1:3] == (0.0, True)
    env.reset(seed=0)
    assert env.step("send_msg_to_user('done')")[1:3] == (0.0, True)
    for leaving in (f"goto('{seen['url'].replace('button-sequence', 'test')}')", "tab_close()"):
        env.reset(seed=0)
        assert env.step(leaving)[1:3] == (0.0, True)
    env.close()
