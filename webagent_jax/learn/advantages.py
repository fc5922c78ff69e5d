"""Advantages of episodes and loss weights of tokens.

Both are numpy functions of arrays, computed on the host once per batch. Their inputs are episodes
with a reward; INFRA episodes have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from webagent_jax.types import FloatArray

TokenWeightFn = Callable[[Sequence[Sequence[int]]], list[FloatArray]]
"""Map from response tokens of each turn of each episode to the token weight [T] of each turn."""

AWR_CAP = 20.0  # upper bound of exponential advantages, from the AWR paper


# --- advantages ----------------------------------------------------------------------------------


def has_equal_rewards(rewards: FloatArray) -> bool:
    """Return whether all rewards [G] of a group are equal."""
    # np.min raises without rewards, so the length comes first.
    return len(rewards) == 0 or float(np.min(rewards)) == float(np.max(rewards))


def group_advantages(rewards: FloatArray, *, std_eps: float) -> FloatArray:
    """Return A_i = (r_i - mean(r)) / (std(r) + eps), with the unbiased standard deviation.

    WebAgent-R1 (arXiv 2505.16421), equation of A_i; `std_eps` and the unbiased std are those of its
    released trainer.

    Args:
        rewards: [G], rewards of the episodes of one task.
        std_eps: eps.

    Returns:
        [G], exactly 0 if all rewards are equal.
    """
    rewards = np.asarray(rewards, np.float64)
    # The mean of equal rewards can differ from them in the last bit, which 1 / eps would amplify.
    if has_equal_rewards(rewards):
        return np.zeros(len(rewards), np.float32)
    advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + std_eps)
    return advantages.astype(np.float32)


def centered_advantages(rewards: FloatArray) -> FloatArray:
    """Return A_i = r_i - mean(r), as in Dr. GRPO (arXiv 2503.20783).

    Maps [G] to [G]; exactly 0 if all rewards are equal.
    """
    rewards = np.asarray(rewards, np.float64)
    if has_equal_rewards(rewards):
        return np.zeros(len(rewards), np.float32)
    return (rewards - rewards.mean()).astype(np.float32)


def leave_one_out_advantages(rewards: FloatArray) -> FloatArray:
    """Return A_i = r_i - mean reward of the other attempts, as in RLOO (arXiv 2402.14740).

    Maps [G] to [G]; exactly 0 if all rewards are equal, or for a single attempt without a baseline.
    """
    # r_i - mean(others) = (r_i - mean(all)) G / (G - 1). The max avoids a division by 0 for G = 1.
    num_others = max(len(rewards) - 1, 1)
    return centered_advantages(rewards) * np.float32(len(rewards) / num_others)


def exponential_advantages(rewards: FloatArray, *, temperature: float) -> FloatArray:
    """Return A_i = min(exp((r_i - mean(r)) / temperature), 20), as in AWR.

    Advantage-weighted regression (Peng et al. 2019, arXiv 1910.00177) with its cap. The mean of the
    group replaces the value function. Maps [G] to [G]; exactly 1 if all rewards are equal.
    """
    exponents = centered_advantages(rewards).astype(np.float64) / temperature
    # Apply the cap before exp, which would overflow.
    return np.exp(np.minimum(exponents, np.log(AWR_CAP))).astype(np.float32)


# --- loss weights --------------------------------------------------------------------------------


def episode_turn_token_weights(
    tokens: Sequence[Sequence[int]], *, episodes: float | None = None
) -> list[FloatArray]:
    """Return weights of the mean over episodes, of means over turns, of means over tokens.

        w_ij = 1 / (N |τ_i| |a_ij|)

    N is the number of episodes in the batch, |τ_i| the number of turns of episode i, and |a_ij| the
    number of response tokens of its turn j. WebAgent-R1 writes 1/G for the single group of its
    equation. Over a batch, N is the sum of the group sizes, so every episode counts equally even if
    a group has lost some. The weights of all tokens of a batch sum to 1.

    Args:
        tokens: number of response tokens of each turn of each episode.
        episodes: N, if the batch has more episodes than these.

    Returns:
        For each episode, the weight [T] of one token of each turn.
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

    Every (history, action) pair counts equally, regardless of the length of its episode, as in the
    behavior cloning loss of WebAgent-R1 (arXiv 2505.16421).

    Args:
        tokens: number of response tokens of each turn of each episode.
        turns: M, if the batch has more turns than these.

    Returns:
        For each episode, the weight [T] of one token of each turn.
    """
    count = sum(map(len, tokens)) if turns is None else turns
    return [(1.0 / (count * np.asarray(each, np.float64))).astype(np.float32) for each in tokens]


def token_mean_weights(
    tokens: Sequence[Sequence[int]], *, total: float | None = None
) -> list[FloatArray]:
    """Return equal weights of all tokens: w = 1 / Σ_ij |a_ij| (DAPO, arXiv 2503.14476).

    Args:
        tokens: number of response tokens of each turn of each episode.
        total: Σ_ij |a_ij|, if the batch has more episodes than these.

    Returns:
        For each episode, the weight [T] of one token of each turn.
    """
    total = sum(sum(turns) for turns in tokens) if total is None else total
    return [np.full(len(turns), 1.0 / total, np.float32) for turns in tokens]


def constant_turn_weights(
    tokens: Sequence[Sequence[int]], *, turns: int, episodes: float | None = None
) -> list[FloatArray]:
    """Return weights of a turn that are independent of episode length: w_ij = 1 / (N K |a_ij|).

    K is the constant `turns`, in place of |τ_i| in `episode_turn_token_weights`. So a turn of a
    long episode counts as much as one of a short episode. The weights of a batch sum to at most 1.

    Args:
        tokens: number of response tokens of each turn of each episode.
        turns: K, the maximum number of turns of an episode.
        episodes: N, if the batch has more episodes than these.

    Returns:
        For each episode, the weight [T] of one token of each turn.
    """
    count = len(tokens) if episodes is None else episodes
    return [
        (1.0 / (count * turns * np.asarray(each, np.float64))).astype(np.float32) for each in tokens
    ]


def constant_length_weights(
    tokens: Sequence[Sequence[int]], *, length: float, episodes: float | None = None
) -> list[FloatArray]:
    """Return weights of a token sum that is independent of episode length: w = 1 / (N length).

    Dr. GRPO (arXiv 2503.20783). The weights of a batch sum to less than 1.

    Args:
        tokens: number of response tokens of each turn of each episode.
        length: maximum number of response tokens of an episode.
        episodes: N, if the batch has more episodes than these.

    Returns:
        For each episode, the weight [T] of one token of each turn.
    """
    count = len(tokens) if episodes is None else episodes
    return [np.full(len(turns), 1.0 / (count * length), np.float32) for turns in tokens]
