"""Task suite as a gymnasium environment with text observations and text actions."""

from __future__ import annotations

import dataclasses
import io
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import create_shared_memory
from PIL import Image

from webagent_jax.agent import TEMPLATES, actions
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError, SuiteConfig
from webagent_jax.suites import registry
from webagent_jax.types import (
    ActionKind,
    Environment,
    Observation,
    ParseError,
    Split,
    Suite,
    Task,
)

SYSTEM_MESSAGE = TEMPLATES["webarena"].thinking
"""System message that describes the actions, for policies that were not trained with them."""

_MAX_ACTION_CHARS = 10_000
_MAX_OBSERVATION_CHARS = 1_000_000


class AnyText(spaces.Text):
    """Space of all texts of at most `max_length` characters; samples are letters and digits."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a text of at most `max_length` characters."""
        return isinstance(x, str) and len(x) <= self.max_length


@create_shared_memory.register(AnyText)
def _reject_shared_memory(space: AnyText, n: int = 1, ctx: Any = None) -> None:
    """Raise the error on which AsyncVectorEnv suggests shared_memory=False."""
    # Shared memory of a Text space supports its charset only.
    raise CustomSpaceError("AnyText has no shared memory: use AsyncVectorEnv(shared_memory=False)")


class WebEnv(gymnasium.Env[str, str]):
    """Environment that runs one task of a suite per episode.

    An observation contains the task, the error of the last action if any, and the page. An action
    is a response such as `do(action="Click", element="7")`, optionally preceded by a thought. The
    reward is 0 until the episode ends, and then the reward of the suite, 0 or 1. `info` contains
    intent, url, page (the observation without task and error), task (the task id), error, and
    parse_error: the reason why the response contains no action, or None. At reset, it also contains
    system_message, which describes the actions to a language model.

    `close` also closes everything pushed onto `resources`. Every method raises InfraError when the
    browser or a site fails, because such an episode has no valid reward; `reset` starts a new one.

    Args:
        suite: suite of the tasks; the caller closes it.
        tasks: tasks to sample from. `reset(seed=...)` draws one; `reset(options={"task": ...})`
            selects one by index or task id.
        max_turns: turns after which the episode is truncated and scored.
        render_mode: "rgb_array" for screenshots of the page, or None.

    Raises:
        ConfigError: there are no tasks.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012  gymnasium's type

    def __init__(
        self,
        suite: Suite,
        tasks: Sequence[Task],
        *,
        max_turns: int = 10,
        render_mode: str | None = None,
    ) -> None:
        if not tasks:
            raise ConfigError("WebEnv needs at least one task: the split or the selection has none")
        self.observation_space = AnyText(_MAX_OBSERVATION_CHARS)
        self.action_space = AnyText(_MAX_ACTION_CHARS)
        self.render_mode = render_mode
        self._suite, self._tasks, self._max_turns = suite, tasks, max_turns
        self.resources = ExitStack()
        self._env: Environment | None = None
        self._task, self._intent = tasks[0], ""
        self._observation = Observation("", "")
        self._turns = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start the next episode and return its first observation and info.

        Args:
            seed: seed of the generator that samples tasks; None keeps its state.
            options: {"task": index or task id} selects a task instead of a random one.

        Raises:
            ConfigError: there is no such option or task.
        """
        # Seeds `self.np_random`, from which the task is drawn.
        super().reset(seed=seed)
        self._task = self._select_task(options or {})
        # Closed first, so that two episodes never hold a browser context at the same time.
        self._close_env()
        self._env = self._suite.make_env(self._task)
        start = self._env.reset()
        self._intent, self._turns = start.intent, 0
        text, info = self._format_observation(start.observation, None)
        return text, info | {"system_message": SYSTEM_MESSAGE}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Execute a response; return observation, reward, terminated, truncated and info.

        Raises:
            gymnasium.error.ResetNeeded: `reset` has not been called.
        """
        env = self._require_env()
        self._turns += 1
        # A response without an action leaves the page, and thus the observation, as it was.
        observation, done, answer, parse_error = self._observation, False, None, None
        parsed = actions.parse(action)
        if isinstance(parsed, ParseError):
            parse_error = parsed.reason
        elif parsed.kind is ActionKind.EXIT:
            # Without the error of the action before.
            observation = dataclasses.replace(observation, error=None)
            done, answer = True, parsed.value or ""
        else:
            result = env.step(parsed)
            observation, done = result.observation, result.terminated
        # An episode that ends with its last turn is terminated, not truncated.
        truncated = not done and self._turns >= self._max_turns
        reward = env.compute_reward(answer) if done or truncated else 0.0
        text, info = self._format_observation(observation, parse_error)
        return text, reward, done, truncated, info

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Return a screenshot, uint8 [height, width, 3]; None without a render mode."""
        if self.render_mode is None:
            return None
        return np.asarray(Image.open(io.BytesIO(self._require_env().screenshot())).convert("RGB"))

    def close(self) -> None:
        """Close the browser session and `resources`."""
        self._close_env()
        self.resources.close()

    def _select_task(self, options: Mapping[str, Any]) -> Task:
        unknown = sorted(options.keys() - {"task"})
        if unknown:
            raise ConfigError(
                f"reset has no option {unknown[0]!r}: set task, an index or a task id"
            )
        selected, count = options.get("task"), len(self._tasks)
        if selected is None:
            return self._tasks[int(self.np_random.integers(count))]
        if isinstance(selected, int | np.integer) and 0 <= selected < count:
            return self._tasks[int(selected)]
        for task in self._tasks if isinstance(selected, str) else ():
            if task.id == selected:
                return task
        raise ConfigError(
            f"no task {selected!r}: set an index from 0 to {count - 1}, or a task id such as "
            f"{self._tasks[0].id}"
        )

    def _require_env(self) -> Environment:
        if self._env is None:
            raise gymnasium.error.ResetNeeded("the environment has no episode: call reset() first")
        return self._env

    def _close_env(self) -> None:
        # Cleared first, so that a failure of `close` cannot leave a closed environment in place.
        env, self._env = self._env, None
        if env:
            env.close()

    def _format_observation(
        self, observation: Observation, parse_error: str | None
    ) -> tuple[str, dict[str, Any]]:
        self._observation = observation
        error = parse_error or observation.error
        # Only its texts for task and error are used, which are those of the agent.
        template = TEMPLATES["compact"]
        error_text = template.error.format(error=error) if error else ""
        info = {
            "task": self._task.id,
            "intent": self._intent,
            "url": observation.url,
            "page": observation.text,
            "error": error,
            "parse_error": parse_error,
        }
        return template.task.format(intent=self._intent) + error_text + observation.text, info


def make_env(
    suite: SuiteConfig,
    split: Split = "train",
    browser: BrowserConfig | None = None,
    **options: Any,
) -> WebEnv:
    """Create an environment for the tasks of a suite, with its own browser.

    To run many environments at once, create one BrowserPool and one suite and share them among the
    WebEnv instances.

    Args:
        suite: name and options of the suite; `suite.tasks` selects tasks.
        split: split whose tasks are sampled.
        browser: settings of the browser; None for the defaults.
        options: further arguments of WebEnv.

    Raises:
        ConfigError: no such task, or the suite lacks a requirement.
        InfraError: an embedded site does not start.
    """
    browser = browser or BrowserConfig()
    # A failure below closes the resources that are already open.
    with ExitStack() as resources:
        pool = resources.enter_context(BrowserPool(browser))
        opened_suite = registry.make_suite(suite, browser, pool, logging.getLogger(__name__).info)
        resources.callback(opened_suite.close)
        environment = WebEnv(opened_suite, opened_suite.tasks(split), **options)
        # The environment owns suite and pool from now on; its `close` closes the suite first.
        environment.resources = resources.pop_all()
    return environment
