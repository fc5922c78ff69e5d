"""Synchronous handle of the browser of one episode, for rollout threads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from playwright.async_api import Page

from webagent_jax.browser.context import ContextSpec, EpisodeContext
from webagent_jax.browser.worker import BrowserWorker, ChromiumProcess
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError, Observation

T = TypeVar("T")

_NAVIGATION_KINDS = {ActionKind.GOTO, ActionKind.GO_BACK, ActionKind.GO_FORWARD}


def quiet_timeout(config: BrowserConfig) -> float:
    """Return the longest time in seconds until a page is quiet after a change."""
    return config.navigation_timeout + 3 * config.settle_timeout


class Session:
    """Isolated browser context of one episode.

    Every method blocks for a bounded time and raises InfraError if the browser fails: a crash, a
    timeout, a closed pool. Only one thread at a time may use a session.
    """

    def __init__(
        self,
        worker: BrowserWorker,
        chromium: ChromiumProcess,
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
        self._quiet_timeout = quiet_timeout(config)
        self._closed = False

    @classmethod
    def open(
        cls,
        worker: BrowserWorker,
        spec: ContextSpec,
        config: BrowserConfig,
        on_close: Callable[[], None] = lambda: None,
    ) -> Session:
        """Open a session in a fresh or cleared context of the worker.

        Raises:
            InfraError: Chromium does not start or does not open a context.
        """
        chromium, context = worker.open(spec)
        return cls(worker, chromium, context, config=config, on_close=on_close)

    def goto(self, url: str) -> None:
        """Load `url` in the active tab and wait until the page is quiet.

        Raises:
            ValueError: the address is not on the origins of the session.
        """
        self._load(url, self._context.goto)

    def open_tab(self, url: str) -> None:
        """Load `url` in a new tab, which becomes the active one.

        Raises:
            ValueError: the address is not on the origins of the session.
        """
        self._load(url, self._context.open_tab)

    def switch_tab(self, index: int) -> None:
        """Activate a tab; tabs are numbered from 0.

        Raises:
            ValueError: there is no such tab.
        """
        timeout = self._config.call_timeout
        refusal = self._call(lambda: self._context.switch_tab(str(index)), timeout)
        if refusal:
            raise ValueError(refusal)

    @property
    def url(self) -> str:
        """Address of the active tab."""
        return self._call(self._context.url, self._config.call_timeout)

    def observe(self, error: str | None = None) -> Observation:
        """Observe the active tab; `error`, failed loads and dialog messages become its error."""
        return self._call(lambda: self._context.observe(error), self._config.call_timeout)

    def act(self, action: Action) -> str | None:
        """Execute an action and wait until the page is quiet.

        Returns:
            None on success, otherwise an error message for the agent.
        """
        timeout = self._quiet_timeout + self._config.call_timeout
        if action.kind in _NAVIGATION_KINDS:
            timeout = self._quiet_timeout + self._config.navigation_timeout
        return self._call(lambda: self._context.act(action), timeout)

    def settle(self) -> None:
        """Wait until the page is quiet after a change that no action of the agent made."""
        self._call(self._context.settle, self._config.call_timeout + self._quiet_timeout)

    def evaluate(self, script: str, argument: Any = None) -> Any:
        """Return the JSON value of a JavaScript expression or function in the active tab."""
        return self._call(
            lambda: self._context.evaluate(script, argument), self._config.call_timeout
        )

    def with_page(self, work: Callable[[Page], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on Playwright's page of the active tab and return its result."""
        return self._call(
            lambda: self._context.with_page(work), self._config.call_timeout, is_user_code=True
        )

    def storage_state(self) -> dict[str, Any]:
        """Return cookies and storage in Playwright's format; they are secrets."""
        return self._call(self._context.storage_state, self._config.call_timeout)

    def network_log(self) -> list[dict[str, Any]]:
        """Return the HAR entries of all requests so far; empty unless opened with `log_network`."""
        return self._call(self._context.network_log, self._config.call_timeout)

    def screenshot(self) -> bytes:
        """Return a JPEG of the viewport."""
        return self._call(self._context.screenshot, self._config.call_timeout)

    def take_timings(self) -> Mapping[str, float]:
        """Return the seconds by phase (load, act, settle, observe) since the last call."""
        # Swapped, not cleared, because the caller keeps the returned dict.
        seconds, self._context.seconds = self._context.seconds, {}
        return seconds

    def close(self) -> None:
        """Release the context without waiting until it is closed. Idempotent; never raises."""
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

    def _call(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        timeout: float,
        *,
        is_user_code: bool = False,
    ) -> T:
        if self._closed:
            raise InfraError("the session is closed")
        # Both limits are equal, but the worker adds slack: the context reports its error first.
        return self._worker.run(
            lambda: self._context.run(work, timeout, is_user_code=is_user_code), timeout
        )
