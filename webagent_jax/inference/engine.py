"""Inference engine: many threads submit requests, one thread runs the device.

The engine uses continuous batching (Yu et al., OSDI 2022): requests are decoded together in a fixed
number of slots, and a finished slot is refilled from the queue while the others continue. Common
prefixes of prompts are computed once (`prefix_cache`). Prompts are prefilled in chunks, so a long
one does not stall the decoding of other requests (`scheduler`). A decode step reads the shared
prefix of all prompts once (`kv_cache`). A completion depends on its prompt, seed and params, never
on the other requests of the batch.
"""

from __future__ import annotations

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
from webagent_jax.inference import device_selection, serving_params
from webagent_jax.inference import kv_cache as kv
from webagent_jax.inference.engine_shapes import PAGE_TOKENS, EngineShapes
from webagent_jax.inference.prefill_decode import (
    DecodeInput,
    DecodeOutput,
    DecodeState,
    ServedPolicy,
)
from webagent_jax.inference.programs import (
    CompiledPrograms,
    ProgramSpec,
    Progress,
)
from webagent_jax.inference.requests import DecodedTokens, Request, token_ids
from webagent_jax.inference.scheduler import RunningSequence, Scheduler
from webagent_jax.policy import ModelConfig
from webagent_jax.policy.transformer import Params
from webagent_jax.types import Completion, IntArray

# Cancellations do not notify the engine thread, so it polls for them.
_IDLE_POLL_SECONDS = 1.0
_MAX_CONSECUTIVE_PREFILLS = 8  # prefill dispatches between two decode dispatches
_CLOSE_TIMEOUT_SECONDS = 60.0  # limit for the dispatch or compilation in progress

InFlightMode = Literal["drain", "continue", "recompute"]
"""Treatment of running requests when the params change.

- "drain": requests finish under the old params before the change.
- "continue": requests continue under the new params with the old keys and values; only the shared
  prefix is recomputed.
- "recompute": requests continue under the new params after all keys and values are recomputed.

The prefix cache is emptied in all cases.
"""


class EngineError(RuntimeError):
    """Error of an engine that is closed or has failed."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters of an engine since its construction, or between two snapshots (`delta`)."""

    slots: int  # number of slots
    requests: int = 0  # requests admitted to a slot
    prompt_tokens: int = 0  # prompt tokens of those requests
    prefilled_tokens: int = 0  # computed tokens of prompts and shared prefix, without cached ones
    sampled_tokens: int = 0  # tokens sampled in all slots
    dispatches: int = 0  # decode dispatches
    decode_steps: int = 0  # decode steps in all dispatches
    slot_steps: int = 0  # decode steps, summed over the slots in use
    busy_seconds: float = 0.0  # time in which the engine thread had work, in seconds
    num_queued: int = 0  # current number of requests that wait for a slot or pages
    num_free_pages: int = 0  # current number of allocatable pages, evictable ones included
    num_compiled_programs: int = 0  # current number of compiled programs

    @property
    def occupancy(self) -> float:
        """Mean fraction of the slots in use over the decode steps."""
        return self.slot_steps / max(1, self.decode_steps * self.slots)

    @property
    def acceptance_length(self) -> float:
        """Mean number of tokens that a slot samples in a decode step; 1 without drafts."""
        return self.sampled_tokens / max(1, self.slot_steps)

    def delta(self, earlier: EngineStats) -> EngineStats:
        """Return the counts since `earlier`, with the current values of the other fields."""
        names = (
            "requests prompt_tokens prefilled_tokens sampled_tokens dispatches decode_steps "
            "slot_steps busy_seconds"
        )
        counts = {n: getattr(self, n) - getattr(earlier, n) for n in names.split()}
        return replace(self, **counts)


@dataclass(frozen=True, slots=True)
class _Update:
    """Command to change the params: immediate, or in queue order with "drain"."""

    params: Params  # params in the layout of `serving_params.serving_params`
    version: int  # version of the params
    in_flight: InFlightMode  # treatment of running requests


@dataclass(frozen=True, slots=True)
class _Sleep:
    """Command to free the KV cache."""

    done: threading.Event  # set when the memory is free


@dataclass(frozen=True, slots=True)
class _Dispatch:
    """Decode steps that run on the device, and the sequences they serve."""

    output: DecodeOutput  # results, available when the device has finished
    sequences: tuple[RunningSequence, ...]  # sequences that are decoded
    version: int  # version of the params


def _max_unread_dispatches() -> int:
    """Return the number of decode dispatches enqueued before earlier results are read.

    On a CPU, an idle slot costs more than reading the results.
    """
    return 0 if jax.default_backend() == "cpu" else 1


class Engine:
    """Engine that samples completions for any number of threads; a context manager with a thread.

    Args:
        config: architecture of the policy. With `quantization`, the engine quantizes its copies of
            the params.
        params: params as returned by `policy.init`; copied, so the caller may donate or change
            them.
        slots: number of sequences decoded together.
        max_model_len: maximum length of prompt and response together, in tokens.
        seed: seed of requests that do not set their own.
        version: version of `params`, reported with each token.
        steps_per_dispatch: maximum number of decode steps before the host reads the results.
        cache_bytes: size of the KV cache. None allocates the pages that all slots can use, and half
            as many for cached prefixes. With less, requests wait for pages.
        mesh: devices of this process, sharded over "tensor" alone; None uses one device (see
            `device_selection`).
        shared_prefix: token ids that most prompts start with, such as a system message. They are
            computed once per version of the params, and a decode step reads them once for all
            slots. Prompts without the prefix are supported.
        num_speculative_tokens: draft tokens per slot and decode step, from earlier occurrences in
            the sequence and in recent responses (`prompt_lookup`). They save decode steps and
            change completions by rounding only. 0: no speculative decoding.

    Raises:
        ValueError: a limit is too small, `max_model_len` exceeds the model's positions, or the
            shared prefix is too long or not a sequence of token ids.
        ShardingError: the params do not divide over the mesh.
    """

    def __init__(
        self,
        config: ModelConfig,
        params: Params,
        *,
        slots: int = 16,
        max_model_len: int = 2048,
        seed: int = 0,
        version: int = 0,
        steps_per_dispatch: int = 16,
        cache_bytes: int | None = None,
        mesh: Mesh | None = None,
        shared_prefix: Sequence[int] | IntArray = (),
        num_speculative_tokens: int = 0,
    ) -> None:
        shared_prefix = token_ids(shared_prefix, config.vocab_size, "shared_prefix")
        # A prefix shorter than one page saves too little: prompts store it in their own pages.
        self._shared_prefix_ids = (
            shared_prefix if len(shared_prefix) >= PAGE_TOKENS else shared_prefix[:0]
        )
        shapes = EngineShapes.from_config(
            config,
            slots=slots,
            max_model_len=max_model_len,
            decode_steps=steps_per_dispatch,
            cache_bytes=cache_bytes,
            num_speculative_tokens=num_speculative_tokens,
            shared_prefix_tokens=len(self._shared_prefix_ids),
        )
        self._config, self._shapes = config, shapes
        self._max_unread = _max_unread_dispatches()
        self._copy_params = partial(
            _copy_params,
            config,
            jax.jit(partial(serving_params.serving_params, config, fuse=mesh is None)),
            device_selection.select_device(config) if mesh is None else mesh,
        )
        self._param_shapes = _param_shapes(params)
        self._params, self._version = self._copy_params(params), version
        self._programs = CompiledPrograms(
            ProgramSpec.from_params(config, shapes, self._params, mesh)
        )
        self._seeds = np.random.default_rng(seed)
        # Only the engine thread uses these attributes.
        self._scheduler = Scheduler(shapes, self._shared_prefix_ids)
        self._state: DecodeState | None = None  # None while the KV cache is freed
        self._shared_prefix: kv.SharedPrefix = ()  # computed with `_params` at the first use
        # Latest tokens of completed responses, for draft tokens.
        self._recent = np.full(shapes.recent_tokens, -1, np.int32)
        self._unread_dispatches: deque[_Dispatch] = deque()
        self._next_sweep = 0.0  # time.monotonic() of the next search for canceled queue items
        # `_condition` guards all attributes below.
        self._condition = threading.Condition()
        self._queue: deque[Request | _Update] = deque()
        self._urgent_commands: deque[_Update | _Sleep] = deque()  # commands that bypass the queue
        self._is_asleep = False
        self._is_closing = False
        self._error: EngineError | None = None
        self._stats = EngineStats(slots, num_free_pages=self._scheduler.num_free_pages)
        # The thread uses all attributes above, so it starts last.
        self._thread = threading.Thread(target=self._run, name="inference-engine", daemon=True)
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
    ) -> Future[Completion]:
        """Enqueue a request without blocking and return the future of its completion.

        Canceling the future frees its slot after the dispatch in progress. Callbacks of the future
        run on the engine's thread, so they should be short.

        Args:
            prompt_ids: token ids of the prompt.
            max_new_tokens: maximum number of tokens to sample. The response ends there, or when
                prompt and response fill `max_model_len` (finish "length").
            temperature: sampling temperature; 0 is greedy.
            top_p: probability mass of the nucleus, in (0, 1].
            top_k: number of most likely tokens that sampling is limited to; 0 for all.
            seed: seed of the request; token n is sampled with the key `fold_in(key(seed), n)`.
                None takes the next seed of the engine, in order of submission.
            stop_ids: token ids that end the response (finish "stop").

        Raises:
            ValueError: an option is out of range, or the prompt leaves no space for a response.
            EngineError: the engine is closed or has failed. Futures of requests submitted earlier
                raise it too.
        """
        with self._condition:
            request_seed = int(self._seeds.integers(2**63)) if seed is None else seed
        request = Request(
            # A copy: the caller may change its array while the request waits.
            np.array(prompt_ids),
            max_new_tokens,
            temperature,
            top_p,
            top_k,
            request_seed,
            tuple(stop_ids),
        )
        request.validate(self._config.vocab_size, self._shapes.max_model_len)
        self._enqueue(request)
        return request.future

    def update_weights(
        self, params: Params, *, version: int, in_flight: InFlightMode = "drain"
    ) -> None:
        """Copy new params and schedule the change; return without waiting for it.

        With "drain", one version samples each completion: requests submitted earlier finish under
        the old params, and later ones wait for the new params. With "continue" and
        "recompute" the new version samples all further tokens; see `InFlightMode`.

        Args:
            params: params with the structure, shapes and dtypes of the engine's.
            version: version of the params, reported with each token.
            in_flight: treatment of running requests.

        Raises:
            ValueError: the params have other shapes than those of the engine.
            EngineError: the engine is closed or has failed.
        """
        if _param_shapes(params) != self._param_shapes:
            raise ValueError("params differ in structure, shape or dtype from those of the engine")
        if in_flight not in get_args(InFlightMode):
            raise ValueError(
                f"in_flight={in_flight!r} is unknown: use {', '.join(get_args(InFlightMode))}"
            )
        # Copied before this call returns: the caller may donate the params right after it.
        update = _Update(self._copy_params(params), version, in_flight)
        if in_flight == "drain":
            self._enqueue(update)
        else:
            self._enqueue_urgent(update)

    def sleep(self) -> None:
        """Free the KV cache until `wake_up`, for example for an update on the same device.

        The call returns when the memory is free. Running requests are preempted; they continue
        after `wake_up`, when their prompts are recomputed. Requests submitted meanwhile wait.

        Raises:
            EngineError: the engine is closed or has failed.
        """
        command = _Sleep(threading.Event())
        self._enqueue_urgent(command)
        # A thread that has failed or was closed never sets the event.
        while not command.done.wait(_IDLE_POLL_SECONDS):
            with self._condition:
                if self._error:
                    raise self._error

    def wake_up(self) -> None:
        """End `sleep`; no effect without one."""
        with self._condition:
            self._is_asleep = False
            self._condition.notify_all()

    def stats(self) -> EngineStats:
        """Return a snapshot of the counters."""
        with self._condition:
            num_queued = sum(isinstance(item, Request) for item in self._queue)
            num_compiled = self._programs.count
            return replace(self._stats, num_queued=num_queued, num_compiled_programs=num_compiled)

    def warmup(self, progress: Progress | None = None) -> None:
        """Compile every program in advance, so that no request waits for a compilation.

        Args:
            progress: called with the number of compiled programs and their total number, before the
                first program and after each one.
        """
        self._programs.warmup(progress)

    def close(self) -> None:
        """Stop the thread and fail unfinished requests with EngineError; idempotent.

        Raises:
            TimeoutError: the dispatch or compilation in progress did not finish in 60 seconds.
        """
        with self._condition:
            self._is_closing = True
            self._condition.notify_all()
        # Callbacks of futures run on the engine thread, which cannot join itself.
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_TIMEOUT_SECONDS)
            if self._thread.is_alive():
                raise TimeoutError(f"the device is still busy after {_CLOSE_TIMEOUT_SECONDS:.0f} s")

    def _enqueue(self, item: Request | _Update) -> None:
        with self._condition:
            self._raise_if_stopped()
            self._queue.append(item)
            self._condition.notify_all()

    def _enqueue_urgent(self, item: _Update | _Sleep) -> None:
        with self._condition:
            self._raise_if_stopped()
            self._urgent_commands.append(item)
            # Updates in the queue are older than this one: drop them.
            if isinstance(item, _Update):
                self._queue = deque(q for q in self._queue if isinstance(q, Request))
            self._condition.notify_all()

    def _raise_if_stopped(self) -> None:
        # The caller holds `_condition`.
        if self._error or self._is_closing:
            raise self._error or EngineError("the inference engine is closed")

    # --- engine thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        if jax.default_backend() == "cpu":
            cpu_priority.lower_priority()
        error = EngineError("the inference engine was closed before the request was finished")
        try:
            while self._wait_for_work():
                start = time.monotonic()
                # Free slots are refilled, and their prompts prefilled, before the next decode.
                self._run_urgent()
                self._drop_canceled()
                self._admit()
                self._prefill()
                self._decode()
                self._count(busy_seconds=time.monotonic() - start)
        # Any error must fail the waiting requests: their threads would block forever.
        except Exception as cause:
            error = EngineError(f"the inference engine failed: {cause!r}")
            error.__cause__ = cause
        self._state, self._shared_prefix = None, ()
        with self._condition:
            # Under the lock: earlier requests are queued or running, later ones raise `_error`.
            self._error = error
            queued = [item for item in self._queue if isinstance(item, Request)]
            self._queue.clear()
        running = [sequence.request for sequence in self._scheduler.running_sequences]
        for request in (*running, *queued):
            request.fail(error)

    def _wait_for_work(self) -> bool:
        """Block until there is work; return False when the engine is closing."""
        with self._condition:
            while not self._is_closing:
                has_queue = self._queue and not self._is_asleep
                if (
                    has_queue
                    or self._urgent_commands
                    or self._scheduler.running_sequences
                    or self._unread_dispatches
                ):
                    return True
                # Requests in the queue may be canceled.
                if not self._condition.wait(_IDLE_POLL_SECONDS) and self._queue:
                    return True
            return False

    def _run_urgent(self) -> None:
        """Run the commands that bypass the queue."""
        while True:
            with self._condition:
                if not self._urgent_commands:
                    return
                command = self._urgent_commands.popleft()
            if isinstance(command, _Sleep):
                self._preempt_all()
                self._state, self._shared_prefix = None, ()
                # Before the event is set: `wake_up` may be called as soon as `sleep` returns.
                with self._condition:
                    self._is_asleep = True
                command.done.set()
            else:
                if command.in_flight == "recompute":
                    self._preempt_all()
                self._apply_weight_update(command)

    def _preempt_all(self) -> None:
        """Return all running requests to the head of the queue."""
        # Deliver the tokens of all dispatches: a preempted request continues after its last one.
        self._read_results(0)
        requests = self._scheduler.preempt_all()
        with self._condition:
            self._queue.extendleft(reversed(requests))

    def _apply_weight_update(self, update: _Update) -> None:
        self._params, self._version = update.params, update.version
        # The next dispatch computes it with the new params (`_prepare`).
        self._shared_prefix = ()
        self._scheduler.reset_prefix_cache()

    def _drop_canceled(self) -> None:
        """Remove canceled requests from the slots and, periodically, from the queue."""
        for sequence in self._scheduler.running_sequences:
            if sequence.request.is_canceled:
                self._scheduler.release(sequence)
                sequence.request.notify_canceled()
        if time.monotonic() > self._next_sweep:
            self._next_sweep = time.monotonic() + _IDLE_POLL_SECONDS
            remaining: deque[Request | _Update] = deque()
            with self._condition:
                for item in self._queue:
                    if isinstance(item, Request) and item.is_canceled:
                        item.notify_canceled()
                    else:
                        remaining.append(item)
                self._queue = remaining

    def _admit(self) -> None:
        """Assign slots and pages to waiting requests, in order of submission."""
        while True:
            with self._condition:
                head = self._queue[0] if self._queue and not self._is_asleep else None
            if head is None:
                break
            if isinstance(head, _Update):
                # Mode "drain": earlier requests finish under the old params.
                if self._scheduler.running_sequences:
                    break
                self._apply_weight_update(head)
            elif head.is_canceled:
                head.notify_canceled()
            else:
                # In order of submission: a request that does not fit blocks smaller ones behind it.
                if not self._scheduler.admit(head):
                    break
                if not head.is_counted:  # a preempted request is admitted again
                    head.is_counted = True
                    self._count(requests=1, prompt_tokens=len(head.prompt_ids))
            with self._condition:
                # An urgent update may have removed the head of the queue.
                if self._queue and self._queue[0] is head:
                    self._queue.popleft()

    def _prefill(self) -> None:
        """Dispatch prefill chunks until all prompts are computed or the limit is reached.

        Prefill has priority because a decode step of all slots costs the same however many are
        in use; the limit bounds the wait of sequences that are ready to decode.
        """
        for _ in range(_MAX_CONSECUTIVE_PREFILLS):
            prefill = self._scheduler.prefill()
            if prefill is None:
                return
            served, state = self._prepare()
            count = np.int32(prefill.count)
            pages = self._programs.prefill(served, state.pages, prefill.chunks, count)
            # The program has donated the old pages.
            self._state = state._replace(pages=pages)
            self._count(prefilled_tokens=prefill.tokens)

    def _decode(self) -> None:
        """Dispatch decode steps and deliver the results of this or earlier dispatches."""
        decode = self._scheduler.decode()
        if decode:
            with self._condition:
                has_queue = np.bool_(bool(self._queue))
            served, state = self._prepare()
            inputs = DecodeInput(decode.control, has_queue, decode.prompts, self._recent)
            self._state, output = self._programs.decode(served, state, inputs)
            self._unread_dispatches.append(_Dispatch(output, decode.sequences, self._version))
        # Without a new dispatch, nothing later would read the remaining results.
        self._read_results(self._max_unread if decode else 0)

    def _prepare(self) -> tuple[ServedPolicy, DecodeState]:
        """Return policy and state; compute the shared prefix and allocate the state if missing."""
        if len(self._shared_prefix_ids) and not self._shared_prefix:
            self._shared_prefix = self._programs.shared_prefix(
                self._params, self._shared_prefix_ids
            )
            self._count(prefilled_tokens=len(self._shared_prefix_ids))
        return ServedPolicy(self._params, self._shared_prefix), self._state or self._programs.init()

    def _read_results(self, max_unread: int) -> None:
        """Wait for dispatches and deliver their results until `max_unread` remain."""
        while len(self._unread_dispatches) > max_unread:
            dispatch = self._unread_dispatches.popleft()
            self._deliver(dispatch, jax.device_get(dispatch.output))

    def _deliver(self, dispatch: _Dispatch, output: DecodeOutput) -> None:
        """Append the sampled tokens to their requests and complete the finished ones."""
        num_sampled = 0
        for sequence in dispatch.sequences:
            # A canceled request has lost its slot since the dispatch.
            if not self._scheduler.owns_slot(sequence):
                continue
            request, slot = sequence.request, sequence.slot
            steps = slice(int(output.counts[slot]))
            request.append(
                DecodedTokens(
                    tokens=np.asarray(output.tokens[steps, slot]),
                    logp=np.asarray(output.logp[steps, slot]),
                    sampling_logp=np.asarray(output.sampling_logp[steps, slot]),
                    version=dispatch.version,
                )
            )
            num_sampled += int(output.counts[slot])
            if output.is_finished[slot]:
                self._scheduler.release(sequence)
                if len(self._recent):
                    # A new array: the last dispatch may still read the old one.
                    response = [piece.tokens for piece in request.pieces]
                    recent = np.concatenate([self._recent, *response])
                    self._recent = recent[-len(self._recent) :]
                request.complete()
        self._count(
            dispatches=1,
            decode_steps=int(output.steps),
            slot_steps=int(output.slot_steps),
            sampled_tokens=num_sampled,
        )

    def _count(self, **increments: float) -> None:
        """Add increments to the counters."""
        with self._condition:
            stats = self._stats
            counts = {name: getattr(stats, name) + n for name, n in increments.items()}
            self._stats = replace(stats, **counts, num_free_pages=self._scheduler.num_free_pages)


def _copy_params(
    config: ModelConfig,
    copy: Callable[[Params], Params],
    target: Mesh | jax.Device,
    params: Params,
) -> Params:
    """Return a copy of `params` on the devices of the engine, in one resharding."""
    return jax.device_put(copy(params), serving_params.serving_shardings(config, params, target))


def _param_shapes(params: Params) -> Any:
    return jax.tree.map(lambda x: (x.shape, str(x.dtype)), params)
