"""Rows as the published WebAgent-R1 trainer makes them, to compare with.

One sequence per episode: the prompt of its last turn, in which every page but the last has become a
placeholder, and the last reply. What the environment said after the first reply is hidden from all
other tokens, and so are the thoughts; neither is scored. A reply is thus scored in a context that
the policy never saw, so that its log-probability when sampled is no measure of the policy here:
GRPOConfig wants policy_loss="logp" with these rows. docs/objectives.md tells the differences that
remain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from webagent_jax.learn import forest
from webagent_jax.learn.forest import Forest, Row
from webagent_jax.types import Episode, FloatArray, IntArray, Turn

Decode = Callable[[IntArray], str]
"""Ids to text."""

_THOUGHT_ENDS = "</think>"


class Path(NamedTuple):
    """An episode as one sequence of S tokens, of which R are scored."""

    tokens: IntArray  # [S]
    first: int  # index of the first reply: what stands before it is seen by all
    targets: IntArray  # [R] indices in `tokens`
    behaviour_logp: FloatArray  # [R]


def path(episode: Episode, decode: Decode | None) -> Path:
    """An episode as the published trainer sees it.

    Args:
        decode: needed where replies have thoughts.

    Raises:
        ValueError: a reply does not stand in the last prompt as it was sampled, or there is a
            thought and no `decode`.
    """
    *earlier, last = episode.turns
    starts: list[int] = []
    found = 0
    for number, turn in enumerate(earlier):
        start = _find(turn, last.prompt_ids, found)
        if start < 0:
            raise ValueError(
                f'rows="released" needs every reply in the last prompt as it was sampled: that of '
                f"turn {number} of {episode.task.id} is not there"
            )
        starts.append(start)
        found = start + len(turn.completion.token_ids)
    starts.append(len(last.prompt_ids))

    targets, logp = [], []
    for start, turn in zip(starts, episode.turns, strict=True):
        thought = _thought_tokens(turn, decode)
        stop = start + len(turn.completion.token_ids)
        targets.append(np.arange(start + thought, stop, dtype=np.int32))
        logp.append(turn.completion.behavior_logp[thought:])
    tokens = np.concatenate([last.prompt_ids, last.completion.token_ids])
    return Path(tokens, starts[0], np.concatenate(targets), np.concatenate(logp))


def _find(turn: Turn, history: IntArray, after: int) -> int:
    """Where the reply of an earlier turn begins in a later prompt; -1 where it does not.

    Both prompts agree up to the page of that turn, so the reply comes no sooner, and stands behind
    the token that ended its own prompt.
    """
    reply, prompt = turn.completion.token_ids, turn.prompt_ids
    after = max(after, forest.common_prefix(prompt, history), 1)
    if len(history) - len(reply) < after:
        return -1
    windows = np.lib.stride_tricks.sliding_window_view(history, len(reply))[after:]
    here = (windows == reply).all(axis=1) & (history[after - 1 :][: len(windows)] == prompt[-1])
    return after + int(np.argmax(here)) if here.any() else -1


def _thought_tokens(turn: Turn, decode: Decode | None) -> int:
    """Tokens of the reply up to where its thought ends, and never all of them."""
    if _THOUGHT_ENDS not in turn.reply:
        return 0
    if decode is None:
        raise ValueError('rows="released" leaves thoughts out: rows_of needs decode to find them')
    ids = turn.completion.token_ids
    return bisect_left(range(len(ids) - 1), True, key=lambda n: _THOUGHT_ENDS in decode(ids[:n]))


def build(
    paths: Sequence[Path],
    weights: Sequence[float],
    advantages: Sequence[float],
    *,
    row_tokens: int,
    row_multiple: int = 1,
) -> Forest:
    """Lays sequences out side by side; as `forest.build`.

    Args:
        weights: of each scored token of each path.
        advantages: of each path.
    """
    rows: list[list[int]] = []
    used: list[int] = []
    for number in sorted(range(len(paths)), key=lambda i: -len(paths[i].tokens)):
        length = len(paths[number].tokens)
        forest.check_length(length, row_tokens)
        fits = [row for row, taken in enumerate(used) if taken + length <= row_tokens]
        if not fits:
            rows.append([])
            used.append(0)
        row = fits[0] if fits else len(rows) - 1
        rows[row].append(number)
        used[row] += length
    filled = [
        _lay_out([(paths[i], weights[i], advantages[i]) for i in row], row_tokens) for row in rows
    ]
    return forest.stack(filled, row_tokens=row_tokens, row_multiple=row_multiple, alone=sum(used))


def _lay_out(leaves: Sequence[tuple[Path, float, float]], row_tokens: int) -> Row:
    tokens, positions, parents, ends = forest.padding(row_tokens)
    targets: list[IntArray] = []
    used = 0
    for path, _, _ in leaves:
        start, used = used, used + len(path.tokens)
        tokens[start:used] = path.tokens
        positions[start:used] = np.arange(len(path.tokens))
        parents[start + 1 : used] = np.arange(start, used - 1)
        targets.append(start + path.targets)
        ends[start : start + path.first] = used
        ends[targets[-1]] = used

    def per_token(values: Sequence[float]) -> FloatArray:
        return np.repeat(np.asarray(values, np.float32), [len(t) for t in targets])

    return Row(
        tokens,
        positions,
        parents,
        ends,
        targets=np.concatenate(targets).astype(np.int32),
        weights=per_token([weight for _, weight, _ in leaves]),
        advantages=per_token([advantage for _, _, advantage in leaves]),
        behaviour_logp=np.concatenate([path.behaviour_logp for path, _, _ in leaves]),
        used=used,
    )
