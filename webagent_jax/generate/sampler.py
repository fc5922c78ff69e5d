"""From logits to a token: greedy, temperature and nucleus sampling, one row as good as alone.

Every function treats the rows of a batch independently, so that what is drawn for one request
never depends on its company.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def sample(logits: Array, keys: Array, temperature: Array, top_p: Array) -> tuple[Array, Array]:
    """Draws one token per row.

    Args:
        logits: float32 [B, V].
        keys: random keys [B], consumed. Rows with equal keys and logits draw the same token.
        temperature: float32 [B]; 0 takes the most likely token, the first of equals. So does
            any below 1e-4, where the division would overflow.
        top_p: float32 [B] in (0, 1]; tokens outside the nucleus of that mass are not drawn.

    Returns:
        The tokens, int32 [B], and their log-probabilities under softmax(logits), float32 [B]:
        untempered and unfiltered, which is what a policy gradient needs.
    """
    greedy = temperature < 1e-4
    scaled = logits / jnp.where(greedy, 1.0, temperature)[:, None]
    # The sort behind the nucleus is the dearest part of a step: no request, no sort.
    filtered = jax.lax.cond(jnp.any(top_p < 1.0), keep_nucleus, lambda x, _: x, scaled, top_p)
    token = jnp.where(greedy, jnp.argmax(logits, axis=-1), draw(filtered, keys)).astype(jnp.int32)
    chosen = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
    return token, chosen - jax.nn.logsumexp(logits, axis=-1)


def keep_nucleus(logits: Array, top_p: Array) -> Array:
    """Logits [B, V] with -inf outside the nucleus (Holtzman et al., arXiv 1904.09751).

    The nucleus is the smallest set of most likely tokens whose mass reaches `top_p`, one at least;
    tokens as likely as its last member belong to it. A row with a `top_p` of 1 is not touched.
    """
    probability = jax.nn.softmax(logits, axis=-1)
    descending = -jnp.sort(-probability, axis=-1)
    mass_before = jnp.cumsum(descending, axis=-1) - descending
    inside = mass_before < top_p[:, None]
    least = jnp.min(jnp.where(inside, descending, descending[:, :1]), axis=-1, keepdims=True)
    keep = (probability >= least) | (top_p[:, None] >= 1.0)
    return jnp.where(keep, logits, -jnp.inf)


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
