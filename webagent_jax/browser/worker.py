"""Worker threads that drive Chromium processes.

A worker has one thread with one asyncio loop, one Playwright driver and one current Chromium. The
next context after a crash starts a new Chromium. A Chromium that reaches its limits is drained: new
contexts open in its successor, and it is closed with its last context.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

from playwright.async_api import Browser, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from webagent_jax import cpu_priority
from webagent_jax.browser import process_memory
from webagent_jax.browser.context import ContextSpec, EpisodeContext
from webagent_jax.browser.context_pool import ContextPool
from webagent_jax.browser.launchers import BrowserLauncher, LaunchedBrowser
from webagent_jax.config import BrowserConfig
from webagent_jax.types import InfraError

T = TypeVar("T")

_LAUNCH_TIMEOUT = 30.0  # seconds to start a Chromium, or to open a context
_CLOSE_TIMEOUT = 10.0  # seconds
_SLACK_SECONDS = 2.0  # extra wait of a thread, so that the loop times out first
_CONTEXTS_PER_RSS_CHECK = 20
_POOLED_SECONDS = 60.0  # time that a cleared context, an empty page, stays in the pool
_GUARD_INTERVAL_SECONDS = 2.0  # time between checks for renderers that exceed the memory limit
# Longest time in seconds to open a context. It has two tries, and two launches with a stop of the
# driver between them: a canceled launch could leave a Chromium process that is never closed.
OPEN_TIMEOUT = 4 * (_LAUNCH_TIMEOUT + _SLACK_SECONDS) + _CLOSE_TIMEOUT
STOP_TIMEOUT = 4 * _CLOSE_TIMEOUT  # longest time in seconds of BrowserWorker.close


@dataclass(frozen=True)
class WorkerStats:
    """Counts of a worker since its start."""

    contexts_opened: int = 0  # fresh contexts
    contexts_reused: int = 0  # cleared contexts that another episode reused
    launches: int = 0  # Chromium launches
    crashes: int = 0  # unexpected exits of Chromium or of the process of the worker
    recycles: int = 0  # Chromium processes replaced for their age or memory

    def __add__(self, other: WorkerStats) -> WorkerStats:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return WorkerStats(*(mine + others for mine, others in pairs))


class ChromiumProcess:
    """Running Chromium process and its contexts."""

    def __init__(self, browser: Browser, pid: int | None):
        self.browser = browser
        self.pid = pid
        self.num_opened_contexts = 0  # contexts opened in total
        self.num_opening_contexts = 0  # contexts that are being opened
        self.contexts: set[EpisodeContext] = set()
        self.is_retired = False  # whether it closes with its last context

    @property
    def is_idle(self) -> bool:
        """True if no context is open or being opened."""
        return not self.contexts and not self.num_opening_contexts


_ContextHandle = tuple[ChromiumProcess, EpisodeContext]


class BrowserWorker:
    """Thread that drives one Chromium at a time; its public methods are thread-safe."""

    def __init__(self, config: BrowserConfig, launcher: BrowserLauncher, name: str):
        self._config = config
        self._launcher = launcher
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        # Held while a Chromium is selected or launched, so that concurrent calls launch only one.
        self._lock = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._driver_pid: int | None = None  # process of `_playwright`
        self._current: ChromiumProcess | None = None
        self._browsers: set[ChromiumProcess] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._context_pool = ContextPool[_ContextHandle](
            _POOLED_SECONDS, lambda handle: self._start_task(self._close_context(*handle))
        )
        self._memory_guard: asyncio.Task[None] | None = None
        self.contexts_opened = self.contexts_reused = 0
        self.launches = self.crashes = self.recycles = 0
        self._thread.start()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        """Run a coroutine on the loop and return its result.

        Args:
            work: creates the coroutine.
            timeout: seconds to wait at most.

        Raises:
            InfraError: the timeout has passed, or the pool is closed.
        """

        # The limits grow outwards (the work's own, the loop's, the thread's), so that the innermost
        # one passes first: its message is the most specific.
        async def bounded() -> T:
            return await asyncio.wait_for(work(), timeout + 1)

        if not self._thread.is_alive():
            raise InfraError("the browser pool is closed")
        future = asyncio.run_coroutine_threadsafe(bounded(), self._loop)
        try:
            return future.result(timeout + _SLACK_SECONDS)
        except (TimeoutError, concurrent.futures.CancelledError) as error:
            future.cancel()
            raise InfraError(f"the browser did not respond in {timeout:g} s") from error

    def open(self, spec: ContextSpec) -> _ContextHandle:
        """Return a fresh or cleared context and its Chromium.

        Raises:
            InfraError: Chromium does not start or does not open a context.
        """
        return self.run(lambda: self._open(spec), OPEN_TIMEOUT)

    def release(self, chromium: ChromiumProcess, context: EpisodeContext) -> None:
        """Close a context or put it into the pool, without waiting for it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the context
            self._loop.call_soon_threadsafe(self._recycle_or_close, chromium, context)

    def stats(self) -> WorkerStats:
        """Return the counts since the start."""
        return WorkerStats(
            contexts_opened=self.contexts_opened,
            contexts_reused=self.contexts_reused,
            launches=self.launches,
            crashes=self.crashes,
            recycles=self.recycles,
        )

    def close(self) -> None:
        """Stop Chromium, driver and thread in bounded time; ignore errors of a dead browser."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(InfraError):
            self.run(self._shut_down, 3 * _CLOSE_TIMEOUT)
        # The loop stops from its own thread; it may be closed only after the thread has ended.
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT)
        for pid in [c.pid for c in self._browsers if c.pid is not None]:
            process_memory.kill(pid)
        self._loop.close()

    def _run_loop(self) -> None:
        cpu_priority.lower_priority()
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _start_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        # The loop refers to tasks weakly; the set keeps them alive.
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open(self, spec: ContextSpec) -> _ContextHandle:
        return await self._take_pooled(spec) or await self._new_context(spec)

    async def _take_pooled(self, spec: ContextSpec) -> _ContextHandle | None:
        while handle := await self._context_pool.take(spec):
            chromium, context = handle
            # A context of a retired Chromium would delay its shutdown.
            if (
                chromium is self._current
                and not context.has_failed
                and not self._has_reached_limits(chromium)
            ):
                chromium.num_opened_contexts += 1
                # A reuse counts as an episode of the process, whose episodes are limited.
                self.contexts_reused += 1
                return handle
            self._start_task(self._close_context(chromium, context))
        return None

    async def _new_context(self, spec: ContextSpec) -> _ContextHandle:
        # A dead Chromium may be noticed only here; the second try launches a new one.
        for is_last_try in (False, True):
            async with self._lock:
                chromium = await self._get_chromium()
                chromium.num_opened_contexts += 1
                # From now on it may be retired but not stopped.
                chromium.num_opening_contexts += 1
            try:
                opening = EpisodeContext.open(chromium.browser, spec, self._config)
                context = await self._within(_LAUNCH_TIMEOUT, opening)
                chromium.contexts.add(context)
            except PlaywrightError as error:
                is_connected = chromium.browser.is_connected()
                # An error of a Chromium that still runs would occur again.
                if is_last_try or (is_connected and "closed" not in error.message):
                    raise InfraError(f"no browser context: {error.message}") from error
                # A killed driver leaves `is_connected` true and reports a closed target. A frozen
                # driver or Chromium leaves it true as well (`_within`).
                if is_connected and chromium is self._current:
                    self.crashes += 1
                    self._current = None
                    self._retire(chromium)
                continue
            finally:
                chromium.num_opening_contexts -= 1
                self._stop_if_idle(chromium)
            self.contexts_opened += 1
            return chromium, context
        raise AssertionError("unreachable")

    async def _get_chromium(self) -> ChromiumProcess:
        """Return the Chromium for the next context, launched if necessary."""
        chromium = self._current
        if chromium and chromium.browser.is_connected() and not self._has_reached_limits(chromium):
            return chromium
        if chromium:
            # A Chromium that is no longer connected crashed, and `_on_disconnected` has counted it.
            self.recycles += chromium.browser.is_connected()
            self._retire(chromium)
        self._current = await self._launch_chromium()
        return self._current

    def _has_reached_limits(self, chromium: ChromiumProcess) -> bool:
        if chromium.num_opened_contexts >= self._config.max_episodes_per_process:
            return True
        if (
            # The memory is read for one of 20 contexts, because that reads /proc of all processes.
            chromium.pid is None
            or chromium.num_opened_contexts % _CONTEXTS_PER_RSS_CHECK != _CONTEXTS_PER_RSS_CHECK - 1
        ):
            return False
        return process_memory.tree_rss_mib(chromium.pid) > self._config.max_rss_mib

    async def _launch_chromium(self) -> ChromiumProcess:
        try:
            launched = await self._start_browser()
        except PlaywrightError:
            await self._stop_driver()  # it may have crashed, so the second try uses a new one
            try:
                launched = await self._start_browser()
            except PlaywrightError as error:
                raise InfraError(f"Chromium does not start: {error.message}") from error
        self.launches += 1
        if launched.pid is not None:
            self._driver_pid = process_memory.find_driver(launched.pid)
        if self._memory_guard is None:
            self._memory_guard = self._loop.create_task(self._kill_large_renderers())
        chromium = ChromiumProcess(launched.browser, launched.pid)
        self._browsers.add(chromium)
        launched.browser.on("disconnected", lambda _: self._on_disconnected(chromium))
        return chromium

    async def _start_browser(self) -> LaunchedBrowser:
        if self._playwright is None:
            self._playwright = await async_playwright().start()
        # The driver ends a launch after its timeout; only a frozen driver does not.
        starting = self._launcher.start(self._playwright.chromium, _LAUNCH_TIMEOUT)
        return await self._within(_LAUNCH_TIMEOUT + _SLACK_SECONDS, starting)

    async def _within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`.

        Raises:
            PlaywrightError: it takes longer than `seconds`, because a process is frozen.
        """
        task = self._start_task(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        finally:
            # Not awaited: a call of a frozen process may not end at its cancellation.
            task.cancel()
        if not done:
            raise PlaywrightError(f"closed: no response in {seconds:g} s")
        return task.result()

    def _on_disconnected(self, chromium: ChromiumProcess) -> None:
        """Handle the end of a Chromium, which is a crash unless it was retired."""
        self._browsers.discard(chromium)
        if not chromium.is_retired:
            self.crashes += 1
        for context in chromium.contexts:
            context.fail("Chromium crashed or was killed")

    def _retire(self, chromium: ChromiumProcess) -> None:
        chromium.is_retired = True
        self._stop_if_idle(chromium)

    def _stop_if_idle(self, chromium: ChromiumProcess) -> None:
        if chromium.is_retired and chromium.is_idle and chromium in self._browsers:
            self._start_task(self._stop_chromium(chromium))

    def _recycle_or_close(self, chromium: ChromiumProcess, context: EpisodeContext) -> None:
        if context.spec.is_reusable and not chromium.is_retired:
            # Pooled before it is cleared: the next episode waits for it instead of opening another.
            self._context_pool.put(
                context.spec, self._start_task(self._clear_context(chromium, context))
            )
        else:
            self._start_task(self._close_context(chromium, context))

    async def _clear_context(
        self, chromium: ChromiumProcess, context: EpisodeContext
    ) -> _ContextHandle | None:
        successor = None
        with contextlib.suppress(PlaywrightError, TimeoutError):
            successor = await asyncio.wait_for(context.recycle(), _CLOSE_TIMEOUT)
        if successor is None:
            await self._close_context(chromium, context)
            return None
        # The successor shares the browser context; only one of them may receive faults.
        chromium.contexts.remove(context)
        chromium.contexts.add(successor)
        return chromium, successor

    async def _close_context(self, chromium: ChromiumProcess, context: EpisodeContext) -> None:
        try:
            await asyncio.wait_for(context.close(), _CLOSE_TIMEOUT)
        except TimeoutError:
            # The Chromium hangs; at its limit of episodes it is replaced.
            chromium.num_opened_contexts = self._config.max_episodes_per_process
        except PlaywrightError:
            pass  # its process has ended
        chromium.contexts.discard(context)
        self._stop_if_idle(chromium)

    async def _stop_chromium(self, chromium: ChromiumProcess) -> None:
        chromium.is_retired = True
        with contextlib.suppress(PlaywrightError, TimeoutError):
            await asyncio.wait_for(chromium.browser.close(), _CLOSE_TIMEOUT)
        if chromium.pid is not None:
            # Ends a Chromium that did not close in time.
            process_memory.kill(chromium.pid)
        self._browsers.discard(chromium)

    async def _kill_large_renderers(self) -> None:
        while True:
            await asyncio.sleep(_GUARD_INTERVAL_SECONDS)
            for chromium in list(self._browsers):
                if chromium.pid is not None:
                    process_memory.kill_renderers_above(self._config.max_rss_mib, chromium.pid)

    async def _stop_driver(self) -> None:
        driver, self._playwright = self._playwright, None
        if driver:
            with contextlib.suppress(Exception):  # stopping a dead driver fails
                await self._within(_CLOSE_TIMEOUT, driver.stop())
        if self._driver_pid is not None:
            process_memory.kill(self._driver_pid)  # ends a driver that is frozen
            self._driver_pid = None

    async def _shut_down(self) -> None:
        # 1. End the calls of all sessions, so that no rollout thread waits for its timeout.
        for chromium in list(self._browsers):
            for context in chromium.contexts:
                context.fail("the browser pool is closed")
        if self._memory_guard:
            self._memory_guard.cancel()
        # 2. Stop all Chromium processes. 3. Wait for tasks that close contexts. 4. Stop the driver.
        await asyncio.gather(*(self._stop_chromium(chromium) for chromium in list(self._browsers)))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT)
        await self._stop_driver()
