"""Decoder of Llama 3, Qwen2.5 and Qwen3 as pure functions over a plain pytree of params.

One `Block` is defined in Linen; its params are stacked over layers. Training scans over the stack.
Serving unrolls the layers, so the cache of every layer is a separate array that XLA updates in
place.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh

from webagent_jax.config import Quantization
from webagent_jax.policy import attention, lora, matmul, quantization, sharding
from webagent_jax.types import FloatArray

Params = Any
"""Params of the decoder.

{"embed": [V, D], "layers": Block params stacked on axis 0, "final_norm": [D], "head": [D, V] unless
the embedding is tied}.
"""

REMAT: dict[str, Callable[..., Any] | None] = {
    # All values.
    "none": None,
    # Outputs of matmuls with params.
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    # Output of attention.
    "attention": jax.checkpoint_policies.save_only_these_names("attention"),
    # Only the input of the layer.
    "full": jax.checkpoint_policies.nothing_saveable,
}
"""Values of a layer that are saved for the backward pass; the others are recomputed.

The entries are ordered from the fastest to the one with the least memory.
"""

FUSED_PROJECTIONS: Mapping[str, tuple[str, ...]] = {
    "qkv": ("q", "k", "v"),
    "attention_out": ("o",),
    "gate_up": ("gate", "up"),
    "mlp_out": ("down",),
}
"""Projections of one input, which an engine on one device fuses (`inference.serving_params`)."""

AttentionFn = Callable[[Array, Array, Array], tuple[Array, Any]]
"""Attention of a layer: (q [B, T, H, E], k [B, T, K, E], v [B, T, K, E]) -> (out, state).

`out` is [B, T, H, E]; the block returns `state` unchanged.
"""


@dataclass(frozen=True)
class RopeScaling:
    """RoPE scaling of Llama 3.1: low frequencies are divided by `factor`, high ones are unchanged.

    A frequency is low if its wavelength exceeds original_positions / low_frequency_factor, and high
    if its wavelength is below original_positions / high_frequency_factor. Frequencies between them
    are interpolated (Llama 3, section 3.4.2; `rope_type` "llama3" of a Hugging Face config).
    """

    factor: float  # divisor of low frequencies
    low_frequency_factor: float  # limit of low frequencies, in periods per original context
    high_frequency_factor: float  # limit of high frequencies, in periods per original context
    original_positions: int  # context length before the extension, in tokens


@dataclass(frozen=True)
class ModelConfig:
    """Architecture of the decoder and options of its computation."""

    vocab_size: int  # number of token ids (V)
    d_model: int  # width of the hidden states (D)
    num_layers: int  # number of blocks
    num_heads: int  # number of query heads (H)
    num_kv_heads: int  # number of key-value heads (K)
    head_dim: int  # width of a head (E)
    d_ff: int  # width of the MLP
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    rope_scaling: RopeScaling | None = None  # extension to longer contexts; None without one
    rms_eps: float = 1e-6  # epsilon of RMSNorm
    tie_embeddings: bool = True  # whether the head is the transposed embedding
    qkv_bias: bool = True  # whether query, key and value projections have biases (Qwen2)
    qk_norm: bool = False  # RMSNorm of every query and key head before the rotation (Qwen3)
    max_positions: int = 32_768  # maximum length of a sequence in tokens
    # Fields of config.json about special tokens, by name; only exported policies need them.
    special_token_ids: tuple[tuple[str, int | tuple[int, ...] | None], ...] = ()
    dtype: str = "float32"  # dtype of the activations; params are always float32
    matmul_dtype: str = "float32"  # or bfloat16 for float32 activations, see `policy.matmul`
    attention: str = "dense"  # key of attention.IMPLEMENTATIONS
    remat: str = "none"  # values saved for the backward pass, key of REMAT
    unroll: int = 1  # layers per iteration of the scan; more run faster and compile slower
    quantization: Quantization = "none"  # quantization of the projections in an engine

    @property
    def itemsize(self) -> int:
        """Size of one element of `dtype` in bytes."""
        return jnp.dtype(self.dtype).itemsize

    @property
    def has_rounded_matmuls(self) -> bool:
        """True if matmuls with params round their float32 inputs (`policy.matmul`)."""
        return self.matmul_dtype == "bfloat16" and self.dtype == "float32"


class RopeAngles(NamedTuple):
    """Rotation angles of the dimension pairs of a head at B x T positions."""

    cos: Array  # float32 [B, T, E / 2], cosines of the angles
    sin: Array  # float32 [B, T, E / 2], sines of the angles


class Projection(nn.DenseGeneral):
    """Linear layer with a quantized kernel or a low-rank adapter if the params contain one.

    `dot_general` computes the matmuls with kernel and adapter.
    """

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        """Return the projection of `inputs`."""
        out = super().__call__(inputs)
        if self.has_variable("params", quantization.SCALE):
            scale: Array = self.get_variable("params", quantization.SCALE)  # [out...]
            out = (out * scale[(None,) * (out.ndim - scale.ndim)]).astype(out.dtype)
        if not self.has_variable("params", lora.UP):
            return out
        contract = self.dot_general or jax.lax.dot_general
        up: Array = self.get_variable("params", lora.UP)
        if self.has_variable("params", lora.DOWN):
            down: Array = self.get_variable("params", lora.DOWN)
            # A is [in..., rank]: two input axes for "o" (heads and head_dim), one for the others.
            inner = down.ndim - 1
            axes = (tuple(range(inputs.ndim - inner, inputs.ndim)), tuple(range(inner)))
            low = contract(inputs, down.astype(inputs.dtype), (axes, ((), ())))
        else:
            # The kernel of an engine ends with A (`inference.serving_params`).
            out, low = jnp.split(out, [out.shape[-1] - len(up)], axis=-1)
        return out + contract(low, up.astype(inputs.dtype), (((low.ndim - 1,), (0,)), ((), ())))


class Block(nn.Module):
    """Decoder layer: attention and SwiGLU, both with pre-norm."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Array, angles: RopeAngles, attend: AttentionFn) -> tuple[Array, Any]:
        """Return the new hidden states [B, T, D] and the state of `attend`.

        Args:
            x: hidden states [B, T, D].
            angles: rotary angles of their positions.
            attend: attention of the layer.
        """
        cfg = self.config
        # Tokens of all rows share one axis: matmuls of two axes are faster on CPU.
        tokens = x.reshape(-1, cfg.d_model)
        by_row = lambda part: part.reshape(*x.shape[:2], *part.shape[1:])  # noqa: E731
        norm = partial(nn.RMSNorm, epsilon=cfg.rms_eps, dtype=cfg.dtype)
        with jax.named_scope("attention"):
            h = norm(name="attn_norm")(tokens)
            key_value = (cfg.num_kv_heads, cfg.head_dim)
            sizes = ((cfg.num_heads, cfg.head_dim), key_value, key_value)
            q, k, v = self._project("qkv", h, sizes, use_bias=cfg.qkv_bias)
            if cfg.qk_norm:
                q, k = norm(name="q_norm")(q), norm(name="k_norm")(k)
            q, k, v = by_row(q), by_row(k), by_row(v)
            out, state = attend(apply_rope(q, angles), apply_rope(k, angles), v)
            # The entry "attention" of `REMAT` refers to this name. `out` becomes [B * T, H, E].
            out = checkpoint_name(out, "attention").reshape(len(tokens), *out.shape[2:])
            tokens += self._project("attention_out", out, ((cfg.d_model,),))[0]
        with jax.named_scope("mlp"):
            h = norm(name="mlp_norm")(tokens)
            gate, up = self._project("gate_up", h, ((cfg.d_ff,), (cfg.d_ff,)))
            tokens += self._project("mlp_out", nn.silu(gate) * up, ((cfg.d_model,),))[0]
        return by_row(tokens), state

    def _project(
        self,
        fused: str,
        inputs: Array,
        sizes: Sequence[tuple[int, ...]],
        *,
        use_bias: bool = False,
    ) -> list[Array]:
        """Return the projections that `fused` names, each [N, *size].

        Args:
            fused: key of `FUSED_PROJECTIONS`. One matmul computes all projections if the params
                contain this name.
            inputs: [N, in...].
            sizes: output axes of each projection.
            use_bias: whether the projections have biases.
        """
        dense = partial(
            Projection,
            use_bias=use_bias,
            dtype=self.config.dtype,
            dot_general=matmul.dot_general if self.config.has_rounded_matmuls else None,
        )
        if not self.has_variable("params", fused):
            axes = tuple(range(1, inputs.ndim))
            return [
                dense(size, axis=axes, name=name)(inputs)
                for name, size in zip(FUSED_PROJECTIONS[fused], sizes, strict=True)
            ]
        kernel: Array = self.get_variable("params", fused)["kernel"]
        out = dense(kernel.shape[1], name=fused)(inputs.reshape(len(inputs), -1))
        ends = np.cumsum([math.prod(size) for size in sizes])
        parts = jnp.split(out, ends[:-1], axis=-1)
        return [part.reshape(-1, *size) for part, size in zip(parts, sizes, strict=True)]


def apply_block(
    config: ModelConfig, layer_params: Params, x: Array, angles: RopeAngles, attend: AttentionFn
) -> tuple[Array, Any]:
    """Apply one layer; see `Block`.

    Args:
        config: architecture of the decoder.
        layer_params: params of the layer.
        x: hidden states [B, T, D].
        angles: rotary angles of their positions.
        attend: attention of the layer.
    """
    output: Any = Block(config).apply({"params": layer_params}, x, angles, attend)
    return output


def rope_frequencies(config: ModelConfig) -> FloatArray:
    """Return the radians per position of each dimension pair of a head, float32 [E / 2]."""
    half = config.head_dim // 2
    frequency = config.rope_theta ** (-np.arange(half, dtype=np.float32) / np.float32(half))
    scaling = config.rope_scaling
    if scaling is None:
        return frequency.astype(np.float32)
    # Linear between the limits, as in Llama 3.1: `share` is the weight of the unchanged frequency.
    periods = scaling.original_positions * frequency / (2 * np.pi)  # per original context
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    share = np.clip((periods - low) / (high - low), 0.0, 1.0)  # 1 for unchanged frequencies
    scaled = frequency * (share + (1 - share) / scaling.factor)
    return scaled.astype(np.float32)


def rope_angles(config: ModelConfig, positions: Array) -> RopeAngles:
    """Return the rotary angles of positions [B, T].

    All layers and heads share them: computing the angles costs more than applying them.
    """
    angle = positions[:, :, None].astype(jnp.float32) * rope_frequencies(config)[None, None]
    return RopeAngles(jnp.cos(angle), jnp.sin(angle))


def apply_rope(x: Array, angles: RopeAngles) -> Array:
    """Apply the rotary position embedding to x [B, T, heads, E].

    Dimension i of the first half of a head is paired with i of the second, as in Hugging Face's
    rotate-half. The computation is float32 for every dtype of x.
    """
    cos, sin = (part[:, :, None] for part in angles)
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


def init(config: ModelConfig, key: Array, mesh: Mesh | None = None) -> Params:
    """Return random initial params.

    Args:
        config: architecture of the decoder.
        key: random key, consumed.
        mesh: mesh to shard the params over; no device stores a complete large param at any time.
    """
    if mesh is None:
        return _init(config, key)
    shardings = sharding.default_shardings(abstract_params(config), mesh)
    return jax.jit(partial(_init, config), out_shardings=shardings)(key)


def abstract_params(config: ModelConfig) -> Params:
    """Return the shapes and dtypes of the params."""
    return jax.eval_shape(partial(_init, config), jax.random.key(0))


@functools.cache
def count_params(config: ModelConfig) -> int:
    """Return the number of scalars in the params."""
    return sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))


@functools.cache
def weight_bytes(config: ModelConfig) -> int:
    """Return the bytes of all params in the dtype of the activations, or quantized."""
    quantize = partial(quantization.quantize, quantization=config.quantization)
    params = jax.eval_shape(quantize, abstract_params(config))
    return sum(
        leaf.size * (leaf.dtype.itemsize if quantization.is_quantized(leaf) else config.itemsize)
        for leaf in jax.tree.leaves(params)
    )


def _init(config: ModelConfig, key: Array) -> Params:
    embed_key, head_key, layers_key = jax.random.split(key, 3)
    x = jnp.zeros((1, 1, config.d_model), config.dtype)
    angles = rope_angles(config, jnp.zeros((1, 1), jnp.int32))

    # Attention has no params, so zeros are enough to create those of a layer.
    def init_layer(layer_key: Array) -> Params:
        attend = lambda q, k, v: (jnp.zeros_like(q), None)  # noqa: E731
        return Block(config).init(layer_key, x, angles, attend)["params"]

    normal = nn.initializers.normal(0.02)
    params = {
        "embed": normal(embed_key, (config.vocab_size, config.d_model), jnp.float32),
        # vmap stacks the layers on axis 0, which `forward` scans over.
        "layers": jax.vmap(init_layer)(jax.random.split(layers_key, config.num_layers)),
        "final_norm": jnp.ones(config.d_model),
    }
    if not config.tie_embeddings:
        params["head"] = normal(head_key, (config.d_model, config.vocab_size), jnp.float32)
    return params


def forward(
    config: ModelConfig,
    params: Params,
    tokens: Array,
    positions: Array,
    ends: Array,
    *,
    mesh: Mesh | None = None,
) -> Array:
    """Return the hidden states [B, L, D] of forest rows.

    Args:
        config: architecture of the decoder.
        params: params of the decoder.
        tokens: token ids int32 [B, L].
        positions: int32 [B, L].
        ends: int32 [B, L], index after the last descendant of each token.
        mesh: mesh to shard the rows over; every layer gathers the params that it needs.
    """
    forest_attention = attention.IMPLEMENTATIONS[config.attention]
    if mesh is not None:
        forest_attention = attention.shard_attention(forest_attention, mesh)
    # Hidden states stay sharded over rows, so XLA gathers the params of a layer instead.
    by_row = partial(sharding.constrain, axes=("rows", "tokens", "hidden"), mesh=mesh)

    def attend(q: Array, k: Array, v: Array) -> tuple[Array, None]:
        return forest_attention(q, k, v, ends), None

    def layer(x: Array, layer_params: Params) -> tuple[Array, None]:
        x, _ = apply_block(config, layer_params, x, angles, attend)
        return by_row(x), None

    angles = rope_angles(config, positions)
    remat_policy = REMAT[config.remat]
    x = by_row(params["embed"][tokens].astype(config.dtype))
    body = jax.checkpoint(layer, policy=remat_policy) if remat_policy else layer
    # The layer is compiled once for all layers, or `unroll` times.
    x, _ = jax.lax.scan(body, x, params["layers"], unroll=min(config.unroll, config.num_layers))
    return final_norm(config, params, x)


def gather_embeddings(config: ModelConfig, params: Params, mesh: Mesh | None) -> Params:
    """Return `params` with embedding and head gathered over their width on a mesh.

    They are also cast to the dtype of the activations. Both happen once for all chunks of logits
    instead of once per chunk. Without a mesh, `params` are returned unchanged.
    """
    if mesh is None:
        return params
    axes = {"embed": ("vocab", "hidden"), "head": ("hidden", "vocab")}
    embeddings = {
        name: sharding.constrain(params[name].astype(config.dtype), axes[name], mesh)
        for name in axes
        if name in params
    }
    return {**params, **embeddings}


def unembed(config: ModelConfig, params: Params, hidden: Array) -> Array:
    """Return the float32 logits [..., V] of hidden states [..., D]."""
    if config.has_rounded_matmuls:
        head = params["head"] if "head" in params else params["embed"].T
        return matmul.matmul(1, hidden, head)
    if "head" in params:
        return jnp.einsum(
            "...d,dv->...v",
            hidden,
            params["head"].astype(hidden.dtype),
            preferred_element_type=jnp.float32,
        )
    return jnp.einsum(
        "...d,vd->...v",
        hidden,
        params["embed"].astype(hidden.dtype),
        preferred_element_type=jnp.float32,
    )


def logits(config: ModelConfig, params: Params, tokens: Array) -> Array:
    """Return the float32 logits [B, L, V] of causal rows, tokens int32 [B, L]."""
    tokens = jnp.asarray(tokens)
    batch, length = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(length), (batch, length))
    ends = jnp.full((batch, length), length)
    return unembed(config, params, forward(config, params, tokens, positions, ends))


def final_norm(config: ModelConfig, params: Params, x: Array) -> Array:
    """Apply the final RMSNorm to the output [..., D] of the last layer."""
    norm = nn.RMSNorm(epsilon=config.rms_eps, dtype=config.dtype)
    hidden: Any = norm.apply({"params": {"scale": params["final_norm"]}}, x)
    return hidden
