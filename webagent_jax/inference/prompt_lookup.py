"""Draft tokens for speculative decoding: the continuation of an earlier occurrence of an n-gram.

Responses of an agent repeat much of their context: the task, names of elements, and the grammar of
earlier responses. So no draft model is needed (prompt lookup decoding, Saxena 2023; "ngram" in
vLLM).
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

MAX_NGRAM = 3  # tokens of the longest n-gram that is looked up
RECENT_TOKENS = 1024  # tokens of other requests' responses that are searched


def propose(recent: Array, history: Array, length: Array, num_tokens: int) -> Array:
    """Return the tokens after the best earlier occurrence of the last tokens of each sequence.

    The best occurrence has the longest n-gram, up to `MAX_NGRAM`, and is the latest of those. A
    sequence without any gets arbitrary tokens, since a wrong draft costs the same as none.

    Args:
        recent: int32 [R], responses of other requests, older than every sequence; -1 is padding.
        history: int32 [B, L], tokens of each sequence.
        length: int32 [B], number of tokens of each sequence, 1 or more.
        num_tokens: number K of tokens to propose.

    Returns:
        int32 [B, K].
    """
    batch, num_recent = len(history), len(recent)
    # The padding between the two keeps n-grams from crossing the boundary.
    padding = jnp.full((batch, MAX_NGRAM), -1, jnp.int32)
    context = jnp.concatenate(
        [padding, jnp.broadcast_to(recent[None], (batch, num_recent)), padding, history], axis=1
    )
    last = 2 * MAX_NGRAM + num_recent + length[:, None] - 1  # [B, 1], index of the last token
    index = jnp.arange(context.shape[1])[None]
    matches = jnp.ones(context.shape, bool)
    ngram = jnp.zeros(context.shape, jnp.int32)  # tokens of the n-gram that ends at each index
    for back in range(MAX_NGRAM):
        token = jnp.take_along_axis(context, jnp.maximum(last - back, 0), axis=1)
        # The padding equals no token, so the roll around the end matches nothing.
        matches &= (jnp.roll(context, back, axis=1) == token) & (token >= 0)
        ngram += matches
    score = jnp.where(index < last, ngram * context.shape[1] + index, -1)
    best, offset = jnp.argmax(score, axis=1)[:, None], jnp.arange(num_tokens)[None]
    draft = jnp.take_along_axis(context, best + 1 + offset, axis=1, mode="clip")
    # Padding is not a token.
    return jnp.maximum(draft, 0)
