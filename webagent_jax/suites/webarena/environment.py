"""One task of WebArena, live on the replicas that were chosen for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from webagent_jax.browser import Session
from webagent_jax.suites import evaluators, live, task_file
from webagent_jax.suites.judge import Judge
from webagent_jax.suites.live import LiveWorld
from webagent_jax.suites.matching import Rules
from webagent_jax.suites.webarena import web
from webagent_jax.suites.webarena.leases import Lease
from webagent_jax.suites.webarena.sign_in import Account
from webagent_jax.types import Action, InfraError, Start, Step, Task

_REST_TIMEOUT = 30.0  # seconds


@dataclass(frozen=True)
class Scoring:
    """How tasks are scored."""

    rules: Rules
    judge: Judge | None
    shop_admin: Account  # who may read the shop's REST API

    def shop_json(self, shop: str, path: str) -> Any:
        """With a token of its own each time. Raises InfraError."""
        token = _rest(
            f"{shop}/rest/default/V1/integration/admin/token",
            data={"username": self.shop_admin.user, "password": self.shop_admin.password},
        )
        return _rest(f"{shop}{path}", headers={"Authorization": f"Bearer {token}"})


class WebArenaEnvironment:
    """Owns its session, its signed-in states and its turn on the sites: `close` gives them back.

    Args:
        task: at the addresses of `lease`.
        opened: what is to be given back, the session first.
    """

    def __init__(
        self, task: Task, session: Session, lease: Lease, *, scoring: Scoring, opened: ExitStack
    ) -> None:
        self._task, self._session, self._lease = task, session, lease
        self._scoring, self._opened = scoring, opened

    def start(self) -> Start:
        """A tab for each start page, the first in front. Raises InfraError for a bad page."""
        with self._watched():
            live.open_tabs(self._session, task_file.start_urls(self._task))
            return Start(self._task.intent, self._session.observe(), self._session.spent())

    def step(self, action: Action) -> Step:
        """Raises InfraError when the browser fails; what the page refuses is told to the agent."""
        with self._watched():
            error = self._session.act(action)
            return Step(self._session.observe(error), done=False, seconds=self._session.spent())

    def reward(self, answer: str | None) -> float:
        """What the evaluators say of the sites as they are now. Raises InfraError."""
        with self._watched():
            world = LiveWorld(self._session, self._lease.addresses, self._scoring.shop_json)
            return evaluators.score(
                self._task, answer, world, self._scoring.judge, self._scoring.rules
            )

    def picture(self) -> bytes:
        """JPEG of the page."""
        return self._session.picture()

    def close(self) -> None:
        """Twice is once."""
        self._opened.close()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """After a fault the sites are asked whether they are well before they are used again."""
        try:
            yield
        except InfraError:
            self._lease.faulty = True
            raise


def _rest(url: str, **request: Any) -> Any:
    place = url.partition("?")[0]
    try:
        reply = web.fetch(url, timeout=_REST_TIMEOUT, **request)
    except InfraError as error:
        raise InfraError(f"the shop's REST API does not answer at {place}: {error}") from error
    if reply.status >= 300:
        raise InfraError(f"the shop's REST API answered {reply.status} at {place}")
    return reply.json()
