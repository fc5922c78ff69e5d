"""Suite of an environment with gymnasium's interface, such as one of another project.

Every command accepts it as `--config.suite.factory=my_module:MyEnv` (docs/your_site.md).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from webagent_jax.agent.actions import format_action
from webagent_jax.config import ConfigError, SuiteConfig
from webagent_jax.seeds import task_seeds
from webagent_jax.suites.user_code import convert_user_errors
from webagent_jax.types import (
    Action,
    ActionKind,
    Expert,
    InfraError,
    Observation,
    ResetResult,
    Split,
    StepResult,
    Task,
)

if TYPE_CHECKING:
    # Every command imports the registry of suites, and few runs need gymnasium.
    import gymnasium

    GymEnv = gymnasium.Env[Any, str]

_NAME = "gymnasium"
# Rounding errors of sums of rewards.
_ROUNDING = 1e-6


class GymSuite:
    """Suite with one task name, whose tasks are the seeds of a gymnasium environment.

    Observations are texts, or dicts with a "text"; element ids are in brackets, as in the formats
    of this package. An action is a text such as do(action="Click", element="7"), and
    exit(message="...") for the answer of the agent. The info of `reset` contains "intent" or
    "goal", the instruction; an info may contain "url" and "error". The reward of an episode is 1
    if its rewards sum to 1, else 0; the sum must be in [0, 1].

    Args:
        make_env: function that creates an environment; called once per episode.
        config: options of the run: `train_seeds_per_task` is the number of training tasks.
    """

    def __init__(self, make_env: Callable[[], GymEnv], config: SuiteConfig) -> None:
        self._make_env = make_env
        self._seeds = task_seeds(config.train_seeds_per_task)
        if config.tasks:
            raise ConfigError("suite.tasks selects nothing in a gymnasium environment: omit it")

    def task_names(self, split: Split) -> Sequence[str]:
        """Return the only name."""
        return (_NAME,)

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return a task per seed of the split."""
        return [self.task(_NAME, split, index) for index in range(len(self._seeds[split]))]

    def task(self, name: str, split: Split, index: int) -> Task:
        """Return the task of the index-th seed of the split.

        Raises:
            IndexError: the split has fewer seeds.
        """
        seed = self._seeds[split][index]
        return Task(
            id=f"{_NAME}/{seed}", suite=_NAME, sites=(name,), intent="", start_url="", seed=seed
        )

    def make_env(self, task: Task) -> GymEnvironment:
        """Create the environment of a task.

        Raises:
            ConfigError: the function that creates it fails or returns something else.
        """
        with convert_user_errors("the factory of the environment"):
            env = self._make_env()
        if not hasattr(env, "step"):
            raise ConfigError(
                f"the factory of the environment returned {env!r}: return a gymnasium.Env; a "
                "factory that returns a suite has the parameters `pool` and `config`"
            )
        return GymEnvironment(env, task.seed)

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Raise a KeyError: environments have no experts."""
        raise KeyError("a gymnasium environment has no expert: collect with a policy")

    def close(self) -> None:
        """Do nothing: each environment owns its resources."""


class GymEnvironment:
    """Environment of one episode of a gymnasium environment, which it closes.

    Args:
        env: environment with text observations and actions.
        seed: seed of `reset`.
    """

    def __init__(self, env: GymEnv, seed: int) -> None:
        self._env, self._seed = env, seed
        self._reward, self._is_done = 0.0, False

    def reset(self) -> ResetResult:
        """Start the episode.

        Raises:
            ConfigError: the environment fails, or its observation or info lacks a field.
        """
        with convert_user_errors("reset of the environment"):
            observation, info = self._env.reset(seed=self._seed)
            intent = info.get("intent", info.get("goal"))
            if not isinstance(intent, str):
                raise ConfigError('the info of reset needs the instruction of the task as "intent"')
            return ResetResult(intent, _to_observation(observation, info))

    def step(self, action: Action) -> StepResult:
        """Execute an action; a truncated episode ends too.

        Raises:
            ConfigError: the environment fails, or its observation has no text.
        """
        with convert_user_errors("step of the environment"):
            observation, reward, terminated, truncated, info = self._env.step(format_action(action))
            self._reward += float(reward)
            self._is_done = bool(terminated or truncated)
            return StepResult(_to_observation(observation, info), self._is_done)

    def compute_reward(self, answer: str | None) -> float:
        """Return 1 if the rewards sum to 1, else 0.

        The answer of the agent is the last action if the episode still runs.

        Raises:
            ConfigError: the environment fails, or the sum is not in [0, 1].
        """
        if not self._is_done:
            self.step(Action(ActionKind.EXIT, value=answer or ""))
        if not -_ROUNDING <= self._reward <= 1 + _ROUNDING:
            raise ConfigError(f"the rewards of the episode sum to {self._reward}, not in [0, 1]")
        return float(self._reward >= 1 - _ROUNDING)

    def screenshot(self) -> bytes:
        """Return a JPEG of the environment's rendering.

        Raises:
            InfraError: the environment renders no array.
            ConfigError: `render` fails.
        """
        with convert_user_errors("render of the environment"):
            try:
                array = self._env.render()
            except NotImplementedError:
                array = None
        # An environment of text needs no rendering, and an episode no screenshots.
        if not isinstance(array, np.ndarray):
            raise InfraError('screenshots need an environment with render_mode="rgb_array"')
        from PIL import Image

        image = io.BytesIO()
        Image.fromarray(array).save(image, "JPEG")
        return image.getvalue()

    def close(self) -> None:
        """Close the environment; errors are logged, because they must not end the run."""
        try:
            self._env.close()
        except Exception:
            logging.exception("close of the environment failed")


def _to_observation(observation: object, info: dict[str, Any]) -> Observation:
    # The `page` of gym.WebEnv is the text without task and error, which the prompt repeats.
    # Another environment may use the key `page` for anything.
    text = info["page"] if "parse_error" in info else observation
    if isinstance(text, dict):
        text = text.get("text")
    if not isinstance(text, str):
        raise ConfigError(
            f'an observation is {type(text).__name__}: use a string, or a dict with "text"'
        )
    error = info.get("error")
    # An empty string means no error.
    return Observation(text, str(info.get("url", "")), error=str(error) if error else None)
