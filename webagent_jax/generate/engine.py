"""The sampling engine: many threads ask, one thread runs the device.

Continuous batching (Yu et al., OSDI 2022): requests are decoded together in a fixed number of
slots; a slot whose request is finished is refilled from the queue while the others go on. A
completion depends on its prompt, seed and params, never on the company it was sampled in.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import jax
import numpy as np

from webagent_jax.generate import cache as kv
from webagent_jax.generate import device
from webagent_jax.generate.device import Emitted, SlotState
from webagent_jax.generate.programs import Programs, Progress
from webagent_jax.generate.requests import Request
from webagent_jax.policy import ModelConfig
from webagent_jax.policy.transformer import Params
from webagent_jax.types import Completion, IntArray

_LOOK_ABOUT = 1.0  # seconds an idle engine sleeps at most before it looks at its queue
_CLOSE_TIMEOUT = 60.0  # seconds for the dispatch or the compilation in progress


class EngineError(RuntimeError):
    """The engine is closed or has failed, and can sample nothing any more."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counted since the engine was made."""

    requests: int = 0  # admitted to a slot
    prompt_tokens: int = 0  # of those requests
    sampled_tokens: int = 0
    dispatches: int = 0  # of decode steps
    decode_steps: int = 0
    occupancy: float = 0.0  # mean busy share of the slots over all decode steps
    queued: int = 0  # waiting for a slot now
    compiled: int = 0  # programs


@dataclass(frozen=True, slots=True)
class _Update:
    """Marks where in the queue the params change."""

    params: Params
    version: int


class Engine:
    """Samples completions for any number of threads. Owns a thread: use `with`, or `close` it."""

    def __init__(
        self,
        config: ModelConfig,
        params: Params,
        *,
        slots: int = 16,
        max_tokens: int = 2048,
        seed: int = 0,
        version: int = 0,
        steps_per_dispatch: int = 8,
    ) -> None:
        """
        Args:
            params: as of `policy.init`; copied, so that the caller may donate or change them.
            slots: sequences decoded together.
            max_tokens: prompt and reply of one sequence together.
            seed: of the requests that bring none of their own.
            version: of `params`, reported with each token.
            steps_per_dispatch: decode steps between two looks at the results.

        Raises:
            ValueError: a limit is too small, or `max_tokens` is beyond the model's positions.
        """
        if slots < 1 or steps_per_dispatch < 1 or max_tokens < 2:
            raise ValueError("slots and steps_per_dispatch must be 1 or more, max_tokens 2 or more")
        if max_tokens > config.max_positions:
            raise ValueError(
                f"max_tokens={max_tokens} is beyond the model's {config.max_positions} positions"
            )
        self._config, self._max_tokens, self._steps = config, max_tokens, steps_per_dispatch
        self._copy = jax.jit(partial(device.serving_params, config))
        self._device = jax.local_devices()[0]
        self._shapes = _shapes(params)
        self._params, self._version = self._serving(params), version
        self._programs = Programs(
            config, self._params, slots=slots, max_tokens=max_tokens, steps=steps_per_dispatch
        )
        self._seeds = np.random.default_rng(seed)
        self._slots: list[Request | None] = [None] * slots  # touched by the thread alone
        self._queue: deque[Request | _Update] = deque()
        self._changed = threading.Condition()  # guards all that follows, and the queue
        self._closing = False
        self._error: EngineError | None = None
        self._stats = EngineStats()
        self._thread = threading.Thread(target=self._run, name="sampling-engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        prompt_ids: Sequence[int] | IntArray,
        *,
        max_new_tokens: int = 64,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop_ids: Sequence[int] = (),
    ) -> Future[Completion]:
        """Asks for a continuation; returns at once.

        The reply ends with the first of `stop_ids` (finish "stop"), or after `max_new_tokens` or
        when prompt and reply fill `max_tokens` (finish "length"). Token n is drawn with the key
        `fold_in(key(seed), n)`; without a seed one is taken from the engine's own sequence, by
        order of submission. Cancelling the future frees its slot after the dispatch in progress.
        Callbacks of the future run on the engine's thread, so they should be short.

        Raises:
            ValueError: an option is out of range, or the prompt leaves no room for a reply.
            EngineError: the engine is closed or has failed. A request that was accepted before
                gets the same from its future.
        """
        with self._changed:
            drawn = int(self._seeds.integers(2**63)) if seed is None else seed
        request = Request(
            np.array(prompt_ids), max_new_tokens, temperature, top_p, drawn, tuple(stop_ids)
        )
        request.fit(self._config.vocab_size, self._max_tokens)
        self._enqueue(request)
        return request.future

    def update(self, params: Params, *, version: int) -> None:
        """Switches to other params, between requests; returns at once.

        Requests submitted before are finished under the old params, those submitted after wait
        until that is done and run under the new: every completion is sampled by one version.
        The params are copied before this returns.

        Raises:
            ValueError: the params are not of the shapes that the engine was made with.
            EngineError: the engine is closed or has failed.
        """
        if _shapes(params) != self._shapes:
            raise ValueError("params differ in structure, shape or dtype from those of the engine")
        self._enqueue(_Update(self._serving(params), version))

    def stats(self) -> EngineStats:
        with self._changed:
            queued = sum(isinstance(item, Request) for item in self._queue)
            return replace(self._stats, queued=queued, compiled=self._programs.count)

    def warmup(self, progress: Progress | None = None) -> None:
        """Compiles every program there can be, so that no request has to wait for one.

        Args:
            progress: called with (programs done, programs in all) before the first and after each.
        """
        self._programs.warmup(progress)

    def close(self) -> None:
        """Ends the thread; requests that are not finished fail with EngineError. Idempotent.

        Raises:
            TimeoutError: the device did not come back from what it was doing.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_TIMEOUT)
            if self._thread.is_alive():
                raise TimeoutError(f"the device is still busy after {_CLOSE_TIMEOUT:.0f} s")

    def _serving(self, params: Params) -> Params:
        return jax.device_put(self._copy(params), self._device)

    def _enqueue(self, item: Request | _Update) -> None:
        with self._changed:
            if self._error or self._closing:
                raise self._error or EngineError("the sampling engine is closed")
            self._queue.append(item)
            self._changed.notify_all()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        error = EngineError("the sampling engine was closed before the request was finished")
        try:
            state = device.init_state(self._config, self._programs.cache_rungs[0], len(self._slots))
            while self._wait_for_work():
                state = self._dispatch(self._admit(state))
        except Exception as cause:  # the device, or memory: whatever it was, nobody may hang
            error = EngineError(f"the sampling engine failed: {cause!r}")
            error.__cause__ = cause
        with self._changed:
            self._error = error
            left = [item for item in (*self._slots, *self._queue) if isinstance(item, Request)]
            self._queue.clear()
        for request in left:
            request.fail(error)

    def _wait_for_work(self) -> bool:
        """Blocks until there is something to do; False when the engine is being closed."""
        with self._changed:
            while not (self._closing or self._queue or any(self._slots)):
                self._changed.wait(_LOOK_ABOUT)
            return not self._closing

    def _admit(self, state: SlotState) -> SlotState:
        """Puts waiting requests into free slots, in order of submission."""
        while (item := self._next()) is not None:
            if isinstance(item, _Update):
                self._params, self._version = item.params, item.version
                continue
            slot = self._slots.index(None)
            self._slots[slot] = item
            state = self._fit(state)
            sequence = self._programs.prefill(self._params, self._padded(item.prompt_ids[:-1]))
            state = self._programs.admit(state, sequence, item.admission(slot))
        return state

    def _next(self) -> Request | _Update | None:
        """The head of the queue, taken off it, when its turn has come."""
        with self._changed:
            while self._queue:
                head = self._queue[0]
                if isinstance(head, _Update):
                    return None if any(self._slots) else self._queue.popleft()
                if None not in self._slots:
                    return None
                self._queue.popleft()
                if not head.future.cancelled():
                    self._count(requests=1, prompt_tokens=len(head.prompt_ids))
                    return head
            return None

    def _padded(self, tokens: IntArray) -> IntArray:
        rung = next(n for n in self._programs.prompt_rungs if n * kv.PAGE >= len(tokens))
        return np.pad(tokens.astype(np.int32), (0, rung * kv.PAGE - len(tokens)))

    def _fit(self, state: SlotState) -> SlotState:
        """`state` with pages for one more dispatch of all that run, and not many more."""
        ladder = self._programs.cache_rungs
        longest = max(request.length for request in self._slots if request)
        tokens = min(longest - 1 + self._steps, self._max_tokens)
        wanted = next(rung for rung in ladder if rung * kv.PAGE >= tokens)
        here = len(state.cache[0].keys)
        # One rung of slack keeps a batch around a border from being copied to and fro.
        slack = ladder[min(ladder.index(wanted) + 1, len(ladder) - 1)]
        return state if wanted <= here <= slack else self._programs.resize(state, wanted)

    def _dispatch(self, state: SlotState) -> SlotState:
        """Runs some decode steps, and hands out what they finished."""
        for slot, request in enumerate(self._slots):
            if request and request.future.cancelled():
                self._slots[slot] = None
        if not any(self._slots):
            return state
        with self._changed:
            waiting = bool(self._queue)
        busy = np.array([*(request is not None for request in self._slots), waiting])
        state, emitted = self._programs.decode(self._params, self._fit(state), busy)
        self._hand_out(jax.device_get(emitted))
        return state

    def _hand_out(self, emitted: Emitted) -> None:
        with self._changed:
            self._count(
                dispatches=1,
                decode_steps=int(emitted.steps),
                sampled_tokens=int(emitted.counts.sum()),
            )
        tokens, logp = np.asarray(emitted.tokens), np.asarray(emitted.logp)
        for slot, request in enumerate(self._slots):
            if request:
                new = slice(int(emitted.counts[slot]))
                request.take(tokens[new, slot], logp[new, slot])
                if emitted.finished[slot]:
                    self._slots[slot] = None
                    request.complete(self._version)

    def _count(self, **more: int) -> None:
        """Adds to the counters. The caller holds the lock."""
        old = self._stats
        stats = replace(old, **{name: getattr(old, name) + n for name, n in more.items()})
        slot_steps = max(1, stats.decode_steps * len(self._slots))
        self._stats = replace(stats, occupancy=stats.sampled_tokens / slot_steps)


def _shapes(params: Params) -> Any:
    return jax.tree.map(lambda x: (x.shape, str(x.dtype)), params)
