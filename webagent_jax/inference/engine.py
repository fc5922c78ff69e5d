"""The sampling engine: many threads ask, one thread runs the device.

Continuous batching (Yu et al., OSDI 2022): requests are decoded together in a fixed number of
slots; a slot whose request is finished is refilled from the queue while the others go on. Prompts
that begin alike are computed once (`pages`), and piece by piece, so that nobody's reply waits for
long while another's prompt is read (`scheduler`); what all of them begin with, a decode step reads
once (`cache`). A completion depends on its prompt, seed and params, never on the company it was
sampled in.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self, get_args

import jax
import numpy as np
from jax.sharding import Mesh

from webagent_jax import cpu_priority
from webagent_jax.inference import device_selection, prefill_decode
from webagent_jax.inference import kv_cache as kv
from webagent_jax.inference.engine_shapes import PAGE_TOKENS, Sizes
from webagent_jax.inference.prefill_decode import Emitted, Served, SlotState
from webagent_jax.inference.programs import Build, Programs, Progress, serving_shardings
from webagent_jax.inference.requests import Piece, Request, token_ids
from webagent_jax.inference.scheduler import Running, Scheduler
from webagent_jax.policy import ModelConfig
from webagent_jax.policy.transformer import Params
from webagent_jax.types import Completion, IntArray

_LOOK_ABOUT = 1.0  # seconds an idle engine sleeps at most before it looks at its queue
_PREFILLS_IN_A_ROW = 8  # dispatches, before those who are ready get some decode steps
_CLOSE_TIMEOUT = 60.0  # seconds for the dispatch or the compilation in progress

OnUpdate = Literal["drain", "continue", "recompute"]
"""What becomes of running requests when the params change. They are finished first, under the old
params; or go on under the new ones with the keys and values of the old, but for the preamble's; or
have all of them computed again. The prefix tree is emptied in any case."""


class EngineError(RuntimeError):
    """The engine is closed or has failed, and can sample nothing any more."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counted since the engine was made, or between two looks at it (`since`)."""

    slots: int
    requests: int = 0  # admitted to a slot
    prompt_tokens: int = 0  # of those requests
    prefilled_tokens: int = 0  # computed, the preamble too: the others were in the cache
    sampled_tokens: int = 0
    dispatches: int = 0  # of decode steps
    decode_steps: int = 0
    busy_seconds: float = 0.0  # that its thread had something to do
    queued: int = 0  # waiting for a slot or pages now
    pages_available: int = 0  # now, those of prefixes that nobody uses included
    compiled: int = 0  # programs

    @property
    def occupancy(self) -> float:
        """Mean busy share of the slots over the decode steps."""
        return self.sampled_tokens / max(1, self.decode_steps * self.slots)

    def since(self, earlier: EngineStats) -> EngineStats:
        """What was counted after `earlier`; what holds now stays as it is."""
        counted = (
            "requests prompt_tokens prefilled_tokens sampled_tokens dispatches decode_steps "
            "busy_seconds"
        )
        grown = {n: getattr(self, n) - getattr(earlier, n) for n in counted.split()}
        return replace(self, **grown)


@dataclass(frozen=True, slots=True)
class _Update:
    """The params change: at once, or by "drain" where this stands in the queue."""

    params: Params
    version: int
    running: OnUpdate


@dataclass(frozen=True, slots=True)
class _Release:
    """The memory of the cache is given back."""

    done: threading.Event


@dataclass(frozen=True, slots=True)
class _Dispatch:
    """Decode steps that the device is at, and for whom."""

    emitted: Emitted
    running: tuple[Running, ...]
    version: int


class Engine:
    """Samples completions for any number of threads. Owns a thread: use `with`, or `close` it."""

    def __init__(  # noqa: PLR0913 (all but two are keywords with a default)
        self,
        config: ModelConfig,
        params: Params,
        *,
        slots: int = 16,
        max_tokens: int = 2048,
        seed: int = 0,
        version: int = 0,
        steps_per_dispatch: int = 16,
        dispatches_ahead: int | None = None,
        cache_bytes: int | None = None,
        mesh: Mesh | None = None,
        preamble: Sequence[int] | IntArray = (),
    ) -> None:
        """
        Args:
            params: as of `policy.init`; copied, so that the caller may donate or change them.
            slots: sequences decoded together.
            max_tokens: prompt and reply of one sequence together.
            seed: of the requests that bring none of their own.
            version: of `params`, reported with each token.
            steps_per_dispatch: decode steps between two looks at the results.
            dispatches_ahead: of decode steps, given to the device before the results of those
                before are read. By default 0 on CPU, where a slot that idles costs more than a look
                at the results, and 1 elsewhere.
            cache_bytes: of keys and values; by default as much as all slots can need and half as
                much for prefixes. Where it is less, requests wait for pages.
            mesh: devices of this host, cut over "tensor" alone; by default one of them, see
                `place`.
            preamble: token ids that most prompts begin with, such as a system message. They are
                computed once for every version of the params, and a decode step reads them once
                for all slots. A prompt that does not begin with them is as welcome.

        Raises:
            ValueError: a limit is too small, `max_tokens` is beyond the model's positions, or the
                preamble leaves no room or is no sequence of token ids.
            ShardingError: the params do not divide over the mesh.
        """
        preamble = token_ids(preamble, config.vocab_size, "preamble")
        # Shorter than a page it is shared soon enough, in the pages of prompts.
        self._preamble_ids = preamble if len(preamble) >= PAGE_TOKENS else preamble[:0]
        sizes = Sizes.of(
            config,
            slots=slots,
            max_tokens=max_tokens,
            steps=steps_per_dispatch,
            cache_bytes=cache_bytes,
            preamble_tokens=len(self._preamble_ids),
        )
        self._config, self._sizes = config, sizes
        ahead = 0 if jax.default_backend() == "cpu" else 1
        self._ahead = ahead if dispatches_ahead is None else dispatches_ahead
        self._serving = partial(
            _serving,
            jax.jit(partial(prefill_decode.serving_params, config)),
            device_selection.device_for(config) if mesh is None else mesh,
        )
        self._shapes = _shapes(params)
        self._params, self._version = self._serving(params), version
        self._programs = Programs(Build.of(config, sizes, self._params, mesh))
        self._seeds = np.random.default_rng(seed)
        # The thread's own:
        self._scheduler = Scheduler(sizes, self._preamble_ids)
        self._state: SlotState | None = None  # there while there is memory for it
        self._preamble: kv.Preamble = ()  # of these params, once it is needed
        self._dispatched: deque[_Dispatch] = deque()  # by the device, but not read yet
        self._next_sweep = 0.0  # of the queue, by time.monotonic
        # Guarded by `_changed`, as all that follows:
        self._changed = threading.Condition()
        self._queue: deque[Request | _Update] = deque()
        self._urgent: deque[_Update | _Release] = deque()  # not to wait for those in the queue
        self._released = False
        self._closing = False
        self._error: EngineError | None = None
        self._stats = EngineStats(slots, pages_available=self._scheduler.available)
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
        top_k: int = 0,
        seed: int | None = None,
        stop_ids: Sequence[int] = (),
        timeout: float | None = None,
    ) -> Future[Completion]:
        """Asks for a continuation; returns at once.

        The reply ends with the first of `stop_ids` (finish "stop"), or after `max_new_tokens` or
        when prompt and reply fill `max_tokens` (finish "length"). Token n is drawn with the key
        `fold_in(key(seed), n)`; without a seed one is taken from the engine's own sequence, by
        order of submission. Cancelling the future frees its slot after the dispatch in progress;
        a reply that is not there after `timeout` seconds fails with RequestExpired. Callbacks of
        the future run on the engine's thread, so they should be short.

        Raises:
            ValueError: an option is out of range, or the prompt leaves no room for a reply.
            EngineError: the engine is closed or has failed. A request that was accepted before
                gets the same from its future.
        """
        with self._changed:
            drawn = int(self._seeds.integers(2**63)) if seed is None else seed
        request = Request(
            np.array(prompt_ids),
            max_new_tokens,
            temperature,
            top_p,
            top_k,
            drawn,
            tuple(stop_ids),
            math.inf if timeout is None else time.monotonic() + timeout,
        )
        request.fit(self._config.vocab_size, self._sizes.max_tokens)
        self._enqueue(request)
        return request.future

    def update(self, params: Params, *, version: int, running: OnUpdate = "drain") -> None:
        """Switches to other params; returns at once.

        By "drain", requests submitted before are finished under the old params, those submitted
        after wait until that is done and run under the new: every completion is sampled by one
        version. By "continue" and "recompute" all tokens sampled from now on are the new version's,
        see `OnUpdate`. The params are copied before this returns.

        Raises:
            ValueError: the params are not of the shapes that the engine was made with.
            EngineError: the engine is closed or has failed.
        """
        if _shapes(params) != self._shapes:
            raise ValueError("params differ in structure, shape or dtype from those of the engine")
        if running not in get_args(OnUpdate):
            raise ValueError(f"running={running!r}; there are: {', '.join(get_args(OnUpdate))}")
        update = _Update(self._serving(params), version, running)
        if running == "drain":
            self._enqueue(update)
        else:
            self._insist(update)

    def release(self) -> None:
        """Gives the memory of the cache back, for an update on the same device; `resume` ends it.

        Running requests are interrupted and go on after it, their prompts computed again; what is
        submitted meanwhile waits. Returns when the memory is free.

        Raises:
            EngineError: the engine is closed or has failed.
        """
        release = _Release(threading.Event())
        self._insist(release)
        while not release.done.wait(_LOOK_ABOUT):
            with self._changed:
                if self._error:
                    raise self._error

    def resume(self) -> None:
        """Ends a `release`. Without one it does nothing."""
        with self._changed:
            self._released = False
            self._changed.notify_all()

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

    def _enqueue(self, item: Request | _Update) -> None:
        with self._changed:
            self._refuse_if_ended()
            self._queue.append(item)
            self._changed.notify_all()

    def _insist(self, item: _Update | _Release) -> None:
        with self._changed:
            self._refuse_if_ended()
            self._urgent.append(item)
            if isinstance(item, _Update):  # those that wait in the queue are older
                self._queue = deque(q for q in self._queue if isinstance(q, Request))
            self._changed.notify_all()

    def _refuse_if_ended(self) -> None:
        if self._error or self._closing:
            raise self._error or EngineError("the sampling engine is closed")

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        if jax.default_backend() == "cpu":
            cpu_priority.give_way()
        error = EngineError("the sampling engine was closed before the request was finished")
        try:
            while self._wait_for_work():
                begun = time.monotonic()
                self._obey()
                self._drop_given_up()
                self._admit()
                self._prefill()
                self._decode()
                self._count(busy_seconds=time.monotonic() - begun)
        except Exception as cause:  # the device, or memory: whatever it was, nobody may hang
            error = EngineError(f"the sampling engine failed: {cause!r}")
            error.__cause__ = cause
        self._state, self._preamble = None, ()
        with self._changed:
            self._error = error
            left = [item for item in self._queue if isinstance(item, Request)]
            self._queue.clear()
        for request in (*(running.request for running in self._scheduler.running), *left):
            request.fail(error)

    def _wait_for_work(self) -> bool:
        """Blocks until there is something to do; False when the engine is being closed."""
        with self._changed:
            while not self._closing:
                queue = self._queue and not self._released
                if queue or self._urgent or self._scheduler.running or self._dispatched:
                    return True
                if not self._changed.wait(_LOOK_ABOUT) and self._queue:
                    return True  # some of them may have been given up
            return False

    def _obey(self) -> None:
        """Does what is urgent."""
        while True:
            with self._changed:
                if not self._urgent:
                    return
                order = self._urgent.popleft()
            if isinstance(order, _Release):
                self._interrupt()
                self._state, self._preamble = None, ()
                with self._changed:
                    self._released = True
                order.done.set()
            else:
                if order.running == "recompute":
                    self._interrupt()
                self._switch(order)

    def _interrupt(self) -> None:
        """Puts who is running back to the head of the queue."""
        self._read(0)
        requests = self._scheduler.interrupt()
        with self._changed:
            self._queue.extendleft(reversed(requests))

    def _switch(self, update: _Update) -> None:
        self._params, self._version = update.params, update.version
        self._preamble = ()
        self._scheduler.forget()

    def _drop_given_up(self) -> None:
        """Frees the slots of those, and now and then their places in the queue."""
        for running in self._scheduler.running:
            if running.request.expire():
                self._scheduler.release(running)
        if time.monotonic() > self._next_sweep:
            self._next_sweep = time.monotonic() + _LOOK_ABOUT
            with self._changed:
                queue = [item for item in self._queue if isinstance(item, Request)]
            gone = {id(request) for request in queue if request.expire()}
            with self._changed:
                self._queue = deque(item for item in self._queue if id(item) not in gone)

    def _admit(self) -> None:
        """Gives slots and pages to waiting requests, in order of submission."""
        while True:
            with self._changed:
                head = self._queue[0] if self._queue and not self._released else None
            if head is None:
                break
            if isinstance(head, _Update):
                if self._scheduler.running:
                    break
                self._switch(head)
            elif not head.expire():
                if not self._scheduler.admit(head):
                    break
                fresh = not head.pieces
                self._count(requests=fresh, prompt_tokens=fresh * len(head.prompt_ids))
            with self._changed:
                if self._queue and self._queue[0] is head:  # an urgent update may have taken it out
                    self._queue.popleft()

    def _prefill(self) -> None:
        """Fills pages until everybody is ready, or for as long as those who are can wait.

        Slots that are decoded together cost the same whether they are all in use or not.
        """
        for _ in range(_PREFILLS_IN_A_ROW):
            prefill = self._scheduler.prefill()
            if prefill is None:
                return
            served, state = self._opened()
            count = np.int32(prefill.count)
            pages = self._programs.prefill(served, state.pages, prefill.wanted, count)
            self._state = state._replace(pages=pages)
            self._count(prefilled_tokens=prefill.tokens)

    def _decode(self) -> None:
        """Runs some decode steps, and hands out what they, or those before, have finished."""
        decode = self._scheduler.decode()
        if decode:
            with self._changed:
                waiting = np.bool_(bool(self._queue))
            served, state = self._opened()
            self._state, emitted = self._programs.decode(served, state, decode.control, waiting)
            self._dispatched.append(_Dispatch(emitted, decode.running, self._version))
        self._read(self._ahead if decode else 0)

    def _opened(self) -> tuple[Served, SlotState]:
        """The policy, its preamble computed where there is none of these params; and the state, a
        new one where its memory was given back, or never taken."""
        if len(self._preamble_ids) and not self._preamble:
            self._preamble = self._programs.preamble(self._params, self._preamble_ids)
            self._count(prefilled_tokens=len(self._preamble_ids))
        return Served(self._params, self._preamble), self._state or self._programs.init()

    def _read(self, ahead: int) -> None:
        """Reads what the device has done, but for so many dispatches."""
        while len(self._dispatched) > ahead:
            dispatch = self._dispatched.popleft()
            self._hand_out(dispatch, jax.device_get(dispatch.emitted))

    def _hand_out(self, dispatch: _Dispatch, emitted: Emitted) -> None:
        sampled = 0
        for running in dispatch.running:
            if not self._scheduler.holds(running):
                continue  # given up meanwhile
            request, slot = running.request, running.slot
            new = slice(int(emitted.counts[slot]))
            request.take(
                Piece(
                    tokens=np.asarray(emitted.tokens[new, slot]),
                    logp=np.asarray(emitted.logp[new, slot]),
                    sampling_logp=np.asarray(emitted.sampling_logp[new, slot]),
                    version=dispatch.version,
                )
            )
            sampled += int(emitted.counts[slot])
            if emitted.finished[slot]:
                self._scheduler.release(running)
                request.complete()
        self._count(dispatches=1, decode_steps=int(emitted.steps), sampled_tokens=sampled)

    def _count(self, **more: float) -> None:
        """Adds to the counters."""
        with self._changed:
            old = self._stats
            grown = {name: getattr(old, name) + n for name, n in more.items()}
            self._stats = replace(old, **grown, pages_available=self._scheduler.available)


def _serving(copy: Callable[[Params], Params], at: Mesh | jax.Device, params: Params) -> Params:
    """A copy of `params` where the engine reads them, in one resharding."""
    return jax.device_put(copy(params), serving_shardings(params, at))


def _shapes(params: Params) -> Any:
    return jax.tree.map(lambda x: (x.shape, str(x.dtype)), params)
