"""The device functions of one engine, compiled ahead of time, once per shape.

A compiled program refuses arguments of another shape, so nothing can recompile unnoticed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp

from webagent_jax.generate import cache as kv
from webagent_jax.generate import device
from webagent_jax.generate.device import Emitted, SlotState
from webagent_jax.policy import ModelConfig
from webagent_jax.policy.transformer import Params
from webagent_jax.types import IntArray

Progress = Callable[[int, int], None]
"""(programs compiled so far, programs in all)."""

Key = tuple[str, int, int]
"""(name of the function, pages, pages to resize to or 0)."""


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
        pages = _pages_for(max_tokens)
        self.cache_rungs = rungs(4, pages, per_octave=2)  # a decode step reads all these pages
        self.prompt_rungs = rungs(2, pages, per_octave=4)  # prefill pays for each token of padding
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
        self._build = Build.of(config, shapes, slots=slots, max_tokens=max_tokens, steps=steps)
        self._programs: dict[Key, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Programs made ready so far."""
        return len(self._programs)

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
        wanted: list[Key] = [("prefill", pages, 0) for pages in self.prompt_rungs]
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
            if key not in self._programs:
                self._programs[key] = _compiled(self._build, key)
            return self._programs[key]


@dataclass(frozen=True)
class Build:
    """All that a program depends on besides its key. Engines of one build share their programs."""

    config: ModelConfig
    structure: Any  # of the params
    shapes: tuple[jax.ShapeDtypeStruct, ...]  # of their leaves
    slots: int
    max_pages: int
    steps: int

    @classmethod
    def of(
        cls, config: ModelConfig, params: Any, *, slots: int, max_tokens: int, steps: int
    ) -> Self:
        """`params`: shapes of `device.serving_params`, with shardings to compile for a machine that
        is not this one."""
        leaves, structure = jax.tree.flatten(params)
        return cls(config, structure, tuple(leaves), slots, _pages_for(max_tokens), steps)


@functools.lru_cache(maxsize=256)
def _compiled(build: Build, key: Key) -> Callable[..., Any]:
    return lower(build, key).compile()


def lower(build: Build, key: Key) -> jax.stages.Lowered:
    """The program of that key, to be compiled ahead of time."""
    name, pages, to_pages = key
    params = jax.tree.unflatten(build.structure, build.shapes)
    if name == "prefill":
        run = partial(device.prefill, build.config, pages=build.max_pages)
        tokens = jax.ShapeDtypeStruct((pages * kv.PAGE,), jnp.int32)
        return jax.jit(run).lower(params, tokens)
    state = jax.eval_shape(partial(device.init_state, build.config, pages, build.slots))
    if name == "resize":
        return jax.jit(partial(kv.resize, pages=to_pages)).lower(state.cache)
    if name == "admit":
        sequence = jax.eval_shape(partial(kv.init, build.config, build.max_pages, 1))
        admission = jax.ShapeDtypeStruct((device.ADMISSION_WIDTH,), jnp.int32)
        admit = jax.jit(device.admit, donate_argnums=0)
        return admit.lower(state, sequence, admission)
    decode = partial(device.decode, build.config, steps=build.steps)
    busy = jax.ShapeDtypeStruct((build.slots + 1,), jnp.bool_)
    return jax.jit(decode, donate_argnums=1).lower(params, state, busy)


def _pages_for(max_tokens: int) -> int:
    return -(-max_tokens // kv.PAGE)


def _pages(state: SlotState) -> int:
    return state.cache[0].keys.shape[0]
