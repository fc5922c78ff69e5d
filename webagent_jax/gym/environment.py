"""A suite as a gymnasium environment: pages come as text, replies are given as text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from PIL import Image

from webagent_jax.agent import TEMPLATES, actions
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig
from webagent_jax.suites.miniwob import MiniWob
from webagent_jax.types import (
    ActionKind,
    Environment,
    Observation,
    ParseError,
    Split,
    Suite,
    Task,
)

_LONGEST_REPLY = 10_000  # characters
_LONGEST_PAGE = 1_000_000


class Words(spaces.Text):
    """Any text at all. What is drawn from it is letters and digits."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length


class WebEnv(gymnasium.Env[str, str]):
    """Tasks of a suite, one an episode.

    An observation is the task, what went wrong with the last action if anything did, and the page;
    an action is a reply such as `do(action="Click", element="7")`, with or without a thought before
    it. The reward is 0 until the episode ends, then the suite's 0 or 1. `info` has intent, url,
    task (its id), error, and parse_error: why a reply held no action, or None.

    Args:
        suite: owned by the caller.
        tasks: `reset(seed=...)` draws one of them; `reset(options={"task": i})` takes the i-th.
        max_turns: the episode is truncated, and judged, after so many replies.
        render_mode: "rgb_array" gives pictures of the page.

    What is pushed on `resources` is closed with it. Every method raises InfraError when browser or
    site fail: no reward is made up for that, and `reset` begins anew.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012  gymnasium's own

    def __init__(
        self,
        suite: Suite,
        tasks: Sequence[Task],
        *,
        max_turns: int = 10,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = Words(_LONGEST_PAGE)
        self.action_space = Words(_LONGEST_REPLY)
        self.render_mode = render_mode
        self._suite, self._tasks, self._max_turns = suite, tasks, max_turns
        self.resources = ExitStack()
        self._world: Environment | None = None
        self._task, self._intent = tasks[0], ""
        self._seen = Observation("", "")
        self._turns = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        index = (options or {}).get("task")
        self._task = self._tasks[
            int(self.np_random.integers(len(self._tasks))) if index is None else index
        ]
        self._leave()
        self._world = self._suite.open(self._task)
        start = self._world.start()
        self._intent, self._turns = start.intent, 0
        return self._told(start.observation, None)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Raises gymnasium's ResetNeeded before the first reset."""
        world = self._live()
        self._turns += 1
        seen, done, answer, failed = self._seen, False, None, None
        read = actions.parse(action)
        if isinstance(read, ParseError):
            failed = read.reason
        elif read.kind is ActionKind.EXIT:
            done, answer = True, read.value
        else:
            step = world.step(read)
            seen, done = step.observation, step.done
        truncated = not done and self._turns >= self._max_turns
        reward = world.reward(answer) if done or truncated else 0.0
        text, info = self._told(seen, failed)
        return text, reward, done, truncated, info

    def render(self) -> npt.NDArray[np.uint8] | None:
        """[height, width, 3], or None without a render mode."""
        if self.render_mode is None:
            return None
        return np.asarray(Image.open(io.BytesIO(self._live().picture())).convert("RGB"))

    def close(self) -> None:
        self._leave()
        self.resources.close()

    def _live(self) -> Environment:
        if self._world is None:
            raise gymnasium.error.ResetNeeded("reset() comes first")
        return self._world

    def _leave(self) -> None:
        world, self._world = self._world, None
        if world:
            world.close()

    def _told(self, seen: Observation, parse_error: str | None) -> tuple[str, dict[str, Any]]:
        self._seen = seen
        error = parse_error or seen.error
        words = TEMPLATES["compact"]
        told = words.error.format(error=error) if error else ""
        info = {
            "task": self._task.id,
            "intent": self._intent,
            "url": seen.url,
            "error": error,
            "parse_error": parse_error,
        }
        return words.task.format(intent=self._intent) + told + seen.text, info


def open_miniwob(
    page: str, split: Split = "train", config: BrowserConfig | None = None, **options: Any
) -> WebEnv:
    """A page of MiniWoB++ with a browser of its own; `options` are those of WebEnv.

    For many environments at once open one BrowserPool and one MiniWob, and give each WebEnv the
    same. Raises ConfigError for an unknown page.
    """
    with ExitStack() as opened:  # whatever fails, what was opened before it is closed
        pool = opened.enter_context(BrowserPool(config or BrowserConfig()))
        suite = MiniWob(pool, (page,))
        opened.callback(suite.close)
        environment = WebEnv(suite, suite.tasks(split), **options)
        environment.resources = opened.pop_all()
    return environment
