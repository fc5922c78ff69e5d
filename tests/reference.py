"""The slow twin: M-GRPO in numpy float64, in loops that follow the paper's sums one by one.

Shares no code with the package. The policy is a table of logits, one row per response token, and
the gradient with respect to it is worked out by hand: with p = softmax(logits) and the one-hot
vector e of the token, d logp / d logits = e - p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass
class Turn:
    logits: Array  # [C, V]
    tokens: list[int]  # [C]
    behaviour_logp: list[float]  # [C]
    ref_logp: list[float]  # [C]


@dataclass
class Episode:
    reward: float
    turns: list[Turn]


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def m_grpo(
    groups: list[list[Episode]], *, clip_low: float, clip_high: float, beta: float, eps: float
) -> tuple[float, list[Array]]:
    """Loss, and its gradient [C, V] for each turn in order."""
    total = sum(len(group) for group in groups)
    loss, grads = 0.0, []
    for group in groups:
        rewards = [episode.reward for episode in group]
        mean = sum(rewards) / len(rewards)
        std = (sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)) ** 0.5
        for episode in group:
            advantage = (episode.reward - mean) / (std + eps)
            for turn in episode.turns:
                grad = np.zeros_like(turn.logits)
                weight = 1 / total / len(episode.turns) / len(turn.tokens)
                for t, token in enumerate(turn.tokens):
                    logps = log_softmax(turn.logits[t])
                    ratio = np.exp(logps[token] - turn.behaviour_logp[t])
                    bounded = min(max(ratio, 1 - clip_low), 1 + clip_high)
                    away = turn.ref_logp[t] - logps[token]
                    k3 = np.exp(away) - away - 1
                    loss -= weight * (min(ratio * advantage, bounded * advantage) - beta * k3)

                    through = ratio * advantage <= bounded * advantage
                    d_logp = ratio * advantage * through - beta * (1 - np.exp(away))
                    d_logits = -np.exp(logps)
                    d_logits[token] += 1
                    grad[t] = -weight * d_logp * d_logits
                grads.append(grad)
    return loss, grads


def cloning(turns: list[Turn]) -> tuple[float, list[Array]]:
    """Negative log-likelihood per token, and its gradient [C, V] for each turn."""
    total = sum(len(turn.tokens) for turn in turns)
    loss, grads = 0.0, []
    for turn in turns:
        grad = np.zeros_like(turn.logits)
        for t, token in enumerate(turn.tokens):
            logps = log_softmax(turn.logits[t])
            loss -= logps[token] / total
            grad[t] = np.exp(logps) / total
            grad[t, token] -= 1 / total
        grads.append(grad)
    return loss, grads
