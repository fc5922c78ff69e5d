"""Tests of gymnasium environments as suites: a guessing game, and a suite of this package."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import webagent_jax.gym
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError, SuiteConfig
from webagent_jax.suites import registry
from webagent_jax.suites.gym_suite import GymSuite
from webagent_jax.suites.miniwob import MiniWob
from webagent_jax.types import Action, ActionKind, Environment, InfraError

LONG_TIMEOUTS = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)


class GuessingGame(gymnasium.Env):
    """Game in which the right button depends on the seed; a wrong one is an error."""

    observation_space = webagent_jax.gym.environment.AnyText(1000)
    action_space = webagent_jax.gym.environment.AnyText(1000)

    def __init__(self) -> None:
        self.is_closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.right = str(self.np_random.integers(1, 4))
        text = "button A [1]\nbutton B [2]\nbutton C [3]"
        return text, {"intent": f"Click button {self.right}.", "url": "game://start"}

    def step(self, action):
        if action.startswith("exit"):
            return {"text": "end"}, 0.25 if self.right not in action else 1.0, True, False, {}
        if f'"{self.right}"' in action:
            return "won", 1.0, True, False, {}
        return "try again", 0.0, False, False, {"error": "wrong button"}

    def render(self):
        return np.zeros((4, 6, 3), np.uint8)

    def close(self):
        self.is_closed = True


class FaultyGame(GuessingGame):
    """Game whose methods fail as the class attributes say."""

    reset_error: Exception | None = None
    observation: object = "text"
    info: dict[str, object] = {"intent": "Play."}  # noqa: RUF012
    reward = 0.0
    is_terminated = True
    close_error: Exception | None = None

    def reset(self, *, seed=None, options=None):
        if self.reset_error:
            raise self.reset_error
        return self.observation, self.info

    def step(self, action):
        return self.observation, self.reward, self.is_terminated, False, {}

    def render(self):
        return None

    def close(self):
        if self.close_error:
            raise self.close_error


@pytest.fixture
def suite() -> GymSuite:
    return GymSuite(GuessingGame, SuiteConfig(train_seeds_per_task=5))


def faulty_suite(**attributes: object) -> GymSuite:
    return GymSuite(type("Game", (FaultyGame,), attributes), SuiteConfig())


def click(element: str) -> Action:
    return Action(ActionKind.CLICK, element)


def test_episode_of_environment(suite):
    environment = suite.make_env(suite.task("gymnasium", "test", 3))
    start = environment.reset()
    right = start.intent[-2]
    assert start.observation.url == "game://start"
    assert start.observation.text.startswith("button A [1]")
    wrong = environment.step(click("3" if right == "1" else "1"))
    assert (wrong.observation.text, wrong.observation.error) == ("try again", "wrong button")
    assert not wrong.terminated
    assert environment.step(click(right)).terminated
    assert environment.compute_reward(None) == 1.0
    assert environment.screenshot().startswith(b"\xff\xd8")
    environment.close()
    assert environment._env.is_closed


def test_answer_is_last_action(suite):
    environment = suite.make_env(suite.task("gymnasium", "train", 0))
    right = environment.reset().intent[-2]
    assert environment.compute_reward(right) == 1.0
    # Success is binary: a partial reward is none.
    environment = suite.make_env(suite.task("gymnasium", "train", 0))
    environment.reset()
    assert environment.compute_reward("0") == 0.0


def test_rounding_of_summed_rewards_is_no_failure():
    suite = faulty_suite(reward=0.1, is_terminated=False)
    environment = suite.make_env(suite.task("gymnasium", "test", 0))
    environment.reset()
    for _ in range(9):
        environment.step(click("1"))
    assert environment.compute_reward(None) == 1.0


def test_failed_close_does_not_raise(caplog):
    suite = faulty_suite(close_error=ConnectionResetError("gone"))
    suite.make_env(suite.task("gymnasium", "test", 0)).close()
    assert "close of the environment failed" in caplog.text


def test_seeds_of_splits_are_separate_and_reproducible(suite):
    train, test = suite.tasks("train"), suite.tasks("test")
    assert len(train) == 5
    assert not {task.seed for task in train} & {task.seed for task in test}
    intents = [[suite.make_env(task).reset().intent for task in test[:20]] for _ in range(2)]
    assert intents[0] == intents[1]
    assert len(set(intents[0])) == 3
    with pytest.raises(IndexError):
        suite.task("gymnasium", "train", 5)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"reset_error": ValueError("no color")}, "reset of the environment raised ValueError"),
        ({"info": {}}, 'needs the instruction of the task as "intent"'),
        ({"observation": 3}, "an observation is int"),
        ({"observation": {"image": 3}}, "an observation is NoneType"),
    ],
)
def test_fault_at_reset_raises_config_error(attributes, message):
    suite = faulty_suite(**attributes)
    with pytest.raises(ConfigError, match=message):
        suite.make_env(suite.task("gymnasium", "test", 0)).reset()


@pytest.mark.parametrize("attributes", [{"reward": None}, {"reward": "1 point"}])
def test_fault_at_step_raises_config_error(attributes):
    suite = faulty_suite(**attributes)
    environment = suite.make_env(suite.task("gymnasium", "test", 0))
    environment.reset()
    with pytest.raises(ConfigError, match="step of the environment raised"):
        environment.step(click("1"))


def test_factory_without_environment_raises_config_error():
    suite = GymSuite(lambda: None, SuiteConfig())
    with pytest.raises(ConfigError, match=r"returned None: return a gymnasium\.Env"):
        suite.make_env(suite.task("gymnasium", "test", 0))


def test_info_of_none_raises_config_error():
    suite = faulty_suite()
    environment = suite.make_env(suite.task("gymnasium", "test", 0))
    environment.reset()
    environment._env.info = None
    with pytest.raises(ConfigError, match="reset of the environment raised AttributeError"):
        environment.reset()


def test_failed_request_raises_infra_error():
    suite = faulty_suite(reset_error=ConnectionRefusedError())
    with pytest.raises(InfraError):
        suite.make_env(suite.task("gymnasium", "test", 0)).reset()


def test_invalid_results_raise_config_error():
    suite = faulty_suite(reward=2.0)
    environment = suite.make_env(suite.task("gymnasium", "test", 0))
    environment.reset()
    environment.step(click("1"))
    with pytest.raises(ConfigError, match=r"sum to 2\.0"):
        environment.compute_reward(None)
    with pytest.raises(ConfigError, match="omit it"):
        GymSuite(GuessingGame, SuiteConfig(tasks=("a",)))


def test_environment_without_rendering_has_no_screenshot():
    class TextGame(GuessingGame):
        """Game without a `render` of its own."""

        render = gymnasium.Env.render

    class BlankGame(GuessingGame):
        """Game without a render mode."""

        def render(self):
            return None

    for game in (TextGame, BlankGame):
        suite = GymSuite(game, SuiteConfig())
        environment = suite.make_env(suite.task("gymnasium", "test", 0))
        environment.reset()
        # An episode omits a screenshot that fails with this error.
        with pytest.raises(InfraError, match="rgb_array"):
            environment.screenshot()


@pytest.mark.browser
def test_own_suite_through_gymnasium_equals_the_suite():
    def play(environment: Environment) -> tuple[str, list[str], float]:
        start = environment.reset()
        texts = [start.observation.text]
        for name in ("ONE", "TWO"):
            element = texts[0].split(f"button {name} [")[1].split("]")[0]
            texts.append(environment.step(click(element)).observation.text)
        reward = environment.compute_reward(None)
        environment.close()
        return start.intent, texts, reward

    with BrowserPool(LONG_TIMEOUTS) as pool:
        suite = MiniWob(pool, ("click-button-sequence",))
        task = suite.tasks("test")[0]
        wrapped = GymSuite(lambda: webagent_jax.gym.WebEnv(suite, [task]), SuiteConfig())
        direct = play(suite.make_env(task))
        assert play(wrapped.make_env(wrapped.tasks("test")[0])) == direct
        assert direct[2] == 1.0
        suite.close()


def test_registry_makes_gym_suite_of_factory_without_parameters(tmp_path, monkeypatch):
    (tmp_path / "my_game.py").write_text(
        "import gymnasium\nclass Game(gymnasium.Env):\n    def __init__(self, size=3): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with BrowserPool(BrowserConfig()) as pool:
        suite = registry.make_suite(
            SuiteConfig(factory="my_game:Game"), BrowserConfig(), pool, print
        )
    assert isinstance(suite, GymSuite)


@pytest.mark.parametrize("page", ["checkout", 3])
def test_page_in_info_of_other_environment_is_no_observation(page):
    suite = faulty_suite(observation="button Buy [1]", info={"intent": "Buy.", "page": page})
    reset = suite.make_env(suite.task("gymnasium", "test", 0)).reset()
    assert reset.observation.text == "button Buy [1]"


def test_empty_error_is_no_error():
    suite = faulty_suite(info={"intent": "Play.", "error": ""})
    reset = suite.make_env(suite.task("gymnasium", "test", 0)).reset()
    assert reset.observation.error is None
