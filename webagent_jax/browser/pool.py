"""Browsers for many host threads: Chromium processes, a loop thread each, contexts on demand."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from webagent_jax.browser import chromium
from webagent_jax.browser.context import ContextSpec, checked_origins
from webagent_jax.browser.launchers import Machine, RemoteMachine, ThisMachine
from webagent_jax.browser.session import Session
from webagent_jax.browser.worker import Worker
from webagent_jax.config import BrowserConfig
from webagent_jax.types import InfraError


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Counts since the pool was opened."""

    contexts_opened: int  # fresh ones
    contexts_reused: int  # wiped ones, for another episode
    contexts_live: int
    actions: int
    launches: int  # of Chromium
    crashes: int  # Chromium ended unasked
    recycled: int  # Chromium replaced for its age or size


class BrowserPool:
    """Opens isolated sessions. Every method may be called from any thread."""

    def __init__(self, config: BrowserConfig, executable: str | None = None):
        """`executable` is the path of a Chromium; None takes the config's, then the machine's.

        Raises chromium.ChromiumMissing.
        """
        self._config = config
        path = executable or config.executable
        sandbox = config.sandbox
        machines: list[Machine] = [
            RemoteMachine(at, path, sandbox=sandbox) for at in config.endpoints
        ] or [ThisMachine(path or chromium.find(), sandbox=sandbox)]
        count = max(config.processes, len(machines))
        self._workers = [
            Worker(config, machines[i % len(machines)], f"browser-{i}") for i in range(count)
        ]
        self._live = [0] * count
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
    ) -> Session:
        """A fresh context that reaches `origins` ("host:port", ".domain:port") and nothing else.

        `init_script` runs before the scripts of every page; `storage_state` is the path of a
        signed-in browser state; `viewport` is in CSS pixels. With `reuse` the context may be one
        that served a session like this before and was wiped (reuse.py), which starts a page in
        half the time; `browser.reuse_contexts` may forbid it. Raises InfraError, and ValueError
        for a malformed origin.
        """
        if reuse and storage_state:
            raise ValueError("a context that begins signed in cannot serve again: it is wiped")
        spec = ContextSpec(
            origins=checked_origins(origins),
            init_script=init_script,
            storage_state=storage_state,
            viewport=viewport or (self._config.viewport_width, self._config.viewport_height),
            again=reuse and self._config.reuse_contexts,
        )
        index = self._reserve()
        worker = self._workers[index]
        try:
            host, context = worker.open(spec)
        except BaseException:
            self._free(index)
            raise
        return Session(
            worker,
            host,
            context,
            config=self._config,
            on_close=lambda: self._free(index),
        )

    def stats(self) -> PoolStats:
        return PoolStats(
            contexts_opened=sum(w.opened for w in self._workers),
            contexts_reused=sum(w.reused for w in self._workers),
            contexts_live=sum(self._live),
            actions=sum(w.actions for w in self._workers),
            launches=sum(w.launches for w in self._workers),
            crashes=sum(w.crashes for w in self._workers),
            recycled=sum(w.recycled for w in self._workers),
        )

    def close(self) -> None:
        """Ends every session with an InfraError, every Chromium and every thread. Twice is once."""
        with self._lock:
            self._closed = True
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> BrowserPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reserve(self) -> int:
        """The worker with the fewest sessions."""
        with self._lock:
            if self._closed:
                raise InfraError("the browser pool is closed")
            index = min(range(len(self._live)), key=self._live.__getitem__)
            self._live[index] += 1
            return index

    def _free(self, index: int) -> None:
        with self._lock:
            self._live[index] -= 1
