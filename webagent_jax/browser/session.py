"""A synchronous handle on one episode's browser, for host threads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from webagent_jax.browser.context import EpisodeContext
from webagent_jax.browser.worker import Chromium, Worker
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError, Observation

T = TypeVar("T")

_MOVES = {ActionKind.GOTO, ActionKind.GO_BACK, ActionKind.GO_FORWARD}


class Session:
    """One isolated browser context.

    Every method blocks for a bounded time and raises InfraError when the browser fails: a crash, a
    time-out, a closed pool. One thread at a time may use it.
    """

    def __init__(
        self,
        worker: Worker,
        chromium: Chromium,
        context: EpisodeContext,
        *,
        config: BrowserConfig,
        on_close: Callable[[], None],
    ):
        self._worker = worker
        self._chromium = chromium
        self._context = context
        self._spec = context.spec
        self._config = config
        self._on_close = on_close
        self._quiet_timeout = config.navigation_timeout + 3 * config.settle_timeout
        self._closed = False

    def goto(self, url: str) -> None:
        """Raises ValueError for an address that is not on the origins of the session."""
        self._load(url, self._context.goto)

    def open_tab(self, url: str) -> None:
        """As `goto`, in a new tab, which is in front from then on."""
        self._load(url, self._context.open_tab)

    def switch_tab(self, index: int) -> None:
        """Brings a tab to the front. They are numbered from 0; ValueError where there is none."""
        timeout = self._config.call_timeout
        refusal = self._call(lambda: self._context.switch_tab(str(index)), timeout)
        if refusal:
            raise ValueError(refusal)

    def url(self) -> str:
        """The address of the tab in front."""
        return self._call(self._context.url, self._config.call_timeout)

    def observe(self, error: str | None = None) -> Observation:
        """What the page shows now. `error` and the words of dialogs become its `error`."""
        return self._call(lambda: self._context.observe(error), self._config.call_timeout)

    def act(self, action: Action) -> str | None:
        """Acts, and waits until the page is quiet. None when done, else why not, for the agent."""
        self._worker.actions += 1
        timeout = self._quiet_timeout + self._config.call_timeout
        if action.kind in _MOVES:
            timeout = self._quiet_timeout + self._config.navigation_timeout
        return self._call(lambda: self._context.act(action), timeout)

    def settle(self) -> None:
        """Waits until the page is quiet, after a change that was not an action's."""
        self._call(self._context.settle, self._config.call_timeout + self._quiet_timeout)

    def evaluate(self, script: str, argument: Any = None) -> Any:
        """The value of a JavaScript expression or function in the page, as JSON has it."""
        return self._call(
            lambda: self._context.evaluate(script, argument), self._config.call_timeout
        )

    def storage_state(self) -> dict[str, Any]:
        """Cookies and storage, in Playwright's form; they are secrets."""
        return self._call(self._context.storage_state, self._config.call_timeout)

    def picture(self) -> bytes:
        """JPEG of the viewport."""
        return self._call(self._context.picture, self._config.call_timeout)

    def spent(self) -> Mapping[str, float]:
        """Seconds by phase since it was asked last: load, act, settle (until quiet), observe."""
        spent, self._context.seconds = self._context.seconds, {}
        return spent

    def close(self) -> None:
        """Returns at once: the context is closed by the loop. Never raises; twice is once."""
        if self._closed:
            return
        self._closed = True
        self._worker.release(self._chromium, self._context)
        self._on_close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self, url: str, load: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        if not self._spec.allows(url):
            raise ValueError(self._spec.refusal(url))
        timeout = self._config.navigation_timeout + self._quiet_timeout
        self._call(lambda: load(url), timeout)

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        if self._closed:
            raise InfraError("the session is closed")
        return self._worker.run(lambda: self._context.run(work, timeout), timeout)
