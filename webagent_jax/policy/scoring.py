"""Log-probabilities of response tokens, without logits of anything else.

A response token is scored from the hidden state at its parent. The head is applied at those
parents only, a chunk at a time, and recomputed in the backward pass: an array of [B, L, V] never
exists.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from webagent_jax.policy import transformer
from webagent_jax.policy.transformer import ModelConfig, Params

_CHUNK = 256  # response tokens whose logits exist at once, per row


class Scores(NamedTuple):
    logp: Array  # float32 [B, R] of the token under softmax(logits / temperature)
    entropy: Array  # float32 [B, R] of that distribution, in nats


def score(
    config: ModelConfig,
    params: Params,
    rows: object,
    *,
    temperature: float = 1.0,
    mesh: Mesh | None = None,
) -> Scores:
    """Score the response tokens of forest rows.

    Args:
        rows: has the fields `tokens`, `positions`, `parents`, `ends` (int32 [B, L]) and `targets`
            (int32 [B, R]) of `types.ForestRows`. Entries of padding targets are finite and
            meaningless: their weight is 0.
        temperature: of sampling, above 0. A policy gradient is unbiased only under the distribution
            that the tokens were sampled from.
        mesh: over which the rows are cut.
    """
    params = transformer.gather_vocabulary(config, params, mesh)
    tokens, parents, targets = rows.tokens, rows.parents, rows.targets  # type: ignore[attr-defined]
    hidden = transformer.forward(
        config,
        params,
        tokens,
        rows.positions,  # type: ignore[attr-defined]
        rows.ends,  # type: ignore[attr-defined]
        mesh=mesh,
    )
    take = jnp.take_along_axis
    hidden = take(hidden, take(parents, targets, axis=1)[:, :, None], axis=1)
    labels = take(tokens, targets, axis=1)

    @jax.checkpoint
    def score_chunk(chunk: tuple[Array, Array]) -> Scores:
        chunk_hidden, chunk_labels = chunk
        logits = transformer.unembed(params, chunk_hidden) / temperature
        logp = jax.nn.log_softmax(logits, axis=-1)
        entropy = -jnp.sum(jnp.exp(logp) * logp, axis=-1)
        return Scores(take(logp, chunk_labels[:, :, None], axis=-1)[:, :, 0], entropy)

    batch, count = targets.shape
    if count <= _CHUNK:
        return score_chunk((hidden, labels))
    padding = -count % _CHUNK
    hidden = jnp.pad(hidden, ((0, 0), (0, padding), (0, 0)))
    labels = jnp.pad(labels, ((0, 0), (0, padding)))

    def chunked(x: Array) -> Array:  # [B, n * chunk, ...] -> [n, B, chunk, ...]
        return jnp.moveaxis(x.reshape(batch, -1, _CHUNK, *x.shape[2:]), 1, 0)

    scores = jax.lax.map(score_chunk, (chunked(hidden), chunked(labels)))
    return Scores(*(jnp.moveaxis(part, 0, 1).reshape(batch, -1)[:, :count] for part in scores))
