"""Attention over token forests: mask, reference implementation, choice of implementation.

Token i of a row attends to token j if and only if `j <= i < ends[j]`. `ends[j]` is the index after
the last descendant of j in depth-first order. Ordinary causal rows (`ends = L` everywhere), packed
rows and trees of branches are all special cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from webagent_jax.config import ConfigError
from webagent_jax.policy import sharding
from webagent_jax.policy.kernels import blockwise, gpu, tpu
from webagent_jax.policy.kernels.common import MASKED

_BLOCK = 128  # minimum number of queries per block of `dense`
_MAX_BLOCKS = 8  # blocks per row of `dense`; more run faster and compile slower
_MIN_BLOCKWISE_TOKENS = 1024  # row length in tokens from which skipping blocks is faster on a CPU
_CPU_BLOCK = 64  # tokens per block on a CPU, where skipping more saves more than larger matmuls


def forest_mask(ends: Array) -> Array:
    """Return bool [B, L, L] from `ends` [B, L]: whether token i of row b attends to token j."""
    index = jnp.arange(ends.shape[1])
    query, key = index[None, :, None], index[None, None, :]
    return (key <= query) & (query < ends[:, None, :])


def masked_attention(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """Compute softmax attention where the mask is true; scores and softmax are float32.

    Args:
        q: queries [B, T, H, E]; H is a multiple of K.
        k: keys [B, S, K, E]; query head h reads key-value head h // (H / K).
        v: values [B, S, K, E].
        mask: bool [B, T, S]; every query must attend to at least one key.

    Returns:
        [B, T, H, E] in the dtype of `v`.
    """
    batch, length, heads, width = q.shape
    keys, kv_heads = k.shape[1:3]
    group = heads // kv_heads
    # The query heads of a group are stacked along the rows: one plain matmul per key-value head,
    # for which XLA uses its fastest kernel on every backend. For this reason, the mask is added.
    q = (q * width**-0.5).reshape(batch, length, kv_heads, group, width).transpose(0, 2, 3, 1, 4)
    q = q.reshape(batch, kv_heads, group * length, width)
    k, v = k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)
    mask_bias = jnp.where(mask, 0.0, MASKED)[:, None, None]

    # Scores are [B, K, G * T, S] in matmuls, and [B, K, G, T, S] under the mask [B, 1, 1, T, S].
    scores = jnp.matmul(q, k, preferred_element_type=jnp.float32)
    scores = scores.reshape(batch, kv_heads, group, length, keys) + mask_bias
    # The maximum cancels in the quotient, so it has no gradient.
    row_max = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
    weights = jnp.exp(scores - row_max)
    row_sum = jnp.sum(weights, axis=-1, keepdims=True)
    weights = weights.reshape(batch, kv_heads, group * length, keys).astype(v.dtype)
    out = jnp.matmul(weights, v, preferred_element_type=jnp.float32)
    # Divide after the matmul: E values per query instead of S weights.
    out = out.reshape(batch, kv_heads, group, length, width) / row_sum
    return out.transpose(0, 3, 1, 2, 4).reshape(batch, length, heads, width).astype(v.dtype)


def dense(q: Array, k: Array, v: Array, ends: Array) -> Array:
    """Compute forest attention of all pairs in blocks of queries.

    A block of queries skips the keys after it, almost half of the work, and its scores fit the CPU
    cache.

    Args:
        q: queries [B, L, H, E].
        k: keys [B, L, K, E].
        v: values [B, L, K, E].
        ends: int32 [B, L], index after the last descendant of each token.

    Returns:
        [B, L, H, E] in the dtype of `v`.
    """
    length = q.shape[1]
    # A multiple of _BLOCK for which a row has at most _MAX_BLOCKS blocks.
    width = _BLOCK * -(-length // (_BLOCK * _MAX_BLOCKS))
    mask = forest_mask(ends)
    blocks = []
    for start in range(0, length, width):
        end = min(start + width, length)
        blocks.append(
            masked_attention(q[:, start:end], k[:, :end], v[:, :end], mask[:, start:end, :end])
        )
    return jnp.concatenate(blocks, axis=1)


def cpu_attention(q: Array, k: Array, v: Array, ends: Array) -> Array:
    """Compute `dense`, or `blockwise` for long rows; short rows have too few blocks to skip."""
    if q.shape[1] < _MIN_BLOCKWISE_TOKENS:
        return dense(q, k, v, ends)
    return blockwise.attention(q, k, v, ends, block=_CPU_BLOCK, row_by_row=True)


ForestAttention = Callable[[Array, Array, Array, Array], Array]

IMPLEMENTATIONS: dict[str, ForestAttention] = {
    "dense": dense,  # any backend; memory quadratic in L; reference of the others
    "blockwise": blockwise.attention,  # any backend; memory linear in L
    "cpu": cpu_attention,  # "dense" or "blockwise" by row length
    "tpu": tpu.attention,
    "gpu": gpu.attention,
}
_BACKENDS = ("cpu", "tpu", "gpu")  # backends with an implementation of the same name


def shard_attention(implementation: ForestAttention, mesh: Mesh) -> ForestAttention:
    """Return the implementation sharded over rows and heads, without communication.

    XLA cannot shard a kernel by itself: it would gather all rows and heads on every device.
    """

    def attention(q: Array, k: Array, v: Array, ends: Array) -> Array:
        axes = ("rows", "tokens", "heads", "head_dim")
        kv_axes = ("rows", "tokens", "kv_heads", "head_dim")
        queries = sharding.partition_spec(mesh, axes, q.shape, name="queries")
        keys = sharding.partition_spec(mesh, kv_axes, k.shape, name="keys")
        rows = sharding.partition_spec(mesh, axes[:2], ends.shape, name="ends")
        # `partition_spec` replicates key-value heads that do not divide over the devices.
        has_all_kv_heads = keys[2] is None and queries[2] is not None
        local = implementation
        if has_all_kv_heads:
            local = _select_kv_head(implementation, mesh, k.shape[2])
        specs = (queries, keys, keys, rows)
        sharded = jax.shard_map(
            local, mesh=mesh, in_specs=specs, out_specs=queries, check_vma=False
        )
        return sharded(q, k, v, ends)

    return attention


def _select_kv_head(implementation: ForestAttention, mesh: Mesh, kv_heads: int) -> ForestAttention:
    """Return the implementation for devices that have all key-value heads and use one of them.

    With more devices than key-value heads, the heads are replicated and the query heads of a device
    read one of them.

    Raises:
        ShardingError: the query heads of a device read several key-value heads.
    """
    axes = sharding.LOGICAL_AXIS_RULES["heads"]
    devices = math.prod(mesh.shape[axis] for axis in axes)
    if devices % kv_heads:
        raise sharding.ShardingError(
            f"{kv_heads} key-value heads on {devices} devices of {' x '.join(axes)}: "
            "choose a number of devices that divides the heads or is a multiple of them"
        )

    def local(q: Array, k: Array, v: Array, ends: Array) -> Array:
        # Device i has the query heads from i * H / devices on; they read head i * K / devices.
        head = jax.lax.axis_index(axes) * kv_heads // devices
        k, v = (jax.lax.dynamic_slice_in_dim(x, head, 1, axis=2) for x in (k, v))
        return implementation(q, k, v, ends)

    return local


def resolve_implementation(name: str, backend: str, head_dim: int) -> str:
    """Return the implementation of a name: the name itself, or for "auto" that of the backend.

    Args:
        name: key of `IMPLEMENTATIONS`, or "auto".
        backend: name of the JAX backend.
        head_dim: width of the heads; "auto" selects "blockwise" if the GPU kernel does not support
            it.

    Raises:
        ConfigError: the name is unknown, or its kernel is for another backend. It is never replaced
            silently.
    """
    if name == "auto":
        has_kernel = backend in _BACKENDS and (backend != "gpu" or gpu.is_supported_width(head_dim))
        return backend if has_kernel else "blockwise"
    if name not in IMPLEMENTATIONS:
        raise ConfigError(
            f"unknown policy.attention={name!r}: use auto, {', '.join(IMPLEMENTATIONS)}"
        )
    if name in _BACKENDS and name != backend:
        raise ConfigError(
            f"policy.attention={name!r} does not run on backend {backend!r}: use auto"
        )
    return name
