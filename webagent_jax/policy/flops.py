"""Floating-point operations of a model, counted from its shapes.

A multiplication and an addition count as two operations. Norms, rotary embedding and softmax are
excluded: they are below one percent at relevant sizes.
"""

from __future__ import annotations

from webagent_jax.policy.transformer import ModelConfig


def layer_weights(config: ModelConfig) -> int:
    """Return the number of weights of one layer that multiply every token."""
    # Outputs of q, k and v; the inputs of o are the second `num_heads` below.
    heads = config.num_heads + 2 * config.num_kv_heads
    attention = config.d_model * config.head_dim * (heads + config.num_heads)
    return attention + 3 * config.d_model * config.d_ff


def layer_flops(config: ModelConfig, tokens: int, pairs: int) -> int:
    """Return the operations of a forward pass through all layers.

    Args:
        config: architecture of the model.
        tokens: number of tokens in all rows.
        pairs: number of pairs of query and key that the mask allows, in all rows: L(L + 1)/2 for a
            causal row of L tokens.
    """
    # Two matmuls, scores and weighted values, of `head_dim` multiplications and additions per pair.
    attention = 4 * config.num_heads * config.head_dim * pairs
    return config.num_layers * (2 * layer_weights(config) * tokens + attention)


def logits_flops(config: ModelConfig, tokens: int) -> int:
    """Return the operations of the logits of `tokens` tokens."""
    return 2 * config.d_model * config.vocab_size * tokens
