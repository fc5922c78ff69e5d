"""What JAX sees, whether the config's mesh can be made of it, and whether the run can fit.

Memory is a lower bound, of what lies there all the time; launch/compile_check.py tells all of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from webagent_jax import policy, xla_flags
from webagent_jax.config import RunConfig
from webagent_jax.doctor.findings import Finding, broken, from_error, gib, ok, warning
from webagent_jax.doctor.machine import available_bytes
from webagent_jax.inference import kv_cache as kv
from webagent_jax.inference.engine_shapes import Sizes
from webagent_jax.policy import ModelConfig, sharding

# Device files of accelerators, the backend that would use them, and the extra that brings it.
_ACCELERATORS = (("/dev/nvidia0", "gpu", "cuda"), ("/dev/accel0", "tpu", "tpu"))
_BACKENDS = "pip install 'webagent_jax[cuda]' or 'webagent_jax[tpu]', or unset JAX_PLATFORMS"


def check(cfg: RunConfig, workdir: Path) -> Iterator[Finding]:
    del workdir
    try:
        devices = jax.devices()
    except (RuntimeError, AssertionError) as error:  # the latter for a backend not installed
        asked = os.environ.get("JAX_PLATFORMS", "")
        why = (str(error) or "its backend is not there").splitlines()[0]
        yield broken("devices", f"JAX has none with JAX_PLATFORMS={asked!r}: {why}", _BACKENDS)
        return
    memory = _device_bytes(devices[0])
    kind = devices[0].device_kind
    yield ok("devices", f"{len(devices)} {kind} ({jax.default_backend()}), {gib(memory)} each")
    yield from _unused()
    if jax.default_backend() == "cpu":
        yield _cpu_results()
    if cfg.policy.kind == "openai" or not policy.is_directory(cfg.policy.path):
        return  # nothing to lay on them, or told by the check of the weights
    try:
        model = policy.load_config(
            cfg.policy.path, cfg.policy.dtype, cfg.policy.remat, cfg.policy.attention
        )
    except (KeyError, ValueError) as error:
        yield from_error("attention", Exception(str(error)), "--config.policy.attention=auto")
        return
    yield ok("attention", model.attention)
    yield from _training(cfg, model, memory)
    yield from _engine(cfg, model, memory)


def _unused() -> Iterator[Finding]:
    backend = jax.default_backend()
    for file, needed, extra in _ACCELERATORS:
        if Path(file).exists() and backend != needed:
            yield warning(
                "accelerator",
                f"{file} is there, and JAX runs on {backend}",
                f"pip install 'webagent_jax[{extra}]', and unset JAX_PLATFORMS",
            )


def _cpu_results() -> Finding:
    """Run two programs that XLA computes wrongly on CPU with fusions into YNNPACK's kernels."""

    @jax.jit
    def squares(rows: Array) -> Array:  # wrong in jaxlib 0.10.2
        return jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(rows)

    @jax.jit
    def row_sums(x: Array) -> Array:  # wrong in jaxlib 0.10.2 to 0.11.2
        return jnp.sum((x @ jnp.ones_like(x)) * x, axis=-1)

    rows = jnp.zeros((2**15 + 1, 3)).at[-1, 0].set(2.0**15)
    results = (float(squares(rows)[-1]), float(row_sums(jnp.ones((2, 60, 60)))[-1, -1]))
    expected = (2.0**30, 60.0**2)
    jaxlib = f"jaxlib {metadata.version('jaxlib')}"
    if results != expected:
        return broken(
            "CPU results",
            f"{jaxlib} computes {results} instead of {expected} (jax issue 39103)",
            f'export XLA_FLAGS="$XLA_FLAGS {xla_flags.DISABLE_YNN_REDUCE}"',
        )
    return ok("CPU results", f"{jaxlib} computes the programs of jax issue 39103 correctly")


def _device_bytes(device: jax.Device) -> int:
    """What JAX may use of it; devices of a CPU share what the host has free."""
    stats = device.memory_stats() or {}
    return int(stats.get("bytes_limit") or available_bytes() // len(jax.local_devices()))


def _training(cfg: RunConfig, model: ModelConfig, memory: int) -> Iterator[Finding]:
    try:
        mesh = sharding.make_mesh(cfg.mesh.data, cfg.mesh.fsdp, cfg.mesh.tensor)
        params = _device_share(model, mesh)
    except sharding.ShardingError as error:
        yield from_error("mesh", error, "--config.mesh.data, fsdp and tensor; -1 is what is left")
        return
    yield ok("mesh", " x ".join(f"{name} {size}" for name, size in mesh.shape.items()))
    copies = 1 if cfg.lora.rank else 3  # the moments of adapters are small
    copies += bool(cfg.grpo.kl_beta) and not cfg.lora.rank  # the reference
    needed = copies * params
    what = f"params, moments and reference take {gib(needed)} of {gib(memory)}"
    if needed > memory:
        yield warning(
            "training memory",
            what,
            "more devices, --config.lora.rank=32 or --config.grpo.kl_beta=0; or only evaluate",
        )
    else:
        yield ok("training memory", what)


def _device_share(model: ModelConfig, mesh: Mesh) -> int:
    """Bytes of the params that lie on one device. Raises ShardingError."""
    shapes = policy.abstract_params(model)
    placed = sharding.placed(shapes, sharding.param_shardings(shapes, mesh))
    return sharding.device_bytes(placed)


def _engine(cfg: RunConfig, model: ModelConfig, memory: int) -> Iterator[Finding]:
    engine = cfg.engine
    here = len(jax.local_devices())
    if engine.tensor > here:
        yield broken(
            "engine",
            f"engine.tensor={engine.tensor}, and this host has {here} devices",
            f"--config.engine.tensor={here} or less",
        )
        return
    try:
        sizes = Sizes.of(
            model,
            slots=engine.slots,
            max_tokens=engine.max_tokens,
            steps=engine.steps_per_dispatch,
            cache_bytes=engine.cache_bytes,
        )
    except ValueError as error:
        yield from_error("engine", error, "--config.engine.max_tokens, or engine.cache_mib")
        return
    cache = sizes.pages * sizes.page_tokens * kv.token_bytes(model) // engine.tensor
    weights = policy.weight_bytes(model) // engine.tensor
    what = f"{gib(weights)} of params, {gib(cache)} of keys and values, of {gib(memory)}"
    if weights + cache > memory:
        yield broken(
            "engine", what, "lower engine.slots or engine.cache_mib, or raise engine.tensor"
        )
    else:
        yield ok("engine", what)
