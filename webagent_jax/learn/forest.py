"""Packing of episodes into forest rows: token trees in depth-first order, of equal length.

Common prefixes of prompts are stored once: over the turns of an episode, the episodes of a group
and the groups of a batch. Each response is a separate branch under the last token of its prompt.
Sorting the branches by prompt yields depth-first order. The longest common prefix of two neighbors
is the depth at which the second leaves the path of the first. Rows are therefore filled branch by
branch; a branch in another row repeats its ancestors there.

Rows may be shorter than `row_tokens`: on many devices, the rows of a small batch would otherwise be
mostly padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from webagent_jax.learn.advantages import TokenWeightFn, episode_turn_token_weights
from webagent_jax.types import Episode, FloatArray, ForestRows, IntArray

T = TypeVar("T")

# Shorter rows must save this fraction of the tokens, because another shape costs a compilation.
_MIN_SAVED_FRACTION = 0.2


@dataclass(frozen=True, slots=True)
class Branch:
    """Turn of an episode for training: a response under its prompt."""

    prompt_ids: IntArray  # [P], P >= 1
    response_ids: IntArray  # [C]
    behavior_logp: FloatArray  # [C]
    weight: float  # loss weight of each response token
    advantage: float


@dataclass(frozen=True, slots=True)
class Forest:
    """Forest rows of a batch and the efficiency of their packing."""

    rows: ForestRows
    shared_fraction: float  # fraction of the tokens of one row per turn that sharing saves
    padding_fraction: float  # fraction of padding tokens in the rows that are not empty


class RowLayout(Protocol):
    """Arrangement of the tokens of episodes in rows."""

    def turn_lengths(self, episode: Episode) -> list[int]:
        """Return the number of scored tokens of each turn."""
        ...

    def pack(
        self,
        episodes: Sequence[Episode],
        advantages: Sequence[FloatArray],
        token_weight_fn: TokenWeightFn,
        *,
        row_tokens: int,
        row_multiple: int = 1,
        microbatch: int | None = None,
    ) -> Forest:
        """Pack episodes into rows.

        Args:
            episodes: episodes of a batch or of a part of it; at least one.
            advantages: advantages [T] of the turns of each episode.
            token_weight_fn: returns the loss weights for the `turn_lengths` of `episodes`.
            row_tokens: as in `pack_branches`, like the next two.
            row_multiple: divisor of the number of rows.
            microbatch: number of rows that are computed at once.

        Raises:
            ValueError: an episode does not fit this layout or a row.
        """
        ...


class TurnLayout:
    """Layout of one branch per turn, scored under the prompt of its sampling."""

    def turn_lengths(self, episode: Episode) -> list[int]:
        """Return the number of response tokens of each turn."""
        return [len(turn.completion.token_ids) for turn in episode.turns]

    def pack(
        self,
        episodes: Sequence[Episode],
        advantages: Sequence[FloatArray],
        token_weight_fn: TokenWeightFn,
        *,
        row_tokens: int,
        row_multiple: int = 1,
        microbatch: int | None = None,
    ) -> Forest:
        """Pack episodes into rows; arguments and errors are those of `RowLayout.pack`."""
        branches = branches_from_episodes(episodes, advantages, token_weight_fn)
        return pack_branches(
            branches, row_tokens=row_tokens, row_multiple=row_multiple, microbatch=microbatch
        )


def branches_from_episodes(
    episodes: Sequence[Episode],
    advantages: Sequence[FloatArray],
    token_weight_fn: TokenWeightFn = episode_turn_token_weights,
) -> list[Branch]:
    """Return one branch per turn.

    Args:
        episodes: episodes of a batch or of a part of it.
        advantages: advantages [T] of the turns of each episode.
        token_weight_fn: returns the loss weights of the response tokens of `episodes`, by turn.
    """
    # One call for all episodes: by default, the weights are normalized over the arguments.
    weights = token_weight_fn([[len(t.completion.token_ids) for t in e.turns] for e in episodes])
    return [
        Branch(
            turn.prompt_ids,
            turn.completion.token_ids,
            turn.completion.behavior_logp,
            weight=float(weight),
            advantage=float(advantage),
        )
        for episode, turn_advantages, turn_weights in zip(
            episodes, advantages, weights, strict=True
        )
        for turn, advantage, weight in zip(
            episode.turns, turn_advantages, turn_weights, strict=True
        )
    ]


def pack_branches(
    branches: Sequence[Branch],
    *,
    row_tokens: int,
    row_multiple: int = 1,
    microbatch: int | None = None,
) -> Forest:
    """Pack branches into few forest rows.

    Args:
        branches: turns to train on.
        row_tokens: L, the length of every row. With `microbatch`, L may also be a half or a quarter
            of it, see `fit_rows`.
        row_multiple: B is this times a power of two, and R is L over a power of two, so that a run
            compiles few shapes. Empty rows come last and have no weight.
        microbatch: number of rows that are computed at once.

    Raises:
        ValueError: there is no branch, or a branch is empty or does not fit a row.
    """
    if not branches:
        raise ValueError("no branches to pack: every episode was dropped or has no turns")
    for branch in branches:
        check_length(len(branch.prompt_ids) + len(branch.response_ids), row_tokens)
        # The hidden state of its parent scores a token, so the first response token needs a prompt.
        if len(branch.prompt_ids) == 0 or len(branch.response_ids) == 0:
            raise ValueError("a turn needs at least one token of prompt and one of response")
    lengths = [len(branch.prompt_ids) + len(branch.response_ids) for branch in branches]
    length, assigned = fit_rows(
        partial(_assign_rows, branches),
        row_tokens=row_tokens,
        min_tokens=max(lengths),
        microbatch=microbatch,
    )
    rows = [_fill_row(leaves, length) for leaves in assigned]
    return stack_rows(
        rows, row_tokens=length, row_multiple=row_multiple, num_path_tokens=sum(lengths)
    )


def fit_rows(
    assign: Callable[[int], list[T]], *, row_tokens: int, min_tokens: int, microbatch: int | None
) -> tuple[int, list[T]]:
    """Return the length of the rows of a batch, and the content of each row.

    The length is `row_tokens`, or a half or a quarter of it if that saves at least a fifth of the
    computed tokens. A microbatch is computed at once, so its empty rows count too.

    Args:
        assign: returns the content of each row of this length.
        row_tokens: maximum length.
        min_tokens: minimum length.
        microbatch: number of rows that are computed at once; None: the length is `row_tokens`.
    """
    best = assign(row_tokens)
    if microbatch is None:
        return row_tokens, best

    def cost(rows: list[T], length: int) -> int:
        return -(-len(rows) // microbatch) * microbatch * length

    best_length = row_tokens
    for length in (row_tokens // 2, row_tokens // 4):
        if length < min_tokens:
            break
        rows = assign(length)
        if cost(rows, length) <= (1 - _MIN_SAVED_FRACTION) * cost(best, best_length):
            best_length, best = length, rows
    return best_length, best


def check_length(length: int, row_tokens: int) -> None:
    """Check that a path of `length` tokens fits a row.

    Raises:
        ValueError: it does not.
    """
    if length > row_tokens:
        raise ValueError(
            f"a turn of {length} tokens does not fit a row of {row_tokens}: "
            f"raise row_tokens, or lower engine.max_model_len to {row_tokens}"
        )


def _round_up(count: int, multiple: int) -> int:
    """Return the smallest multiple · 2^n that is at least `count`."""
    while multiple < count:
        multiple *= 2
    return multiple


class _Leaf(NamedTuple):
    branch: Branch
    shared: int  # prompt tokens that the previous leaf of the row already contains


def _assign_rows(branches: Sequence[Branch], row_tokens: int) -> list[list[_Leaf]]:
    """Assign branches to rows, in depth-first order within each row.

    Each branch goes to the row that contains most of its prompt, or else to the fullest row with
    enough space.
    """
    # Big-endian bytes sort like the token ids, and a prompt before its extensions.
    ordered = sorted(branches, key=lambda b: b.prompt_ids.astype(">u4").tobytes())
    rows: list[list[_Leaf]] = []
    # Per row, of which there are at most as many as branches: its tokens, and the tokens of the
    # current prompt that it already contains.
    used = np.zeros(len(ordered), np.int64)
    shared = np.zeros(len(ordered), np.int64)
    previous = ordered[0].prompt_ids
    for branch in ordered:
        # In sorted order, the prefix shared with an earlier prompt is the minimum over the pairs of
        # neighbors in between.
        np.minimum(shared, common_prefix(previous, branch.prompt_ids), out=shared)
        previous = branch.prompt_ids
        # Tokens of each row if it received the branch; the entry at `num_rows` is a new row.
        new_used = used + len(branch.prompt_ids) + len(branch.response_ids) - shared
        num_rows = len(rows)
        # Order by shared tokens, then by `used`, which is below row_tokens where the branch fits.
        preference = np.where(new_used <= row_tokens, shared * row_tokens + used, -1)[:num_rows]
        best = int(np.argmax(preference)) if num_rows and preference.max() >= 0 else num_rows
        if best == num_rows:
            rows.append([])
        rows[best].append(_Leaf(branch, int(shared[best])))
        used[best] = new_used[best]
        shared[best] = len(branch.prompt_ids)
    return rows


def common_prefix(a: IntArray, b: IntArray) -> int:
    """Return the length of the longest common prefix."""
    length = min(len(a), len(b))
    # The argmax of booleans is the index of the first True.
    differs = a[:length] != b[:length]
    return int(np.argmax(differs)) if differs.any() else length


class PackedRow(NamedTuple):
    """Row of `ForestRows` before its response tokens are padded."""

    tokens: IntArray  # [L], as the next three
    positions: IntArray
    parents: IntArray
    subtree_ends: IntArray
    target_indices: IntArray  # [response tokens], as the next three
    loss_weights: FloatArray
    advantages: FloatArray
    behavior_logp: FloatArray
    used: int  # number of tokens that are not padding


def _fill_row(leaves: Sequence[_Leaf], row_tokens: int) -> PackedRow:
    tokens, positions, parents, ends = padding(row_tokens)
    targets: list[IntArray] = []
    # Index in the row of each token of the current prompt.
    path = np.zeros(0, np.int32)
    used = 0
    for branch, shared in leaves:
        # New tokens: the rest of the prompt at [start, fork), the response at [fork, used).
        start, fork = used, used + len(branch.prompt_ids) - shared
        used = fork + len(branch.response_ids)
        # No later branch descends from the rest of the previous path.
        ends[path[shared:]] = start
        path = np.concatenate([path[:shared], np.arange(start, fork, dtype=np.int32)])
        tokens[start:fork] = branch.prompt_ids[shared:]
        tokens[fork:used] = branch.response_ids
        positions[start:used] = np.arange(shared, shared + used - start)
        parents[start:used] = np.arange(start - 1, used - 1)
        # The first new token continues the shared prefix. Without one it is a root, its own parent.
        parents[start] = path[shared - 1] if shared else start
        # Only later tokens of the same response descend from a response token.
        ends[fork:used] = used
        targets.append(np.arange(fork, used, dtype=np.int32))
    # No branch follows the last one, so its path ends with the row.
    ends[path] = used

    lengths = [len(leaf.branch.response_ids) for leaf in leaves]

    def per_token(values: list[float]) -> FloatArray:
        return np.repeat(np.asarray(values, np.float32), lengths)

    return PackedRow(
        tokens,
        positions,
        parents,
        ends,
        target_indices=np.concatenate(targets),
        loss_weights=per_token([leaf.branch.weight for leaf in leaves]),
        advantages=per_token([leaf.branch.advantage for leaf in leaves]),
        behavior_logp=np.concatenate([leaf.branch.behavior_logp for leaf in leaves]),
        used=used,
    )


def padding(row_tokens: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return tokens, positions, parents and subtree ends [L] of an empty row."""
    # A padding token is its own parent, and its subtree contains only itself.
    index = np.arange(row_tokens, dtype=np.int32)
    return np.zeros_like(index), np.zeros_like(index), index, index + 1


def stack_rows(
    packed_rows: Sequence[PackedRow], *, row_tokens: int, row_multiple: int, num_path_tokens: int
) -> Forest:
    """Stack rows into a forest of one of few shapes; empty rows come last.

    Args:
        packed_rows: rows that are not empty; none for an empty forest.
        row_tokens: L, the length of every row.
        row_multiple: B is this times a power of two.
        num_path_tokens: number of tokens of the same turns with one row each.
    """
    # B is row_multiple times a power of two; R is a quarter, half or all of L. Each new shape costs
    # a compilation.
    max_targets = max((len(row.target_indices) for row in packed_rows), default=1)
    rows = _empty_rows(
        _round_up(max(len(packed_rows), 1), row_multiple),
        row_tokens,
        min(_round_up(max_targets, max(row_tokens // 4, 1)), row_tokens),
    )
    for number, row in enumerate(packed_rows):
        rows.tokens[number], rows.positions[number] = row.tokens, row.positions
        rows.parents[number], rows.subtree_ends[number] = row.parents, row.subtree_ends
        targets = np.s_[number, : len(row.target_indices)]
        rows.target_indices[targets] = row.target_indices
        rows.loss_weights[targets] = row.loss_weights
        rows.advantages[targets] = row.advantages
        # On policy both are equal; otherwise `compute_prox_logp` replaces prox_logp.
        rows.behavior_logp[targets] = rows.prox_logp[targets] = row.behavior_logp
    used = sum(row.used for row in packed_rows)
    if not packed_rows:
        return Forest(rows, 0.0, 0.0)
    return Forest(rows, 1 - used / num_path_tokens, 1 - used / (len(packed_rows) * row_tokens))


def pad_to_shape(rows: ForestRows, *, count: int, row_targets: int) -> ForestRows:
    """Pad rows to a larger shape, so that processes with different shapes can share a step.

    Rows that have the shape already are not copied, as is always the case with a single process.

    Args:
        rows: [B, L] and [B, R].
        count: number of rows of the result.
        row_targets: number of response tokens per row of the result.

    Returns:
        Rows [count, L] and [count, row_targets].

    Raises:
        ValueError: the shape is smaller than that of `rows`.
    """
    num_rows, num_targets = rows.target_indices.shape
    if (num_rows, num_targets) == (count, row_targets):
        return rows
    if count < num_rows or row_targets < num_targets:
        raise ValueError(
            f"{num_rows} rows of {num_targets} response tokens do not fit {count} of "
            f"{row_targets}: pass the largest shape of all processes"
        )
    # Parents and subtree ends of padding are not 0, so zero padding would be wrong.
    padded = _empty_rows(count, rows.tokens.shape[1], row_targets)
    for field in fields(ForestRows):
        values = getattr(rows, field.name)
        getattr(padded, field.name)[: values.shape[0], : values.shape[1]] = values
    return padded


def _empty_rows(count: int, row_tokens: int, row_targets: int) -> ForestRows:
    """Return rows of padding."""
    # [count, L]; np.tile copies, so that rows can be written independently.
    tokens, positions, parents, ends = (np.tile(x, (count, 1)) for x in padding(row_tokens))
    size = (count, row_targets)
    return ForestRows(
        tokens,
        positions,
        parents,
        ends,
        target_indices=np.zeros(size, np.int32),
        loss_weights=np.zeros(size, np.float32),
        advantages=np.zeros(size, np.float32),
        behavior_logp=np.zeros(size, np.float32),
        prox_logp=np.zeros(size, np.float32),
    )
