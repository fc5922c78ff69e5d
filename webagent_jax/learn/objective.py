"""From groups to rows: which episodes count, who gets the credit, what share each token has.

An objective is a choice on each of a few axes of GRPOConfig (docs/objectives.md); all of it but the
surrogate (learn/losses.py) ends here, as numbers beside the tokens. Shares and baselines that are
taken over a whole batch come from its `Totals`. Where many hosts have a part of a batch each, they
add up their totals, and then the sum of their losses is the loss of the batch on one host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from webagent_jax.config import GRPOConfig, RolloutConfig
from webagent_jax.learn import advantages, forest, webagent_r1_layout
from webagent_jax.learn.advantages import Weigh
from webagent_jax.learn.forest import Forest
from webagent_jax.learn.webagent_r1_layout import Decode
from webagent_jax.types import Episode, FloatArray, Group


class Totals(NamedTuple):
    """Counts over all groups of a batch.

    Over hosts they add up, field by field: `Totals(*np.sum([of, each, host], axis=0))`.
    """

    groups: float
    scored: float  # episodes with a reward
    rewards: float  # of these, summed
    episodes: float  # of these, those that are learnt from
    tokens: float  # response tokens of the latter


def tally(groups: Sequence[Group], grpo: GRPOConfig, decode: Decode | None = None) -> Totals:
    """The totals of these groups. `decode` as in `rows_of`."""
    scored = rewards = episodes = tokens = 0.0
    for group in groups:
        for episode, reward in _scored(group, grpo):
            scored, rewards = scored + 1, rewards + reward
            if _learnt_from(episode, reward, grpo):
                episodes, tokens = episodes + 1, tokens + sum(_lengths(episode, grpo, decode))
    return Totals(float(len(groups)), scored, rewards, episodes, tokens)


def has_signal(group: Group, grpo: GRPOConfig) -> bool:
    """Whether the objective moves the policy towards or away from anything in the group.

    Where rewards are held against those of siblings, it takes two that differ. A flat group would
    be cloned evenly by advantages="exponential": that counts as no signal.
    """
    scored = _scored(group, grpo)
    learnt_from = any(_learnt_from(episode, reward, grpo) for episode, reward in scored)
    if grpo.advantages in ("success", "batch_mean"):
        return learnt_from
    return learnt_from and not advantages.is_flat(_rewards(scored))


def rows_of(
    groups: Sequence[Group],
    grpo: GRPOConfig,
    rollout: RolloutConfig,
    *,
    row_multiple: int = 1,
    whole: float = 0.0,
    totals: Totals | None = None,
    decode: Decode | None = None,
) -> Forest:
    """The rows of one update, with weights and advantages as `grpo` asks for.

    Args:
        rollout: its limits make the constant of weights="constant_length".
        row_multiple: as in `build`.
        whole: groups of the step when none is missing. A missing one counts like a flat one, with
            an advantage of 0: the advantages of the others shrink by groups / whole, so that a few
            groups do not make as long a step as all of them.
        totals: of the batch that these groups are a part of; by default they are all of it.
        decode: ids to text, for rows="released" alone.

    Returns:
        A forest; one that holds nothing where only other parts of the batch have episodes.

    Raises:
        ValueError: the whole batch has no episode to learn from, or one does not fit a row.
    """
    totals = tally(groups, grpo, decode) if totals is None else totals
    if totals.episodes == 0:
        raise ValueError(
            "there is nothing to learn from: every episode of the batch has lost its reward to "
            "browser or site, or is left out by grpo.advantages or grpo.truncated"
        )
    share = min(1.0, totals.groups / whole) if whole else 1.0
    credited = list(_credited(groups, grpo, totals))
    episodes = [episode for episode, _ in credited]
    gains = [share * gain for _, gain in credited]
    weigh = _weigh(grpo, rollout, totals)
    size = {"row_tokens": grpo.row_tokens, "row_multiple": row_multiple}
    if not episodes:
        return forest.stack([], **size, alone=0)
    if grpo.rows == "released":
        paths = [webagent_r1_layout.path(episode, decode) for episode in episodes]
        weights = [float(w) for (w,) in weigh([[len(path.targets)] for path in paths])]
        return webagent_r1_layout.build(paths, weights, gains, **size)
    return forest.build(forest.branches(episodes, gains, weigh), **size)


def _credited(
    groups: Sequence[Group], grpo: GRPOConfig, totals: Totals
) -> Iterator[tuple[Episode, float]]:
    """The episodes that are learnt from, and the advantage of each.

    One that is left out all the same counts in the baseline of its siblings.
    """
    for group in groups:
        scored = _scored(group, grpo)
        gains = _advantages(_rewards(scored), grpo, totals)
        for (episode, reward), gain in zip(scored, gains, strict=True):
            if _learnt_from(episode, reward, grpo):
                yield episode, float(gain)


def _scored(group: Group, grpo: GRPOConfig) -> list[tuple[Episode, float]]:
    """The episodes that have a reward, and what it counts for."""
    nothing = grpo.truncated == "zero"
    return [
        (e, 0.0 if nothing and e.truncated else e.reward)
        for e in group.episodes
        if e.reward is not None
    ]


def _rewards(scored: Sequence[tuple[Episode, float]]) -> FloatArray:
    return np.asarray([reward for _, reward in scored], np.float32)


def _learnt_from(episode: Episode, reward: float, grpo: GRPOConfig) -> bool:
    masked = grpo.truncated == "mask" and episode.truncated
    failed = grpo.advantages == "success" and reward <= 0
    return bool(episode.turns) and not masked and not failed


def _lengths(episode: Episode, grpo: GRPOConfig, decode: Decode | None) -> list[int]:
    """Response tokens of each turn; the published trainer knows one long turn."""
    if grpo.rows == "released":
        return [len(webagent_r1_layout.path(episode, decode).targets)]
    return [len(turn.completion.token_ids) for turn in episode.turns]


def _advantages(rewards: FloatArray, grpo: GRPOConfig, totals: Totals) -> FloatArray:
    """[G] of one group."""
    match grpo.advantages:
        case "group_std":
            return advantages.group_advantages(rewards, std_eps=grpo.std_eps)
        case "group_mean":
            return advantages.centred_advantages(rewards)
        case "leave_one_out":
            return advantages.leave_one_out_advantages(rewards)
        case "batch_mean":
            return (rewards - totals.rewards / max(totals.scored, 1)).astype(np.float32)
        case "success":
            return np.ones_like(rewards)
        case "exponential":
            return advantages.exponential_advantages(rewards, temperature=grpo.awr_temperature)


def _weigh(grpo: GRPOConfig, rollout: RolloutConfig, totals: Totals) -> Weigh:
    match grpo.weights:
        case "three_level":
            return partial(advantages.three_level_weights, episodes=totals.episodes)
        case "token_mean":
            return partial(advantages.token_mean_weights, total=totals.tokens)
        case "constant_length":
            longest = rollout.max_turns * rollout.max_new_tokens
            return partial(
                advantages.constant_length_weights, length=longest, episodes=totals.episodes
            )
