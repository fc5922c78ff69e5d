"""Attention over token forests: one mask rule, the reference implementation, and the choice of one.

Token i of a row attends to token j if and only if `j <= i < ends[j]`, where `ends[j]` is one past
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

from webagent_jax.policy import sharding
from webagent_jax.policy.kernels import blockwise, gpu, tpu
from webagent_jax.policy.kernels.common import MASKED

_BLOCK = 128  # queries at a time
_MAX_BLOCKS = 8  # more of them run faster and compile slower
_LONG = 1024  # tokens of a row from which skipping wins on a CPU ...
_CPU_BLOCK = 64  # ... by such blocks: its cores gain more from them than from long products


def forest_mask(ends: Array) -> Array:
    """bool [B, L, L] from `ends` [B, L]: entry (b, i, j) tells whether token i sees token j."""
    index = jnp.arange(ends.shape[1])
    query, key = index[None, :, None], index[None, None, :]
    return (key <= query) & (query < ends[:, None, :])


def masked(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """Softmax attention where the mask is true; scores and softmax in float32.

    Args:
        q: [B, T, H, E] queries, with H a multiple of K.
        k: [B, S, K, E] keys; query head h reads key-value head h // (H / K).
        v: [B, S, K, E] values.
        mask: bool [B, T, S]; every query must see at least one key.

    Returns:
        [B, T, H, E] in the dtype of `v`.
    """
    batch, length, heads, width = q.shape
    keys, kv_heads = k.shape[1:3]
    group = heads // kv_heads
    # The query heads of a group stand one below the other: one plain matmul per key-value head,
    # which XLA hands to its fastest kernel on every backend; so does the sum of a mask of numbers.
    q = (q * width**-0.5).reshape(batch, length, kv_heads, group, width).transpose(0, 2, 3, 1, 4)
    q = q.reshape(batch, kv_heads, group * length, width)
    k, v = k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)
    barred = jnp.where(mask, 0.0, MASKED)[:, None, None]

    scores = jnp.matmul(q, k, preferred_element_type=jnp.float32)
    scores = scores.reshape(batch, kv_heads, group, length, keys) + barred
    highest = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
    weights = jnp.exp(scores - highest)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    weights = weights.reshape(batch, kv_heads, group * length, keys).astype(v.dtype)
    out = jnp.matmul(weights, v, preferred_element_type=jnp.float32)
    out = out.reshape(batch, kv_heads, group, length, width) / total
    return out.transpose(0, 3, 1, 2, 4).reshape(batch, length, heads, width).astype(v.dtype)


def dense(q: Array, k: Array, v: Array, ends: Array) -> Array:
    """Forest attention, q [B, L, H, E], k and v [B, L, K, E], ends [B, L]: every pair is computed.

    Goes by blocks of queries: a block reads no key behind it, which spares almost half of the
    work, and its scores fit into a processor's cache.
    """
    length = q.shape[1]
    width = _BLOCK * -(-length // (_BLOCK * _MAX_BLOCKS))
    mask = forest_mask(ends)
    blocks = []
    for start in range(0, length, width):
        end = min(start + width, length)
        blocks.append(masked(q[:, start:end], k[:, :end], v[:, :end], mask[:, start:end, :end]))
    return jnp.concatenate(blocks, axis=1)


def on_cpu(q: Array, k: Array, v: Array, ends: Array) -> Array:
    """As `dense`. Long rows go block by block, short ones have too little that could be skipped."""
    if q.shape[1] < _LONG:
        return dense(q, k, v, ends)
    return blockwise.attention(q, k, v, ends, block=_CPU_BLOCK, row_by_row=True)


ForestAttention = Callable[[Array, Array, Array, Array], Array]

IMPLEMENTATIONS: dict[str, ForestAttention] = {
    "dense": dense,  # any backend; memory quadratic in L; what the others are held to
    "blockwise": blockwise.attention,  # any backend; memory linear in L
    "cpu": on_cpu,  # one of these two
    "tpu": tpu.attention,
    "gpu": gpu.attention,
}
_BACKENDS = ("cpu", "tpu", "gpu")  # those with one of their own, which has their name


def on_mesh(implementation: ForestAttention, mesh: Mesh) -> ForestAttention:
    """The same on a mesh: every device attends for its rows and its heads, and asks no other.

    XLA cannot cut a kernel by itself: it would gather all rows and heads on every device.
    """

    def attention(q: Array, k: Array, v: Array, ends: Array) -> Array:
        axes = ("rows", "tokens", "heads", "head_dim")
        kv_axes = ("rows", "tokens", "kv_heads", "head_dim")
        queries = sharding.spec(mesh, axes, q.shape, name="queries")
        keys = sharding.spec(mesh, kv_axes, k.shape, name="keys")
        rows = sharding.spec(mesh, axes[:2], ends.shape, name="ends")
        whole = keys[2] is None and queries[2] is not None
        local = _own_head(implementation, mesh, k.shape[2]) if whole else implementation
        specs = (queries, keys, keys, rows)
        cut = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=queries, check_vma=False)
        return cut(q, k, v, ends)

    return attention


def _own_head(implementation: ForestAttention, mesh: Mesh, kv_heads: int) -> ForestAttention:
    """For more devices than key-value heads, each of which is then on every device: the query heads
    of a device read one of them.

    Raises ShardingError when they read several.
    """
    axes = sharding.RULES["heads"]
    devices = math.prod(mesh.shape[axis] for axis in axes)
    if devices % kv_heads:
        raise sharding.ShardingError(
            f"{kv_heads} key-value heads on {devices} devices of {' x '.join(axes)}: "
            "one number must divide the other"
        )

    def local(q: Array, k: Array, v: Array, ends: Array) -> Array:
        head = jax.lax.axis_index(axes) * kv_heads // devices
        k, v = (jax.lax.dynamic_slice_in_dim(x, head, 1, axis=2) for x in (k, v))
        return implementation(q, k, v, ends)

    return local


def choose(name: str, backend: str) -> str:
    """The implementation that `name` stands for: itself, or for "auto" that of the backend.

    Raises ValueError for a name that there is not, and for a kernel of another backend: it is never
    replaced in silence.
    """
    if name == "auto":
        return backend if backend in _BACKENDS else "blockwise"
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"no attention {name!r}; there are: auto, {', '.join(IMPLEMENTATIONS)}")
    if name in _BACKENDS and name != backend:
        raise ValueError(f"attention {name!r} does not run on backend {backend!r}: choose 'auto'")
    return name
