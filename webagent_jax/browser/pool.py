"""Browser pool for many threads: Chromium processes with a loop thread each, contexts on demand."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from webagent_jax.browser import chromium
from webagent_jax.browser.context import ContextSpec, checked_origins
from webagent_jax.browser.launchers import BrowserLauncher, LocalLauncher, RemoteLauncher
from webagent_jax.browser.session import Session
from webagent_jax.browser.worker import BrowserWorker
from webagent_jax.browser.worker_process import WorkerProcess
from webagent_jax.config import BrowserConfig
from webagent_jax.types import InfraError


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Counts since the pool was opened."""

    contexts_opened: int  # fresh contexts
    contexts_reused: int  # cleared contexts that another episode reused
    contexts_live: int  # contexts in use now
    launches: int  # Chromium launches
    crashes: int  # unexpected exits of Chromium or of the process of a worker
    recycles: int  # Chromium processes replaced for their age or memory


class BrowserPool:
    """Pool of Chromium processes that opens isolated sessions. All methods are thread-safe."""

    def __init__(
        self, config: BrowserConfig, executable: str | None = None, *, headless: bool = True
    ):
        """Start the threads of the pool.

        Args:
            config: browser settings.
            executable: path of a Chromium; None for that of the config, or else of the machine.
            headless: whether the processes on this machine run without windows.

        Raises:
            chromium.ChromiumMissingError: there is no Chromium, or none at
                `config.executable_path`.
        """
        self._config = config
        sandbox = config.chromium_sandbox
        launchers: list[BrowserLauncher] = [
            RemoteLauncher(endpoint, executable or config.executable_path, sandbox=sandbox)
            for endpoint in config.ws_endpoints
        ] or [
            LocalLauncher(
                executable or chromium.find_executable(config.executable_path, headless=headless),
                sandbox=sandbox,
                headless=headless,
            )
        ]
        # Every endpoint gets at least one worker.
        count = max(config.num_processes, len(launchers))
        worker_class = WorkerProcess if config.worker_type == "process" else BrowserWorker
        self._workers = [
            worker_class(config, launchers[i % len(launchers)], f"browser-{i}")
            for i in range(count)
        ]
        self._num_sessions = [0] * count  # open sessions by worker
        self._lock = threading.Lock()
        self._closed = False

    def session(
        self,
        *,
        origins: Sequence[str],
        init_script: str = "",
        storage_state: str | None = None,
        viewport: tuple[int, int] | None = None,
        reuse: bool = False,
        log_network: bool = False,
    ) -> Session:
        """Open a context that reaches `origins` and nothing else.

        Args:
            origins: "host:port", or ".domain:port" for every subdomain.
            init_script: JavaScript that runs before the scripts of every page.
            storage_state: path of a Playwright storage state, such as that of a signed-in user.
            viewport: width and height in CSS pixels; None for those of the config.
            reuse: whether a context of an earlier session with the same settings may be used after
                its state is cleared (context_pool.py), so that the first page loads faster.
                `browser.reuse_contexts=False` overrides it.
            log_network: whether to log the requests, for `Session.network_log`.

        Raises:
            InfraError: Chromium does not open a context.
            ConfigError: an origin is malformed.
            ValueError: `reuse` is combined with `storage_state`.
        """
        if reuse and storage_state:
            raise ValueError(
                "reuse cannot be combined with storage_state: contexts are cleared for reuse"
            )
        spec = ContextSpec(
            origins=checked_origins(origins),
            init_script=init_script,
            storage_state=storage_state,
            viewport=viewport or (self._config.viewport_width, self._config.viewport_height),
            is_reusable=reuse and self._config.reuse_contexts,
            logs_network=log_network,
        )
        # Counted before the context opens, so that concurrent calls spread over the workers.
        index = self._reserve()
        worker = self._workers[index]
        try:
            if isinstance(worker, WorkerProcess):
                return worker.open_session(spec, lambda: self._release(index))
            return Session.open(worker, spec, self._config, lambda: self._release(index))
        except BaseException:
            self._release(index)
            raise

    def stats(self) -> PoolStats:
        """Return the counts since the pool was opened."""
        stats = [worker.stats() for worker in self._workers]
        return PoolStats(
            contexts_opened=sum(s.contexts_opened for s in stats),
            contexts_reused=sum(s.contexts_reused for s in stats),
            contexts_live=sum(self._num_sessions),
            launches=sum(s.launches for s in stats),
            crashes=sum(s.crashes for s in stats),
            recycles=sum(s.recycles for s in stats),
        )

    def close(self) -> None:
        """Close all Chromium processes and threads; open sessions raise InfraError. Idempotent."""
        with self._lock:
            # Set before the workers close, so that no session starts on a closing worker.
            self._closed = True
        # At the same time, because a frozen worker ends only at its time limit.
        with ThreadPoolExecutor(len(self._workers)) as threads:
            list(threads.map(lambda worker: worker.close(), self._workers))

    def __enter__(self) -> BrowserPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reserve(self) -> int:
        """Count a session on the worker with the fewest sessions; return the worker's index."""
        with self._lock:
            if self._closed:
                raise InfraError("the browser pool is closed")
            index = min(range(len(self._num_sessions)), key=self._num_sessions.__getitem__)
            self._num_sessions[index] += 1
            return index

    def _release(self, index: int) -> None:
        with self._lock:
            self._num_sessions[index] -= 1
