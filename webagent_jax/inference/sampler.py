"""From logits to a token: greedy, tempered, top-k and nucleus sampling, a row as good as alone.

Every function treats the rows of a batch independently, so that what is drawn for one request
never depends on its company.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Drawn(NamedTuple):
    """One token per row."""

    token: Array  # int32 [B]
    logp: Array  # float32 [B] under softmax(logits)
    sampling_logp: Array  # float32 [B] under the tempered and filtered distribution drawn from


def sample(logits: Array, keys: Array, *, temperature: Array, top_p: Array, top_k: Array) -> Drawn:
    """Draws one token per row: tempered first, then the `top_k`, then of those the nucleus.

    Args:
        logits: float32 [B, V].
        keys: random keys [B], consumed. Rows with equal keys and logits draw the same token.
        temperature: float32 [B]; 0 takes the most likely token, the first of equals. So does
            any below 1e-4, where the division would overflow.
        top_p: float32 [B] in (0, 1]; tokens outside the nucleus of that mass are not drawn.
        top_k: int32 [B]; tokens less likely than the k-th are not drawn; 0 keeps all.
    """
    greedy = temperature < 1e-4
    scaled = logits / jnp.where(greedy, 1.0, temperature)[:, None]
    # The sort behind the filters is the dearest part of a step: no request, no sort.
    filters = jnp.any((top_p < 1.0) | (top_k > 0))
    filtered = jax.lax.cond(filters, keep_likely, lambda x, *_: x, scaled, top_p, top_k)
    token = jnp.where(greedy, jnp.argmax(logits, axis=-1), draw(filtered, keys)).astype(jnp.int32)

    def logp(of: Array) -> Array:
        chosen = jnp.take_along_axis(of, token[:, None], axis=-1)[:, 0]
        return chosen - jax.nn.logsumexp(of, axis=-1)

    return Drawn(token, logp(logits), jnp.where(greedy, 0.0, logp(filtered)))


def keep_likely(logits: Array, top_p: Array, top_k: Array) -> Array:
    """Logits [B, V] with -inf outside the `top_k` and, among those, outside the nucleus.

    The nucleus is the smallest set of most likely tokens whose mass reaches `top_p`, one at least
    (Holtzman et al., arXiv 1904.09751). Tokens as likely as the last that is kept are kept too. A
    row with a `top_p` of 1 and a `top_k` of 0 is not touched.
    """
    vocab = logits.shape[-1]
    descending = -jnp.sort(-logits, axis=-1)
    count = jnp.where((top_k > 0) & (top_k < vocab), top_k, vocab)[:, None]
    among = jnp.arange(vocab)[None] < count
    probability = jax.nn.softmax(jnp.where(among, descending, -jnp.inf), axis=-1)
    mass_before = jnp.cumsum(probability, axis=-1) - probability
    inside = (mass_before < top_p[:, None]) & among
    least = jnp.min(jnp.where(inside, descending, descending[:, :1]), axis=-1, keepdims=True)
    untouched = (top_p[:, None] >= 1.0) & (count == vocab)
    return jnp.where((logits >= least) | untouched, logits, -jnp.inf)


def draw(logits: Array, keys: Array) -> Array:
    """Exact draws from softmax(logits [B, V]), int32 [B], in two stages of Gumbel-max.

    First a block of the vocabulary by its mass, then a token of that block. So a draw needs about
    2 sqrt(V) random numbers instead of V, and making those would cost more than the logits.
    """
    batch, vocab = logits.shape
    width = 1 << ((vocab - 1).bit_length() + 1) // 2
    blocks = -(-vocab // width)
    padding = ((0, 0), (0, blocks * width - vocab))
    blocked = jnp.pad(logits, padding, constant_values=-jnp.inf).reshape(batch, blocks, width)
    noise = jax.vmap(lambda key: jax.random.gumbel(key, (blocks + width,)))(keys)
    block = jnp.argmax(jax.nn.logsumexp(blocked, axis=-1) + noise[:, :blocks], axis=-1)
    members = jnp.take_along_axis(blocked, block[:, None, None], axis=1)[:, 0]
    return block * width + jnp.argmax(members + noise[:, blocks:], axis=-1)
