"""Ahead-of-time check of memory and minimum time of the programs of a run on TPUs and GPUs.

The compilers (libtpu, XLA's CUDA plugin) compile for a topology without the hardware and report the
memory of each program. FLOPs and bytes are derived from the shapes: the counts of the compilers
include loop bodies once and Pallas kernels not at all.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh

from webagent_jax import device_memory, learn, policy
from webagent_jax.chips import (
    Chip,
    Platform,
    TopologyError,
    compile_target,
    find_chip,
    topology_devices,
)
from webagent_jax.config import PolicyConfig, RunConfig
from webagent_jax.hlo import count_dynamic_loops, estimated_cycles
from webagent_jax.inference import programs, serving_params
from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.policy import ModelConfig, flops, lora, presets, sharding
from webagent_jax.policy.attention import resolve_implementation
from webagent_jax.policy.lora import FrozenBase
from webagent_jax.policy.sharding import bytes_per_device
from webagent_jax.types import ForestRows

_MICROBATCHES = 16  # microbatches of the compiled update; memory hardly depends on it
_GIB = 2**30


@dataclass(frozen=True)
class CostEstimate:
    """Minimum cost of one run of a program on each device."""

    flops: float  # floating-point operations
    hbm_bytes: float  # bytes read from or written to memory
    ici_bytes: float = 0.0  # bytes sent to other devices

    def seconds(self, chip: Chip) -> float:
        """Return the roofline time, a lower bound of the run time in seconds."""
        return max(
            self.flops / chip.flops,
            self.hbm_bytes / chip.hbm_bandwidth,
            self.ici_bytes / chip.ici_bandwidth,
        )


@dataclass(frozen=True)
class ProgramReport:
    """Memory and cost of one compiled program; bytes are per device."""

    name: str  # name of the program
    arguments: int  # bytes of the arguments
    outputs: int  # bytes of outputs that do not reuse the memory of an argument
    temporaries: int  # bytes of temporary arrays
    resident: int  # bytes of other arrays on the device while the program runs
    work: CostEstimate  # minimum cost of one run
    roofline_seconds: float  # lower bound of the run time
    fits: bool  # whether the total fits the memory of the device
    cycles: int = 0  # TPU compiler's estimate, without memory stalls; 0: no estimate
    dynamic_loops: int = 0  # on GPUs, loops without a trip count known at compile time
    refusal: str = ""  # message of the compiler if it ran out of memory

    @property
    def total(self) -> int:
        """Bytes of the program and of the other arrays on the device."""
        return self.arguments + self.outputs + self.temporaries + self.resident


@dataclass(frozen=True)
class Report:
    """Result of a check."""

    policy: str  # name or directory of the policy
    topology: str  # TPU or GPU topology: "v5e:4x4"
    devices: int  # number of devices
    mesh: dict[str, int]  # axis sizes of the training mesh
    hbm: float  # memory of a device, in bytes
    programs: tuple[ProgramReport, ...]  # results by program

    @property
    def fits(self) -> bool:
        """True if all programs fit."""
        return all(program.fits for program in self.programs)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        rows = [dataclasses.asdict(p) | {"total": p.total} for p in self.programs]
        return dataclasses.asdict(self) | {"fits": self.fits, "programs": rows}


@dataclass(frozen=True)
class _Program:
    name: str
    lower: Callable[[], Any]  # returns jax.stages.Lowered
    work: CostEstimate  # minimum cost of one run
    resident: int  # bytes of other arrays on the device
    # Iterations of its loops for `estimated_cycles`. None for training: its kernels have no
    # estimate.
    iterations: tuple[int, ...] | None = None


def check(
    cfg: RunConfig,
    topology: str,
    progress: Callable[[str], None],
    count: int | None = None,
    *,
    names: Collection[str] = (),
) -> Report:
    """Compile the update, reference scoring, prefill and decode step; takes minutes.

    Training uses all devices as in `cfg.mesh`. An engine uses the first
    `engine.tensor_parallel_size` of them and shares their memory with training.

    Args:
        cfg: config of the run.
        topology: TPU or GPU topology, such as "v5e:4x4" or "h100:8".
        progress: receives the name of each program before it compiles.
        count: number of devices to use; None uses all devices of the topology.
        names: programs to compile, such as "decode step"; empty compiles all.

    Raises:
        TopologyError: the compiler is not installed, the topology is unknown, or it has fewer than
            `count` devices.
        FileNotFoundError, ValueError: see `policy.load_config`.
        ShardingError: the mesh does not divide the model.
    """
    chip = find_chip(topology)
    devices = topology_devices(topology)[:count]
    if count is not None and count > len(devices):
        raise TopologyError(
            f"--devices={count} is more than the {len(devices)} devices of {topology}; "
            "choose a larger --topology, or omit --devices"
        )
    mesh = sharding.make_mesh(cfg.mesh.data, cfg.mesh.fsdp, cfg.mesh.tensor, devices)
    model = model_config(cfg.policy, chip.platform)
    reports = []
    for program in _programs(cfg, model, mesh, chip.platform):
        if names and program.name not in names:
            continue
        progress(f"compiling {program.name}")
        with compile_target(devices[0]):
            reports.append(_compile(program, chip))
    return Report(
        policy=cfg.policy.path,
        topology=topology,
        devices=len(devices),
        mesh=dict(mesh.shape),
        hbm=chip.hbm,
        programs=tuple(reports),
    )


def model_config(config: PolicyConfig, platform: Platform = "tpu") -> ModelConfig:
    """Return the architecture from config.json, or a preset by name without a directory.

    `platform` selects the attention of `policy.attention=auto`.
    """
    model = presets.find_preset(config.path)
    if model is None or policy.is_policy_dir(config.path):
        # "auto" would select the attention of this machine's backend; it is replaced below.
        model = policy.load_config(config.path, attention="dense")
    attention: str = config.attention
    if attention == "auto":
        attention = resolve_implementation("auto", platform, model.head_dim)
    return dataclasses.replace(
        model,
        dtype=config.dtype,
        remat=config.remat,
        attention=attention,
        unroll=config.unroll,
        matmul_dtype=config.matmul_dtype,
    )


def table(report: Report) -> str:
    """Return the report as a text table."""
    mesh = " x ".join(f"{axis}={size}" for axis, size in report.mesh.items())
    hbm = report.hbm / _GIB
    lines = [
        f"{report.policy} on {report.topology}: {report.devices} devices, {mesh}",
        "",
        f"{'GiB per device':18}{'arguments':>10}{'outputs':>9}{'temps':>8}{'resident':>9}"
        f"{'total':>8}{'of':>8}  {'TFLOP':>9}{'HBM GB':>9}{'ICI GB':>9}{'roofline':>11}"
        f"{'Mcycles':>10}",
    ]
    for p in report.programs:
        parts = (p.arguments, p.outputs, p.temporaries, p.resident, p.total)
        widths = (10, 9, 8, 9, 8)
        gib = "".join(f"{b / _GIB:{w}.2f}" for b, w in zip(parts, widths, strict=True))
        work = (
            f"{p.work.flops / 1e12:9.3g}{p.work.hbm_bytes / 1e9:9.3g}{p.work.ici_bytes / 1e9:9.3g}"
        )
        verdict = "fits" if p.fits else f"DOES NOT FIT {p.refusal}"
        cycles = f"{p.cycles / 1e6:10.1f}" if p.cycles else f"{'-':>10}"
        lines.append(
            f"{p.name:18}{gib}{hbm:8.2f}  {work}{_duration(p.roofline_seconds)}{cycles}  {verdict}"
        )
    lines += ["", "all programs fit" if report.fits else "some programs do not fit"]
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    return f"{seconds:9.2f} s" if seconds >= 1 else f"{seconds * 1e3:8.2f} ms"


# --- programs ------------------------------------------------------------------------------------


def _programs(
    cfg: RunConfig, model: ModelConfig, mesh: Mesh, platform: Platform
) -> Iterator[_Program]:
    # 1. Training: abstract arrays with shardings, nothing is allocated.
    abstract_params = policy.abstract_params(model)
    params = sharding.with_shardings(
        abstract_params, sharding.param_shardings(abstract_params, mesh)
    )
    base, trainable, reference = None, params, params
    if cfg.lora.rank:
        adapters = lora.abstract_adapters(params, cfg.lora.rank, cfg.lora.target_modules)
        trainable = sharding.with_shardings(adapters, sharding.param_shardings(adapters, mesh))
        base, reference = FrozenBase(params, cfg.lora.alpha / cfg.lora.rank), lora.NO_ADAPTERS
    if not cfg.grpo.needs_reference:
        reference = None
    # The number of updates affects only the learning rate.
    optimizer = learn.make_optimizer(cfg.grpo.optimizer, total_steps=1)
    state = learn.abstract_state(trainable, optimizer)
    microbatch = cfg.mesh.microbatch_rows_per_device * sharding.num_row_shards(mesh)

    # 2. Engine: the first devices of the mesh also serve.
    served = replace(model, quantization=cfg.engine.quantization)
    # The TPU compiler rejects ids that are not below the number of devices of a program, and the
    # order of the mesh does not begin with the lowest ids if it spans several VMs.
    devices = sorted(mesh.devices.flat, key=lambda device: device.id)
    engine_devices = devices[: cfg.engine.tensor_parallel_size]
    engine_mesh = (
        sharding.make_mesh(tensor=len(engine_devices), devices=engine_devices)
        if len(engine_devices) > 1
        else None
    )
    policy_params = jax.eval_shape(lora.attach, base, trainable)
    layout = partial(serving_params.serving_params, served, fuse=engine_mesh is None)
    serving = sharding.with_shardings(
        jax.eval_shape(layout, policy_params),
        serving_params.serving_shardings(served, policy_params, engine_mesh or engine_devices[0]),
    )
    shapes = EngineShapes.from_options(model, cfg.engine, platform=platform)
    engine = programs.ProgramSpec.from_params(served, shapes, serving, engine_mesh)

    # 3. Programs, each with the other arrays that remain on its devices. During an update, these
    # are the params of the engine, and its KV cache if it does not sleep.
    engine_bytes = bytes_per_device(serving)
    if cfg.grpo.max_staleness:
        engine_bytes += bytes_per_device(engine.state.pages)
    loss_fn = learn.GRPOLoss.from_config(model, cfg.grpo, cfg.rollout.temperature, mesh)
    train_step = learn.make_train_step(loss_fn, optimizer, mesh)
    yield _Program(
        "update",
        lambda: train_step.lower(
            state,
            learn.FrozenParams(base, reference),
            _rows((_MICROBATCHES, microbatch), cfg.grpo.row_tokens, mesh),
        ),
        update_work(cfg, model, mesh),
        resident=engine_bytes,
    )
    if cfg.grpo.needs_reference:
        temperature = cfg.rollout.temperature
        score = jax.jit(
            lambda params, rows: policy.score(
                model, params, rows, temperature=temperature, mesh=mesh
            )
        )
        yield _Program(
            "reference scoring",
            lambda: score.lower(params, _rows((microbatch,), cfg.grpo.row_tokens, mesh)),
            _scoring_work(cfg, model, mesh),
            resident=engine_bytes + bytes_per_device(state),
        )
    training_bytes = bytes_per_device(state)
    # The base of adapters is also the reference.
    training_bytes += bytes_per_device(params) if base or cfg.grpo.needs_reference else 0
    yield _Program(
        "prefill",
        lambda: programs.lower(engine, "prefill"),
        _prefill_work(cfg, shapes, served),
        training_bytes,
        # The batches of the longest prompt; half of its pages precede a batch on average.
        iterations=(
            -(-shapes.max_model_len // shapes.prefill_tokens),
            -(-shapes.pages_per_sequence // (2 * shapes.prefill_pages_per_block)),
        ),
    )
    yield _Program(
        "decode step",
        lambda: programs.lower(engine, "decode"),
        _decode_work(cfg, shapes, served),
        training_bytes,
        iterations=(1, -(-shapes.pages_per_sequence // shapes.decode_pages_per_block)),
    )


def _rows(batch: tuple[int, ...], row_tokens: int, mesh: Mesh) -> ForestRows:
    """Return abstract forest rows [*batch, ...], the last axis of `batch` sharded over the mesh."""

    def abstract_array(width: int, dtype: Any) -> Any:
        shape = (*batch, width)
        row_sharding = sharding.batch_sharding(mesh, shape, rows_axis=len(batch) - 1)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=row_sharding)

    token, num_responses = abstract_array(row_tokens, jnp.int32), _response_tokens(row_tokens)
    number = abstract_array(num_responses, jnp.float32)
    targets = abstract_array(num_responses, jnp.int32)
    # In the order of the fields.
    return ForestRows(token, token, token, token, targets, number, number, number, number)


def _response_tokens(row_tokens: int) -> int:
    """Return the assumed number of response tokens of a row; pages are longer than actions."""
    return row_tokens // 4


# --- costs, for rows with one path each ----------------------------------------------------------


def update_work(
    cfg: RunConfig,
    model: ModelConfig,
    mesh: Mesh | AbstractMesh,
    microbatches: int = _MICROBATCHES,
) -> CostEstimate:
    """Return the cost of an update of full microbatches.

    The backward pass costs two forward passes, or one if the weights are frozen (adapters, whose
    own cost is neglected). It always recomputes logits, and layers depending on `remat`. Each pass
    over the layers reads all weights. The devices of the axis "fsdp" gather the weights and reduce
    the gradients, those of the axis "data" add them up, both in every microbatch.
    """
    layers, head = _row_flops(cfg, model, mesh)
    recomputes = model.remat in ("attention", "full")
    reference = cfg.grpo.needs_reference
    backward = 1 if cfg.lora.rank else 2
    # Bytes: weights in the dtype of the activations; trained params in float32, as gradient and
    # moments.
    weights, trained = policy.weight_bytes(model), 4 * _count_trained(cfg, model)
    tensor, fsdp, data = mesh.shape["tensor"], mesh.shape["fsdp"], mesh.shape["data"]
    remote_fraction = 1 - 1 / fsdp
    # Gathered for forward, backward and reference pass; the gradient is reduced in float32.
    fsdp_bytes = (2 + reference) * weights + trained
    # In a ring all-reduce, each device sends 2 (1 - 1 / data) of its part.
    data_bytes = 2 * (1 - 1 / data) * trained / (fsdp * tensor)
    row_bytes = (
        cfg.mesh.microbatch_rows_per_device * cfg.grpo.row_tokens * model.d_model * model.itemsize
    )
    passes = 2 + recomputes + reference
    # Each pass has two all-reduces per layer; in a ring, each sends 2 (1 - 1 / tensor) row_bytes.
    tensor_bytes = 2 * passes * model.num_layers * 2 * (1 - 1 / tensor) * row_bytes
    return CostEstimate(
        # In forward passes: forward 1, backward, recomputation 1 (logits always), reference 1.
        microbatches
        * (
            (1 + backward + recomputes + reference) * layers + (1 + backward + 1 + reference) * head
        ),
        microbatches * (1 + backward + recomputes + reference) * weights / tensor
        # The optimizer reads and writes params and two moments.
        + 6 * trained / (fsdp * tensor),
        microbatches * (fsdp_bytes * remote_fraction / tensor + tensor_bytes + data_bytes),
    )


def _count_trained(cfg: RunConfig, model: ModelConfig) -> int:
    if not cfg.lora.rank:
        return policy.count_params(model)
    params = policy.abstract_params(model)
    return lora.count_params(params, cfg.lora.rank, cfg.lora.target_modules)


def _scoring_work(cfg: RunConfig, model: ModelConfig, mesh: Mesh) -> CostEstimate:
    """Return the cost of a forward pass over one microbatch."""
    weights = policy.weight_bytes(model) / mesh.shape["tensor"]
    return CostEstimate(
        sum(_row_flops(cfg, model, mesh)), weights, weights * (1 - 1 / mesh.shape["fsdp"])
    )


def _row_flops(
    cfg: RunConfig, model: ModelConfig, mesh: Mesh | AbstractMesh
) -> tuple[float, float]:
    """Return the forward FLOPs of layers and logits for the rows of a device."""
    rows, tokens = cfg.mesh.microbatch_rows_per_device, cfg.grpo.row_tokens
    layers = flops.layer_flops(model, rows * tokens, rows * _causal_pairs(tokens))
    head = flops.logits_flops(model, rows * _response_tokens(tokens))
    return layers / mesh.shape["tensor"], head / mesh.shape["tensor"]


def _prefill_work(cfg: RunConfig, shapes: EngineShapes, model: ModelConfig) -> CostEstimate:
    """Return the cost of the longest prompt, over all its prefill batches."""
    tokens, tensor = shapes.max_model_len, cfg.engine.tensor_parallel_size
    # Ceiling division; each batch reads all weights.
    batches = -(-tokens // shapes.prefill_tokens)
    work = flops.layer_flops(model, tokens, _causal_pairs(tokens))
    return CostEstimate(work / tensor, batches * policy.weight_bytes(model) / tensor)


def _decode_work(cfg: RunConfig, shapes: EngineShapes, model: ModelConfig) -> CostEstimate:
    """Return the cost of one decode step with all slots and pages in use."""
    # Page 0 (NULL_PAGE) belongs to no request.
    tokens = min(shapes.slots * shapes.max_model_len, (shapes.num_pages - 1) * shapes.page_tokens)
    width = 1 + shapes.num_speculative_tokens  # the last token of a slot and its drafts
    work = flops.layer_flops(model, width * shapes.slots, width * tokens)
    work += flops.logits_flops(model, width * shapes.slots)
    tensor = cfg.engine.tensor_parallel_size
    cache_fraction = tokens / (shapes.num_pages * shapes.page_tokens)
    cache_bytes = cache_fraction * programs.cache_bytes_per_device(model, shapes, tensor)
    return CostEstimate(work / tensor, policy.weight_bytes(model) / tensor + cache_bytes)


def _causal_pairs(tokens: int) -> int:
    return tokens * (tokens + 1) // 2


# --- compilation ---------------------------------------------------------------------------------


def _compile(program: _Program, chip: Chip) -> ProgramReport:
    arguments = outputs = temporaries = cycles = dynamic_loops = 0
    refusal = ""
    try:
        compiled = program.lower().compile()
        memory = compiled.memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        if not device_memory.is_exhausted(error):
            raise
        # The compiler reports no sizes of a rejected program, so they stay 0.
        refusal = _memory_message(str(error))
    else:
        arguments = memory.argument_size_in_bytes
        # Donated arguments and the outputs in their memory count once, as arguments.
        outputs = memory.output_size_in_bytes - memory.alias_size_in_bytes
        temporaries = memory.temp_size_in_bytes
        if chip.platform == "tpu":
            # libtpu 0.0.42.1 reports up to 4.5 GiB more temporaries than its buffer assignment
            # contains. Its peak is correct: it equals that of version 0.0.51.
            temporaries = memory.peak_memory_in_bytes - arguments - outputs
        # Read the text only if needed: jaxlib cannot read every program of a newer libtpu.
        if chip.platform == "gpu":
            dynamic_loops = count_dynamic_loops(compiled.as_text())
        elif program.iterations is not None:
            cycles = estimated_cycles(compiled.as_text(), program.iterations)
    total = arguments + outputs + temporaries + program.resident
    return ProgramReport(
        name=program.name,
        arguments=arguments,
        outputs=outputs,
        temporaries=temporaries,
        resident=program.resident,
        work=program.work,
        roofline_seconds=program.work.seconds(chip),
        fits=not refusal and total <= chip.hbm,
        cycles=cycles,
        dynamic_loops=dynamic_loops,
        refusal=refusal,
    )


def _memory_message(message: str) -> str:
    """Return the memory figures of a compiler error, or its first line."""
    match = re.search(r"[Uu]sed \S+ of \S+ hbm", message)
    return f"(compiler: {match[0] if match else message.splitlines()[0]})"
