"""Check of JAX's devices: backend, mesh of the config, and memory of training and inference.

The memory is a lower bound: it counts only arrays that exist all the time. `webagent compile-check`
reports the full memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AbstractMesh, Mesh

from webagent_jax import policy, xla_flags
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.doctor.check_result import (
    CheckResult,
    failure,
    from_error,
    gib,
    ok,
    warning,
)
from webagent_jax.doctor.machine import available_bytes
from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.inference.programs import cache_bytes_per_device
from webagent_jax.policy import ModelConfig, matmul, sharding
from webagent_jax.policy.attention import resolve_implementation

# Device file of an accelerator, the backend that uses it, and the pip extra that installs it.
_ACCELERATORS = (("/dev/nvidia0", "gpu", "cuda"), ("/dev/accel0", "tpu", "tpu"))
_INSTALL_BACKEND = (
    "run pip install 'webagent_jax[cuda]' or 'webagent_jax[tpu]', or unset JAX_PLATFORMS"
)


def check(cfg: RunConfig, workdir: Path) -> Iterator[CheckResult]:
    """Yield the results about the devices."""
    del workdir
    try:
        devices = jax.devices()
    except (RuntimeError, AssertionError) as error:  # AssertionError: backend not installed
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = (str(error) or "its backend is not installed").splitlines()[0]
        yield failure(
            "devices", f"JAX has none with JAX_PLATFORMS={platforms!r}: {reason}", _INSTALL_BACKEND
        )
        return
    memory = _device_memory(devices[0])
    kind = devices[0].device_kind
    yield ok("devices", f"{len(devices)} {kind} ({jax.default_backend()}), {gib(memory)} each")
    yield from _unused_accelerators()
    if jax.default_backend() == "cpu":
        yield _check_cpu_results()
    if cfg.policy.kind == "openai":
        return
    try:
        # The attention of the config is checked below.
        model = policy.load_config(
            cfg.policy.path, cfg.policy.dtype, cfg.policy.remat, attention="dense"
        )
    except (FileNotFoundError, ValueError):
        return  # the check `weights` reports a policy that is missing or not supported
    try:
        attention = resolve_implementation(
            cfg.policy.attention, jax.default_backend(), model.head_dim
        )
    except ConfigError as error:
        yield from_error("attention", error, "set --config.policy.attention=auto")
        return
    model = replace(model, attention=attention)
    yield ok("attention", attention)
    if cfg.policy.matmul_dtype == "bfloat16" and not matmul.is_supported():
        yield failure(
            "matmul",
            "this CPU cannot compute policy.matmul_dtype=bfloat16",
            "set --config.policy.matmul_dtype=float32",
        )
    yield from _check_training(cfg, model, memory)
    yield from _check_engine(cfg, model, memory)


def _unused_accelerators() -> Iterator[CheckResult]:
    backend = jax.default_backend()
    for path, required_backend, extra in _ACCELERATORS:
        if Path(path).exists() and backend != required_backend:
            yield warning(
                "accelerator",
                f"{path} exists, but JAX runs on {backend}",
                f"run pip install 'webagent_jax[{extra}]', and unset JAX_PLATFORMS",
            )


def _check_cpu_results() -> CheckResult:
    """Run two programs that XLA computes wrongly on CPU with fusions into YNNPACK's kernels."""

    @jax.jit
    def squares(rows: Array) -> Array:  # wrong in jaxlib 0.10.2
        return jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(rows)

    @jax.jit
    def row_sums(x: Array) -> Array:  # wrong in jaxlib 0.10.2 to 0.11.2
        return jnp.sum((x @ jnp.ones_like(x)) * x, axis=-1)

    # The error of the first program begins above 2**15 rows, so the last row has the only value.
    rows = jnp.zeros((2**15 + 1, 3)).at[-1, 0].set(2.0**15)
    results = (float(squares(rows)[-1]), float(row_sums(jnp.ones((2, 60, 60)))[-1, -1]))
    expected = (2.0**30, 60.0**2)
    jaxlib = f"jaxlib {metadata.version('jaxlib')}"
    if results != expected:
        return failure(
            "CPU results",
            f"{jaxlib} computes {results} instead of {expected} (jax issue 39103)",
            f'export XLA_FLAGS="$XLA_FLAGS {xla_flags.DISABLE_YNN_REDUCE}"',
        )
    return ok("CPU results", f"{jaxlib} computes the programs of jax issue 39103 correctly")


def _device_memory(device: jax.Device) -> int:
    """Return the bytes that JAX may use on the device; CPU devices share the free host memory."""
    stats = device.memory_stats() or {}
    return int(stats.get("bytes_limit") or available_bytes() // len(jax.local_devices()))


def _check_training(cfg: RunConfig, model: ModelConfig, memory: int) -> Iterator[CheckResult]:
    try:
        mesh = sharding.make_mesh(cfg.mesh.data, cfg.mesh.fsdp, cfg.mesh.tensor)
        params = _param_bytes_per_device(model, mesh)
    except sharding.ShardingError as error:
        yield from_error(
            "mesh",
            error,
            "set --config.mesh.data, --config.mesh.fsdp and --config.mesh.tensor so that their "
            "product is the number of devices; -1 takes the rest",
        )
        return
    yield ok("mesh", " x ".join(f"{name} {size}" for name, size in mesh.shape.items()))
    # Params and two moments; the moments of adapters are small.
    copies = 1 if cfg.lora.rank else 3
    # With LoRA, the frozen base is the reference.
    copies += cfg.grpo.needs_reference and not cfg.lora.rank
    bytes_needed = copies * params
    description = f"params, moments and reference take {gib(bytes_needed)} of {gib(memory)}"
    if bytes_needed > memory:
        yield warning(
            "training memory",
            description,
            "use more devices, or set --config.lora.rank=32 or --config.grpo.kl_beta=0",
        )
    else:
        yield ok("training memory", description)


def _param_bytes_per_device(model: ModelConfig, mesh: Mesh) -> int:
    """Return the bytes of the params that one device stores.

    Raises:
        ShardingError: the mesh does not fit the model.
    """
    shapes = policy.abstract_params(model)
    sharded = sharding.with_shardings(shapes, sharding.param_shardings(shapes, mesh))
    return sharding.bytes_per_device(sharded)


def _check_engine(cfg: RunConfig, model: ModelConfig, memory: int) -> Iterator[CheckResult]:
    engine = cfg.engine
    num_devices = len(jax.local_devices())
    if engine.tensor_parallel_size > num_devices:
        yield failure(
            "engine",
            f"engine.tensor_parallel_size={engine.tensor_parallel_size} is more than the "
            f"{num_devices} devices of this process",
            f"set --config.engine.tensor_parallel_size to {num_devices} or less",
        )
        return
    try:
        _check_tensor_parallel(model, engine.tensor_parallel_size)
    except sharding.ShardingError as error:
        sizes = ", ".join(map(str, _tensor_parallel_sizes(model, num_devices)))
        yield failure(
            "engine",
            f"engine.tensor_parallel_size={engine.tensor_parallel_size}: {error}",
            f"set --config.engine.tensor_parallel_size to one of: {sizes}",
        )
        return
    max_size = _tensor_parallel_sizes(model, num_devices)[-1]
    # Devices of a CPU share its cores.
    if engine.tensor_parallel_size < max_size and jax.default_backend() != "cpu":
        yield warning(
            "engine devices",
            f"{num_devices - engine.tensor_parallel_size} of {num_devices} devices of this process "
            "are idle during rollouts",
            "start one process per device, or set "
            f"--config.engine.tensor_parallel_size={max_size} (docs/multi_process.md)",
        )
    try:
        shapes = EngineShapes.from_options(model, engine)
    except ValueError as error:
        yield from_error(
            "engine",
            error,
            "change --config.engine.max_model_len or --config.engine.kv_cache_mib",
        )
        return
    cache_bytes = cache_bytes_per_device(model, shapes, engine.tensor_parallel_size)
    served = replace(model, quantization=engine.quantization)
    param_bytes = policy.weight_bytes(served) // engine.tensor_parallel_size
    # Without training, the loaded params exist until the engine has copied them.
    load_bytes = 4 * policy.count_params(model) // engine.tensor_parallel_size + param_bytes
    if load_bytes > memory:
        yield warning(
            "loading",
            f"evaluate, collect and view load the params in float32 and copy them: "
            f"{gib(load_bytes)} of {gib(memory)}",
            "raise --config.engine.tensor_parallel_size for them",
        )
    description = (
        f"{gib(param_bytes)} of params, {gib(cache_bytes)} of keys and values, of {gib(memory)}"
    )
    if param_bytes + cache_bytes > memory:
        yield failure(
            "engine",
            description,
            "lower --config.engine.slots or --config.engine.kv_cache_mib, or raise "
            "--config.engine.tensor_parallel_size",
        )
    else:
        yield ok("engine", description)


def _tensor_parallel_sizes(model: ModelConfig, num_devices: int) -> list[int]:
    """Return the numbers of devices that an engine of the policy can use, in ascending order."""
    sizes = []
    for size in range(1, num_devices + 1):
        with suppress(sharding.ShardingError):
            _check_tensor_parallel(model, size)
            sizes.append(size)
    return sizes


def _check_tensor_parallel(model: ModelConfig, size: int) -> None:
    """Check that heads, MLP and vocabulary divide over the devices of an engine.

    Raises:
        ShardingError: one of them does not; the message names it.
    """
    mesh = AbstractMesh((1, 1, size), sharding.MESH_AXES)
    sharding.param_shardings(policy.abstract_params(model), mesh)
