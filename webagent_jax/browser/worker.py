"""Chromium processes and the threads that drive them.

A worker is one thread with one asyncio loop, one Playwright driver and one Chromium at a time. A
Chromium that dies is replaced when the next context is asked for; one that has served long enough
is drained: new contexts go to its successor, and it is closed with its last context.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from playwright.async_api import Browser, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from webagent_jax import cpu_priority
from webagent_jax.browser import process_memory
from webagent_jax.browser.context import ContextSpec, EpisodeContext
from webagent_jax.browser.context_pool import Shelf
from webagent_jax.browser.launchers import Machine, Started
from webagent_jax.config import BrowserConfig
from webagent_jax.types import InfraError

T = TypeVar("T")

_LAUNCH_TIMEOUT = 30.0  # seconds
_CLOSE_TIMEOUT = 10.0
_SLACK = 2.0  # a thread waits so much longer than the loop does, so that the loop answers first
_MEMORY_EVERY = 20  # contexts between two looks at the resident size
_KEPT = 60.0  # seconds that a wiped context, an empty page, waits for its next episode
_GUARD_EVERY = 2.0  # seconds between two looks for a page that takes all the memory there is


class Chromium:
    """One running browser process, and who is in it."""

    def __init__(self, browser: Browser, pid: int | None):
        self.browser = browser
        self.pid = pid
        self.opened = 0  # contexts so far
        self.opening = 0  # contexts asked for and not there yet
        self.contexts: set[EpisodeContext] = set()
        self.retired = False

    @property
    def idle(self) -> bool:
        return not self.contexts and not self.opening


_Place = tuple[Chromium, EpisodeContext]


class Worker:
    """The public methods that are not coroutines may be called from any thread."""

    def __init__(self, config: BrowserConfig, machine: Machine, name: str):
        self._config = config
        self._machine = machine
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._lock = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._current: Chromium | None = None
        self._all: set[Chromium] = set()
        self._chores: set[asyncio.Task[Any]] = set()
        self._shelf = Shelf[_Place](_KEPT, lambda place: self._chore(self._leave(*place)))
        self._guard: asyncio.Task[None] | None = None
        self.opened = self.reused = self.actions = self.launches = self.crashes = self.recycled = 0
        self._thread.start()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        """The result of `work()`, run on the loop. Raises InfraError after `timeout` seconds."""

        async def bounded() -> T:
            return await asyncio.wait_for(work(), timeout + 1)

        if not self._thread.is_alive():
            raise InfraError("the browser pool is closed")
        future = asyncio.run_coroutine_threadsafe(bounded(), self._loop)
        try:
            return future.result(timeout + _SLACK)
        except (TimeoutError, concurrent.futures.CancelledError) as error:
            future.cancel()
            raise InfraError(f"the browser did not answer in {timeout:g} s") from error

    def open(self, spec: ContextSpec) -> _Place:
        """A fresh or wiped context in a Chromium that works. Raises InfraError."""
        return self.run(lambda: self._open(spec), _LAUNCH_TIMEOUT + self._config.navigation_timeout)

    def release(self, host: Chromium, context: EpisodeContext) -> None:
        """Closes a context or keeps it for another episode, without waiting for it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the context with it
            self._loop.call_soon_threadsafe(self._let_go, host, context)

    def close(self) -> None:
        """Ends Chromium, driver and thread. Bounded in time, never raises for a dead browser."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(InfraError):
            self.run(self._shut_down, 3 * _CLOSE_TIMEOUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT)
        for pid in [c.pid for c in self._all if c.pid is not None]:
            process_memory.kill(pid)
        self._loop.close()

    def _serve(self) -> None:
        cpu_priority.give_way()
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _chore(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task

    async def _open(self, spec: ContextSpec) -> _Place:
        return await self._kept(spec) or await self._fresh(spec)

    async def _kept(self, spec: ContextSpec) -> _Place | None:
        while place := await self._shelf.take(spec):
            host, context = place
            if host is self._current and not context.failed and not self._worn_out(host):
                host.opened += 1
                self.reused += 1
                return place
            self._chore(self._leave(host, context))
        return None

    async def _fresh(self, spec: ContextSpec) -> _Place:
        for last_try in (False, True):
            async with self._lock:
                host = await self._host()
                host.opened += 1
                host.opening += 1  # from here on it may be retired, but not ended
            try:
                context = await EpisodeContext.open(host.browser, spec, self._config)
                host.contexts.add(context)
            except PlaywrightError as error:
                if last_try or host.browser.is_connected():
                    raise InfraError(f"no browser context: {error.message}") from error
                continue
            finally:
                host.opening -= 1
                self._end_if_done(host)
            self.opened += 1
            return host, context
        raise AssertionError("unreachable")

    async def _host(self) -> Chromium:
        """The Chromium for the next context, launched if need be."""
        host = self._current
        if host and host.browser.is_connected() and not self._worn_out(host):
            return host
        if host:
            self.recycled += host.browser.is_connected()
            self._retire(host)
        self._current = await self._launch()
        return self._current

    def _worn_out(self, host: Chromium) -> bool:
        if host.opened >= self._config.episodes_per_process:
            return True
        if host.pid is None or host.opened % _MEMORY_EVERY != _MEMORY_EVERY - 1:
            return False
        return process_memory.resident_mb(host.pid) > self._config.max_rss_mb

    async def _launch(self) -> Chromium:
        try:
            started = await self._start()
        except PlaywrightError:
            await self._stop_driver()  # it may have died: a new one gets the second try
            try:
                started = await self._start()
            except PlaywrightError as error:
                raise InfraError(f"Chromium does not start: {error.message}") from error
        self.launches += 1
        if self._guard is None:
            self._guard = self._loop.create_task(self._end_greedy_pages())
        host = Chromium(started.browser, started.pid)
        self._all.add(host)
        started.browser.on("disconnected", lambda _: self._gone(host))
        return host

    async def _start(self) -> Started:
        if self._playwright is None:
            self._playwright = await async_playwright().start()
        return await self._machine.start(self._playwright.chromium, _LAUNCH_TIMEOUT)

    def _gone(self, host: Chromium) -> None:
        """Chromium has ended: on purpose when it was retired, else by a crash."""
        self._all.discard(host)
        if not host.retired:
            self.crashes += 1
        for context in host.contexts:
            context.fail("Chromium crashed or was killed")

    def _retire(self, host: Chromium) -> None:
        host.retired = True
        self._end_if_done(host)

    def _end_if_done(self, host: Chromium) -> None:
        if host.retired and host.idle and host in self._all:
            self._chore(self._end(host))

    def _let_go(self, host: Chromium, context: EpisodeContext) -> None:
        if context.spec.again and not host.retired:
            self._shelf.put(context.spec, self._chore(self._wiped(host, context)))
        else:
            self._chore(self._leave(host, context))

    async def _wiped(self, host: Chromium, context: EpisodeContext) -> _Place | None:
        renewed = None
        with contextlib.suppress(PlaywrightError, TimeoutError):
            renewed = await asyncio.wait_for(context.wiped(), _CLOSE_TIMEOUT)
        if renewed is None:
            await self._leave(host, context)
            return None
        host.contexts.remove(context)
        host.contexts.add(renewed)
        return host, renewed

    async def _leave(self, host: Chromium, context: EpisodeContext) -> None:
        try:
            await asyncio.wait_for(context.close(), _CLOSE_TIMEOUT)
        except TimeoutError:
            host.opened = self._config.episodes_per_process  # it is stuck: let it be replaced
        except PlaywrightError:
            pass  # gone already, with its process
        host.contexts.discard(context)
        self._end_if_done(host)

    async def _end(self, host: Chromium) -> None:
        host.retired = True
        with contextlib.suppress(PlaywrightError, TimeoutError):
            await asyncio.wait_for(host.browser.close(), _CLOSE_TIMEOUT)
        if host.pid is not None:
            process_memory.kill(host.pid)
        self._all.discard(host)

    async def _end_greedy_pages(self) -> None:
        while True:
            await asyncio.sleep(_GUARD_EVERY)
            for host in list(self._all):
                if host.pid is not None:
                    process_memory.end_pages_above(self._config.max_rss_mb, host.pid)

    async def _stop_driver(self) -> None:
        driver, self._playwright = self._playwright, None
        if driver:
            with contextlib.suppress(Exception):  # a driver that is dead cannot be stopped
                await asyncio.wait_for(driver.stop(), _CLOSE_TIMEOUT)

    async def _shut_down(self) -> None:
        for host in list(self._all):
            for context in host.contexts:
                context.fail("the browser pool is closed")
        if self._guard:
            self._guard.cancel()
        await asyncio.gather(*(self._end(host) for host in list(self._all)))
        if self._chores:
            await asyncio.wait(self._chores, timeout=_CLOSE_TIMEOUT)
        await self._stop_driver()
