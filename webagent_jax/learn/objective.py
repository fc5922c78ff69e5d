"""Objective of M-GRPO as forest rows: selected episodes, their advantages, token loss weights.

An objective combines independent options of GRPOConfig (docs/objectives.md). This module reduces
all of them to numbers per token, except for the policy loss (learn/losses.py). Loss weights and
baselines over a complete batch are computed from its `BatchTotals`. If several processes train on
parts of a batch, they add up their totals. The sum of their losses is then the loss of the batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from webagent_jax.config import GRPOConfig, RolloutConfig
from webagent_jax.learn import advantages, forest, step_credit
from webagent_jax.learn.advantages import TokenWeightFn
from webagent_jax.learn.forest import Forest, RowLayout, TurnLayout
from webagent_jax.learn.webagent_r1_layout import Decode, ReleaseLayout
from webagent_jax.types import Episode, FloatArray, Group


class BatchTotals(NamedTuple):
    """Counts over all groups of a batch.

    They add up over processes and minibatches, see `minibatch_totals`.
    """

    groups: float  # number of groups
    scored: float  # number of episodes with a reward
    rewards: float  # sum of these rewards
    episodes: float  # number of episodes to train on
    tokens: float  # number of response tokens of these


def minibatch_totals(process_totals: Sequence[Sequence[BatchTotals]]) -> list[BatchTotals]:
    """Return the totals of each minibatch over all processes.

    `scored` and `rewards`, which only the baseline `batch_mean` uses, are those of the whole batch.

    Args:
        process_totals: totals of the minibatches of each process.
    """
    totals = [BatchTotals(*each) for each in np.sum(process_totals, axis=0)]
    scored = sum(each.scored for each in totals)
    rewards = sum(each.rewards for each in totals)
    return [each._replace(scored=scored, rewards=rewards) for each in totals]


_TURN_LAYOUT = TurnLayout()


def make_layout(grpo: GRPOConfig, decode: Decode) -> RowLayout:
    """Return the layout `grpo.sequence_layout`; `decode` is a function from token ids to text."""
    is_release = grpo.sequence_layout == "webagent_r1_release"
    return ReleaseLayout(decode) if is_release else _TURN_LAYOUT


def count_totals(
    groups: Sequence[Group], grpo: GRPOConfig, layout: RowLayout = _TURN_LAYOUT
) -> BatchTotals:
    """Return the totals of groups.

    Args:
        groups: groups of a batch or of a part of it.
        grpo: objective.
        layout: as in `pack_groups`.
    """
    scored = rewards = episodes = tokens = 0.0
    for group in groups:
        for episode, reward in _scored(group, grpo):
            scored, rewards = scored + 1, rewards + reward
            # A masked episode counts in the baseline (`scored`, `rewards`), but not in the loss.
            if _is_trainable(episode, reward, grpo):
                episodes, tokens = episodes + 1, tokens + sum(layout.turn_lengths(episode))
    return BatchTotals(float(len(groups)), scored, rewards, episodes, tokens)


def has_signal(group: Group, grpo: GRPOConfig) -> bool:
    """Return whether the group contributes a policy gradient.

    Objectives that compare the attempts of a group need two different rewards. With
    advantage_estimator="exponential", a group with equal rewards would be cloned uniformly; that
    counts as no signal.
    """
    scored = _scored(group, grpo)
    is_trainable = any(_is_trainable(episode, reward, grpo) for episode, reward in scored)
    # Their baseline is not the mean of the group, so equal rewards can have a gradient.
    if grpo.advantage_estimator in ("success", "batch_mean"):
        return is_trainable
    if grpo.step_advantage_weight and any(map(np.any, _step_advantages(scored, grpo))):
        return is_trainable
    return is_trainable and not advantages.has_equal_rewards(_rewards(scored))


def objective_rewards(group: Group, grpo: GRPOConfig) -> FloatArray:
    """Return the rewards [G] that the objective uses; episodes without a reward are omitted."""
    return _rewards(_scored(group, grpo))


def pack_groups(
    groups: Sequence[Group],
    grpo: GRPOConfig,
    rollout: RolloutConfig,
    *,
    row_multiple: int = 1,
    microbatch: int | None = None,
    full_size: float = 0.0,
    totals: BatchTotals | None = None,
    layout: RowLayout = _TURN_LAYOUT,
) -> Forest:
    """Pack groups into the forest rows of one step, with the loss weights and advantages of `grpo`.

    Args:
        groups: groups of a batch or of a part of it.
        grpo: objective.
        rollout: its limits define the constants of `grpo.loss_aggregation`.
        row_multiple: as in `forest.pack_branches`, like `microbatch`.
        microbatch: number of rows that are computed at once.
        full_size: number of groups of a complete step. A missing group counts like one with equal
            rewards: the advantages of the others shrink by groups / full_size, so that a step on
            few groups is not as large as one on all.
        totals: totals of the batch that contains the groups; None if they are the complete batch.
        layout: arrangement of episodes in rows (`make_layout`).

    Returns:
        A forest; empty if only other parts of the batch have episodes to train on.

    Raises:
        ValueError: the complete batch has no episode to train on, or one does not fit a row.
    """
    totals = count_totals(groups, grpo, layout) if totals is None else totals
    if totals.episodes == 0:
        raise ValueError(
            "no episode of the batch can be trained on: each is INFRA, or excluded by "
            "grpo.advantage_estimator or grpo.truncated_episodes"
        )
    # Weights are normalized over the groups present, so a smaller batch scales the advantages.
    scale = min(1.0, totals.groups / full_size) if full_size else 1.0
    pairs = list(_with_turn_advantages(groups, grpo, totals))
    episodes = [episode for episode, _ in pairs]
    advantages = [scale * turn_advantages for _, turn_advantages in pairs]
    weight_fn = _token_weight_fn(grpo, rollout, totals)
    size = {"row_tokens": grpo.row_tokens, "row_multiple": row_multiple}
    # Only other processes have episodes to train on: contribute empty rows to their step.
    if not episodes:
        return forest.stack_rows([], **size, num_path_tokens=0)
    return layout.pack(episodes, advantages, weight_fn, **size, microbatch=microbatch)


def with_advantages(
    groups: Sequence[Group], grpo: GRPOConfig, totals: BatchTotals
) -> Iterator[tuple[Episode, float]]:
    """Yield each episode to train on with its advantage, without the advantages of single turns.

    An excluded episode still counts in the baseline of the other attempts.

    Args:
        groups: groups of a batch or of a part of it.
        grpo: objective.
        totals: totals of the batch; see `count_totals`.
    """
    for group in groups:
        scored = _scored(group, grpo)
        advantages = _advantages(_rewards(scored), grpo, totals)
        for (episode, reward), advantage in zip(scored, advantages, strict=True):
            if _is_trainable(episode, reward, grpo):
                scale = grpo.negative_advantage_scale if advantage < 0 else 1.0
                yield episode, scale * float(advantage)


def _with_turn_advantages(
    groups: Sequence[Group], grpo: GRPOConfig, totals: BatchTotals
) -> Iterator[tuple[Episode, FloatArray]]:
    """Yield the episodes to train on, and the advantages [T] of the turns of each."""
    weight = grpo.step_advantage_weight
    by_turn: dict[int, FloatArray] = {}
    if weight:
        for group in groups:
            scored = _scored(group, grpo)
            steps = _step_advantages(scored, grpo)
            by_turn |= {id(e): step for (e, _), step in zip(scored, steps, strict=True)}
    for episode, advantage in with_advantages(groups, grpo, totals):
        values = np.full(len(episode.turns), advantage, np.float32)
        yield episode, values + weight * by_turn[id(episode)] if weight else values


def _step_advantages(scored: Sequence[tuple[Episode, float]], grpo: GRPOConfig) -> list[FloatArray]:
    episodes = [dataclasses.replace(episode, reward=reward) for episode, reward in scored]
    return step_credit.step_advantages(episodes, discount=grpo.step_discount)


def _scored(group: Group, grpo: GRPOConfig) -> list[tuple[Episode, float]]:
    """Return the episodes with a reward, and the reward that the objective uses."""
    # Truncation is separate from the reward: an episode can solve the task at the turn limit.
    zero_truncated = grpo.truncated_episodes == "zero"
    return [
        (e, 0.0 if zero_truncated and e.truncated else e.reward)
        for e in group.episodes
        if e.reward is not None
    ]


def _rewards(scored: Sequence[tuple[Episode, float]]) -> FloatArray:
    return np.asarray([reward for _, reward in scored], np.float32)


def _is_trainable(episode: Episode, reward: float, grpo: GRPOConfig) -> bool:
    is_masked = grpo.truncated_episodes == "mask" and episode.truncated
    is_failure = grpo.advantage_estimator == "success" and reward <= 0
    return bool(episode.turns) and not is_masked and not is_failure


def _advantages(rewards: FloatArray, grpo: GRPOConfig, totals: BatchTotals) -> FloatArray:
    """Return the advantages [G] of one group."""
    match grpo.advantage_estimator:
        case "group_std":
            return advantages.group_advantages(rewards, std_eps=grpo.std_eps)
        case "group_mean":
            return advantages.centered_advantages(rewards)
        case "leave_one_out":
            return advantages.leave_one_out_advantages(rewards)
        # REINFORCE with a baseline. `scored` is 0 only if `rewards` is empty.
        case "batch_mean":
            return (rewards - totals.rewards / max(totals.scored, 1)).astype(np.float32)
        # `_is_trainable` excludes the failures.
        case "success":
            return np.ones_like(rewards)
        case "exponential":
            return advantages.exponential_advantages(rewards, temperature=grpo.awr_temperature)


def _token_weight_fn(
    grpo: GRPOConfig, rollout: RolloutConfig, totals: BatchTotals
) -> TokenWeightFn:
    match grpo.loss_aggregation:
        case "episode_turn_token_mean":
            return partial(advantages.episode_turn_token_weights, episodes=totals.episodes)
        case "token_mean":
            return partial(advantages.token_mean_weights, total=totals.tokens)
        case "constant_turns":
            return partial(
                advantages.constant_turn_weights, turns=rollout.max_turns, episodes=totals.episodes
            )
        case "constant_length":
            # Upper bound of the response tokens of one episode.
            max_length = rollout.max_turns * rollout.max_new_tokens
            return partial(
                advantages.constant_length_weights, length=max_length, episodes=totals.episodes
            )
