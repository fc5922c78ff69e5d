"""Device functions of an engine, compiled ahead of time.

A compiled program rejects arguments of another shape, so nothing recompiles silently.
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
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from webagent_jax.inference import kv_cache as kv
from webagent_jax.inference import prefill_decode
from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.inference.paged_attention import Implementation, paged_attention
from webagent_jax.inference.prefill_decode import (
    DecodeInput,
    DecodeOutput,
    DecodeState,
    ServedPolicy,
)
from webagent_jax.inference.slot_control import ChunkField, SlotField
from webagent_jax.policy import ModelConfig, sharding
from webagent_jax.policy.transformer import Params
from webagent_jax.types import IntArray

Progress = Callable[[int, int], None]
"""Callback that receives the number of compiled programs and their total number."""

Name = Literal["init", "shared_prefix", "prefill", "decode"]
# Logical axes of the arrays of a layer; a shared prefix has no axis of pages. The order of the last
# two, which are never sharded, depends on the array.
_PAGE_AXES = ("pages", "kv_heads", "tokens", "head_dim")


def cache_bytes_per_device(model: ModelConfig, shapes: EngineShapes, num_devices: int) -> int:
    """Return the bytes of the KV cache on each of the devices of an engine.

    Key-value heads that do not divide over the devices are replicated.
    """
    # Shardings of an abstract mesh have the shapes of the shards, but no devices.
    mesh = cast(Mesh, AbstractMesh((1, 1, num_devices), sharding.MESH_AXES))
    return sharding.bytes_per_device(ProgramSpec.from_params(model, shapes, (), mesh).state.pages)


@dataclass(frozen=True)
class ProgramSpec:
    """Inputs of program compilation; engines with equal specs share their programs."""

    config: ModelConfig  # architecture of the policy
    engine_shapes: EngineShapes  # static shapes of the engine
    structure: Any  # tree structure of the params
    shapes: tuple[jax.ShapeDtypeStruct, ...]  # shapes, dtypes and shardings of the params' leaves
    mesh: Mesh | None  # mesh of the engine; None for a single device

    @classmethod
    def from_params(
        cls,
        config: ModelConfig,
        engine_shapes: EngineShapes,
        params: Any,
        mesh: Mesh | None = None,
    ) -> Self:
        """Return the spec of an engine.

        Args:
            config: architecture of the policy.
            engine_shapes: static shapes of the engine.
            params: params in the layout of `serving_params.serving_params`, or their shapes, whose
                shardings may belong to another machine.
            mesh: mesh of the engine; None for a single device.
        """
        leaves, structure = jax.tree.flatten(params)
        shapes = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=getattr(x, "sharding", None))
            for x in leaves
        ]
        return cls(config, engine_shapes, structure, tuple(shapes), mesh)

    @property
    def replicated_sharding(self) -> Sharding | None:
        """Sharding of small arrays: replicated over the mesh, or on the device of the params."""
        if self.mesh is not None:
            return NamedSharding(self.mesh, PartitionSpec())
        # Without a mesh all params are on one device, so every leaf has the same sharding.
        param_sharding: Sharding | None = self.shapes[0].sharding
        return param_sharding

    @property
    def params(self) -> Params:
        """Abstract params in the layout of `serving_params.serving_params`."""
        return jax.tree.unflatten(self.structure, self.shapes)

    @property
    def state(self) -> DecodeState:
        """Abstract state with shardings; on a mesh, pages are sharded by key-value head."""
        # The shapes of unsharded arrays; their shardings are attached below.
        init = partial(prefill_decode.init_state, self.config, self.engine_shapes)
        shapes: DecodeState = jax.eval_shape(init)
        mesh, replicated = self.mesh, self.replicated_sharding
        shardings = jax.tree.map(lambda _: replicated, shapes)
        if mesh is None:
            return cast(DecodeState, sharding.with_shardings(shapes, shardings))
        pages = jax.tree.map(partial(_cache_sharding, mesh, _PAGE_AXES), shapes.pages)
        state: DecodeState = sharding.with_shardings(shapes, shardings._replace(pages=pages))
        return state

    @property
    def shared_prefix(self) -> kv.SharedPrefix:
        """Abstract shared prefix with shardings, sharded like pages; empty without a prefix."""
        if not self.engine_shapes.shared_prefix_tokens:
            return ()
        tokens = jax.ShapeDtypeStruct((self.engine_shapes.shared_prefix_tokens,), jnp.int32)
        compute = partial(prefill_decode.compute_shared_prefix, self.config)
        shapes: kv.SharedPrefix = jax.eval_shape(compute, self.params, tokens)
        if self.mesh is None:
            shardings = jax.tree.map(lambda _: self.replicated_sharding, shapes)
            return cast(kv.SharedPrefix, sharding.with_shardings(shapes, shardings))
        shardings = jax.tree.map(partial(_cache_sharding, self.mesh, _PAGE_AXES[1:]), shapes)
        prefix: kv.SharedPrefix = sharding.with_shardings(shapes, shardings)
        return prefix


def _cache_sharding(mesh: Mesh, axes: tuple[str, ...], x: Any) -> NamedSharding:
    return NamedSharding(mesh, sharding.partition_spec(mesh, axes, x.shape, name="cache"))


class CompiledPrograms:
    """Compiled programs of an engine, each compiled at its first use; thread-safe."""

    def __init__(self, spec: ProgramSpec) -> None:
        self._spec = spec
        self._programs: dict[Name, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Number of compiled programs."""
        return len(self._programs)

    def init(self) -> DecodeState:
        """Run `prefill_decode.init_state`."""
        return self._program("init")()

    def shared_prefix(self, params: Params, tokens: IntArray) -> kv.SharedPrefix:
        """Run `prefill_decode.compute_shared_prefix`."""
        return self._program("shared_prefix")(params, tokens)

    def prefill(
        self, served: ServedPolicy, pages: kv.KVPages, chunks: IntArray, count: Any
    ) -> kv.KVPages:
        """Run `prefill_decode.prefill`; `pages` are donated."""
        return self._program("prefill")(served, pages, chunks, count)

    def decode(
        self, served: ServedPolicy, state: DecodeState, inputs: DecodeInput
    ) -> tuple[DecodeState, DecodeOutput]:
        """Run `prefill_decode.decode`; `state` is donated."""
        return self._program("decode")(served, state, inputs)

    def warmup(self, progress: Progress | None = None) -> None:
        """Compile every program that the engine can need.

        Args:
            progress: called before the first program and after each one.
        """
        all_names: tuple[Name, ...] = get_args(Name)
        names = [name for name in all_names if name != "shared_prefix" or self._spec.shared_prefix]
        for num_compiled, name in enumerate(names):
            if progress:
                progress(num_compiled, len(names))
            self._program(name)
        if progress:
            progress(len(names), len(names))

    def _program(self, name: Name) -> Callable[..., Any]:
        with self._lock:
            # The lock is held while compiling, so two threads never compile one program twice.
            if name not in self._programs:
                self._programs[name] = _compile(self._spec, name)
            return self._programs[name]


@functools.lru_cache(maxsize=64)
def _compile(spec: ProgramSpec, name: Name) -> Callable[..., Any]:
    return lower(spec, name).compile()


def lower(spec: ProgramSpec, name: Name) -> jax.stages.Lowered:
    """Lower one program of an engine, ready to compile ahead of time."""
    config, shapes, state = spec.config, spec.engine_shapes, spec.state
    served = ServedPolicy(spec.params, spec.shared_prefix)
    jit: Callable[..., Any] = partial(jax.jit, compiler_options=_compiler_options(spec))

    def host_input(*shape: int, dtype: Any = jnp.int32) -> jax.ShapeDtypeStruct:
        """Return the abstract array of an input from the host."""
        return jax.ShapeDtypeStruct(shape, dtype, sharding=spec.replicated_sharding)

    def attend(
        pages_per_block: int, implementation: Implementation = "xla"
    ) -> prefill_decode.PagedAttentionFn:
        return partial(
            paged_attention,
            pages_per_block=pages_per_block,
            implementation=implementation,
            mesh=spec.mesh,
        )

    def output_shardings(outputs: Any) -> dict[str, Any]:
        """Return jit options that keep the shardings of arrays passed between dispatches."""
        return (
            {}
            if spec.replicated_sharding is None
            else {"out_shardings": jax.tree.map(_get_sharding, outputs)}
        )

    if name == "init":
        init = partial(prefill_decode.init_state, config, shapes)
        return jit(init, **output_shardings(state)).lower()
    if name == "shared_prefix":
        compute = jit(
            partial(prefill_decode.compute_shared_prefix, config),
            **output_shardings(served.shared_prefix),
        )
        return compute.lower(spec.params, host_input(shapes.shared_prefix_tokens))
    if name == "prefill":
        fill = partial(
            prefill_decode.prefill,
            config,
            chunk_pages=shapes.chunk_page_counts,
            attend_to_pages=attend(shapes.prefill_pages_per_block),
        )
        # Donated pages are updated in place; without it the KV cache would need twice the memory.
        run = jit(fill, donate_argnums=1, **output_shardings(state.pages))
        # Control fields, tokens of the largest chunk, page table.
        width = ChunkField.TOKENS + shapes.chunk_tokens + shapes.pages_per_sequence
        chunks = host_input(shapes.prefill_batches, shapes.chunks_per_batch, width)
        return run.lower(served, state.pages, chunks, host_input())
    run = partial(
        prefill_decode.decode,
        config,
        steps=shapes.decode_steps,
        num_speculative_tokens=shapes.num_speculative_tokens,
        refill_slots=shapes.refill_slots,
        sequential_slots=shapes.sequential_slots,
        attend_to_pages=attend(shapes.decode_pages_per_block, shapes.decode_attention),
    )
    inputs = DecodeInput(
        control=host_input(shapes.slots, SlotField.TABLE + shapes.pages_per_sequence),
        has_queue=host_input(dtype=jnp.bool_),
        prompts=host_input(shapes.slots, shapes.history_tokens),
        recent=host_input(shapes.recent_tokens),
    )
    outputs = jax.eval_shape(run, served, state, inputs)
    # The next dispatch accepts the returned state only with the shardings of the given one.
    run = jit(run, donate_argnums=1, **output_shardings((state, outputs[1])))
    return run.lower(served, state, inputs)


def _compiler_options(spec: ProgramSpec) -> dict[str, str] | None:
    param_sharding = spec.shapes[0].sharding
    platform = (
        jax.default_backend()
        if param_sharding is None
        else next(iter(param_sharding.device_set)).platform
    )
    # On GPUs, XLA merges the matmuls of a projection and its adapter into one: every dispatch would
    # copy all weights that have adapters, to concatenate the two kernels.
    return {"xla_gpu_dot_merger_threshold_mb": "0"} if platform == "gpu" else None


def _get_sharding(x: Any) -> Any:
    return x.sharding
