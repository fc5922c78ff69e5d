"""Which tensor of a Hugging Face checkpoint is which slice of which param.

A Linen kernel is [in, out...] and keeps heads apart; a Hugging Face weight is [out, in] and flat.
Layers are stacked here and one tensor each there. `Leaf` knows both, in either direction and for
any slice, so that a shard of a param is read from the slices of files that it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from webagent_jax.policy.transformer import ModelConfig

Weight = npt.NDArray[Any]
Slices = tuple[slice, ...]
Read = Callable[[str, Slices], Weight]
"""The slice of the tensor of that name."""


@dataclass(frozen=True)
class Leaf:
    """One param, and the tensors it is made of: one for each layer, or a single one."""

    path: tuple[str, ...]  # into the params
    names: tuple[str, ...]  # of the tensors
    stacked: bool  # over layers, on axis 0
    shape: tuple[int, ...]  # of one tensor as the params have it
    groups: tuple[tuple[int, ...], ...]  # for each axis of the file: our axes that it flattens

    @property
    def param_shape(self) -> tuple[int, ...]:
        return (len(self.names), *self.shape) if self.stacked else self.shape

    @property
    def file_shape(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[axis] for axis in group) for group in self.groups)

    def read(self, index: Slices, read: Read) -> Weight:
        """float32 slice of the param, put together from the slices of the tensors.

        Raises ValueError for a cut through an axis that is no outermost one of its group.
        """
        index = tuple(slice(*s.indices(n)) for s, n in zip(index, self.param_shape, strict=True))
        layers, inner = (index[0], index[1:]) if self.stacked else (slice(0, 1), index)
        names = self.names[layers]
        sizes = [s.stop - s.start for s in inner]
        part = np.empty((len(names), *sizes), np.float32)
        cuts = tuple(self._flat(group, inner) for group in self.groups)
        order = [axis for group in self.groups for axis in group]
        for layer, name in enumerate(names):
            tensor = read(name, cuts).reshape([sizes[axis] for axis in order])
            part[layer] = tensor.transpose(np.argsort(order))
        return part if self.stacked else part[0]

    def write(self, param: Weight) -> Iterator[tuple[str, Weight]]:
        """The tensors of a whole param."""
        order = [axis for group in self.groups for axis in group]
        for name, layer in zip(self.names, param if self.stacked else param[None], strict=True):
            yield name, np.ascontiguousarray(layer.transpose(order).reshape(self.file_shape))

    def _flat(self, group: tuple[int, ...], index: Slices) -> slice:
        """Of the axis that flattens the group."""
        outer, *rest = group
        for axis in rest:
            if index[axis] != slice(0, self.shape[axis], 1):
                raise ValueError(f"{'/'.join(self.path)}: axis {axis} of {self.shape} is cut")
        inner = math.prod(self.shape[axis] for axis in rest)
        return slice(index[outer].start * inner, index[outer].stop * inner)


def leaves(config: ModelConfig) -> list[Leaf]:
    """Every param of the model."""
    d, e = config.d_model, config.head_dim
    heads, kv_heads, d_ff = config.num_heads, config.num_kv_heads, config.d_ff

    def of_layers(path: tuple[str, str], name: str, shape: tuple[int, ...], *groups: Any) -> Leaf:
        names = tuple(f"model.layers.{i}.{name}" for i in range(config.num_layers))
        return Leaf(("layers", *path), names, True, shape, groups)

    def linear(ours: str, theirs: str, shape: tuple[int, ...], *groups: Any) -> Leaf:
        return of_layers((ours, "kernel"), f"{theirs}.weight", shape, *groups)

    def norm(ours: str, theirs: str, width: int) -> Leaf:
        return of_layers((ours, "scale"), f"{theirs}.weight", (width,), (0,))

    found = [
        Leaf(
            ("embed",), ("model.embed_tokens.weight",), False, (config.vocab_size, d), ((0,), (1,))
        ),
        norm("attn_norm", "input_layernorm", d),
        linear("q", "self_attn.q_proj", (d, heads, e), (1, 2), (0,)),
        linear("k", "self_attn.k_proj", (d, kv_heads, e), (1, 2), (0,)),
        linear("v", "self_attn.v_proj", (d, kv_heads, e), (1, 2), (0,)),
        linear("o", "self_attn.o_proj", (heads, e, d), (2,), (0, 1)),
        norm("mlp_norm", "post_attention_layernorm", d),
        linear("gate", "mlp.gate_proj", (d, d_ff), (1,), (0,)),
        linear("up", "mlp.up_proj", (d, d_ff), (1,), (0,)),
        linear("down", "mlp.down_proj", (d_ff, d), (1,), (0,)),
        Leaf(("final_norm",), ("model.norm.weight",), False, (d,), ((0,),)),
    ]
    if config.qkv_bias:
        for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            name = f"self_attn.{part}_proj.bias"
            found.append(of_layers((part, "bias"), name, (count, e), (0, 1)))
    if config.qk_norm:
        found += [norm(f"{part}_norm", f"self_attn.{part}_norm", e) for part in ("q", "k")]
    if not config.tie_embeddings:
        head = Leaf(("head",), ("lm_head.weight",), False, (d, config.vocab_size), ((1,), (0,)))
        found.append(head)
    return found
