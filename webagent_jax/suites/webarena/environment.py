"""One task of WebArena, live on the replicas that were chosen for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from webagent_jax.browser import Session
from webagent_jax.suites import evaluators, task_file
from webagent_jax.suites.judge import Judge
from webagent_jax.suites.matching import Rules
from webagent_jax.suites.webarena import web
from webagent_jax.suites.webarena.leases import Lease
from webagent_jax.suites.webarena.sign_in import Account
from webagent_jax.types import Action, InfraError, Start, Step, Task

_REST_TIMEOUT = 30.0  # seconds

_STATUS = "() => performance.getEntriesByType('navigation')[0]?.responseStatus ?? 0"


@dataclass(frozen=True)
class Scoring:
    """How tasks are scored."""

    rules: Rules
    judge: Judge | None
    shop_admin: Account  # who may read the shop's REST API


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
        first, *others = task_file.start_urls(self._task)
        with self._watched():
            _open(self._session.goto, self._session, first, worst=400)
            for url in others:
                _open(self._session.open_tab, self._session, url, worst=400)
            if others:
                self._session.switch_tab(0)
            return Start(self._task.intent, self._session.observe(), self._session.spent())

    def step(self, action: Action) -> Step:
        """Raises InfraError when the browser fails; what the page refuses is told to the agent."""
        with self._watched():
            error = self._session.act(action)
            return Step(self._session.observe(error), done=False, seconds=self._session.spent())

    def reward(self, answer: str | None) -> float:
        """What the evaluators say of the sites as they are now. Raises InfraError."""
        with self._watched():
            world = _SessionWorld(self._session, self._lease.addresses, self._scoring.shop_admin)
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


class _SessionWorld:
    """evaluators.World, on the session that the agent left."""

    def __init__(self, session: Session, addresses: Mapping[str, str], admin: Account) -> None:
        self._session, self._addresses, self._admin = session, addresses, admin
        self._url = session.url()  # as the agent left it, whatever the page does meanwhile

    def url(self) -> str:
        return self._url

    def goto(self, url: str) -> None:
        """A page that is not there (404) is one that can be read; a site that fails is none."""
        _open(self._session.goto, self._session, url, worst=500)
        self._url = self._session.url()

    def evaluate(self, script: str) -> Any:
        return self._session.evaluate(script)

    def address(self, site: str) -> str:
        """Raises InfraError for a site that the task does not name."""
        if site not in self._addresses:
            raise InfraError(f"an evaluator asks for {site}, which is no site of the task")
        return self._addresses[site]

    def shop_json(self, path: str) -> Any:
        """With a token of its own each time. Raises InfraError."""
        shop = self.address("shopping")
        token = self._rest(
            f"{shop}/rest/default/V1/integration/admin/token",
            data={"username": self._admin.user, "password": self._admin.password},
        )
        return self._rest(f"{shop}{path}", headers={"Authorization": f"Bearer {token}"})

    def _rest(self, url: str, **request: Any) -> Any:
        place = url.partition("?")[0]
        try:
            reply = web.fetch(url, timeout=_REST_TIMEOUT, **request)
        except InfraError as error:
            raise InfraError(f"the shop's REST API does not answer at {place}: {error}") from error
        if reply.status >= 300:
            raise InfraError(f"the shop's REST API answered {reply.status} at {place}")
        return reply.json()


def _open(load: Callable[[str], None], session: Session, url: str, *, worst: int) -> None:
    """Loads a page. Raises InfraError for one off the task's sites or of status `worst` and up."""
    try:
        load(url)
    except ValueError as error:
        raise InfraError(f"the task asks for what its sites do not have: {error}") from error
    status = session.evaluate(_STATUS)
    if status >= worst:
        raise InfraError(f"{url} answered {status}")
