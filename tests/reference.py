"""Reference objectives in numpy float64, in loops that follow the sums of the papers.

The module shares no code with the package. The policy is a table of logits, one row per response
token. The gradient with respect to the logits is derived by hand: with p = softmax(logits) and the
one-hot vector e of the token, d logp / d logits = e - p.
"""

from __future__ import annotations

import itertools
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
    prox_logp: list[float] = field(default_factory=list)  # [C]; empty: behavior_logp
    thought: int = 0  # number of leading thought tokens
    page: int = 0  # page on which the turn begins


@dataclass
class Episode:
    reward: float
    turns: list[Turn]
    truncated: bool = False


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def episode_reward(episode: Episode, truncated: str) -> float:
    return 0.0 if truncated == "zero" and episode.truncated else episode.reward


def compute_advantages(
    groups: list[list[Episode]], kind: str, eps: float, temperature: float, truncated: str
) -> list[list[float | None]]:
    """Return the advantage of each episode; None for an episode that is not trained on."""
    all_rewards = [episode_reward(episode, truncated) for group in groups for episode in group]
    advantages: list[list[float | None]] = []
    for group in groups:
        rewards = [episode_reward(episode, truncated) for episode in group]
        mean = sum(rewards) / len(rewards)
        group_advantages: list[float | None] = []
        for index, reward in enumerate(rewards):
            advantage: float | None
            if kind == "group_std":
                variance = sum((value - mean) ** 2 for value in rewards) / (len(rewards) - 1)
                advantage = (reward - mean) / (variance**0.5 + eps)
            elif kind == "group_mean":
                advantage = reward - mean
            elif kind == "leave_one_out":
                other_rewards = rewards[:index] + rewards[index + 1 :]
                advantage = reward - sum(other_rewards) / len(other_rewards)
            elif kind == "batch_mean":
                advantage = reward - sum(all_rewards) / len(all_rewards)
            elif kind == "success":
                advantage = 1.0 if reward == 1 else None
            else:
                advantage = min(float(np.exp((reward - mean) / temperature)), 20.0)
            if truncated == "mask" and group[index].truncated:
                advantage = None
            group_advantages.append(advantage)
        advantages.append(group_advantages)
    return advantages


def compute_step_advantages(group: list[Episode], rewards: list[float], discount: float):
    """Return the advantages of the turns of each episode over others of the group on their page."""
    pages = sorted({turn.page for episode in group for turn in episode.turns})
    success, failure = len(pages), len(pages) + 1
    paths = [
        [
            *(pages.index(turn.page) for turn in episode.turns),
            success if reward == 1 else failure,
        ]
        for episode, reward in zip(group, rewards, strict=True)
    ]
    # All shortest paths (Floyd and Warshall).
    distance = np.full((len(pages) + 2, len(pages) + 2), np.inf)
    np.fill_diagonal(distance, 0)
    for path in paths:
        for start, end in itertools.pairwise(path):
            distance[start, end] = min(distance[start, end], 1)
    for middle in range(len(distance)):
        distance = np.minimum(distance, distance[:, [middle]] + distance[[middle], :])
    value = np.where(np.isfinite(distance[:, success]), discount ** distance[:, success], 0.0)
    # The page after the last turn of a truncated episode without success is not observed.
    observed = [
        len(path) - 1 - (episode.truncated and path[-1] == failure)
        for episode, path in zip(group, paths, strict=True)
    ]
    steps = [
        (path[j], value[path[j + 1]])
        for path, count in zip(paths, observed, strict=True)
        for j in range(count)
    ]
    return [
        [
            value[path[j + 1]] - np.mean([v for page, v in steps if page == path[j]])
            if j < count
            else 0.0
            for j in range(len(path) - 1)
        ]
        for path, count in zip(paths, observed, strict=True)
    ]


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
    kl_reference: str = "initial",
    negative_advantage_scale: float = 1.0,
    step_advantage_weight: float = 0.0,
    step_discount: float = 1.0,
    std_eps: float = 1e-4,
    awr_temperature: float = 1.0,
    truncated_episodes: str = "score",
    importance_weight_cap: float = 2.0,
    max_length: float = 1.0,
    max_turns: int = 1,
) -> tuple[float, list[Array]]:
    """Return the loss and its gradient [C, V] for each turn. Defaults are those of the paper.

    `max_length` is the constant of loss_aggregation="constant_length", and `max_turns` that of
    "constant_turns".
    """
    advantages = compute_advantages(
        groups, advantage_estimator, std_eps, awr_temperature, truncated_episodes
    )
    train_episodes = [
        episode
        for group, group_advantages in zip(groups, advantages, strict=True)
        for episode, advantage in zip(group, group_advantages, strict=True)
        if advantage is not None
    ]

    step_advantages = {}
    for group in groups:
        rewards = [episode_reward(episode, truncated_episodes) for episode in group]
        steps = compute_step_advantages(group, rewards, step_discount)
        step_advantages |= {id(e): gains for e, gains in zip(group, steps, strict=True)}

    def loss_positions(turn: Turn) -> range:
        return range(
            turn.thought if sequence_layout == "webagent_r1_release" else 0, len(turn.tokens)
        )

    num_tokens = sum(
        len(loss_positions(turn)) for episode in train_episodes for turn in episode.turns
    )
    loss, grads = 0.0, []
    for group, group_advantages in zip(groups, advantages, strict=True):
        for episode, advantage in zip(group, group_advantages, strict=True):
            if advantage is not None and advantage < 0:
                advantage *= negative_advantage_scale
            num_episode_tokens = sum(len(loss_positions(turn)) for turn in episode.turns)
            for turn, step_advantage in zip(
                episode.turns, step_advantages[id(episode)], strict=True
            ):
                grad = np.zeros_like(turn.logits)
                grads.append(grad)
                if advantage is None:
                    continue
                turn_advantage = advantage + step_advantage_weight * step_advantage
                if loss_aggregation == "token_mean":
                    weight = 1 / num_tokens
                elif loss_aggregation == "constant_length":
                    weight = 1 / len(train_episodes) / max_length
                elif loss_aggregation == "constant_turns":
                    weight = 1 / len(train_episodes) / max_turns / len(turn.tokens)
                elif sequence_layout == "webagent_r1_release":  # the trajectory is one turn
                    weight = 1 / len(train_episodes) / num_episode_tokens
                else:
                    weight = 1 / len(train_episodes) / len(episode.turns) / len(turn.tokens)
                for t in loss_positions(turn):
                    token = turn.tokens[t]
                    logps = log_softmax(turn.logits[t])
                    prox = (turn.prox_logp or turn.behavior_logp)[t]
                    importance = min(np.exp(prox - turn.behavior_logp[t]), importance_weight_cap)
                    ref_logp = prox if kl_reference == "previous" else turn.ref_logp[t]
                    ref_log_ratio = ref_logp - logps[token]
                    k3 = np.exp(ref_log_ratio) - ref_log_ratio - 1
                    kl_advantage = (
                        turn_advantage + kl_beta * ref_log_ratio
                        if kl_estimator == "k1"
                        else turn_advantage
                    )
                    if policy_loss == "clip":
                        ratio = np.exp(logps[token] - prox)
                        clipped_ratio = min(max(ratio, 1 - clip_low), 1 + clip_high)
                        is_unclipped = ratio * kl_advantage <= clipped_ratio * kl_advantage
                        value = min(ratio * kl_advantage, clipped_ratio * kl_advantage)
                        d_logp = ratio * kl_advantage * is_unclipped
                    else:
                        value, d_logp = kl_advantage * logps[token], kl_advantage
                    value, d_logp = importance * value, importance * d_logp
                    if kl_estimator == "k3":
                        value -= kl_beta * k3
                        d_logp -= kl_beta * (1 - np.exp(ref_log_ratio))
                    d_logits = -np.exp(logps)
                    d_logits[token] += 1
                    loss -= weight * value
                    grad[t] = -weight * d_logp * d_logits
    return loss, grads


def bc_loss(turns: list[Turn]) -> tuple[float, list[Array]]:
    """Return the negative log-likelihood per token and its gradient [C, V] for each turn."""
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
