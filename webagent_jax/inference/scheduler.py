"""Scheduling of requests: slots, pages, prefill and decoding.

The scheduler is host-side bookkeeping without device or threads. On admission a request gets a slot
and the maximum number of pages it can need, so a running request is never preempted for pages. Then
its prompt is prefilled in order of admission, and then it is decoded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.inference.prefix_cache import NULL_PAGE, PageAllocation, PrefixCache
from webagent_jax.inference.requests import Request
from webagent_jax.inference.slot_control import ChunkField, SlotField, SlotMode
from webagent_jax.types import IntArray


@dataclass(eq=False, slots=True)
class RunningSequence:
    """Request that has a slot."""

    request: Request  # request that is served
    slot: int  # index of the slot
    allocation: PageAllocation  # pages of the sequence
    prefix_len: int  # length of the shared prefix before the sequence's own tokens
    prefix: IntArray  # int32, own tokens whose keys and values decoding needs
    control: IntArray  # int32 [SlotField.TABLE + P], control row without the mode
    # Leading tokens of `prefix` that are dispatched or in pages of other sequences. Those sequences
    # may still be in the prefill queue.
    num_computed_tokens: int
    is_prefilled: bool = False  # whether all keys and values of `prefix` are dispatched
    is_decoding: bool = False  # whether decoding has started


@dataclass(frozen=True, slots=True)
class PrefillBatch:
    """Prefill chunks of one dispatch."""

    chunks: IntArray  # int32 [batches, M, width], control rows (`slot_control.ChunkField`)
    count: int  # number of batches that are not padding
    tokens: int  # number of prompt tokens in all chunks


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Slots of one decode dispatch."""

    control: IntArray  # int32 [B, SlotField.TABLE + P], control rows (`slot_control.SlotField`)
    prompts: IntArray  # int32 [B, L], tokens of the starting sequences; L is 0 without draft tokens
    sequences: tuple[RunningSequence, ...]  # sequences that are decoded


class Scheduler:
    """Scheduler of slots, pages, prefill and decode work; not thread-safe.

    Args:
        shapes: static shapes of the engine.
        shared_prefix: token ids int32 [A] that prompts may start with; stored outside the pages.
    """

    def __init__(self, shapes: EngineShapes, shared_prefix: IntArray | None = None) -> None:
        self._shapes = shapes
        self._shared_prefix = np.zeros(0, np.int32) if shared_prefix is None else shared_prefix
        self._pages = PrefixCache(shapes.num_pages, shapes.page_tokens)
        self._slots: list[RunningSequence | None] = [None] * shapes.slots
        # Sequences to prefill, in the order of their allocations, as `PrefixCache` requires.
        self._prefill_queue: deque[RunningSequence] = deque()

    @property
    def running_sequences(self) -> list[RunningSequence]:
        """Sequences that have a slot, in slot order."""
        return [sequence for sequence in self._slots if sequence]

    def owns_slot(self, sequence: RunningSequence) -> bool:
        """Return whether the sequence still has its slot."""
        return self._slots[sequence.slot] is sequence

    @property
    def num_free_pages(self) -> int:
        """Number of pages that a new request can get."""
        return self._pages.num_free_pages

    def admit(self, request: Request) -> RunningSequence | None:
        """Assign a slot and pages to a request; return None if there are not enough."""
        if None not in self._slots:
            return None
        # The last token is the input of the first decode step. After a preemption, sampled tokens
        # are prefilled like those of a prompt.
        prefix, prefix_len = request.tokens[:-1], len(self._shared_prefix)
        if not np.array_equal(prefix[:prefix_len], self._shared_prefix):
            # The prompt does not start with the shared prefix and stores all its tokens in pages.
            prefix_len = 0
        allocation = self._pages.allocate(prefix, request.max_cached_tokens, prefix_len=prefix_len)
        if allocation is None:
            return None
        control = np.full(SlotField.TABLE + self._shapes.pages_per_sequence, NULL_PAGE, np.int32)
        control[: SlotField.TABLE] = request.control()
        control[SlotField.PREFIX_LEN] = prefix_len
        control[SlotField.TABLE :][: len(allocation.pages)] = allocation.pages
        slot = self._slots.index(None)
        sequence = RunningSequence(
            request,
            slot,
            allocation,
            prefix_len,
            prefix[prefix_len:],
            control,
            allocation.num_cached_tokens,
        )
        self._slots[slot] = sequence
        # A sequence without tokens to compute waits in the queue too: another one that is before it
        # there may have to fill the matched pages first.
        self._prefill_queue.append(sequence)
        self._pop_prefilled()
        return sequence

    def release(self, sequence: RunningSequence) -> None:
        """Free the slot and pages of a finished or abandoned request."""
        self._slots[sequence.slot] = None
        if sequence.is_prefilled:
            self._pages.free(sequence.allocation)
        else:
            self._drop_orphans()

    def _pop_prefilled(self) -> None:
        """Remove the sequences at the head of the prefill queue that have no tokens to compute."""
        while self._prefill_queue:
            sequence = self._prefill_queue[0]
            if sequence.num_computed_tokens < len(sequence.prefix):
                return
            self._prefill_queue.popleft()
            sequence.is_prefilled = True
            # An orphan that was filled only for the sequences that depend on its pages.
            if not self.owns_slot(sequence):
                self._pages.free(sequence.allocation)

    def _drop_orphans(self) -> None:
        """Free the pages of sequences that lost their slot before their prefill was complete.

        Pages that other sequences depend on are filled nevertheless.
        """
        # Latest first: dropping a sequence may remove the last dependent of an earlier one.
        for sequence in reversed(list(self._prefill_queue)):
            if not self.owns_slot(sequence) and not sequence.allocation.has_dependents:
                self._prefill_queue.remove(sequence)
                self._pages.free(sequence.allocation, is_filled=False)
        self._pop_prefilled()

    def preempt_all(self) -> list[Request]:
        """Free all slots and pages, empty the prefix cache; return the requests in slot order."""
        preempted = self.running_sequences
        for sequence in preempted:
            self.release(sequence)
        self.reset_prefix_cache()
        return [sequence.request for sequence in preempted]

    def reset_prefix_cache(self) -> None:
        """Empty the prefix cache, whose keys and values other params computed."""
        self._pages.reset()

    def prefill(self) -> PrefillBatch | None:
        """Return the next prefill chunks and mark their tokens as computed; None without any."""
        if not self._prefill_queue:
            return None
        shapes, size = self._shapes, self._shapes.chunk_tokens
        width = ChunkField.TOKENS + size + shapes.pages_per_sequence
        max_chunks = shapes.prefill_batches * shapes.chunks_per_batch
        chunks = np.full((max_chunks, width), NULL_PAGE, np.int32)
        num_chunks = num_tokens = 0
        while self._prefill_queue and num_chunks < max_chunks:
            sequence = self._prefill_queue[0]
            # Starts at a page: cached tokens and full chunks consist of whole pages.
            part = sequence.prefix[sequence.num_computed_tokens :][:size]
            chunk = chunks[num_chunks]
            chunk[ChunkField.START] = sequence.num_computed_tokens
            chunk[ChunkField.PREFIX_LEN] = sequence.prefix_len
            chunk[ChunkField.PAGES] = -(-len(part) // shapes.page_tokens)
            chunk[ChunkField.TOKENS :][: len(part)] = part
            chunk[ChunkField.TOKENS + size :] = sequence.control[SlotField.TABLE :]
            # Dispatches run in order, so later work may rely on chunks that are only dispatched.
            sequence.num_computed_tokens += len(part)
            num_chunks, num_tokens = num_chunks + 1, num_tokens + len(part)
            self._pop_prefilled()
        batches = chunks.reshape(shapes.prefill_batches, shapes.chunks_per_batch, width)
        return PrefillBatch(batches, -(-num_chunks // shapes.chunks_per_batch), num_tokens)

    def decode(self) -> DecodeBatch | None:
        """Return the sequences whose prompts are prefilled; None without any."""
        sequences = tuple(sequence for sequence in self.running_sequences if sequence.is_prefilled)
        if not sequences:
            return None
        # Rows of zeros have the mode IDLE.
        control = np.zeros(
            (self._shapes.slots, SlotField.TABLE + self._shapes.pages_per_sequence), np.int32
        )
        prompts = np.zeros((self._shapes.slots, self._shapes.history_tokens), np.int32)
        for sequence in sequences:
            mode = SlotMode.RUNNING if sequence.is_decoding else SlotMode.STARTING
            control[sequence.slot] = sequence.control
            control[sequence.slot, SlotField.MODE] = mode
            if not sequence.is_decoding and self._shapes.history_tokens:
                tokens = sequence.request.tokens
                prompts[sequence.slot, : len(tokens)] = tokens
            sequence.is_decoding = True
        return DecodeBatch(control, prompts, sequences)
