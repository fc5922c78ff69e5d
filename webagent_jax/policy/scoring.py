"""Log-probabilities of response tokens without logits of other tokens.

The hidden state at the parent of a response token scores the token. The head is applied only at
those parents, one chunk at a time. Its outputs are recomputed in the backward pass, so no array of
[B, L, V] is materialized.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from webagent_jax.policy import transformer
from webagent_jax.policy.transformer import ModelConfig, Params
from webagent_jax.types import ForestRows

_CHUNK = 256  # response tokens per row whose logits are in memory at the same time


class Scores(NamedTuple):
    """Log-probability of each response token and entropy of its distribution."""

    logp: Array  # float32 [B, R], log-probability under softmax(logits / temperature)
    entropy: Array  # float32 [B, R], entropy of that distribution in nats


def score(
    config: ModelConfig,
    params: Params,
    rows: ForestRows,
    *,
    temperature: float = 1.0,
    mesh: Mesh | None = None,
) -> Scores:
    """Score the response tokens of forest rows.

    Args:
        config: architecture of the policy.
        params: params of the policy.
        rows: forest rows; their weights and advantages are not used. Scores of padding targets are
            finite and have no meaning.
        temperature: sampling temperature, above 0. A policy gradient is unbiased only under the
            distribution that sampled the tokens.
        mesh: mesh to shard the rows over; None for a single device.
    """
    params = transformer.gather_embeddings(config, params, mesh)
    tokens, parents, targets = map(jnp.asarray, (rows.tokens, rows.parents, rows.target_indices))
    positions, ends = map(jnp.asarray, (rows.positions, rows.subtree_ends))
    hidden = transformer.forward(config, params, tokens, positions, ends, mesh=mesh)
    take = jnp.take_along_axis
    # [B, R, D]: the hidden state at the parent of each response token.
    hidden = take(hidden, take(parents, targets, axis=1)[:, :, None], axis=1)
    labels = take(tokens, targets, axis=1)

    # The logits [B, chunk, V] are not saved, but recomputed in the backward pass.
    @jax.checkpoint
    def score_chunk(chunk: tuple[Array, Array]) -> Scores:
        chunk_hidden, chunk_labels = chunk
        logits = transformer.unembed(config, params, chunk_hidden) / temperature
        logp = jax.nn.log_softmax(logits, axis=-1)
        entropy = -jnp.sum(jnp.exp(logp) * logp, axis=-1)
        return Scores(take(logp, chunk_labels[:, :, None], axis=-1)[:, :, 0], entropy)

    batch, count = targets.shape
    if count <= _CHUNK:
        return score_chunk((hidden, labels))
    padding = -count % _CHUNK
    hidden = jnp.pad(hidden, ((0, 0), (0, padding), (0, 0)))
    labels = jnp.pad(labels, ((0, 0), (0, padding)))

    def split_chunks(x: Array) -> Array:
        """Reshape [B, n * chunk, ...] to [n, B, chunk, ...]."""
        return jnp.moveaxis(x.reshape(batch, -1, _CHUNK, *x.shape[2:]), 1, 0)

    # lax.map runs the chunks one after another, so one chunk of logits is in memory.
    scores = jax.lax.map(score_chunk, (split_chunks(hidden), split_chunks(labels)))
    return Scores(*(jnp.moveaxis(part, 0, 1).reshape(batch, -1)[:, :count] for part in scores))
