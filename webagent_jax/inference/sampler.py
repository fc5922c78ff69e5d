"""Sampling of tokens from logits: greedy, temperature, top-k and nucleus.

Every function treats the rows of a batch independently, so the token sampled for one request never
depends on the other requests of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class SampledToken(NamedTuple):
    """Sampled token of each row and its log-probabilities."""

    token: Array  # int32 [B]
    logp: Array  # float32 [B], log-probability under softmax(logits)
    # float32 [B], log-probability under the tempered and filtered distribution; 0 if greedy.
    sampling_logp: Array


def sample(
    logits: Array, keys: Array, *, temperature: Array, top_p: Array, top_k: Array
) -> SampledToken:
    """Sample one token per row: apply temperature, then `top_k`, then the nucleus of those.

    Args:
        logits: float32 [B, V].
        keys: random keys [B], consumed. Rows with equal keys and logits sample the same token.
        temperature: float32 [B]. Below 1e-4, where the division would overflow, sampling is greedy:
            the most likely token, the first of equals.
        top_p: float32 [B] in (0, 1]; tokens outside the nucleus of that mass are excluded.
        top_k: int32 [B]; tokens less likely than the k-th are excluded; 0 keeps all.
    """
    is_greedy = temperature < 1e-4
    scaled = logits / jnp.where(is_greedy, 1.0, temperature)[:, None]
    # The sort of the filters is the most expensive part of a step: skip it if no row uses them.
    has_filters = jnp.any((top_p < 1.0) | (top_k > 0))
    filtered = jax.lax.cond(has_filters, filter_top_k_top_p, lambda x, *_: x, scaled, top_p, top_k)
    token = jnp.where(
        is_greedy, jnp.argmax(logits, axis=-1), sample_categorical(filtered, keys)
    ).astype(jnp.int32)

    def compute_logp(scores: Array) -> Array:
        token_scores = jnp.take_along_axis(scores, token[:, None], axis=-1)[:, 0]
        return token_scores - jax.nn.logsumexp(scores, axis=-1)

    return SampledToken(
        token, compute_logp(logits), jnp.where(is_greedy, 0.0, compute_logp(filtered))
    )


def filter_top_k_top_p(logits: Array, top_p: Array, top_k: Array) -> Array:
    """Return logits [B, V] with -inf outside the `top_k` and, among those, outside the nucleus.

    The nucleus is the smallest set of most likely tokens whose mass reaches `top_p`, with at least
    one token (Holtzman et al., arXiv 1904.09751). Ties with its least likely token are kept. Rows
    with a `top_p` of 1 and a `top_k` of 0 are unchanged.

    Args:
        logits: float32 [B, V].
        top_p: float32 [B] in (0, 1].
        top_k: int32 [B]; 0 keeps all tokens.
    """
    # The masks below refer to ranks in descending order, not to token ids.
    vocab = logits.shape[-1]
    descending = -jnp.sort(-logits, axis=-1)
    count = jnp.where((top_k > 0) & (top_k < vocab), top_k, vocab)[:, None]
    in_top_k = jnp.arange(vocab)[None] < count
    probability = jax.nn.softmax(jnp.where(in_top_k, descending, -jnp.inf), axis=-1)
    mass_before = jnp.cumsum(probability, axis=-1) - probability
    # A token is in the nucleus if those before it have less than `top_p`: the first one always.
    in_nucleus = (mass_before < top_p[:, None]) & in_top_k
    # The smallest kept logit; the comparison below also keeps its ties.
    threshold = jnp.min(
        jnp.where(in_nucleus, descending, descending[:, :1]), axis=-1, keepdims=True
    )
    # Rounding of the cumulative sum could exclude tokens at a `top_p` of 1.
    is_unfiltered = (top_p[:, None] >= 1.0) & (count == vocab)
    return jnp.where((logits >= threshold) | is_unfiltered, logits, -jnp.inf)


def sample_categorical(logits: Array, keys: Array) -> Array:
    """Return exact samples from softmax(logits [B, V]), int32 [B], in two stages of Gumbel-max.

    The first stage samples a block of the vocabulary by its mass, the second a token of that block.
    A sample needs about 2 sqrt(V) random numbers; V of them would cost more than the logits.
    """
    batch, vocab = logits.shape
    # A power of two near sqrt(V), so both stages draw a similar number of random values.
    width = 1 << ((vocab - 1).bit_length() + 1) // 2
    blocks = -(-vocab // width)
    padding = ((0, 0), (0, blocks * width - vocab))
    blocked = jnp.pad(logits, padding, constant_values=-jnp.inf).reshape(batch, blocks, width)
    noise = jax.vmap(lambda key: jax.random.gumbel(key, (blocks + width,)))(keys)
    # Gumbel-max: the argmax of log-weights plus Gumbel noise is a sample from the weights.
    block = jnp.argmax(jax.nn.logsumexp(blocked, axis=-1) + noise[:, :blocks], axis=-1)
    members = jnp.take_along_axis(blocked, block[:, None, None], axis=1)[:, 0]
    return block * width + jnp.argmax(members + noise[:, blocks:], axis=-1)
