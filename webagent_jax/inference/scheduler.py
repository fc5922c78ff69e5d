"""Which request has which slot and pages, and what is to be prefilled and decoded next.

Pure accounts of the host: no device, no threads. A request first gets a slot and pages for all it
can ever need, so that a running one never has to make room; then its prompt is filled, page by
page, in order of admission; then it is decoded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from webagent_jax.inference.engine_shapes import Sizes
from webagent_jax.inference.prefix_cache import TRASH, Lease, PageCache
from webagent_jax.inference.requests import Request
from webagent_jax.inference.slot_control import Field, Mode, StretchField
from webagent_jax.types import IntArray


@dataclass(eq=False, slots=True)
class Running:
    """A request that has a slot."""

    request: Request
    slot: int
    lease: Lease
    before: int  # tokens of the preamble before its own
    prefix: IntArray  # int32: what is to be in its pages before it is decoded
    control: IntArray  # int32 [Field.TABLE + P], its row but for the mode
    filled: int  # tokens of the prefix, dispatched or there before
    begun: bool = False  # decoding it

    @property
    def ready(self) -> bool:
        return self.filled >= len(self.prefix)


@dataclass(frozen=True, slots=True)
class Prefill:
    """Stretches of prompts for one dispatch."""

    wanted: IntArray  # int32 [batches, M, width], see `device.StretchField`
    count: int  # batches that are not padding
    tokens: int  # of prompts in them


@dataclass(frozen=True, slots=True)
class Decode:
    """Slots for one dispatch."""

    control: IntArray  # int32 [B, Field.TABLE + P], see `device.Field`
    running: tuple[Running, ...]  # who is decoded


class Scheduler:
    """For one thread."""

    def __init__(self, sizes: Sizes, preamble: IntArray | None = None) -> None:
        """`preamble`: int32 [A], kept elsewhere for the prompts that begin with it."""
        self._sizes = sizes
        self._preamble = np.zeros(0, np.int32) if preamble is None else preamble
        self._pages = PageCache(sizes.pages, sizes.page_tokens)
        self._slots: list[Running | None] = [None] * sizes.slots
        self._filling: deque[Running] = deque()  # pages that were leased first are filled first

    @property
    def running(self) -> list[Running]:
        return [running for running in self._slots if running]

    def holds(self, running: Running) -> bool:
        """Whether it has its slot still."""
        return self._slots[running.slot] is running

    @property
    def available(self) -> int:
        """Pages that a new request could have."""
        return self._pages.available

    def admit(self, request: Request) -> Running | None:
        """Gives it a slot and pages; None while there are not enough."""
        if None not in self._slots:
            return None
        prefix, before = request.tokens[:-1], len(self._preamble)
        if not np.array_equal(prefix[:before], self._preamble):
            before = 0
        lease = self._pages.lease(prefix, request.stored, before=before)
        if lease is None:
            return None
        control = np.full(Field.TABLE + self._sizes.columns, TRASH, np.int32)
        control[: Field.TABLE] = request.control()
        control[Field.BEFORE] = before
        control[Field.TABLE :][: len(lease.pages)] = lease.pages
        slot = self._slots.index(None)
        running = Running(request, slot, lease, before, prefix[before:], control, lease.cached)
        self._slots[slot] = running
        if not running.ready:
            self._filling.append(running)
        return running

    def release(self, running: Running) -> None:
        """Takes slot and pages back, whatever came of the request."""
        self._slots[running.slot] = None
        if running.ready:
            self._pages.end(running.lease)
        else:
            self._drop_orphans()

    def _drop_orphans(self) -> None:
        """Of those who lost their slot before they were filled, whom nobody counts on.

        Where others count on their pages, these are filled all the same.
        """
        for running in reversed(list(self._filling)):
            if not self.holds(running) and not running.lease.counted_on:
                self._filling.remove(running)
                self._pages.end(running.lease, filled=False)

    def interrupt(self) -> list[Request]:
        """Takes slot and pages from everybody and forgets all prefixes; in order of their slots."""
        interrupted = self.running
        for running in interrupted:
            self.release(running)
        self.forget()
        return [running.request for running in interrupted]

    def forget(self) -> None:
        """From now on no prefix is known, as befits other params."""
        self._pages.forget()

    def prefill(self) -> Prefill | None:
        """What to fill next, which is then taken for filled."""
        if not self._filling:
            return None
        sizes, size = self._sizes, self._sizes.stretch_tokens
        width = StretchField.TOKENS + size + sizes.columns
        most = sizes.prefill_batches * sizes.prefill_stretches
        wanted = np.full((most, width), TRASH, np.int32)
        stretches = tokens = 0
        while self._filling and stretches < most:
            running = self._filling[0]
            part = running.prefix[running.filled :][:size]
            stretch = wanted[stretches]
            stretch[StretchField.START] = running.filled
            stretch[StretchField.BEFORE] = running.before
            stretch[StretchField.PAGES] = -(-len(part) // sizes.page_tokens)
            stretch[StretchField.TOKENS :][: len(part)] = part
            stretch[StretchField.TOKENS + size :] = running.control[Field.TABLE :]
            running.filled += len(part)
            stretches, tokens = stretches + 1, tokens + len(part)
            if running.ready:
                self._filling.popleft()
                if not self.holds(running):  # given up long since
                    self._pages.end(running.lease)
        batches = wanted.reshape(sizes.prefill_batches, sizes.prefill_stretches, width)
        return Prefill(batches, -(-stretches // sizes.prefill_stretches), tokens)

    def decode(self) -> Decode | None:
        """Who is to be decoded: everybody whose prompt is filled."""
        running = tuple(running for running in self.running if running.ready)
        if not running:
            return None
        control = np.zeros((self._sizes.slots, Field.TABLE + self._sizes.columns), np.int32)
        for one in running:
            control[one.slot] = one.control
            control[one.slot, Field.MODE] = Mode.RUNNING if one.begun else Mode.ADMITTED
            one.begun = True
        return Decode(control, running)
