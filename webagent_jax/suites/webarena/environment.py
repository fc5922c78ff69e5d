"""One task of WebArena, live on the replicas that were chosen for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from webagent_jax.browser import Session
from webagent_jax.suites import evaluators, site_state, task_file
from webagent_jax.suites.judge import Judge
from webagent_jax.suites.matching import Rules
from webagent_jax.suites.site_state import LiveWorld
from webagent_jax.suites.webarena import http
from webagent_jax.suites.webarena.auth import Account
from webagent_jax.suites.webarena.replicas import Lease
from webagent_jax.types import (
    Action,
    ActionKind,
    Element,
    InfraError,
    Observation,
    Start,
    Step,
    Task,
)

_REST_TIMEOUT = 30.0  # seconds
_SIGN_OUT = re.compile(r"\b(sign|log)[ _-]?(out|off)\b", re.IGNORECASE)


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
        ended_session: describes a site that does not accept the session of a browser state; None.
        opened: what is to be given back, the session first.
    """

    def __init__(
        self,
        task: Task,
        session: Session,
        lease: Lease,
        *,
        scoring: Scoring,
        ended_session: Callable[[Mapping[str, Any]], str | None],
        opened: ExitStack,
    ) -> None:
        self._task, self._session, self._lease = task, session, lease
        self._scoring, self._ended_session, self._opened = scoring, ended_session, opened
        self._elements: Mapping[str, Element] = {}  # of the last observation
        self._signed_out = False  # by the agent

    def start(self) -> Start:
        """A tab for each start page, the first in front. Raises InfraError for a bad page."""
        with self._watched():
            site_state.open_tabs(self._session, task_file.start_urls(self._task))
            return Start(self._task.intent, self._observe(), self._session.spent())

    def step(self, action: Action) -> Step:
        """Raises InfraError when the browser fails; what the page refuses is told to the agent."""
        with self._watched():
            self._signed_out |= self._signs_out(action)
            error = self._session.act(action)
            return Step(self._observe(error), done=False, seconds=self._session.spent())

    def reward(self, answer: str | None) -> float:
        """Score the sites as they are now.

        Raises:
            InfraError: an evaluator failed, or a site ended the session of an episode without
                success. A session that the agent ended itself counts as a failure of the agent.
        """
        with self._watched():
            world = LiveWorld(self._session, self._lease.addresses, self._scoring.shop_json)
            score = evaluators.score(
                self._task, answer, world, self._scoring.judge, self._scoring.rules
            )
            if score < 1 and not self._signed_out:
                ended = self._ended_session(self._session.storage_state())
                if ended:
                    raise InfraError(ended)
            return score

    def picture(self) -> bytes:
        """JPEG of the page."""
        return self._session.picture()

    def close(self) -> None:
        """Twice is once."""
        self._opened.close()

    def _observe(self, error: str | None = None) -> Observation:
        observation = self._session.observe(error)
        self._elements = observation.elements
        return observation

    def _signs_out(self, action: Action) -> bool:
        """Return True for a click on "Sign out" or the like, and for an address that does that."""
        element = self._elements.get(action.element_id or "")
        address = action.value if action.kind is ActionKind.GOTO else None
        return bool(_SIGN_OUT.search((element.name if element else address) or ""))

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
        reply = http.fetch(url, timeout=_REST_TIMEOUT, **request)
    except InfraError as error:
        raise InfraError(f"the shop's REST API does not answer at {place}: {error}") from error
    if reply.status >= 300:
        raise InfraError(f"the shop's REST API answered {reply.status} at {place}")
    return reply.json()
