"""The decoder of Llama 3, Qwen2.5 and Qwen3 as pure functions over a plain pytree of params.

One `Block` is defined in Linen; its params are stacked over layers. Training scans over the stack;
serving walks it layer by layer, so that every layer's cache is an array of its own, which XLA can
update in place.
"""

from __future__ import annotations

from collections.abc import Callable
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

from webagent_jax.policy import attention, lora, sharding
from webagent_jax.types import FloatArray

Params = Any
"""{"embed": [V, D], "layers": Block params stacked on axis 0, "final_norm": [D], "head": [D, V]
unless the embedding is tied}."""

Cache = tuple[tuple[Array, Array], ...]
"""Keys and values of each layer, [B, S, K, E] each."""

REMAT: dict[str, Callable[..., Any] | None] = {
    "none": None,  # everything is kept
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,  # ... that a matmul made
    "attention": jax.checkpoint_policies.save_only_these_names("attention"),  # its output alone
    "full": jax.checkpoint_policies.nothing_saveable,  # only the input of the layer
}
"""What of a layer is kept for the backward pass; the rest is computed again. From the fastest to
the leanest."""

Attend = Callable[[Array, Array, Array], tuple[Array, Any]]
"""(q [B, T, H, E], k [B, T, K, E], v [B, T, K, E]) -> (out [B, T, H, E], what to hand back)."""


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's way to longer contexts: slow frequencies are divided by `factor`, fast ones stay.

    Slow is a wavelength above original_positions / low_frequency_factor, fast one below
    original_positions / high_frequency_factor; between them it is interpolated (Llama 3, section
    3.4.2; `rope_type` "llama3" of a Hugging Face config).
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_positions: int


@dataclass(frozen=True)
class ModelConfig:
    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    d_ff: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    rms_eps: float = 1e-6
    tie_embeddings: bool = True
    qkv_bias: bool = True  # Qwen2
    qk_norm: bool = False  # Qwen3: RMSNorm of every query and key head, before the rotation
    max_positions: int = 32_768
    dtype: str = "float32"  # of activations; params are float32 always
    attention: str = "dense"  # one of attention.IMPLEMENTATIONS
    remat: str = "none"  # what a layer forgets until the backward pass, see REMAT
    unroll: int = 1  # layers to one step of the loop over them: faster, and slower to compile

    @property
    def itemsize(self) -> int:
        """Bytes of a number of `dtype`."""
        return jnp.dtype(self.dtype).itemsize


class Rotation(NamedTuple):
    """What the pairs of dimensions of a head are turned by at some positions."""

    cos: Array  # float32 [B, T, E / 2]
    sin: Array  # float32 [B, T, E / 2]


class Projection(nn.DenseGeneral):
    """A linear layer, and beside it, where the params hold one, a low-rank adapter (`lora`)."""

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        out = super().__call__(inputs)
        if not self.has_variable("params", lora.DOWN):
            return out
        down: Array = self.get_variable("params", lora.DOWN)
        up: Array = self.get_variable("params", lora.UP)
        inner = down.ndim - 1
        axes = (tuple(range(inputs.ndim - inner, inputs.ndim)), tuple(range(inner)))
        low = jnp.tensordot(inputs, down.astype(inputs.dtype), axes)
        return out + jnp.tensordot(low, up.astype(inputs.dtype), 1)


class Block(nn.Module):
    """Pre-norm attention and SwiGLU."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Array, rotation: Rotation, attend: Attend) -> tuple[Array, Any]:
        """x: [B, T, D]; rotation: of its positions. Returns x and what `attend` handed back."""
        cfg = self.config
        # All tokens of all rows stand in one axis: XLA makes faster matmuls of it on CPU.
        tokens = x.reshape(-1, cfg.d_model)
        by_row = lambda part: part.reshape(*x.shape[:2], *part.shape[1:])  # noqa: E731
        norm = partial(nn.RMSNorm, epsilon=cfg.rms_eps, dtype=cfg.dtype)
        dense = partial(Projection, dtype=cfg.dtype)
        with jax.named_scope("attention"):
            h = norm(name="attn_norm")(tokens)
            heads = partial(dense, use_bias=cfg.qkv_bias)
            q = heads((cfg.num_heads, cfg.head_dim), name="q")(h)
            k = heads((cfg.num_kv_heads, cfg.head_dim), name="k")(h)
            v = heads((cfg.num_kv_heads, cfg.head_dim), name="v")(h)
            if cfg.qk_norm:
                q, k = norm(name="q_norm")(q), norm(name="k_norm")(k)
            q, k, v = by_row(q), by_row(k), by_row(v)
            out, state = attend(rotate(q, rotation), rotate(k, rotation), v)
            out = checkpoint_name(out, "attention").reshape(len(tokens), *out.shape[2:])
            tokens += dense(cfg.d_model, axis=(-2, -1), use_bias=False, name="o")(out)
        with jax.named_scope("mlp"):
            h = norm(name="mlp_norm")(tokens)
            linear = partial(dense, use_bias=False)
            gated = nn.silu(linear(cfg.d_ff, name="gate")(h)) * linear(cfg.d_ff, name="up")(h)
            tokens += linear(cfg.d_model, name="down")(gated)
        return by_row(tokens), state


def apply_block(
    config: ModelConfig, layer_params: Params, x: Array, rotation: Rotation, attend: Attend
) -> tuple[Array, Any]:
    """One layer: see `Block`."""
    applied: Any = Block(config).apply({"params": layer_params}, x, rotation, attend)
    return applied


def rope_frequencies(config: ModelConfig) -> FloatArray:
    """Radians per position of each pair of dimensions of a head, float32 [E / 2]."""
    half = config.head_dim // 2
    frequency = config.rope_theta ** (-np.arange(half, dtype=np.float32) / np.float32(half))
    scaling = config.rope_scaling
    if scaling is None:
        return frequency.astype(np.float32)
    turns = scaling.original_positions * frequency / (2 * np.pi)  # within the original context
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    scaled = frequency * (kept + (1 - kept) / scaling.factor)
    return scaled.astype(np.float32)


def rotation_at(config: ModelConfig, positions: Array) -> Rotation:
    """Of positions [B, T]. Computed once for all layers and heads: its angles are dearer than what
    they are used for."""
    angle = positions[:, :, None].astype(jnp.float32) * rope_frequencies(config)[None, None]
    return Rotation(jnp.cos(angle), jnp.sin(angle))


def rotate(x: Array, rotation: Rotation) -> Array:
    """Rotary position embedding of x [B, T, heads, E], the halves of a head paired as in Hugging
    Face's rotate-half, in float32 whatever the dtype of x."""
    cos, sin = (part[:, :, None] for part in rotation)
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


def init(config: ModelConfig, key: Array, mesh: Mesh | None = None) -> Params:
    """Fresh params; consumes `key`. On a mesh no device ever holds a whole large param."""
    if mesh is None:
        return _init(config, key)
    at = sharding.placement(abstract_params(config), mesh)
    return jax.jit(partial(_init, config), out_shardings=at)(key)


def abstract_params(config: ModelConfig) -> Params:
    """Shapes and dtypes of the params."""
    return jax.eval_shape(partial(_init, config), jax.random.key(0))


def count_params(config: ModelConfig) -> int:
    """Numbers in the params."""
    return sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))


def weight_bytes(config: ModelConfig) -> int:
    """Of all params once, as they are multiplied with."""
    return count_params(config) * config.itemsize


def _init(config: ModelConfig, key: Array) -> Params:
    embed_key, head_key, layers_key = jax.random.split(key, 3)
    x = jnp.zeros((1, 1, config.d_model), config.dtype)
    rotation = rotation_at(config, jnp.zeros((1, 1), jnp.int32))

    def init_layer(layer_key: Array) -> Params:
        attend = lambda q, k, v: (jnp.zeros_like(q), None)  # noqa: E731
        return Block(config).init(layer_key, x, rotation, attend)["params"]

    normal = nn.initializers.normal(0.02)
    params = {
        "embed": normal(embed_key, (config.vocab_size, config.d_model), jnp.float32),
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
    """Hidden states [B, L, D] of forest rows; tokens, positions, ends: int32 [B, L].

    On a mesh the rows are cut over it, and every layer gathers the params that it needs.
    """
    forest_attention = attention.IMPLEMENTATIONS[config.attention]
    if mesh is not None:
        forest_attention = attention.on_mesh(forest_attention, mesh)
    by_row = partial(sharding.constrain, axes=("rows", "tokens", "hidden"), mesh=mesh)

    def attend(q: Array, k: Array, v: Array) -> tuple[Array, None]:
        return forest_attention(q, k, v, ends), None

    def layer(x: Array, layer_params: Params) -> tuple[Array, None]:
        x, _ = apply_block(config, layer_params, x, rotation, attend)
        return by_row(x), None

    rotation = rotation_at(config, positions)
    kept = REMAT[config.remat]
    x = by_row(params["embed"][tokens].astype(config.dtype))
    body = jax.checkpoint(layer, policy=kept) if kept else layer
    x, _ = jax.lax.scan(body, x, params["layers"], unroll=min(config.unroll, config.num_layers))
    return final_norm(config, params, x)


def init_cache(config: ModelConfig, batch: int, length: int) -> Cache:
    """Zeroed cache of `batch` sequences of at most `length` tokens."""
    shape = (batch, length, config.num_kv_heads, config.head_dim)
    return tuple(
        (jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype))
        for _ in range(config.num_layers)
    )


def forward_cached(
    config: ModelConfig, params: Params, tokens: Array, positions: Array, cache: Cache
) -> tuple[Array, Cache]:
    """Hidden states [B, T, D] of T tokens that continue the cached ones, and the grown cache.

    Token t of row b is stored at `positions[b, t]` and sees all that is stored up to there. So
    padding after the end of a prompt does no harm: nothing sees it before it is overwritten.

    Args:
        tokens: int32 [B, T].
        positions: int32 [B, T], below S.
        cache: of B rows and S positions.
    """
    rows = jnp.arange(tokens.shape[0])[:, None]
    stored = jnp.arange(cache[0][0].shape[1])
    mask = stored[None, None, :] <= positions[:, :, None]
    rotation = rotation_at(config, positions)
    x = params["embed"][tokens].astype(config.dtype)
    grown = []
    for index, (cached_k, cached_v) in enumerate(cache):

        def attend(
            q: Array, k: Array, v: Array, cached_k: Array = cached_k, cached_v: Array = cached_v
        ) -> tuple[Array, tuple[Array, Array]]:
            keys = cached_k.at[rows, positions].set(k, unique_indices=True)
            values = cached_v.at[rows, positions].set(v, unique_indices=True)
            return attention.masked(q, keys, values, mask), (keys, values)

        layer_params = jax.tree.map(lambda stacked, i=index: stacked[i], params["layers"])
        x, layer_cache = apply_block(config, layer_params, x, rotation, attend)
        grown.append(layer_cache)
    return final_norm(config, params, x), tuple(grown)


def gather_vocabulary(config: ModelConfig, params: Params, mesh: Mesh | None) -> Params:
    """`params` with embedding and head as their uses need them: in the dtype of the activations,
    and on a mesh whole in width, once for all chunks of logits instead of once for each."""
    if mesh is None:
        return params
    axes = {"embed": ("vocab", "hidden"), "head": ("hidden", "vocab")}
    gathered = {
        name: sharding.constrain(params[name].astype(config.dtype), axes[name], mesh)
        for name in axes
        if name in params
    }
    return {**params, **gathered}


def unembed(params: Params, hidden: Array) -> Array:
    """float32 logits [..., V] of hidden states [..., D]."""
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
    """float32 [B, L, V] of ordinary causal rows: tokens int32 [B, L]."""
    tokens = jnp.asarray(tokens)
    batch, length = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(length), (batch, length))
    ends = jnp.full((batch, length), length)
    return unembed(params, forward(config, params, tokens, positions, ends))


def final_norm(config: ModelConfig, params: Params, x: Array) -> Array:
    """Hidden states [..., D] of what the last layer hands on."""
    norm = nn.RMSNorm(epsilon=config.rms_eps, dtype=config.dtype)
    normed: Any = norm.apply({"params": {"scale": params["final_norm"]}}, x)
    return normed
