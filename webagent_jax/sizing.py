"""Estimate of memory and time of a run from shapes, for hardware that is not available.

`compile_check` reports the memory of compiled programs, which takes minutes. This module adds up
the same arrays for any chip in a second. Nothing here is measured.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

from jax.sharding import AbstractMesh, Mesh

from webagent_jax import compile_check, policy
from webagent_jax.chips import CHIPS, Chip
from webagent_jax.compile_check import CostEstimate
from webagent_jax.config import LoRAConfig, RunConfig
from webagent_jax.inference import programs
from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.policy import ModelConfig, flops, lora, sharding

# Arrays that exist at once while the backward pass recomputes a layer, of the width of the MLP and
# of all heads. The numbers are those of the compiled programs in docs/sizing.md.
_MLP_ARRAYS, _HEAD_ARRAYS = 6, 4
# Copies of all weights in the dtype of the activations. The GPU compiler casts layer by layer.
_WEIGHT_COPIES = {"tpu": 2, "gpu": 0}

_LORA_RANK = 32
_USABLE_FRACTION = 0.95  # of the memory; docs/recipes.md has the errors of the estimates


@dataclass(frozen=True)
class Hardware:
    """Devices of a recipe."""

    name: str
    chip: str  # key of `CHIPS`
    devices: int
    devices_per_engine: tuple[int, ...]  # sizes of an engine, the preferred one first
    engines: int  # number of engines; 0: as many as fit on the devices


@dataclass(frozen=True)
class Workload:
    """Assumptions about episodes and speed."""

    turns: float  # turns per episode
    prompt_tokens: float  # tokens of a prompt
    response_tokens: float  # tokens of a response
    cached_fraction: float = 0.3  # fraction of a prompt that the prefix cache contains
    browser_seconds: float = 2.0  # time of a turn without its response
    episodes_per_trained: float = 1.5  # episodes per trained one, as filtered groups are replaced
    roofline_fraction: float = 0.3  # achieved fraction of the roofline


@dataclass(frozen=True)
class EngineTimes:
    """Estimated times of an engine in seconds."""

    prefill: float  # of one prompt
    decode_step: float  # of one token for each slot


@dataclass(frozen=True)
class Sizing:
    """Estimate of one config on one slice; bytes are per device, seconds per update."""

    cfg: RunConfig
    usable_bytes: float  # memory that an estimate may fill
    mesh: dict[str, int]  # axis sizes of the training mesh
    update_bytes: float  # bytes during an update, with the params of the engine
    rollout_bytes: float  # bytes during rollouts, with train state and reference
    transfer_bytes: float  # bytes while the engine receives the params of an update
    update_seconds: float  # time of the optimizer step
    rollout_seconds: float  # time of the episodes
    engine_times: EngineTimes  # times of each engine

    @property
    def program_bytes(self) -> float:
        """Largest memory of a device during the programs of `compile_check`."""
        return max(self.update_bytes, self.rollout_bytes)

    @property
    def max_bytes(self) -> float:
        """Largest memory of a device."""
        return max(self.program_bytes, self.transfer_bytes)

    @property
    def fits(self) -> bool:
        """True if the memory of a device is sufficient."""
        return self.max_bytes <= self.usable_bytes

    @property
    def hours(self) -> float:
        """Duration of M-GRPO."""
        return self.cfg.grpo.updates * (self.update_seconds + self.rollout_seconds) / 3600


def recommend(cfg: RunConfig, hardware: Hardware, workload: Workload) -> Sizing:
    """Return the first setting of mesh, engine and LoRA that fits, or the smallest if none does.

    Prefers training of all params over adapters, and fewer tensor shards over more.
    """
    results = []
    for candidate in _candidates(cfg, hardware):
        # Not every mesh divides the model.
        with contextlib.suppress(sharding.ShardingError):
            results.append(estimate(candidate, hardware, workload))
            if results[-1].fits:
                return results[-1]
    return min(results, key=lambda result: result.max_bytes)


def _candidates(cfg: RunConfig, hardware: Hardware) -> Iterator[RunConfig]:
    tensor_sizes = [size for size in (1, 2, 4, 8) if size <= hardware.devices]
    for rank, tensor, engine_size in itertools.product(
        (0, _LORA_RANK), tensor_sizes, hardware.devices_per_engine
    ):
        yield replace(
            cfg,
            lora=LoRAConfig(rank=rank),
            mesh=replace(cfg.mesh, tensor=tensor),
            engine=replace(cfg.engine, tensor_parallel_size=engine_size),
        )


def estimate(cfg: RunConfig, hardware: Hardware, workload: Workload) -> Sizing:
    """Return memory and time of a run; `policy.remat` counts as "full".

    Raises:
        ShardingError: a mesh does not cover the devices or divide the model.
    """
    model = compile_check.model_config(cfg.policy)
    mesh = _mesh(hardware.devices, cfg.mesh.data, cfg.mesh.fsdp, cfg.mesh.tensor)
    engine_size = cfg.engine.tensor_parallel_size
    shapes = _abstract_params(model)
    params = trained = _bytes_per_device(shapes, mesh)
    if cfg.lora.rank:
        adapters = lora.abstract_adapters(shapes, cfg.lora.rank, cfg.lora.target_modules)
        trained = _bytes_per_device(adapters, mesh)
    # Params and two moments. The base of adapters is also the reference.
    state = 3 * trained + (params if cfg.lora.rank or cfg.grpo.needs_reference else 0)
    engine_params = _bytes_per_device(shapes, _mesh(engine_size, tensor=engine_size))
    served = replace(model, quantization=cfg.engine.quantization)
    size_ratio = policy.weight_bytes(served) / policy.weight_bytes(model)
    serving = engine_params * model.itemsize / 4 * size_ratio
    engine = EngineShapes.from_options(model, cfg.engine)
    cache = programs.cache_bytes_per_device(model, engine, engine_size)
    cache_token_bytes = cache / (engine.num_pages * engine.page_tokens)
    # The engine's temporary arrays are about the size of the embedding.
    embedding = model.vocab_size * model.d_model * model.itemsize / engine_size
    chip = CHIPS[hardware.chip]
    engine_times = _engine_times(cfg, served, chip, workload, cache_token_bytes)
    update = state + _update_temporaries(cfg, model, chip, mesh, trained) + serving
    # The old and the new params of the engine, and with several processes the copy that each
    # process receives, see `Learner.snapshot`.
    transfer = state + 2 * serving
    if num_engines(cfg, hardware) > 1:
        is_cast = cfg.engine.quantization == "none"
        transfer += engine_params * (model.itemsize / 4 if is_cast else 1)
    if cfg.grpo.max_staleness:
        update += cache
        transfer += cache
    return Sizing(
        cfg=cfg,
        usable_bytes=_USABLE_FRACTION * chip.hbm,
        mesh=dict(mesh.shape),
        update_bytes=update,
        rollout_bytes=state + serving + cache + embedding,
        transfer_bytes=transfer,
        update_seconds=_update_seconds(cfg, model, chip, mesh, workload),
        rollout_seconds=_rollout_seconds(cfg, hardware, workload, engine_times),
        engine_times=engine_times,
    )


def num_engines(cfg: RunConfig, hardware: Hardware) -> int:
    """Return the number of engines, one per process."""
    return hardware.engines or hardware.devices // cfg.engine.tensor_parallel_size


def _mesh(devices: int, data: int = 1, fsdp: int = 1, tensor: int = 1) -> AbstractMesh:
    sizes = (data, devices // (data * tensor) if fsdp == -1 else fsdp, tensor)
    if math.prod(sizes) != devices:
        raise sharding.ShardingError(f"a mesh of {sizes} does not cover {devices} devices")
    return AbstractMesh(sizes, sharding.MESH_AXES)


# The same few models are sized on many devices.
_abstract_params = functools.lru_cache(policy.abstract_params)


def _bytes_per_device(shapes: policy.Params, mesh: AbstractMesh) -> int:
    # Shardings of an abstract mesh have the shapes of the shards, but no devices.
    shardings = sharding.param_shardings(shapes, cast(Mesh, mesh))
    return sharding.bytes_per_device(sharding.with_shardings(shapes, shardings))


def _update_temporaries(
    cfg: RunConfig, model: ModelConfig, chip: Chip, mesh: AbstractMesh, trained: float
) -> float:
    """Return the bytes of gradients, gathered weights and activations of an update."""
    tensor = mesh.shape["tensor"]
    tokens = cfg.mesh.microbatch_rows_per_device * cfg.grpo.row_tokens
    weights = policy.weight_bytes(model) / (tensor * mesh.shape["fsdp"])
    # The axis fsdp gathers the embedding and one layer; the gradient of the embedding is float32.
    embedding = model.vocab_size * model.d_model / tensor
    gathered = embedding * model.itemsize + flops.layer_weights(model) * model.itemsize / tensor
    if not cfg.lora.rank:
        gathered += 4 * embedding
    heads = (model.num_heads + model.num_kv_heads) * model.head_dim
    layer = (_MLP_ARRAYS * model.d_ff + _HEAD_ARRAYS * heads) / tensor
    activations = tokens * model.itemsize * (model.num_layers * model.d_model + layer)
    # Gradients of a microbatch and their sum.
    return 2 * trained + _WEIGHT_COPIES[chip.platform] * weights + gathered + activations


def _update_seconds(
    cfg: RunConfig, model: ModelConfig, chip: Chip, mesh: AbstractMesh, workload: Workload
) -> float:
    """Return the seconds of an update, with every turn as a separate sequence."""
    turns = cfg.grpo.tasks_per_update * cfg.grpo.group_size * workload.turns
    tokens = turns * (workload.prompt_tokens + workload.response_tokens)
    tokens_per_microbatch = (
        cfg.mesh.microbatch_rows_per_device
        * cfg.grpo.row_tokens
        * mesh.shape["data"]
        * mesh.shape["fsdp"]
    )
    work = compile_check.update_work(
        cfg, model, mesh, microbatches=math.ceil(tokens / tokens_per_microbatch)
    )
    return work.seconds(chip) / workload.roofline_fraction


def _rollout_seconds(
    cfg: RunConfig, hardware: Hardware, workload: Workload, times: EngineTimes
) -> float:
    """Return the seconds of the episodes of an update: prefill, decoding, then browsers."""
    engines = num_engines(cfg, hardware)
    episodes = cfg.grpo.tasks_per_update * cfg.grpo.group_size * workload.episodes_per_trained
    turns = episodes * workload.turns / engines
    engine_seconds = turns * (
        times.prefill + workload.response_tokens / cfg.engine.slots * times.decode_step
    )
    # Episodes of a process wait for the engine and for pages alternately, without overlap.
    browser_seconds = turns * workload.browser_seconds / cfg.rollout.max_concurrent_episodes
    return engine_seconds + browser_seconds


def _engine_times(
    cfg: RunConfig, model: ModelConfig, chip: Chip, workload: Workload, cache_token_bytes: float
) -> EngineTimes:
    """Return the times of an engine whose devices store `cache_token_bytes` per token."""
    size, slots = cfg.engine.tensor_parallel_size, cfg.engine.slots
    # 1. Prefill: the part of each prompt that is not in the prefix cache.
    new_tokens = int(workload.prompt_tokens * (1 - workload.cached_fraction))
    pairs = int(new_tokens * workload.prompt_tokens)
    prefill = CostEstimate(flops.layer_flops(model, new_tokens, pairs) / size, 0.0)
    # 2. Decoding: each step reads all weights and the keys and values of all slots.
    context = workload.prompt_tokens + workload.response_tokens / 2
    step_flops = flops.layer_flops(model, slots, int(slots * context))
    step_flops += flops.logits_flops(model, slots)
    step_bytes = policy.weight_bytes(model) / size + slots * context * cache_token_bytes
    step = CostEstimate(step_flops / size, step_bytes)
    return EngineTimes(
        prefill.seconds(chip) / workload.roofline_fraction,
        step.seconds(chip) / workload.roofline_fraction,
    )
