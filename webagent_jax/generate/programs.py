"""The device functions of one engine, compiled ahead of time, once per shape.

A compiled program refuses arguments of another shape, so nothing can recompile unnoticed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from webagent_jax.generate import cache as kv
from webagent_jax.generate import device
from webagent_jax.generate.device import Emitted, SlotState
from webagent_jax.policy import ModelConfig
from webagent_jax.policy.transformer import Params
from webagent_jax.types import IntArray

Progress = Callable[[int, int], None]
"""(programs compiled so far, programs in all)."""


def rungs(first: int, last: int, *, per_octave: int) -> tuple[int, ...]:
    """Numbers of pages from `first` to `last`, so many to each doubling: the shapes to compile."""
    ladder, rung = [], first
    while rung < last:
        ladder.append(rung)
        rung += max(1, (1 << (rung.bit_length() - 1)) // per_octave)
    return (*ladder, last)


class Programs:
    """Safe to use from several threads; a program that is missing is compiled at its first use."""

    def __init__(
        self, config: ModelConfig, params: Params, *, slots: int, max_tokens: int, steps: int
    ) -> None:
        """`params` as of `device.serving_params`."""
        pages = -(-max_tokens // kv.PAGE)
        self.cache_rungs = rungs(4, pages, per_octave=2)  # a decode step reads all these pages
        self.prompt_rungs = rungs(2, pages, per_octave=4)  # prefill pays for each token of padding
        self._config, self._slots, self._steps = config, slots, steps
        self._params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)
        self._compiled: dict[tuple[str, int, int], Callable[..., Any]] = {}
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Programs compiled so far."""
        return len(self._compiled)

    def prefill(self, params: Params, tokens: IntArray) -> kv.Cache:
        """`tokens` int32 [T]; T is a rung of `prompt_rungs` times `cache.PAGE`."""
        return self._program("prefill", len(tokens) // kv.PAGE)(params, tokens)

    def admit(self, state: SlotState, sequence: kv.Cache, admission: IntArray) -> SlotState:
        """Consumes `state`."""
        return self._program("admit", _pages(state))(state, sequence, admission)

    def decode(self, params: Params, state: SlotState, busy: Any) -> tuple[SlotState, Emitted]:
        """Consumes `state`."""
        return self._program("decode", _pages(state))(params, state, busy)

    def resize(self, state: SlotState, pages: int) -> SlotState:
        """`state` with a cache of `pages` pages, going there rung by rung."""
        ladder = self.cache_rungs
        here, there = ladder.index(_pages(state)), ladder.index(pages)
        step = 1 if there > here else -1
        for rung in range(here, there, step):
            program = self._program("resize", ladder[rung], ladder[rung + step])
            state = state._replace(cache=program(state.cache))
        return state

    def warmup(self, progress: Progress | None = None) -> None:
        """Compiles whatever the engine can ever need."""
        wanted = [("prefill", pages, 0) for pages in self.prompt_rungs]
        wanted += [(name, pages, 0) for pages in self.cache_rungs for name in ("admit", "decode")]
        for small, large in zip(self.cache_rungs, self.cache_rungs[1:], strict=False):
            wanted += [("resize", small, large), ("resize", large, small)]
        for done, key in enumerate(wanted):
            if progress:
                progress(done, len(wanted))
            self._program(*key)
        if progress:
            progress(len(wanted), len(wanted))

    def _program(self, name: str, pages: int, to_pages: int = 0) -> Callable[..., Any]:
        key = (name, pages, to_pages)
        with self._lock:
            if key not in self._compiled:
                self._compiled[key] = self._lower(*key).compile()
            return self._compiled[key]

    def _lower(self, name: str, pages: int, to_pages: int) -> Any:
        shape = jax.ShapeDtypeStruct
        if name == "prefill":
            run = partial(device.prefill, self._config, pages=self.cache_rungs[-1])
            return jax.jit(run).lower(self._params, shape((pages * kv.PAGE,), jnp.int32))
        state = jax.eval_shape(partial(device.init_state, self._config, pages, self._slots))
        if name == "resize":
            return jax.jit(partial(kv.resize, pages=to_pages)).lower(state.cache)
        if name == "admit":
            sequence = jax.eval_shape(partial(kv.init, self._config, self.cache_rungs[-1], 1))
            admission = shape((device.ADMISSION_WIDTH,), jnp.int32)
            return jax.jit(device.admit, donate_argnums=0).lower(state, sequence, admission)
        run = partial(device.decode, self._config, steps=self._steps)
        busy = shape((self._slots + 1,), np.bool_)
        return jax.jit(run, donate_argnums=1).lower(self._params, state, busy)


def _pages(state: SlotState) -> int:
    return state.cache[0].keys.shape[0]
