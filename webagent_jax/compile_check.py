"""Will it fit, and how fast can it be at best: the programs of a run, compiled ahead of time.

The real TPU compiler (libtpu) compiles for a topology that need not be at hand. It tells the memory
of every program and refuses what does not fit. Operations and bytes are counted from the shapes
instead: the compiler's own count takes loops once and Pallas kernels for nothing.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from webagent_jax import learn, policy
from webagent_jax.config import PolicyConfig, RunConfig
from webagent_jax.inference import kv_cache as kv
from webagent_jax.inference import prefill_decode, programs
from webagent_jax.inference.engine_shapes import Sizes
from webagent_jax.policy import ModelConfig, flops, lora, presets, sharding
from webagent_jax.policy.lora import Base
from webagent_jax.policy.sharding import device_bytes
from webagent_jax.types import ForestRows

_MICROBATCHES = 16  # of the update that is compiled; memory hardly depends on it
_GIB = 2**30


class CompileCheckError(ValueError):
    """The check cannot be made. The message says how to mend it."""


@dataclass(frozen=True)
class Chip:
    """Per chip, from the makers' pages."""

    flops: float  # per second, bfloat16
    hbm_bandwidth: float  # bytes per second
    ici_bandwidth: float  # bytes per second, all links together
    hbm: float  # bytes that XLA may use


CHIPS = {
    "v5e": Chip(197e12, 819e9, 200e9, 15.75 * _GIB),
    "v5p": Chip(459e12, 2765e9, 600e9, 95.74 * _GIB),
    "v6e": Chip(918e12, 1640e9, 448e9, 31.25 * _GIB),
}


@dataclass(frozen=True)
class Work:
    """What one run of a program needs on each device, at least."""

    flops: float
    hbm_bytes: float
    ici_bytes: float = 0.0

    def seconds(self, chip: Chip) -> float:
        """The roofline: no run is faster."""
        return max(
            self.flops / chip.flops,
            self.hbm_bytes / chip.hbm_bandwidth,
            self.ici_bytes / chip.ici_bandwidth,
        )


@dataclass(frozen=True)
class ProgramReport:
    """Bytes are those of one device."""

    name: str
    arguments: int
    outputs: int  # those that take no argument's place
    temporaries: int
    resident: int  # what else lies there while it runs
    work: Work
    bound_seconds: float
    fits: bool
    refusal: str = ""  # the compiler's words where it found no room

    @property
    def total(self) -> int:
        return self.arguments + self.outputs + self.temporaries + self.resident


@dataclass(frozen=True)
class Report:
    policy: str
    topology: str
    devices: int
    mesh: dict[str, int]
    hbm: float  # bytes of a device
    programs: tuple[ProgramReport, ...]

    @property
    def fits(self) -> bool:
        return all(program.fits for program in self.programs)

    def as_json(self) -> dict[str, Any]:
        rows = [dataclasses.asdict(p) | {"total": p.total} for p in self.programs]
        return dataclasses.asdict(self) | {"fits": self.fits, "programs": rows}


@dataclass(frozen=True)
class _Program:
    name: str
    lower: Callable[[], Any]  # -> jax.stages.Lowered
    work: Work
    resident: int


def check(
    cfg: RunConfig, topology: str, progress: Callable[[str], None], count: int | None = None
) -> Report:
    """Compiles the update, the scoring by the reference, prefill and decoding.

    The training lies on all devices, by `cfg.mesh`; each engine on one of them, beside its share of
    the training. Takes minutes.

    Args:
        topology: such as "v5e:4x4".
        progress: is told what is compiled.
        count: of its devices that are used, all by default.

    Raises:
        CompileCheckError: no libtpu, or no such topology.
        FileNotFoundError, ValueError: as `policy.load_config`.
        ShardingError: the model does not divide over the mesh.
    """
    chip = CHIPS.get(topology.partition(":")[0])
    if chip is None:
        raise CompileCheckError(f"no figures for {topology!r}; there are: {', '.join(CHIPS)}")
    devices = _devices(topology)[:count]
    mesh = sharding.make_mesh(cfg.mesh.data, cfg.mesh.fsdp, cfg.mesh.tensor, devices)
    model = model_config(cfg.policy)
    reports = []
    for program in _programs(cfg, model, mesh):
        progress(f"compiling {program.name}")
        reports.append(_compile(program, chip))
    return Report(
        policy=cfg.policy.path,
        topology=topology,
        devices=len(devices),
        mesh=dict(mesh.shape),
        hbm=chip.hbm,
        programs=tuple(reports),
    )


def model_config(given: PolicyConfig) -> ModelConfig:
    """By the directory's config.json, or by its name where there is no directory yet."""
    attention = "tpu" if given.attention == "auto" else given.attention
    known = presets.published(given.path)
    if known is None or policy.is_directory(given.path):
        known = policy.load_config(given.path, attention="dense")
    return dataclasses.replace(
        known,
        dtype=given.dtype,
        remat=given.remat,
        attention=attention,
        unroll=given.unroll,
    )


def table(report: Report) -> str:
    """For people."""
    mesh = " x ".join(f"{axis}={size}" for axis, size in report.mesh.items())
    room = report.hbm / _GIB
    lines = [
        f"{report.policy} on {report.topology}: {report.devices} devices, {mesh}",
        "",
        f"{'GiB per device':18}{'arguments':>10}{'outputs':>9}{'temps':>8}{'beside':>8}{'total':>8}"
        f"{'of':>8}  {'TFLOP':>9}{'HBM GB':>9}{'ICI GB':>9}{'at least':>11}",
    ]
    for p in report.programs:
        parts = (p.arguments, p.outputs, p.temporaries, p.resident, p.total)
        widths = (10, 9, 8, 8, 8)
        gib = "".join(f"{b / _GIB:{w}.2f}" for b, w in zip(parts, widths, strict=True))
        work = (
            f"{p.work.flops / 1e12:9.3g}{p.work.hbm_bytes / 1e9:9.3g}{p.work.ici_bytes / 1e9:9.3g}"
        )
        verdict = "fits" if p.fits else f"DOES NOT FIT {p.refusal}"
        lines.append(f"{p.name:18}{gib}{room:8.2f}  {work}{_duration(p.bound_seconds)}  {verdict}")
    lines += ["", "all fit" if report.fits else "does not fit"]
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    return f"{seconds:9.2f} s" if seconds >= 1 else f"{seconds * 1e3:8.2f} ms"


def _devices(topology: str) -> Sequence[Any]:
    from jax.experimental import topologies

    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # there is no TPU to ask about itself ...
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # ... nor to be had twice
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    except Exception as error:
        try:
            import libtpu  # noqa: F401
        except ImportError:
            raise CompileCheckError(
                'the TPU compiler is missing: pip install "webagent_jax[tpu]"'
            ) from error
        raise CompileCheckError(f"no topology {topology!r}: {error}") from error


# --- the programs --------------------------------------------------------------------------------


def _programs(cfg: RunConfig, model: ModelConfig, mesh: Mesh) -> Iterator[_Program]:
    shapes = policy.abstract_params(model)
    params = sharding.placed(shapes, sharding.param_shardings(shapes, mesh))
    reference = params if cfg.grpo.kl_beta > 0 else None
    base, trained = None, params
    if cfg.lora.rank:
        adapters = lora.abstract(params, cfg.lora.rank, cfg.lora.projections)
        trained = sharding.placed(adapters, sharding.param_shardings(adapters, mesh))
        base = Base(params, cfg.lora.alpha / cfg.lora.rank)
    optimizer = learn.make_optimizer(cfg.grpo.optimizer, total_updates=1)
    state = learn.abstract_state(trained, optimizer)
    microbatch = cfg.mesh.rows_per_device * sharding.rows_apart(mesh)

    own = list(mesh.devices.flat)[: cfg.engine.tensor]
    engine_mesh = sharding.make_mesh(tensor=cfg.engine.tensor, devices=own)
    sampled = jax.eval_shape(lora.whole, base, trained)
    serving = sharding.placed(
        jax.eval_shape(lambda params: prefill_decode.serving_params(model, params), sampled),
        programs.serving_shardings(sampled, engine_mesh),
    )
    sizes = Sizes.of(
        model,
        slots=cfg.engine.slots,
        max_tokens=cfg.engine.max_tokens,
        steps=cfg.engine.steps_per_dispatch,
        cache_bytes=cfg.engine.cache_bytes,
    )
    engine = programs.Build.of(model, sizes, serving, engine_mesh)

    yield _Program(
        "update",
        lambda: learn.lower_grpo_update(
            model,
            optimizer,
            state,
            _rows((_MICROBATCHES, microbatch), cfg.grpo.row_tokens, mesh),
            grpo=cfg.grpo,
            temperature=cfg.rollout.temperature,
            base=base,
            ref_params=reference,
            mesh=mesh,
        ),
        _update_work(cfg, model, mesh),
        resident=device_bytes(serving),
    )
    if reference is not None:
        temperature = cfg.rollout.temperature
        score = jax.jit(
            lambda params, rows: policy.score(
                model, params, rows, temperature=temperature, mesh=mesh
            )
        )
        yield _Program(
            "reference scoring",
            lambda: score.lower(reference, _rows((microbatch,), cfg.grpo.row_tokens, mesh)),
            _scoring_work(cfg, model, mesh),
            resident=device_bytes(serving) + device_bytes(state),
        )
    training = device_bytes(state) + (device_bytes(params) if base or reference else 0)
    yield _Program(
        "prefill",
        lambda: programs.lower(engine, "prefill"),
        _prefill_work(cfg, sizes, model),
        training,
    )
    yield _Program(
        "decode step",
        lambda: programs.lower(engine, "decode"),
        _decode_work(cfg, sizes, model),
        training,
    )


def _rows(batch: tuple[int, ...], row_tokens: int, mesh: Mesh) -> ForestRows:
    """Shapes of forest rows [*batch, ...], the last axis of `batch` cut over the mesh."""

    def of(width: int, dtype: Any) -> Any:
        shape = (*batch, width)
        at = sharding.batch_sharding(mesh, shape, rows_axis=len(batch) - 1)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=at)

    token, scored = of(row_tokens, jnp.int32), _scored(row_tokens)
    number = of(scored, jnp.float32)
    targets = of(scored, jnp.int32)
    return ForestRows(token, token, token, token, targets, number, number, number, number)


def _scored(row_tokens: int) -> int:
    """Response tokens of a row: pages are long and actions short."""
    return row_tokens // 4


# --- their work: rows that hold one path each, of pages that are long and actions that are short --


def _update_work(cfg: RunConfig, model: ModelConfig, mesh: Mesh) -> Work:
    """Of `_MICROBATCHES` microbatches.

    Backward is twice forward. Logits are always computed again for it, layers where they are
    forgotten. Every pass over the layers reads all weights, which the devices of "fsdp" give one
    another, as they do the gradients.
    """
    layers, head = _row_flops(cfg, model, mesh)
    again = model.remat in ("attention", "full")
    reference = cfg.grpo.kl_beta > 0
    weights, params = policy.weight_bytes(model), 4 * policy.count_params(model)
    tensor, fsdp = mesh.shape["tensor"], mesh.shape["fsdp"]
    elsewhere = 1 - 1 / fsdp
    moved = (2 + reference) * weights + params
    row_bytes = cfg.mesh.rows_per_device * cfg.grpo.row_tokens * model.d_model * model.itemsize
    sums = 2 * (2 + again + reference) * model.num_layers * 2 * (1 - 1 / tensor) * row_bytes
    return Work(
        _MICROBATCHES * ((3 + again + reference) * layers + (4 + reference) * head),
        _MICROBATCHES * (3 + again + reference) * weights / tensor + 6 * params / (fsdp * tensor),
        _MICROBATCHES * (moved * elsewhere / tensor + sums),
    )


def _scoring_work(cfg: RunConfig, model: ModelConfig, mesh: Mesh) -> Work:
    """Of one microbatch, forward."""
    weights = policy.weight_bytes(model) / mesh.shape["tensor"]
    return Work(sum(_row_flops(cfg, model, mesh)), weights, weights * (1 - 1 / mesh.shape["fsdp"]))


def _row_flops(cfg: RunConfig, model: ModelConfig, mesh: Mesh) -> tuple[float, float]:
    """Forward of the rows of a device, layers and logits."""
    rows, tokens = cfg.mesh.rows_per_device, cfg.grpo.row_tokens
    layers = flops.layers(model, rows * tokens, rows * _causal_pairs(tokens))
    head = flops.head(model, rows * _scored(tokens))
    return layers / mesh.shape["tensor"], head / mesh.shape["tensor"]


def _prefill_work(cfg: RunConfig, sizes: Sizes, model: ModelConfig) -> Work:
    """Of the longest prompt, batch by batch."""
    tokens, tensor = sizes.max_tokens, cfg.engine.tensor
    batches = -(-tokens // sizes.prefill_tokens)
    work = flops.layers(model, tokens, _causal_pairs(tokens))
    return Work(work / tensor, batches * policy.weight_bytes(model) / tensor)


def _decode_work(cfg: RunConfig, sizes: Sizes, model: ModelConfig) -> Work:
    """Of one token for every slot, all of them as full as there are pages."""
    tokens = min(sizes.slots * sizes.max_tokens, (sizes.pages - 1) * sizes.page_tokens)
    work = flops.layers(model, sizes.slots, tokens) + flops.head(model, sizes.slots)
    read = policy.weight_bytes(model) + tokens * kv.token_bytes(model)
    return Work(work / cfg.engine.tensor, read / cfg.engine.tensor)


def _causal_pairs(tokens: int) -> int:
    return tokens * (tokens + 1) // 2


# --- compilation ---------------------------------------------------------------------------------


def _compile(program: _Program, chip: Chip) -> ProgramReport:
    arguments = outputs = temporaries = 0
    refusal = ""
    try:
        memory = program.lower().compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        refusal = _used(str(error))
    else:
        arguments = memory.argument_size_in_bytes
        outputs = memory.output_size_in_bytes - memory.alias_size_in_bytes
        temporaries = memory.temp_size_in_bytes
    total = arguments + outputs + temporaries + program.resident
    return ProgramReport(
        name=program.name,
        arguments=arguments,
        outputs=outputs,
        temporaries=temporaries,
        resident=program.resident,
        work=program.work,
        bound_seconds=program.work.seconds(chip),
        fits=not refusal and total <= chip.hbm,
        refusal=refusal,
    )


def _used(message: str) -> str:
    """ "(the compiler: used 20.1G of 15.75G hbm)", or the first line of what it said."""
    found = re.search(r"[Uu]sed \S+ of \S+ hbm", message)
    return f"(the compiler: {found[0] if found else message.splitlines()[0]})"
