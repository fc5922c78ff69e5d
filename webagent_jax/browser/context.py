"""Browser context of one episode on its event loop: tabs, dialogs, isolation, faults."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

from absl import logging
from playwright.async_api import Browser, BrowserContext, Dialog, Frame, Page
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from webagent_jax.browser import act, context_pool, dom_walk, injected, navigate, observe, settle
from webagent_jax.browser.network_log import NetworkLog
from webagent_jax.config import BrowserConfig, ConfigError
from webagent_jax.types import DIALOG_PREFIX, Action, ActionKind, InfraError, Observation
from webagent_jax.unicode import to_well_formed

T = TypeVar("T")

# Requests to origins that are not listed go to this proxy, which never answers.
_BLACKHOLE_PROXY = "http://127.0.0.1:1"
_PORTS = {"http": 80, "https": 443}
_SESSION_CLOSED = "the session is closed"
# Actions that do not refer to the content of the observed tab.
_TAB_INDEPENDENT_KINDS = {ActionKind.SWITCH_TAB, ActionKind.GOTO}
_MAX_ERROR_CHARS = 1000  # a dialog of a page may have a text of any length


@dataclass(frozen=True)
class ContextSpec:
    """Settings of a fresh context."""

    origins: tuple[str, ...]  # "host:port", or ".domain:port" for every subdomain
    init_script: str  # JavaScript that runs before the scripts of every page
    storage_state: str | None  # path of a Playwright storage state
    viewport: tuple[int, int]  # CSS pixels
    # Whether another episode may use the context after its state is cleared.
    is_reusable: bool = False
    logs_network: bool = False  # whether the requests are logged (network_log.py)

    def allows(self, url: str) -> bool:
        """Return whether `url` is an http address on the origins."""
        origin = origin_of(url)
        if origin is None:
            return False
        # An origin with a leading dot matches every subdomain, as in the browser's bypass list.
        return any(origin.endswith(o) if o.startswith(".") else origin == o for o in self.origins)

    def refusal(self, url: str) -> str:
        """Return the error message for an address that is not visited, for users and the agent."""
        origins = ", ".join(self.origins)
        return f"{url[:200]} is not an http address on the origins allowed here: {origins}"


class EpisodeContext:
    """Browser context of one episode; all its coroutines run on one event loop."""

    def __init__(self, context: BrowserContext, spec: ContextSpec, config: BrowserConfig):
        self._context = context
        self._spec = spec
        self._config = config
        self._tracker = settle.RequestTracker(context)
        self._network_log = NetworkLog(context) if spec.logs_network else None
        self._fault: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._last_call_failed = False
        self._tab: Page | None = None
        self._observed_tab: Page | None = None  # tab of the last observation
        self._tab_event = asyncio.Event()  # set when a tab opens after the start of an action
        self._num_tabs = 0  # tabs opened, closed ones included
        self._visited_origins: set[str] = set()  # "scheme://host:port" of all documents
        self._dialog_messages: list[str] = []  # messages of dialogs since the last observation
        self.seconds: dict[str, float] = {}  # seconds by phase: load, act, settle, observe
        # `recycle` removes these listeners before the successor registers its own.
        context.on("page", self._on_page)
        context.on("dialog", self._accept_dialog)

    @classmethod
    async def open(
        cls, browser: Browser, spec: ContextSpec, config: BrowserConfig
    ) -> EpisodeContext:
        """Open a context with one empty tab that reaches the origins of `spec` and nothing else.

        The isolation is the browser's proxy setting, so it covers redirects and WebSockets too.
        """
        width, height = spec.viewport
        context = await browser.new_context(
            **isolation(spec.origins),
            viewport={"width": width, "height": height},
            storage_state=spec.storage_state,
            ignore_https_errors=config.ignore_https_errors,
            reduced_motion="reduce",
            timezone_id="UTC",  # pages show the same local time on every machine
        )
        try:
            # Playwright takes milliseconds, the config has seconds.
            context.set_default_timeout(config.call_timeout * 1000)
            context.set_default_navigation_timeout(config.navigation_timeout * 1000)
            self = cls(context, spec, config)
            # One script, so that listeners are recorded before the script of the suite adds any.
            await context.add_init_script(f"{injected.INIT_SCRIPT}\n{spec.init_script}")
            self._tab = await context.new_page()
        except BaseException:
            await context.close()
            raise
        return self

    @property
    def spec(self) -> ContextSpec:
        """Settings of the context."""
        return self._spec

    @property
    def has_failed(self) -> bool:
        """True if the last call ended in an InfraError or the next one will."""
        return self._last_call_failed or self._fault.done()

    async def recycle(self) -> EpisodeContext | None:
        """End the episode and return the context, cleared for another episode.

        Returns:
            The cleared context; None unless it has one tab that has shown one origin, and no call
            failed. The state of other contexts is hard to clear.
        """
        page = self._tab
        is_clearable = (
            not self.has_failed and self._num_tabs == 1 and len(self._visited_origins) == 1
        )
        # The old session must not reach the context any more, whether it is reused or closed.
        self.fail(_SESSION_CLOSED)
        if (
            not is_clearable
            or page is None
            or page.is_closed()
            or _web_origin(page.url) not in self._visited_origins
        ):
            return None
        self._context.remove_listener("page", self._on_page)
        self._context.remove_listener("dialog", self._accept_dialog)
        page.remove_listener("crash", self._on_crash)
        page.remove_listener("framenavigated", self._on_navigation)
        self._tracker.stop()
        if self._network_log:
            self._network_log.stop()
        # The tracker stops first: it would count the requests of the empty page.
        await context_pool.clear_state(self._context, page, *self._visited_origins)
        successor = EpisodeContext(self._context, self._spec, self._config)
        successor._on_page(page)
        return successor

    async def run(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        timeout: float,
        *,
        is_user_code: bool = False,
    ) -> T:
        """Await `work()` and return its result with lone surrogates replaced.

        All text of a page passes through this method.

        Args:
            work: creates the coroutine to await.
            timeout: seconds to wait at most.
            is_user_code: whether errors other than those of Playwright are raised as they are.

        Raises:
            InfraError: timeout, crash, closed browser, an error of Playwright, or a malformed value
                of the page.
        """
        self._last_call_failed = True  # reset on success
        # Waiting for the fault as well ends a call immediately at a crash, before its timeout.
        task = asyncio.ensure_future(work())
        futures: set[asyncio.Future[Any]] = {task, self._fault}
        await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        # `asyncio.wait` does not await the canceled call, which may never return after a crash.
        if not task.done():
            task.cancel()
            raise InfraError(
                self._fault.result() if self._fault.done() else f"no response in {timeout:g} s"
            )
        try:
            result = to_well_formed(task.result())
        except PlaywrightError as error:
            message = to_well_formed(error.message)
            raise InfraError(f"the browser failed: {message}") from error
        except (InfraError, ConfigError):
            raise
        # Pages return malformed values if they replace JSON.stringify or methods of Array.
        except Exception as error:
            if is_user_code:
                raise
            logging.info("error in values of a page", exc_info=True)
            raise InfraError(f"the page broke a script of the browser: {error!r}") from error
        self._last_call_failed = False
        return result

    def fail(self, reason: str) -> None:
        """End the call in progress and all later ones with an InfraError with this reason."""
        if not self._fault.done():
            self._fault.set_result(reason)

    async def goto(self, url: str) -> None:
        """Load `url` in the active tab and wait until the page is quiet."""
        page = self._page()
        # The load event waits for no fetch: requests of the first page count too.
        self._tracker.listen()
        # 1. Load the document. 2. Wait for its resources. 3. Wait until its scripts are quiet.
        with self._timer("load"):
            await page.goto(url, wait_until="domcontentloaded")
            # A page with an image that never loads is still usable.
            with contextlib.suppress(PlaywrightTimeout):
                await page.wait_for_load_state("load", timeout=self._config.settle_timeout * 1000)
        await self.settle()

    async def open_tab(self, url: str) -> None:
        """Load `url` in a new tab, which becomes the active one."""
        await self._context.new_page()  # _on_page makes it the active tab
        self._observed_tab = None
        await self.goto(url)

    async def switch_tab(self, number: str) -> str | None:
        """Activate the tab with this number; return an error message for the agent if it fails."""
        pages = self._context.pages
        tabs = {str(index): page for index, page in enumerate(pages)}
        if number not in tabs:
            return f"there is no tab {number}; tabs are numbered 0 to {len(pages) - 1}"
        self._tab = tabs[number]
        self._observed_tab = None
        await self._tab.bring_to_front()
        return None

    async def url(self) -> str:
        """Return the address of the active tab."""
        return self._page().url

    async def act(self, action: Action) -> str | None:
        """Execute an action and wait until the page is quiet; return an error for the agent."""
        if action.kind is ActionKind.EXIT:
            return None
        # Elements of another tab can have the same ids.
        tab_change = self._tab_change()
        if tab_change and action.kind not in _TAB_INDEPENDENT_KINDS:
            return tab_change
        # Only a tab that this action opens ends the wait in `settle`.
        self._tab_event.clear()
        with self._timer("act"):
            refusal = await self._dispatch(action)
        if refusal is None:
            await self.settle()
        else:
            self._tracker.failures.clear()  # the refusal contains them
        return refusal

    def _tab_change(self) -> str | None:
        """Return how the active tab has changed since the observation; None if it has not."""
        if self._observed_tab is None:
            return None
        if self._observed_tab.is_closed():
            return "the tab has closed"
        return None if self._page() is self._observed_tab else "a new tab has opened"

    async def _dispatch(self, action: Action) -> str | None:
        timeout = self._config.navigation_timeout
        match action.kind:
            case ActionKind.SWITCH_TAB:
                return await self.switch_tab((action.value or "").strip())
            case ActionKind.GOTO:
                return await self._navigate(action.value or "")
            case ActionKind.GO_BACK:
                return await navigate.go_in_history(self._page(), -1, timeout)
            case ActionKind.GO_FORWARD:
                return await navigate.go_in_history(self._page(), 1, timeout)
            case _:
                return await self._act_in_tab(action)

    async def _act_in_tab(self, action: Action) -> str | None:
        page = self._page()
        try:
            return await self._run_bounded(act.act(page, action))
        except PlaywrightError:
            # An action that closes its own tab is complete, unless Chromium has crashed.
            browser = self._context.browser
            if page.is_closed() and browser is not None and browser.is_connected():
                return None
            raise

    async def settle(self) -> None:
        """Wait until the active tab is quiet, and for a new tab if the page requests one."""
        with self._timer("settle"):
            # The page reports the request for a tab before the tab exists, so it gets extra time.
            opens_tab = await self._wait_until_quiet()
            if opens_tab and await self._wait_for_tab(self._config.settle_timeout):
                await self._wait_until_quiet()

    async def _wait_for_tab(self, timeout: float) -> bool:
        """Return whether a tab opens within `timeout` seconds, or since the start of the action."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._tab_event.wait(), timeout)
        return self._tab_event.is_set()

    async def _wait_until_quiet(self) -> bool:
        """Wait until the active tab is quiet; return whether it requested a new tab."""
        page, timeout = self._page(), self._config.navigation_timeout
        opens_tab = await settle.settle(page, self._tracker, self._config.settle_timeout)
        # Read before `reset`, which removes the request of the next document.
        is_navigating, is_opening_tab = self._tracker.is_navigating, self._tracker.is_opening_tab
        self._tracker.reset()
        if not is_navigating:
            return opens_tab
        # A tab has a page only after its server responds.
        has_page = not is_opening_tab or await self._wait_for_tab(timeout)
        if not has_page or not await navigate.wait_for_commit(page, timeout):
            self._dialog_messages.append(f"the next page did not answer in {timeout:g} s")
            return opens_tab
        opens_tab |= is_opening_tab
        # The next document has replaced the one that was quiet, so it settles as well.
        return await settle.settle(page, self._tracker, self._config.settle_timeout) or opens_tab

    async def observe(self, error: str | None) -> Observation:
        """Observe the active tab; `error`, failed loads and dialog messages become its error."""
        page = self._observed_tab = self._page()
        pages = self._context.pages
        tab_lines = []
        if len(pages) > 1:  # each title takes a call to the browser
            tab_lines = [await _format_tab(i, p, p is page) for i, p in enumerate(pages)]
        with self._timer("observe"):
            content = await observe.observe(page, self._config, self._spec.allows, tab_lines)
        # The error of the action comes first, because the text is cut at its end.
        errors = [error] if error else []
        errors += [self._describe_failure(*failure) for failure in self._tracker.failures]
        errors += self._dialog_messages
        if not errors and page.url.startswith(dom_walk.NO_PAGE):
            errors = ["the page did not load"]
        self._tracker.failures.clear()
        self._dialog_messages.clear()
        return Observation(
            text=content.text,
            url=content.url,
            title=content.title,
            error="; ".join(errors)[:_MAX_ERROR_CHARS] or None,
            truncated=content.truncated,
            elements=content.elements,
        )

    async def evaluate(self, script: str, argument: Any) -> Any:
        """Return the value of a JavaScript expression or function in the active tab."""
        timeout = self._config.navigation_timeout
        return await injected.evaluate(self._page(), script, argument, timeout)

    async def with_page(self, work: Callable[[Page], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `work` with the active tab."""
        return await work(self._page())

    async def storage_state(self) -> dict[str, Any]:
        """Return the cookies and storage of the context in Playwright's format."""
        return dict(await self._context.storage_state())

    async def network_log(self) -> list[dict[str, Any]]:
        """Return the HAR entries of the requests so far; empty unless `spec.logs_network`."""
        if self._network_log is None:
            return []
        # Half of the time of a call, so that a missing response does not end the episode.
        return await self._network_log.entries(self._config.call_timeout / 2)

    async def screenshot(self) -> bytes:
        """Return a JPEG of the viewport of the active tab."""
        return await self._page().screenshot(type="jpeg", quality=60, animations="disabled")

    async def close(self) -> None:
        """End the call in progress and close the context."""
        self.fail(_SESSION_CLOSED)
        await self._context.close()

    def _page(self) -> Page:
        """Return the active tab: the newest, unless the agent switched."""
        if self._tab is None or self._tab.is_closed():
            pages = self._context.pages
            if not pages:
                raise InfraError("the page closed its last tab")
            self._tab = pages[-1]
        return self._tab

    async def _run_bounded(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`; raise InfraError if a page that should be idle does not respond."""
        try:
            return await asyncio.wait_for(work, self._config.call_timeout)
        except TimeoutError as error:
            raise InfraError(f"no response in {self._config.call_timeout:g} s") from error

    async def _navigate(self, address: str) -> str | None:
        page = self._page()
        try:
            url = urljoin(page.url, address.strip())
        except ValueError:
            url = address
        if not self._spec.allows(url):
            return self._spec.refusal(url)
        return await navigate.go_to(page, url, self._config.navigation_timeout)

    @contextlib.contextmanager
    def _timer(self, phase: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - start

    def _describe_failure(self, url: str, failure: str) -> str:
        if not self._spec.allows(url):
            return self._spec.refusal(url)
        return f"{url} did not load: {failure}"

    def _on_page(self, page: Page) -> None:
        self._tab = page
        self._num_tabs += 1
        self._tab_event.set()
        page.on("crash", self._on_crash)
        page.on("framenavigated", self._on_navigation)

    def _on_crash(self, page: Page) -> None:
        self.fail("the page crashed")

    def _on_navigation(self, frame: Frame) -> None:
        origin = _web_origin(frame.url)
        if origin:
            self._visited_origins.add(origin)

    async def _accept_dialog(self, dialog: Dialog) -> None:
        # A dialog blocks the scripts of its page, so it is closed at once and its text is kept.
        if dialog.type != "beforeunload":
            # An error is one line of the observation.
            self._dialog_messages.append(DIALOG_PREFIX + " ".join(dialog.message.split()))
        try:
            await dialog.accept(dialog.default_value)
        except PlaywrightTimeout:
            self.fail("a dialog could not be closed")
        except PlaywrightError:
            return  # the page closed, and the dialog with it


async def _format_tab(index: int, page: Page, is_active: bool) -> str:
    title = ""
    if not page.url.startswith(dom_walk.NO_PAGE):
        # A background tab may navigate or close meanwhile.
        with contextlib.suppress(PlaywrightError):
            title = await page.title()
    return f"[tab {index}{', open' if is_active else ''}] {title}".rstrip()


def _web_origin(url: str) -> str | None:
    """Return the scheme://host:port of an http address; None for any other."""
    origin = origin_of(url)
    return origin and f"{urlsplit(url).scheme}://{origin}"


def isolation(origins: Sequence[str]) -> dict[str, Any]:
    """Return the options of a Playwright context that reaches the origins and nothing else."""
    # By default Chromium bypasses proxies for loopback addresses; "<-loopback>" removes that rule.
    return {
        "proxy": {"server": _BLACKHOLE_PROXY, "bypass": ",".join(("<-loopback>", *origins))},
        "accept_downloads": False,
        "service_workers": "block",
    }


def origin_of(url: str) -> str | None:
    """Return the host:port of an http address; None for any other."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            return None
        return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"
    except ValueError:  # an invalid port or IPv6 host
        return None


def checked_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """Return the origins as a tuple.

    Raises:
        ConfigError: an origin is not of the form "host:port" or ".domain:port".
    """
    for origin in origins:
        host, _, port = origin.rpartition(":")
        if not host or not port.isdecimal() or "/" in origin or "," in origin:
            raise ConfigError(f"origin {origin!r} must have the form host:port or .domain:port")
    return tuple(origins)
