"""The device functions of an engine, compiled ahead of time.

A compiled program refuses arguments of another shape, so nothing can recompile unnoticed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, cast, get_args

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from webagent_jax.inference import kv_cache as kv
from webagent_jax.inference import prefill_decode
from webagent_jax.inference.engine_shapes import Sizes
from webagent_jax.inference.prefill_decode import Emitted, Served, SlotState
from webagent_jax.inference.slot_control import Field, StretchField
from webagent_jax.policy import ModelConfig, sharding
from webagent_jax.policy.transformer import Params
from webagent_jax.types import IntArray

Progress = Callable[[int, int], None]
"""(programs compiled so far, programs in all)."""

Name = Literal["init", "preamble", "prefill", "decode"]
_KEY_AXES = ("pages", "kv_heads", "head_dim", "tokens")
_VALUE_AXES = ("pages", "kv_heads", "tokens", "head_dim")


def serving_shardings(params: Params, at: Mesh | jax.Device) -> Any:
    """Where the leaves of `device.serving_params(params)` go: all to one device, or over a mesh as
    the params themselves. `params` may be shapes."""
    if not isinstance(at, Mesh):
        return SingleDeviceSharding(at)
    stacked = sharding.param_shardings(params, at)
    count = len(jax.tree.leaves(params["layers"])[0])
    layer = jax.tree.map(
        lambda leaf: NamedSharding(at, PartitionSpec(*leaf.spec[1:])), stacked["layers"]
    )
    layer = prefill_decode.on_their_side(
        layer, lambda leaf: NamedSharding(at, PartitionSpec(*reversed(leaf.spec)))
    )
    return {**stacked, "layers": (layer,) * count}


@dataclass(frozen=True)
class Build:
    """All that a program depends on. Engines of one build share their programs."""

    config: ModelConfig
    sizes: Sizes
    structure: Any  # of the params
    shapes: tuple[jax.ShapeDtypeStruct, ...]  # of their leaves
    mesh: Mesh | None

    @classmethod
    def of(cls, config: ModelConfig, sizes: Sizes, params: Any, mesh: Mesh | None = None) -> Self:
        """`params`: as of `device.serving_params`, or shapes of them, with shardings to compile for
        a machine that is not this one."""
        leaves, structure = jax.tree.flatten(params)
        shapes = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=getattr(x, "sharding", None))
            for x in leaves
        ]
        return cls(config, sizes, structure, tuple(shapes), mesh)

    @property
    def whole(self) -> Sharding | None:
        """Where a small array is: on all of the mesh, or with the params."""
        if self.mesh is not None:
            return NamedSharding(self.mesh, PartitionSpec())
        at: Sharding | None = self.shapes[0].sharding
        return at

    @property
    def params(self) -> Params:
        return jax.tree.unflatten(self.structure, self.shapes)

    @property
    def state(self) -> SlotState:
        """Shapes and places: on a mesh, pages are cut by key-value head."""
        init = partial(prefill_decode.init_state, self.config, self.sizes)
        shapes: SlotState = jax.eval_shape(init)
        mesh, whole = self.mesh, self.whole
        at = jax.tree.map(lambda _: whole, shapes)
        if mesh is None:
            return cast(SlotState, sharding.placed(shapes, at))
        pages = tuple(
            kv.LayerPages(_cut(mesh, _KEY_AXES, layer.keys), _cut(mesh, _VALUE_AXES, layer.values))
            for layer in shapes.pages
        )
        placed: SlotState = sharding.placed(shapes, at._replace(pages=pages))
        return placed

    @property
    def preamble(self) -> kv.Preamble:
        """Shapes and places of keys and values, cut as pages are."""
        if not self.sizes.preamble_tokens:
            return ()
        tokens = jax.ShapeDtypeStruct((self.sizes.preamble_tokens,), jnp.int32)
        compute = partial(prefill_decode.preamble, self.config)
        shapes: kv.Preamble = jax.eval_shape(compute, self.params, tokens)
        if self.mesh is None:
            at = jax.tree.map(lambda _: self.whole, shapes)
            return cast(kv.Preamble, sharding.placed(shapes, at))
        at = tuple(
            kv.LayerPreamble(
                _cut(self.mesh, _KEY_AXES[1:], layer.keys),
                _cut(self.mesh, _VALUE_AXES[1:], layer.values),
            )
            for layer in shapes
        )
        placed: kv.Preamble = sharding.placed(shapes, at)
        return placed


def _cut(mesh: Mesh, axes: tuple[str, ...], x: Any) -> Any:
    return NamedSharding(mesh, sharding.spec(mesh, axes, x.shape, name="cache"))


class Programs:
    """Safe to use from several threads; a program that is missing is compiled at its first use."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._programs: dict[Name, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Programs made ready so far."""
        return len(self._programs)

    def init(self) -> SlotState:
        return self._program("init")()

    def preamble(self, params: Params, tokens: IntArray) -> kv.Preamble:
        return self._program("preamble")(params, tokens)

    def prefill(self, served: Served, pages: kv.Pages, wanted: IntArray, count: Any) -> kv.Pages:
        """Consumes `pages`."""
        return self._program("prefill")(served, pages, wanted, count)

    def decode(
        self, served: Served, state: SlotState, control: IntArray, waiting: Any
    ) -> tuple[SlotState, Emitted]:
        """Consumes `state`."""
        return self._program("decode")(served, state, control, waiting)

    def warmup(self, progress: Progress | None = None) -> None:
        """Compiles whatever the engine can ever need."""
        names: tuple[Name, ...] = get_args(Name)
        wanted = [name for name in names if name != "preamble" or self._build.preamble]
        for done, name in enumerate(wanted):
            if progress:
                progress(done, len(wanted))
            self._program(name)
        if progress:
            progress(len(wanted), len(wanted))

    def _program(self, name: Name) -> Callable[..., Any]:
        with self._lock:
            if name not in self._programs:
                self._programs[name] = _compiled(self._build, name)
            return self._programs[name]


@functools.lru_cache(maxsize=64)
def _compiled(build: Build, name: Name) -> Callable[..., Any]:
    return lower(build, name).compile()


def lower(build: Build, name: Name) -> jax.stages.Lowered:
    """The program of that name, to be compiled ahead of time."""
    config, sizes, state = build.config, build.sizes, build.state
    served = Served(build.params, build.preamble)
    jit: Callable[..., Any] = jax.jit

    def told(*shape: int, dtype: Any = jnp.int32) -> jax.ShapeDtypeStruct:
        """What comes from the host."""
        return jax.ShapeDtypeStruct(shape, dtype, sharding=build.whole)

    def places(of: Any) -> dict[str, Any]:
        """What is handed on from dispatch to dispatch stays where it was."""
        return {} if build.whole is None else {"out_shardings": jax.tree.map(_sharding, of)}

    if name == "init":
        return jit(partial(prefill_decode.init_state, config, sizes), **places(state)).lower()
    if name == "preamble":
        compute = jit(partial(prefill_decode.preamble, config), **places(served.preamble))
        return compute.lower(build.params, told(sizes.preamble_tokens))
    if name == "prefill":
        fill = partial(
            prefill_decode.prefill,
            config,
            stretch_pages=sizes.stretch_pages,
            together=sizes.prefill_together,
        )
        run = jit(fill, donate_argnums=1, **places(state.pages))
        width = StretchField.TOKENS + sizes.stretch_tokens + sizes.columns
        wanted = told(sizes.prefill_batches, sizes.prefill_stretches, width)
        return run.lower(served, state.pages, wanted, told())
    run = partial(prefill_decode.decode, config, steps=sizes.steps, slots_apart=sizes.slots_apart)
    control = told(sizes.slots, Field.TABLE + sizes.columns)
    waiting = told(dtype=jnp.bool_)
    outputs = jax.eval_shape(run, served, state, control, waiting)
    run = jit(run, donate_argnums=1, **places((state, outputs[1])))
    return run.lower(served, state, control, waiting)


def _sharding(x: Any) -> Any:
    return x.sharding
