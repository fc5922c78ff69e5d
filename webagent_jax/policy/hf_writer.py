"""Files of a Hugging Face directory: config.json and safetensors, in parts where they are large."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import jax.numpy as jnp
from safetensors.numpy import save_file

from webagent_jax.policy import hf_config, hf_tensors
from webagent_jax.policy.hf_tensors import Leaf, Weight
from webagent_jax.policy.transformer import ModelConfig


def write_directory(
    where: Path,
    config: ModelConfig,
    dtype: str,
    tensors_of: Callable[[Leaf], Iterable[tuple[str, Weight]]],
    file_bytes: int = 5 * 10**9,
) -> None:
    """Write config.json and the tensors of every param, which `tensors_of` returns by name."""
    where.mkdir(parents=True, exist_ok=True)
    hf_config.write(where / "config.json", config, dtype)
    parts = _parts(config, jnp.dtype(dtype).itemsize, file_bytes)
    names = (
        ["model.safetensors"]
        if len(parts) == 1
        else [f"model-{n:05d}-of-{len(parts):05d}.safetensors" for n in range(1, len(parts) + 1)]
    )
    index: dict[str, str] = {}
    total = 0
    for file, part in zip(names, parts, strict=True):
        tensors: dict[str, Weight] = {}
        for leaf in part:
            tensors |= tensors_of(leaf)
        partial = where / f"{file}.partial"  # a file is whole or not there
        save_file(tensors, partial, metadata={"format": "pt"})
        partial.replace(where / file)
        index |= dict.fromkeys(tensors, file)
        total += sum(tensor.nbytes for tensor in tensors.values())
    for stale in where.glob("model*.safetensors*"):
        if stale.name not in names:
            stale.unlink()
    if len(parts) > 1:
        content = {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}
        (where / "model.safetensors.index.json").write_text(json.dumps(content, indent=2) + "\n")


def _parts(config: ModelConfig, itemsize: int, file_bytes: int) -> list[list[Leaf]]:
    """Deal the params to files of about `file_bytes` at most."""
    parts: list[list[Leaf]] = [[]]
    room = file_bytes
    for leaf in hf_tensors.leaves(config):
        size = math.prod(leaf.param_shape) * itemsize
        if size > room and parts[-1]:
            parts.append([])
            room = file_bytes
        parts[-1].append(leaf)
        room -= size
    return parts
