"""Mapping between the tensors of a Hugging Face checkpoint and params.

A Linen kernel is [in, out...] with a separate axis of heads; a Hugging Face weight is [out, in]
with heads flattened. Params stack the layers; a checkpoint has one tensor per layer. `ParamMapping`
converts any slice in both directions, so a shard of a param reads only the slices it needs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from webagent_jax.config import ConfigError
from webagent_jax.policy.transformer import ModelConfig

INDEX_FILE = "model.safetensors.index.json"
"""Name of the file that lists the tensors of each weight file, if there are several."""

Weight = npt.NDArray[Any]
Slices = tuple[slice, ...]
Read = Callable[[str, Slices], Weight]
"""Function that reads a slice of the named tensor."""


@dataclass(frozen=True)
class ParamMapping:
    """Mapping of one param to its tensors: one per layer, or a single one."""

    path: tuple[str, ...]  # keys that lead to the param
    names: tuple[str, ...]  # names of the tensors
    is_stacked: bool  # whether the param stacks the layers on axis 0
    shape: tuple[int, ...]  # shape of one tensor in the layout of the params
    groups: tuple[tuple[int, ...], ...]  # axes of `shape` that each axis of the file flattens

    @property
    def param_shape(self) -> tuple[int, ...]:
        """Shape of the param."""
        return (len(self.names), *self.shape) if self.is_stacked else self.shape

    @property
    def file_shape(self) -> tuple[int, ...]:
        """Shape of one tensor in the file."""
        return tuple(math.prod(self.shape[axis] for axis in group) for group in self.groups)

    def read(self, index: Slices, read: Read) -> Weight:
        """Return a float32 slice of the param, assembled from slices of the tensors.

        Args:
            index: slice of the param, one per axis.
            read: reads a slice of a tensor.

        Raises:
            ValueError: an axis is sliced that is not the outermost one of its group.
        """
        # JAX passes slice(None) for a whole axis: replace it with explicit limits.
        index = tuple(slice(*s.indices(n)) for s, n in zip(index, self.param_shape, strict=True))
        layers, inner = (index[0], index[1:]) if self.is_stacked else (slice(0, 1), index)
        names = self.names[layers]
        sizes = [s.stop - s.start for s in inner]
        part = np.empty((len(names), *sizes), np.float32)
        file_index = tuple(self._flatten(group, inner) for group in self.groups)
        # The axes of the param in the order of the file; argsort inverts this order.
        order = [axis for group in self.groups for axis in group]
        for layer, name in enumerate(names):
            tensor = read(name, file_index).reshape([sizes[axis] for axis in order])
            part[layer] = tensor.transpose(np.argsort(order))
        return part if self.is_stacked else part[0]

    def write(self, param: Weight) -> Iterator[tuple[str, Weight]]:
        """Yield name and content of the tensors of a param."""
        order = [axis for group in self.groups for axis in group]
        for name, layer in zip(self.names, param if self.is_stacked else param[None], strict=True):
            yield name, np.ascontiguousarray(layer.transpose(order).reshape(self.file_shape))

    def _flatten(self, group: tuple[int, ...], index: Slices) -> slice:
        """Return the slice of the file axis that flattens the group."""
        outer, *rest = group
        for axis in rest:
            # A slice of an inner axis is not contiguous in the flattened axis.
            if index[axis] != slice(0, self.shape[axis], 1):
                raise ValueError(
                    f"{'/'.join(self.path)}: axis {axis} of {self.shape} cannot be sliced"
                )
        inner = math.prod(self.shape[axis] for axis in rest)
        return slice(index[outer].start * inner, index[outer].stop * inner)


def param_mappings(config: ModelConfig) -> list[ParamMapping]:
    """Return the mappings of all params of the model."""
    d, e = config.d_model, config.head_dim
    heads, kv_heads, d_ff = config.num_heads, config.num_kv_heads, config.d_ff

    def layer_mapping(
        path: tuple[str, str], name: str, shape: tuple[int, ...], *groups: Any
    ) -> ParamMapping:
        names = tuple(f"model.layers.{i}.{name}" for i in range(config.num_layers))
        return ParamMapping(("layers", *path), names, True, shape, groups)

    def linear(name: str, hf_name: str, shape: tuple[int, ...], *groups: Any) -> ParamMapping:
        return layer_mapping((name, "kernel"), f"{hf_name}.weight", shape, *groups)

    def norm(name: str, hf_name: str, width: int) -> ParamMapping:
        return layer_mapping((name, "scale"), f"{hf_name}.weight", (width,), (0,))

    mappings = [
        ParamMapping(
            ("embed",), ("model.embed_tokens.weight",), False, (config.vocab_size, d), ((0,), (1,))
        ),
        norm("attn_norm", "input_layernorm", d),
        # File axis 0 flattens heads and head_dim (axes 1 and 2), file axis 1 is the input.
        linear("q", "self_attn.q_proj", (d, heads, e), (1, 2), (0,)),
        linear("k", "self_attn.k_proj", (d, kv_heads, e), (1, 2), (0,)),
        linear("v", "self_attn.v_proj", (d, kv_heads, e), (1, 2), (0,)),
        linear("o", "self_attn.o_proj", (heads, e, d), (2,), (0, 1)),
        norm("mlp_norm", "post_attention_layernorm", d),
        linear("gate", "mlp.gate_proj", (d, d_ff), (1,), (0,)),
        linear("up", "mlp.up_proj", (d, d_ff), (1,), (0,)),
        linear("down", "mlp.down_proj", (d_ff, d), (1,), (0,)),
        ParamMapping(("final_norm",), ("model.norm.weight",), False, (d,), ((0,),)),
    ]
    if config.qkv_bias:
        for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            name = f"self_attn.{part}_proj.bias"
            mappings.append(layer_mapping((part, "bias"), name, (count, e), (0, 1)))
    if config.qk_norm:
        mappings += [norm(f"{part}_norm", f"self_attn.{part}_norm", e) for part in ("q", "k")]
    if not config.tie_embeddings:
        head = ParamMapping(
            ("head",), ("lm_head.weight",), False, (d, config.vocab_size), ((1,), (0,))
        )
        mappings.append(head)
    return mappings


def missing_files_fix(directory: Path) -> str:
    """Return the fix for a directory that lacks tensors.

    Raises:
        ConfigError: the index is damaged.
    """
    pickled = sorted(file.name for file in directory.glob("pytorch_model*.bin"))
    if pickled and not any(directory.glob("*.safetensors")):
        return (
            f"save the weights, which are in {pickled[0]}, as safetensors: "
            f"AutoModelForCausalLM.from_pretrained({str(directory)!r}) of transformers, then "
            "save_pretrained to the same directory"
        )
    files = ", ".join(missing_shards(directory)) or "all files of the policy"
    return f"copy or download {files} again"


def missing_shards(directory: Path) -> list[str]:
    """Return the names of the weight files that the index lists and the directory lacks.

    Raises:
        ConfigError: the index is damaged.
    """
    index = directory / INDEX_FILE
    if not index.is_file():
        return []
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return sorted(name for name in names if not (directory / name).is_file())
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{index} is damaged ({error}): copy or download it again") from error
