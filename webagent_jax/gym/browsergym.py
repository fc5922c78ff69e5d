"""MiniWoB++ tasks for BrowserGym: its browser, observations and actions, with our rewards.

Importing this module registers `browsergym/webagent_jax.miniwob.<task>` for every MiniWoB++ task.
`gymnasium.make(..., task_kwargs={"split": "test"})` draws test seeds instead of training seeds.
It requires BrowserGym. Import it in the process that runs BrowserGym: docs/browsergym.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from browsergym.core.registration import register_task
from browsergym.core.task import AbstractBrowserTask

from webagent_jax.browser import BrowserPool
from webagent_jax.suites.miniwob import VIEWPORT, MiniWob, all_task_names
from webagent_jax.types import Action, ActionKind, Observation, Split
from webagent_jax.unicode import to_well_formed

_NUM_TRAIN_SEEDS = 10_000


class PageSession:
    """Browser session on BrowserGym's page, for the environment that prepares and scores it.

    BrowserGym itself executes the actions and makes the observations.

    Args:
        page: page of the synchronous Playwright API.
    """

    def __init__(self, page: Any) -> None:
        self._page = page

    def goto(self, url: str) -> None:
        """Open the address."""
        self._page.goto(url)

    def evaluate(self, script: str, argument: Any = None) -> Any:
        """Return the result of a JavaScript function, with unpaired surrogates replaced."""
        return to_well_formed(self._page.evaluate(script, argument))

    def act(self, action: Action) -> None:
        """Do nothing: BrowserGym has executed the action."""

    def observe(self, error: str | None = None) -> Observation:
        """Return an observation without text: BrowserGym makes its own."""
        return Observation("", self._page.url)

    def take_timings(self) -> Mapping[str, float]:
        """Return no timings."""
        return {}

    def close(self) -> None:
        """Do nothing: BrowserGym closes the page."""


class SinglePagePool:
    """Browser pool with one page, which BrowserGym owns."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def session(
        self,
        *,
        origins: Sequence[str],
        viewport: tuple[int, int],
        reuse: bool,
    ) -> PageSession:
        """Return the session of the page, without isolation: BrowserGym has none.

        The arguments have no effect; `MiniWobTask` sets the viewport.
        """
        return PageSession(self._page)


class MiniWobTask(AbstractBrowserTask):
    """MiniWoB++ task, prepared and scored by `suites.miniwob`: only full success is rewarded.

    Args:
        seed: seed that selects one of the problems of the split.
        name: name of the task.
        split: split of the problems.
    """

    def __init__(self, seed: int, name: str, split: Split = "train") -> None:
        super().__init__(seed)
        self.viewport = dict(zip(("width", "height"), VIEWPORT, strict=True))
        self.slow_mo = 0
        self.timezone_id = "UTC"
        self._name, self._split = name, split

    def setup(self, page: Any) -> tuple[str, dict[str, Any]]:
        """Start the task selected by the seed; return its intent and {"task": task id}."""
        # Created per episode, because the page changes with each reset of BrowserGym.
        pool = cast(BrowserPool, SinglePagePool(page))
        self._suite = MiniWob(pool, (self._name,), _NUM_TRAIN_SEEDS)
        tasks = self._suite.tasks(self._split)
        task = tasks[int(self.random.randint(len(tasks)))]
        self._environment = self._suite.make_env(task)
        self._page = page
        return self._environment.reset().intent, {"task": task.id}

    def validate(
        self, page: Any, chat_messages: Sequence[dict[str, str]]
    ) -> tuple[float, bool, str, dict[str, Any]]:
        """Return the reward once the page or a message of the agent ends the episode.

        Returns:
            Reward, whether the episode has ended, an empty message, and an empty info.
        """
        if self._page.is_closed():  # MiniWoB++ cannot continue in another tab
            return 0.0, True, "", {}
        # "infeasible" is the role of BrowserGym's message that a task cannot be done.
        last = chat_messages[-1]
        answer = last["message"] if last["role"] in ("assistant", "infeasible") else None
        # `act` does nothing, so this step only reads whether the page has ended the episode.
        done = self._environment.step(Action(ActionKind.WAIT)).terminated or answer is not None
        return self._environment.compute_reward(answer) if done else 0.0, done, "", {}

    def teardown(self) -> None:
        """Close the suite."""
        self._suite.close()


for _name in all_task_names():
    register_task(f"webagent_jax.miniwob.{_name}", MiniWobTask, task_kwargs={"name": _name})
