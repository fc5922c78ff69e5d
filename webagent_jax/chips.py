"""Specifications of TPUs and GPUs, and their devices for ahead-of-time compilation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

Platform = Literal["tpu", "gpu"]

_GIB = 2**30
_GPU_MEMORY_FRACTION = 0.95  # XLA_PYTHON_CLIENT_MEM_FRACTION, docs/recipes.md
_GPUS_PER_HOST = 8


class TopologyError(ValueError):
    """Unsupported topology or missing compiler. The message says how to fix it."""


@dataclass(frozen=True)
class Chip:
    """Specification of one TPU chip or GPU, from the manufacturer."""

    flops: float  # bfloat16 FLOP per second
    hbm_bandwidth: float  # memory bandwidth in bytes per second
    ici_bandwidth: float  # bytes per second over all links to other chips, in one direction
    hbm: float  # memory available to XLA, in bytes
    platform: Platform = "tpu"


CHIPS = {
    "v5e": Chip(197e12, 819e9, 200e9, 15.75 * _GIB),
    "v5p": Chip(459e12, 2765e9, 600e9, 95.74 * _GIB),
    "v6e": Chip(918e12, 1640e9, 448e9, 31.25 * _GIB),
    # SXM; links are NVLink.
    "h100": Chip(989e12, 3350e9, 450e9, _GPU_MEMORY_FRACTION * 79.1 * _GIB, "gpu"),
    "h200": Chip(989e12, 4800e9, 450e9, _GPU_MEMORY_FRACTION * 140.4 * _GIB, "gpu"),
}

# Description of a Hopper GPU for XLA (stream_executor.GpuTargetConfigProto). XLA derives tile
# sizes from it.
_GPU_TARGET = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  memory_bandwidth: {bandwidth:.0f}
  device_memory_size: {memory:.0f}
  cuda_compute_capability {{ major: 9 }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 }}
runtime_version {{ major: 13 }}
device_description_str: "{name}"
"""


def find_chip(topology: str) -> Chip:
    """Return the chip of a topology, such as "v5e:4x4" or "h100:8".

    Raises:
        TopologyError: the chip is unknown.
    """
    chip = CHIPS.get(topology.partition(":")[0])
    if chip is None:
        raise TopologyError(f"unknown chip in --topology={topology}; available: {', '.join(CHIPS)}")
    return chip


def topology_devices(topology: str) -> Sequence[Any]:
    """Return the devices of a topology, for which this machine can compile but not run.

    Raises:
        TopologyError: the compiler is not installed, or the topology is unknown.
    """
    chip = find_chip(topology)
    return _gpu_devices(topology, chip) if chip.platform == "gpu" else _tpu_devices(topology)


def compile_target(device: Any) -> AbstractContextManager[Any]:
    """Return a context in which Pallas lowers GPU kernels for a device of a topology.

    Otherwise JAX 0.11 lowers them for the default device of this machine, and rejects a CPU.
    """
    import jax
    from jax.sharding import AbstractDevice, AbstractMesh

    if device.platform != "gpu":
        return nullcontext()
    target = AbstractDevice(device.device_kind, None, device.platform)
    # No axes: the shardings of the arguments have their own mesh.
    return jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=target))


def _tpu_devices(topology: str) -> Sequence[Any]:
    from jax.experimental import topologies

    _require("libtpu", "the TPU compiler", "tpu")
    # This machine has no TPU, so libtpu must not query its metadata or lock it.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    # libtpu raises errors of several types.
    except Exception as error:
        raise TopologyError(f"invalid --topology={topology}: {error}") from error


def _gpu_devices(topology: str, chip: Chip) -> Sequence[Any]:
    from jax.experimental import topologies

    _require("jax_cuda13_plugin", "the GPU compiler", "cuda")
    name, _, number = topology.partition(":")
    count = int(number) if number.isdecimal() else 0
    hosts = max(1, count // _GPUS_PER_HOST)
    if not count or count % hosts or count // hosts > _GPUS_PER_HOST:
        raise TopologyError(
            f"invalid --topology={topology}: use {name}:1 to {name}:{_GPUS_PER_HOST}, or a "
            f"multiple of {_GPUS_PER_HOST}"
        )
    target = _GPU_TARGET.format(
        bandwidth=chip.hbm_bandwidth,
        memory=chip.hbm / _GPU_MEMORY_FRACTION,
        name=f"NVIDIA {name.upper()}",
    )
    description = topologies.get_topology_desc(
        platform="cuda", target_config=target, topology=f"1x{hosts}x{count // hosts}"
    )
    return description.devices


def _require(package: str, compiler: str, extra: str) -> None:
    if find_spec(package) is None:
        raise TopologyError(f'{compiler} is not installed; run pip install "webagent_jax[{extra}]"')
