"""One episode's browser context, as its event loop sees it: tabs, dialogs, isolation, faults."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

from playwright.async_api import Browser, BrowserContext, Dialog, Frame, Page
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from webagent_jax.browser import act, context_pool, dom_walk, injected, navigate, observe, settle
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError, Observation
from webagent_jax.unicode import to_well_formed

T = TypeVar("T")

_NOWHERE = "http://127.0.0.1:1"  # a proxy that answers nothing: whatever is not listed ends here
_PORTS = {"http": 80, "https": 443}
_CLOSED = "the session is closed"
_LONGEST_ERROR = 1000  # characters; a dialog of a page may say any number


@dataclass(frozen=True)
class ContextSpec:
    """What a fresh context is made from."""

    origins: tuple[str, ...]  # "host:port", or ".domain:port" for every host below it
    init_script: str
    storage_state: str | None
    viewport: tuple[int, int]  # CSS pixels
    again: bool = False  # a context of one episode may serve another, once it is wiped

    def allows(self, url: str) -> bool:
        here = origin_of(url)
        if here is None:
            return False
        return any(here.endswith(o) if o.startswith(".") else here == o for o in self.origins)

    def refusal(self, url: str) -> str:
        """Why an address is not gone to, for people and the agent."""
        listed = ", ".join(self.origins)
        return f"{url[:200]} is not an http address on the origins allowed here: {listed}"


class EpisodeContext:
    """Belongs to one event loop: every coroutine of it runs there."""

    def __init__(self, context: BrowserContext, spec: ContextSpec, config: BrowserConfig):
        self._context = context
        self._spec = spec
        self._config = config
        self._traffic = settle.Traffic(context)
        self._fault: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stumbled = False
        self._tab: Page | None = None
        self._tab_came = asyncio.Event()
        self._tabs = 0  # opened so far
        self._visited: set[str] = set()  # "scheme://host:port" of every document so far
        self._said: list[str] = []  # by dialogs, since the last observation
        self.seconds: dict[str, float] = {}  # by phase: load, act, settle, observe
        context.on("page", self._opened)
        context.on("dialog", self._accept)

    @classmethod
    async def open(
        cls, browser: Browser, spec: ContextSpec, config: BrowserConfig
    ) -> EpisodeContext:
        """A context that reaches the origins of `spec` and nothing else, with one empty tab.

        The isolation is the browser's own proxy setting, so redirects and WebSockets obey it too.
        """
        width, height = spec.viewport
        context = await browser.new_context(
            **isolation(spec.origins),
            viewport={"width": width, "height": height},
            storage_state=spec.storage_state,
            reduced_motion="reduce",
            timezone_id="UTC",  # pages that tell the time tell the same everywhere
        )
        try:
            context.set_default_timeout(config.call_timeout * 1000)
            context.set_default_navigation_timeout(config.navigation_timeout * 1000)
            self = cls(context, spec, config)
            await context.add_init_script(f"{injected.INIT_SCRIPT}\n{spec.init_script}")
            self._tab = await context.new_page()
        except BaseException:
            await context.close()
            raise
        return self

    @property
    def spec(self) -> ContextSpec:
        return self._spec

    @property
    def failed(self) -> bool:
        """Whether the last call ended in an InfraError, or the next one will."""
        return self._stumbled or self._fault.done()

    async def wiped(self) -> EpisodeContext | None:
        """Ends the episode; the context as good as new, for another, where that is sure."""
        page = self._tab
        sure = not self.failed and self._tabs == 1 and len(self._visited) == 1
        self.fail(_CLOSED)
        if not sure or page is None or page.is_closed() or _site(page.url) not in self._visited:
            return None
        self._context.remove_listener("page", self._opened)
        self._context.remove_listener("dialog", self._accept)
        page.remove_listener("crash", self._crashed)
        page.remove_listener("framenavigated", self._shows)
        self._traffic.stop()
        await context_pool.wipe(self._context, page, *self._visited)
        renewed = EpisodeContext(self._context, self._spec, self._config)
        renewed._opened(page)
        return renewed

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        """Awaits `work()`, but no longer than `timeout` seconds or the first fault of the browser.

        All text of a page comes through here; its lone surrogates are replaced.

        Raises InfraError for a time-out, a crash, a closed browser, an error of playwright's.
        """
        self._stumbled = True  # until it is known better
        task = asyncio.ensure_future(work())
        either: set[asyncio.Future[Any]] = {task, self._fault}
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            raise InfraError(
                self._fault.result() if self._fault.done() else f"no answer in {timeout:g} s"
            )
        try:
            answer = to_well_formed(task.result())
        except PlaywrightError as error:
            message = to_well_formed(error.message)
            raise InfraError(f"the browser failed: {message}") from error
        self._stumbled = False
        return answer

    def fail(self, reason: str) -> None:
        """Ends the call under way, and all to come, with an InfraError of this reason."""
        if not self._fault.done():
            self._fault.set_result(reason)

    async def goto(self, url: str) -> None:
        page = self._page()
        with self._timed("load"):
            await page.goto(url, wait_until="domcontentloaded")
            # A picture that never comes is no reason to give the page up.
            with contextlib.suppress(PlaywrightTimeout):
                await page.wait_for_load_state("load", timeout=self._config.settle_timeout * 1000)
        self._traffic.listen()
        await self.settle()

    async def open_tab(self, url: str) -> None:
        await self._context.new_page()  # in front from now on: see _opened
        await self.goto(url)

    async def switch_tab(self, number: str) -> str | None:
        """None when done, else why not, in words for the agent."""
        pages = self._context.pages
        tabs = {str(index): page for index, page in enumerate(pages)}
        if number not in tabs:
            return f"there is no tab {number}; tabs are numbered 0 to {len(pages) - 1}"
        self._tab = tabs[number]
        await self._tab.bring_to_front()
        return None

    async def url(self) -> str:
        return self._page().url

    async def act(self, action: Action) -> str | None:
        if action.kind is ActionKind.EXIT:
            return None
        self._tab_came.clear()
        with self._timed("act"):
            refusal = await self._carry_out(action)
        if refusal is None:
            await self.settle()
        else:
            self._traffic.failures.clear()  # told already
        return refusal

    async def _carry_out(self, action: Action) -> str | None:
        patience = self._config.navigation_timeout
        match action.kind:
            case ActionKind.SWITCH_TAB:
                return await self.switch_tab((action.value or "").strip())
            case ActionKind.GOTO:
                return await self._go_to(action.value or "")
            case ActionKind.GO_BACK:
                return await navigate.travel(self._page(), -1, patience)
            case ActionKind.GO_FORWARD:
                return await navigate.travel(self._page(), 1, patience)
            case _:
                return await self._at_once(act.act(self._page(), action))

    async def settle(self) -> None:
        with self._timed("settle"):
            if not await self._quiet():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._tab_came.wait(), self._config.settle_timeout)
                await self._quiet()

    async def _quiet(self) -> bool:
        """Waits until the tab in front is quiet: whether it asked for a new tab."""
        page, patience = self._page(), self._config.navigation_timeout
        asked = await settle.settle(page, self._traffic, self._config.settle_timeout)
        navigating = self._traffic.navigating
        self._traffic.forget()
        if not navigating:
            return asked
        if not await navigate.comes(page, patience):
            self._said.append(f"the next page did not answer in {patience:g} s")
            return asked
        return await settle.settle(page, self._traffic, self._config.settle_timeout) or asked

    async def observe(self, error: str | None) -> Observation:
        page = self._page()
        pages = self._context.pages
        tabs = []
        if len(pages) > 1:  # a title is a call to the browser
            tabs = [await _tab_line(i, p, p is page) for i, p in enumerate(pages)]
        with self._timed("observe"):
            seen = await observe.observe(page, self._config, self._spec.allows, tabs)
        told = [error] if error else []
        told += [self._told_of(*failure) for failure in self._traffic.failures]
        told += self._said
        if not told and page.url.startswith(dom_walk.NO_PAGE):
            told = ["the page did not load"]
        self._traffic.failures.clear()
        self._said.clear()
        return Observation(
            text=seen.text,
            url=seen.url,
            title=seen.title,
            error="; ".join(told)[:_LONGEST_ERROR] or None,
            truncated=seen.truncated,
            elements=seen.elements,
        )

    async def evaluate(self, script: str, argument: Any) -> Any:
        timeout = self._config.navigation_timeout
        return await injected.evaluate(self._page(), script, argument, timeout)

    async def storage_state(self) -> dict[str, Any]:
        return dict(await self._context.storage_state())

    async def picture(self) -> bytes:
        return await self._page().screenshot(type="jpeg", quality=60, animations="disabled")

    async def close(self) -> None:
        self.fail(_CLOSED)
        await self._context.close()

    def _page(self) -> Page:
        """The tab in front: the newest, unless the agent switched."""
        if self._tab is None or self._tab.is_closed():
            pages = self._context.pages
            if not pages:
                raise InfraError("the page closed its last tab")
            self._tab = pages[-1]
        return self._tab

    async def _at_once(self, work: Coroutine[Any, Any, T]) -> T:
        """For what asks a page that should not be busy. Raises InfraError when it is."""
        try:
            return await asyncio.wait_for(work, self._config.call_timeout)
        except TimeoutError as error:
            raise InfraError(f"no answer in {self._config.call_timeout:g} s") from error

    async def _go_to(self, address: str) -> str | None:
        page = self._page()
        try:
            url = urljoin(page.url, address.strip())
        except ValueError:
            url = address
        if not self._spec.allows(url):
            return self._spec.refusal(url)
        return await navigate.go_to(page, url, self._config.navigation_timeout)

    @contextlib.contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - begun

    def _told_of(self, url: str, failure: str) -> str:
        if not self._spec.allows(url):
            return self._spec.refusal(url)
        return f"{url} did not load: {failure}"

    def _opened(self, page: Page) -> None:
        self._tab = page
        self._tabs += 1
        self._tab_came.set()
        page.on("crash", self._crashed)
        page.on("framenavigated", self._shows)

    def _crashed(self, page: Page) -> None:
        self.fail("the page crashed")

    def _shows(self, frame: Frame) -> None:
        site = _site(frame.url)
        if site:
            self._visited.add(site)

    async def _accept(self, dialog: Dialog) -> None:
        if dialog.type != "beforeunload":
            self._said.append(f"the page said: {dialog.message}")
        try:
            await dialog.accept(dialog.default_value)
        except PlaywrightTimeout:
            self.fail("a dialog could not be closed")
        except PlaywrightError:
            return  # its page is gone, and the dialog with it


async def _tab_line(index: int, page: Page, front: bool) -> str:
    title = "" if page.url.startswith(dom_walk.NO_PAGE) else await page.title()
    return f"[tab {index}{', open' if front else ''}] {title}".rstrip()


def _site(url: str) -> str | None:
    """The scheme://host:port of an http address; None for any other."""
    origin = origin_of(url)
    return origin and f"{urlsplit(url).scheme}://{origin}"


def isolation(origins: Sequence[str]) -> dict[str, Any]:
    """Options of a Playwright context that reaches the origins, and nothing else."""
    return {
        "proxy": {"server": _NOWHERE, "bypass": ",".join(("<-loopback>", *origins))},
        "accept_downloads": False,
        "service_workers": "block",
    }


def origin_of(url: str) -> str | None:
    """The host:port of an http address; None for any other."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            return None
        return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"
    except ValueError:  # a port or an IPv6 host that cannot be
        return None


def checked_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """Raises ValueError for what is not "host:port"."""
    for origin in origins:
        host, _, port = origin.rpartition(":")
        if not host or not port.isdecimal() or "/" in origin or "," in origin:
            raise ValueError(f"origin {origin!r} must read host:port or .domain:port")
    return tuple(origins)
