"""Episodes to forest rows: token trees in depth-first order, packed into rows of one length.

Prompts are merged where they agree: over the turns of an episode, the episodes of a group and the
groups of a batch. Each response is a branch of its own, under the last token of its prompt. Sorted
by prompt, the branches stand in depth-first order, and the longest common prefix of two neighbours
is the depth at which the second leaves the path of the first. So a row is filled branch by branch,
and a branch that goes to another row takes copies of its ancestors along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from webagent_jax.learn.advantages import Weigh, three_level_weights
from webagent_jax.types import Episode, FloatArray, ForestRows, IntArray


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


def branches(
    episodes: Sequence[Episode], advantages: Sequence[float], weigh: Weigh = three_level_weights
) -> list[Branch]:
    """One branch per turn of the episodes of one batch, or of the part of it that `weigh` knows."""
    weights = weigh([[len(t.completion.token_ids) for t in e.turns] for e in episodes])
    return [
        Branch(
            turn.prompt_ids,
            turn.completion.token_ids,
            turn.completion.behavior_logp,
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
        check_length(len(branch.prompt_ids) + len(branch.response_ids), row_tokens)
        if len(branch.prompt_ids) == 0 or len(branch.response_ids) == 0:
            raise ValueError("a turn needs at least one token of prompt and one of response")
    filled = [_lay_out(leaves, row_tokens) for leaves in _pack(branches, row_tokens)]
    alone = sum(len(branch.prompt_ids) + len(branch.response_ids) for branch in branches)
    return stack(filled, row_tokens=row_tokens, row_multiple=row_multiple, alone=alone)


def check_length(length: int, row_tokens: int) -> None:
    """Raises ValueError, which says how to mend it, for a path that no row can hold."""
    if length > row_tokens:
        raise ValueError(
            f"a turn of {length} tokens does not fit a row of {row_tokens}: "
            f"raise row_tokens, or lower engine.max_tokens to {row_tokens}"
        )


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
        np.minimum(shared, common_prefix(previous, branch.prompt_ids), out=shared)
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


def common_prefix(a: IntArray, b: IntArray) -> int:
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    return int(np.argmax(differs)) if differs.any() else length


class Row(NamedTuple):
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


def _lay_out(leaves: Sequence[_Leaf], row_tokens: int) -> Row:
    tokens, positions, parents, ends = padding(row_tokens)
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

    return Row(
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


def padding(row_tokens: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Tokens, positions, parents and ends [L] of a row that holds nothing yet."""
    index = np.arange(row_tokens, dtype=np.int32)
    return np.zeros_like(index), np.zeros_like(index), index, index + 1


def stack(filled: Sequence[Row], *, row_tokens: int, row_multiple: int, alone: int) -> Forest:
    """Rows as a forest of one of few shapes; those that hold nothing come last.

    Args:
        filled: at least one, or none for a forest that holds nothing.
        alone: tokens of the same turns with one row each.
    """
    most_targets = max((len(row.targets) for row in filled), default=1)
    rows = _blank(
        _bucket(max(len(filled), 1), row_multiple),
        row_tokens,
        min(_bucket(most_targets, max(row_tokens // 4, 1)), row_tokens),
    )
    for number, row in enumerate(filled):
        rows.tokens[number], rows.positions[number] = row.tokens, row.positions
        rows.parents[number], rows.ends[number] = row.parents, row.ends
        scored = np.s_[number, : len(row.targets)]
        rows.targets[scored], rows.weights[scored] = row.targets, row.weights
        rows.advantages[scored] = row.advantages
        rows.behaviour_logp[scored] = rows.prox_logp[scored] = row.behaviour_logp
    used = sum(row.used for row in filled)
    if not filled:
        return Forest(rows, 0.0, 0.0)
    return Forest(rows, 1 - used / alone, 1 - used / (len(filled) * row_tokens))


def widened(rows: ForestRows, *, count: int, row_targets: int) -> ForestRows:
    """The same rows in a larger shape, [count, L] and [count, row_targets].

    So that hosts which have filled different numbers of rows enter one update. Rows that have the
    shape already, as all do on a single host, are not copied.

    Raises:
        ValueError: the shape is the smaller one.
    """
    given, targets = rows.targets.shape
    if (given, targets) == (count, row_targets):
        return rows
    if count < given or row_targets < targets:
        raise ValueError(
            f"{given} rows of {targets} response tokens do not fit {count} of {row_targets}: "
            "give the largest of all hosts"
        )
    wide = _blank(count, rows.tokens.shape[1], row_targets)
    for field in fields(ForestRows):
        narrow = getattr(rows, field.name)
        getattr(wide, field.name)[: narrow.shape[0], : narrow.shape[1]] = narrow
    return wide


def _blank(count: int, row_tokens: int, row_targets: int) -> ForestRows:
    """Rows that hold nothing."""
    tokens, positions, parents, ends = (np.tile(x, (count, 1)) for x in padding(row_tokens))
    size = (count, row_targets)
    return ForestRows(
        tokens,
        positions,
        parents,
        ends,
        targets=np.zeros(size, np.int32),
        weights=np.zeros(size, np.float32),
        advantages=np.zeros(size, np.float32),
        behaviour_logp=np.zeros(size, np.float32),
        prox_logp=np.zeros(size, np.float32),
    )
