"""Our suites as tasks of BrowserGym: its browser, its observations, its actions; our rewards.

Importing it registers `browsergym/webagent_jax.miniwob.<page>` for every page of MiniWoB++. It
needs BrowserGym, and is imported where BrowserGym runs alone: docs/browsergym.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from browsergym.core.registration import register_task
from browsergym.core.task import AbstractBrowserTask

from webagent_jax.browser import BrowserPool
from webagent_jax.suites.miniwob import VIEWPORT, MiniWob, all_pages
from webagent_jax.types import Action, ActionKind, Observation
from webagent_jax.unicode import to_well_formed

_TASKS = 10_000  # of a page, of which the seed takes one


class PageSession:
    """BrowserGym's page as the session of a suite's environment, which prepares and judges it.

    What the agent does there, BrowserGym does.
    """

    def __init__(self, page: Any) -> None:
        self._page = page  # of Playwright's synchronous interface

    def goto(self, url: str) -> None:
        self._page.goto(url)

    def evaluate(self, script: str, argument: Any = None) -> Any:
        return to_well_formed(self._page.evaluate(script, argument))

    def act(self, action: Action) -> None:
        pass

    def observe(self, error: str | None = None) -> Observation:
        return Observation("", self._page.url)

    def spent(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None:
        pass


class PageSessions:
    """A pool of one: the page that there is."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def session(
        self,
        *,
        origins: Sequence[str],
        init_script: str = "",
        storage_state: str | None = None,
        viewport: tuple[int, int] | None = None,
        reuse: bool = False,
    ) -> PageSession:
        """The isolation is BrowserGym's, which has none; the viewport is the task's."""
        if init_script:
            self._page.context.add_init_script(init_script)
        if storage_state:
            state = json.loads(Path(storage_state).read_text())
            self._page.context.add_cookies(state["cookies"])
        return PageSession(self._page)


class MiniWobTask(AbstractBrowserTask):
    """A page of MiniWoB++ as the suite here prepares and judges it: full success only."""

    def __init__(self, seed: int, page: str) -> None:
        super().__init__(seed)
        self.viewport = dict(zip(("width", "height"), VIEWPORT, strict=True))
        self.slow_mo = 0
        self.timezone_id = "UTC"
        self._name = page

    def setup(self, page: Any) -> tuple[str, dict[str, Any]]:
        self._suite = MiniWob(cast(BrowserPool, PageSessions(page)), (self._name,), _TASKS)
        task = self._suite.task(self._name, "train", int(self.random.randint(_TASKS)))
        self._environment = self._suite.open(task)
        self._page = page
        return self._environment.start().intent, {"task": task.id}

    def validate(
        self, page: Any, chat_messages: Sequence[dict[str, str]]
    ) -> tuple[float, bool, str, dict[str, Any]]:
        """The reward comes when the page ends the episode, or the agent with a message."""
        if self._page.is_closed():  # a problem whose tab is closed is lost
            return 0.0, True, "", {}
        last = chat_messages[-1]
        answer = last["message"] if last["role"] in ("assistant", "infeasible") else None
        done = self._environment.step(Action(ActionKind.WAIT)).done or answer is not None
        return self._environment.reward(answer) if done else 0.0, done, "", {}

    def teardown(self) -> None:
        self._suite.close()


for _page in all_pages():
    register_task(f"webagent_jax.miniwob.{_page}", MiniWobTask, task_kwargs={"page": _page})
