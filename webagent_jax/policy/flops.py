"""Operations that a model cannot do without, counted from its shapes.

A multiplication and an addition are two. Norms, rotations and softmax are left out: they are below
a percent at any size that matters.
"""

from __future__ import annotations

from webagent_jax.policy.transformer import ModelConfig


def layer_weights(config: ModelConfig) -> int:
    """Weights of one layer that multiply every token."""
    heads = config.num_heads + 2 * config.num_kv_heads
    attention = config.d_model * config.head_dim * (heads + config.num_heads)
    return attention + 3 * config.d_model * config.d_ff


def layers(config: ModelConfig, tokens: int, pairs: int) -> int:
    """Forward through all layers.

    Args:
        pairs: of query and key that the mask lets through, in all rows together: L(L + 1)/2 for a
            causal row of L tokens.
    """
    attention = 4 * config.num_heads * config.head_dim * pairs
    return config.num_layers * (2 * layer_weights(config) * tokens + attention)


def head(config: ModelConfig, tokens: int) -> int:
    """Logits of so many tokens."""
    return 2 * config.d_model * config.vocab_size * tokens
