"""Who gets the credit: group-relative advantages, and the share of each token in the objective.

Arrays in, arrays out, in numpy: both are computed on the host, once per batch of episodes. Only
episodes with a reward get here; one that a browser or a site has spoilt has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from webagent_jax.types import FloatArray


def is_flat(rewards: FloatArray) -> bool:
    """Whether all rewards [G] of a group are equal: it carries no policy gradient."""
    return len(rewards) == 0 or float(np.min(rewards)) == float(np.max(rewards))


def group_advantages(rewards: FloatArray, *, std_eps: float) -> FloatArray:
    """A_i = (r_i - mean(r)) / (std(r) + eps), with the unbiased standard deviation.

    WebAgent-R1 (arXiv 2505.16421), equation of A_i; `std_eps` and the unbiased std are those of its
    released trainer.

    Args:
        rewards: [G] of the episodes of one task.

    Returns:
        [G], exactly 0 for a flat group.
    """
    rewards = np.asarray(rewards, np.float64)
    if is_flat(rewards):
        return np.zeros(len(rewards), np.float32)
    advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + std_eps)
    return advantages.astype(np.float32)


def three_level_weights(tokens: Sequence[Sequence[int]]) -> list[FloatArray]:
    """The paper's mean over episodes of the mean over turns of the mean over tokens.

        w_ij = 1 / (N |τ_i| |a_ij|)

    with N the number of episodes in the batch, |τ_i| the turns of episode i and |a_ij| the response
    tokens of its turn j. The paper writes 1/G for the one group of its equation; over a batch of
    groups N is the sum of their sizes, so that every episode counts alike even where a group has
    lost some. The weights of all tokens of a batch sum to 1.

    Args:
        tokens: response tokens of each turn of each episode.

    Returns:
        Per episode the weight [T] of one token of each of its turns.
    """
    return [
        (1.0 / (len(tokens) * len(turns) * np.asarray(turns, np.float64))).astype(np.float32)
        for turns in tokens
    ]


def token_mean_weights(tokens: Sequence[Sequence[int]]) -> list[FloatArray]:
    """Every token of the batch counts alike: w = 1 / Σ_ij |a_ij|, the usual mean of cloning.

    Takes and returns what `three_level_weights` does.
    """
    total = sum(sum(turns) for turns in tokens)
    return [np.full(len(turns), 1.0 / total, np.float32) for turns in tokens]
