"""The slow twin: the objectives in numpy float64, in loops that follow the papers' sums one by one.

Shares no code with the package. The policy is a table of logits, one row per response token, and
the gradient with respect to it is worked out by hand: with p = softmax(logits) and the one-hot
vector e of the token, d logp / d logits = e - p.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass
class Turn:
    logits: Array  # [C, V]
    tokens: list[int]  # [C]
    behavior_logp: list[float]  # [C]
    ref_logp: list[float]  # [C]
    prox_logp: list[float] = field(default_factory=list)  # [C]; none: as behavior_logp
    thought: int = 0  # tokens at its start that are a thought


@dataclass
class Episode:
    reward: float
    turns: list[Turn]
    truncated: bool = False


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def reward_of(episode: Episode, truncated: str) -> float:
    return 0.0 if truncated == "zero" and episode.truncated else episode.reward


def advantages_of(
    groups: list[list[Episode]], kind: str, eps: float, temperature: float, truncated: str
) -> list[list[float | None]]:
    """Of each episode; None for one that is not learnt from."""
    everything = [reward_of(episode, truncated) for group in groups for episode in group]
    found: list[list[float | None]] = []
    for group in groups:
        rewards = [reward_of(episode, truncated) for episode in group]
        mean = sum(rewards) / len(rewards)
        gains: list[float | None] = []
        for number, reward in enumerate(rewards):
            gain: float | None
            if kind == "group_std":
                variance = sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)
                gain = (reward - mean) / (variance**0.5 + eps)
            elif kind == "group_mean":
                gain = reward - mean
            elif kind == "leave_one_out":
                others = rewards[:number] + rewards[number + 1 :]
                gain = reward - sum(others) / len(others)
            elif kind == "batch_mean":
                gain = reward - sum(everything) / len(everything)
            elif kind == "success":
                gain = 1.0 if reward == 1 else None
            else:
                gain = min(float(np.exp((reward - mean) / temperature)), 20.0)
            if truncated == "mask" and group[number].truncated:
                gain = None
            gains.append(gain)
        found.append(gains)
    return found


def objective(
    groups: list[list[Episode]],
    *,
    loss_aggregation: str = "episode_turn_token_mean",
    advantage_estimator: str = "group_std",
    policy_loss: str = "clip",
    sequence_layout: str = "turns",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    kl_estimator: str = "k3",
    kl_beta: float = 0.0,
    std_eps: float = 1e-4,
    awr_temperature: float = 1.0,
    truncated_episodes: str = "score",
    importance_weight_cap: float = 2.0,
    longest: float = 1.0,
) -> tuple[float, list[Array]]:
    """Loss, and its gradient [C, V] for each turn in order. Defaults are those of the paper.

    `longest` is the constant of loss_aggregation="constant_length".
    """
    gains = advantages_of(groups, advantage_estimator, std_eps, awr_temperature, truncated_episodes)
    learnt = [
        episode
        for group, row in zip(groups, gains, strict=True)
        for episode, gain in zip(group, row, strict=True)
        if gain is not None
    ]

    def scored(turn: Turn) -> range:
        return range(
            turn.thought if sequence_layout == "webagent_r1_release" else 0, len(turn.tokens)
        )

    tokens_of_all = sum(len(scored(turn)) for episode in learnt for turn in episode.turns)
    loss, grads = 0.0, []
    for group, row in zip(groups, gains, strict=True):
        for episode, gain in zip(group, row, strict=True):
            tokens_of_episode = sum(len(scored(turn)) for turn in episode.turns)
            for turn in episode.turns:
                grad = np.zeros_like(turn.logits)
                grads.append(grad)
                if gain is None:
                    continue
                if loss_aggregation == "token_mean":
                    weight = 1 / tokens_of_all
                elif loss_aggregation == "constant_length":
                    weight = 1 / len(learnt) / longest
                elif sequence_layout == "webagent_r1_release":  # the whole trajectory is one turn
                    weight = 1 / len(learnt) / tokens_of_episode
                else:
                    weight = 1 / len(learnt) / len(episode.turns) / len(turn.tokens)
                for t in scored(turn):
                    token = turn.tokens[t]
                    logps = log_softmax(turn.logits[t])
                    prox = (turn.prox_logp or turn.behavior_logp)[t]
                    importance = min(np.exp(prox - turn.behavior_logp[t]), importance_weight_cap)
                    away = turn.ref_logp[t] - logps[token]
                    k3 = np.exp(away) - away - 1
                    advantage = gain + kl_beta * away if kl_estimator == "k1" else gain
                    if policy_loss == "clip":
                        ratio = np.exp(logps[token] - prox)
                        bounded = min(max(ratio, 1 - clip_low), 1 + clip_high)
                        through = ratio * advantage <= bounded * advantage
                        value = min(ratio * advantage, bounded * advantage)
                        d_logp = ratio * advantage * through
                    else:
                        value, d_logp = advantage * logps[token], advantage
                    value, d_logp = importance * value, importance * d_logp
                    if kl_estimator == "k3":
                        value -= kl_beta * k3
                        d_logp -= kl_beta * (1 - np.exp(away))
                    d_logits = -np.exp(logps)
                    d_logits[token] += 1
                    loss -= weight * value
                    grad[t] = -weight * d_logp * d_logits
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
