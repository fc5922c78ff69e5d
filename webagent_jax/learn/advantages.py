"""Who gets the credit: advantages of episodes, and the share of each token in the objective.

Arrays in, arrays out, in numpy: both are computed on the host, once per batch of episodes. Only
episodes with a reward get here; one that a browser or a site has spoilt has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from webagent_jax.types import FloatArray

Weigh = Callable[[Sequence[Sequence[int]]], list[FloatArray]]
"""Response tokens of each turn of each episode, to the weight [T] of one token of each turn."""

AWR_CAP = 20.0  # of a weight, as in the paper of AWR


# --- advantages ----------------------------------------------------------------------------------


def is_flat(rewards: FloatArray) -> bool:
    """Whether all rewards [G] of a group are equal."""
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


def centred_advantages(rewards: FloatArray) -> FloatArray:
    """A_i = r_i - mean(r), Dr. GRPO (arXiv 2503.20783). [G] to [G], exactly 0 for a flat group."""
    rewards = np.asarray(rewards, np.float64)
    if is_flat(rewards):
        return np.zeros(len(rewards), np.float32)
    return (rewards - rewards.mean()).astype(np.float32)


def leave_one_out_advantages(rewards: FloatArray) -> FloatArray:
    """A_i = r_i - mean of the others' rewards, RLOO (arXiv 2402.14740).

    [G] to [G], exactly 0 for a flat group; an episode without siblings has no baseline, and 0 too.
    """
    others = max(len(rewards) - 1, 1)
    return centred_advantages(rewards) * np.float32(len(rewards) / others)


def exponential_advantages(rewards: FloatArray, *, temperature: float) -> FloatArray:
    """A_i = min(exp((r_i - mean(r)) / temperature), 20): advantage-weighted regression, AWR.

    Peng et al. 2019 (arXiv 1910.00177), with their cap, and the mean of the group for the value
    function. [G] to [G], exactly 1 for a flat group.
    """
    exponents = centred_advantages(rewards).astype(np.float64) / temperature
    # The cap comes first: exp would overflow.
    return np.exp(np.minimum(exponents, np.log(AWR_CAP))).astype(np.float32)


# --- weights -------------------------------------------------------------------------------------


def three_level_weights(
    tokens: Sequence[Sequence[int]], *, episodes: float | None = None
) -> list[FloatArray]:
    """The paper's mean over episodes of the mean over turns of the mean over tokens.

        w_ij = 1 / (N |τ_i| |a_ij|)

    with N the number of episodes in the batch, |τ_i| the turns of episode i and |a_ij| the response
    tokens of its turn j. The paper writes 1/G for the one group of its equation; over a batch of
    groups N is the sum of their sizes, so that every episode counts alike even where a group has
    lost some. The weights of all tokens of a batch sum to 1.

    Args:
        tokens: response tokens of each turn of each episode.
        episodes: N, where the batch has more episodes than these.

    Returns:
        Per episode the weight [T] of one token of each of its turns.
    """
    count = len(tokens) if episodes is None else episodes
    return [
        (1.0 / (count * len(turns) * np.asarray(turns, np.float64))).astype(np.float32)
        for turns in tokens
    ]


def turn_mean_weights(
    tokens: Sequence[Sequence[int]], *, turns: float | None = None
) -> list[FloatArray]:
    """Return weights of the mean over all turns of the mean over tokens: w_ij = 1 / (M |a_ij|).

    Every (history, action) pair counts alike, whatever the length of its episode, as in the
    behavior cloning loss of WebAgent-R1 (arXiv 2505.16421). Takes and returns what
    `three_level_weights` does.

    Args:
        turns: M, if the batch has more turns than these.
    """
    count = sum(map(len, tokens)) if turns is None else turns
    return [(1.0 / (count * np.asarray(each, np.float64))).astype(np.float32) for each in tokens]


def token_mean_weights(
    tokens: Sequence[Sequence[int]], *, total: float | None = None
) -> list[FloatArray]:
    """Every token of the batch counts alike: w = 1 / Σ_ij |a_ij| (DAPO, arXiv 2503.14476).

    Takes and returns what `three_level_weights` does; `total` is the sum, where the batch has more
    episodes than these.
    """
    total = sum(sum(turns) for turns in tokens) if total is None else total
    return [np.full(len(turns), 1.0 / total, np.float32) for turns in tokens]


def constant_length_weights(
    tokens: Sequence[Sequence[int]], *, length: float, episodes: float | None = None
) -> list[FloatArray]:
    """w = 1 / (N length): a sum over the tokens of an episode, however long it is.

    Dr. GRPO (arXiv 2503.20783), which takes for `length` what an episode may have at most. Takes
    and returns what `three_level_weights` does, but the weights of a batch sum to less than 1.
    """
    count = len(tokens) if episodes is None else episodes
    return [np.full(len(turns), 1.0 / (count * length), np.float32) for turns in tokens]
