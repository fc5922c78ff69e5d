"""Episodes to forest rows: token trees in depth-first order, packed into rows of one length.

Prompts are merged where they agree: over the turns of an episode, the episodes of a group and the
groups of a batch. Each response is a branch of its own, under the last token of its prompt. Sorted
by prompt, the branches stand in depth-first order, and the longest common prefix of two neighbours
is the depth at which the second leaves the path of the first. So a row is filled branch by branch,
and a branch that goes to another row takes copies of its ancestors along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from webagent_jax.learn.advantages import group_advantages, three_level_weights
from webagent_jax.types import Episode, FloatArray, ForestRows, Group, IntArray

Weigh = Callable[[Sequence[Sequence[int]]], list[FloatArray]]
"""One of the `..._weights` of learn/advantages.py."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One turn as the optimizer sees it: a response under its prompt."""

    prompt_ids: IntArray  # [P], P >= 1
    response_ids: IntArray  # [C]
    behaviour_logp: FloatArray  # [C]
    weight: float  # of each of its tokens in the objective
    advantage: float


@dataclass(frozen=True, slots=True)
class Forest:
    rows: ForestRows
    shared_fraction: float  # of the tokens of one-row-per-turn, those that sharing has spared
    padding_fraction: float  # of the tokens of the rows that hold something


def credited(
    groups: Sequence[Group], *, std_eps: float, whole: float = 0.0
) -> tuple[list[Episode], list[float]]:
    """The episodes that have a reward and at least one turn, and the advantage of each.

    Args:
        whole: groups of a whole batch. Those that are missing from it count like flat ones, with an
            advantage of 0: the advantages of the others shrink by len(groups) / whole, so that a
            few groups do not make as long a step as all of them.
    """
    share = min(1.0, len(groups) / whole) if whole else 1.0
    episodes: list[Episode] = []
    advantages: list[float] = []
    for group in groups:
        scored = [(e, e.reward) for e in group.episodes if e.reward is not None]
        rewards = np.asarray([reward for _, reward in scored], np.float32)
        gains = group_advantages(rewards, std_eps=std_eps)
        kept = [(e, share * float(a)) for (e, _), a in zip(scored, gains, strict=True) if e.turns]
        episodes.extend(e for e, _ in kept)
        advantages.extend(a for _, a in kept)
    return episodes, advantages


def branches(
    episodes: Sequence[Episode], advantages: Sequence[float], weigh: Weigh = three_level_weights
) -> list[Branch]:
    """One branch per turn. `weigh` takes the means over the given episodes, so give one batch."""
    weights = weigh([[len(t.completion.token_ids) for t in e.turns] for e in episodes])
    return [
        Branch(
            turn.prompt_ids,
            turn.completion.token_ids,
            turn.completion.logp,
            weight=float(weight),
            advantage=advantage,
        )
        for episode, advantage, turn_weights in zip(episodes, advantages, weights, strict=True)
        for turn, weight in zip(episode.turns, turn_weights, strict=True)
    ]


def build(branches: Sequence[Branch], *, row_tokens: int, row_multiple: int = 1) -> Forest:
    """Lays branches out in as few rows as it can.

    Args:
        row_tokens: L, the length of every row.
        row_multiple: B is this times a power of two, and R is L over a power of two, so that a run
            meets few shapes. Rows that hold nothing come last and have no weight.

    Raises:
        ValueError: there is no branch, or one of them is empty or does not fit a row.
    """
    if not branches:
        raise ValueError("no branches to lay out: every episode was dropped or has no turns")
    for branch in branches:
        length = len(branch.prompt_ids) + len(branch.response_ids)
        if length > row_tokens:
            raise ValueError(
                f"a turn of {length} tokens does not fit a row of {row_tokens}: "
                f"raise row_tokens, or lower engine.max_tokens to {row_tokens}"
            )
        if len(branch.prompt_ids) == 0 or len(branch.response_ids) == 0:
            raise ValueError("a turn needs at least one token of prompt and one of response")
    filled = [_lay_out(leaves, row_tokens) for leaves in _pack(branches, row_tokens)]
    most_targets = max(len(row.targets) for row in filled)
    rows = _stack(
        filled,
        count=_bucket(len(filled), row_multiple),
        row_targets=min(_bucket(most_targets, max(row_tokens // 4, 1)), row_tokens),
    )
    used = sum(row.used for row in filled)
    alone = sum(len(branch.prompt_ids) + len(branch.response_ids) for branch in branches)
    return Forest(rows, 1 - used / alone, 1 - used / (len(filled) * row_tokens))


def _bucket(count: int, multiple: int) -> int:
    """The least multiple · 2^n that is at least `count`."""
    while multiple < count:
        multiple *= 2
    return multiple


class _Leaf(NamedTuple):
    branch: Branch
    shared: int  # tokens of its prompt that the leaf before it in the row has laid out


def _pack(branches: Sequence[Branch], row_tokens: int) -> list[list[_Leaf]]:
    """Deals branches to rows, each row in depth-first order.

    Each branch goes where most of its prompt stands already, else to the fullest row it fits.
    """
    ordered = sorted(branches, key=lambda b: b.prompt_ids.astype(">u4").tobytes())
    rows: list[list[_Leaf]] = []
    used = np.zeros(len(ordered), np.int64)  # of each row, as many as could be needed
    shared = np.zeros(len(ordered), np.int64)  # prompt tokens at hand that stand in the row already
    previous = ordered[0].prompt_ids
    for branch in ordered:
        np.minimum(shared, _common_prefix(previous, branch.prompt_ids), out=shared)
        previous = branch.prompt_ids
        after = used + len(branch.prompt_ids) + len(branch.response_ids) - shared
        opened = len(rows)
        liking = np.where(after <= row_tokens, shared * row_tokens + used, -1)[:opened]
        best = int(np.argmax(liking)) if opened and liking.max() >= 0 else opened
        if best == opened:
            rows.append([])
        rows[best].append(_Leaf(branch, int(shared[best])))
        used[best] = after[best]
        shared[best] = len(branch.prompt_ids)
    return rows


def _common_prefix(a: IntArray, b: IntArray) -> int:
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    return int(np.argmax(differs)) if differs.any() else length


class _Row(NamedTuple):
    """One row of `ForestRows`, its response tokens not padded yet."""

    tokens: IntArray  # [L], so are the next three
    positions: IntArray
    parents: IntArray
    ends: IntArray
    targets: IntArray  # [response tokens], so are the next three
    weights: FloatArray
    advantages: FloatArray
    behaviour_logp: FloatArray
    used: int  # tokens that are not padding


def _lay_out(leaves: Sequence[_Leaf], row_tokens: int) -> _Row:
    tokens = np.zeros(row_tokens, np.int32)
    positions = np.zeros(row_tokens, np.int32)
    parents = np.arange(row_tokens, dtype=np.int32)
    ends = np.arange(1, row_tokens + 1, dtype=np.int32)
    targets: list[IntArray] = []
    path = np.zeros(0, np.int32)  # where each token of the prompt at hand stands in the row
    used = 0
    for branch, shared in leaves:
        start, fork = used, used + len(branch.prompt_ids) - shared
        used = fork + len(branch.response_ids)
        ends[path[shared:]] = start  # left behind: nothing that follows descends from them
        path = np.concatenate([path[:shared], np.arange(start, fork, dtype=np.int32)])
        tokens[start:fork] = branch.prompt_ids[shared:]
        tokens[fork:used] = branch.response_ids
        positions[start:used] = np.arange(shared, shared + used - start)
        parents[start:used] = np.arange(start - 1, used - 1)
        parents[start] = path[shared - 1] if shared else start
        ends[fork:used] = used
        targets.append(np.arange(fork, used, dtype=np.int32))
    ends[path] = used

    lengths = [len(leaf.branch.response_ids) for leaf in leaves]

    def per_token(values: list[float]) -> FloatArray:
        return np.repeat(np.asarray(values, np.float32), lengths)

    return _Row(
        tokens,
        positions,
        parents,
        ends,
        targets=np.concatenate(targets),
        weights=per_token([leaf.branch.weight for leaf in leaves]),
        advantages=per_token([leaf.branch.advantage for leaf in leaves]),
        behaviour_logp=np.concatenate([leaf.branch.behaviour_logp for leaf in leaves]),
        used=used,
    )


def _stack(filled: Sequence[_Row], count: int, row_targets: int) -> ForestRows:
    """`count` rows of which the last hold nothing, with `row_targets` response tokens each."""
    length = len(filled[0].tokens)
    alone = np.arange(length, dtype=np.int32)
    nothing = np.zeros(length, np.int32)
    empty = [(nothing, nothing, alone, alone + 1)] * (count - len(filled))
    whole = zip(*[row[:4] for row in filled], *empty, strict=True)
    tokens, positions, parents, ends = (np.stack(part) for part in whole)

    def padded(parts: Sequence[Any], dtype: type) -> Any:
        out: npt.NDArray[Any] = np.zeros((count, row_targets), dtype)
        for row, part in zip(out, parts, strict=False):
            row[: len(part)] = part
        return out

    return ForestRows(
        tokens,
        positions,
        parents,
        ends,
        targets=padded([row.targets for row in filled], np.int32),
        weights=padded([row.weights for row in filled], np.float32),
        advantages=padded([row.advantages for row in filled], np.float32),
        behaviour_logp=padded([row.behaviour_logp for row in filled], np.float32),
    )
