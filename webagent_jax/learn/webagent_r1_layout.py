"""Row layout of the published WebAgent-R1 trainer, for comparison.

Each episode is one sequence: the prompt of its last turn, in which placeholders replace all
observations but the last, and the last response. Text of the environment after the first response
is hidden from all other tokens, and so are thoughts; neither is scored. Responses are thus scored
in contexts that differ from those of sampling, and their behavior log-probabilities do not apply.
GRPOConfig therefore requires policy_loss="logp" with these rows. docs/objectives.md lists the
remaining differences.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from webagent_jax.learn import forest
from webagent_jax.learn.advantages import TokenWeightFn
from webagent_jax.learn.forest import Forest, PackedRow
from webagent_jax.types import Episode, FloatArray, IntArray, Turn

Decode = Callable[[IntArray], str]
"""Function from token ids to text."""

_THOUGHT_ENDS = "</think>"


class ReleaseLayout:
    """Layout of one sequence per episode, which counts as one turn."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode

    def turn_lengths(self, episode: Episode) -> list[int]:
        """Return the number of scored tokens of the episode as a list of one number."""
        return [len(to_sequence(episode, self._decode).targets)]

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
        sequences = [to_sequence(episode, self._decode) for episode in episodes]
        weights = token_weight_fn([[len(sequence.targets)] for sequence in sequences])
        return pack_sequences(
            sequences,
            [float(weight) for (weight,) in weights],
            # `config` allows no advantages of single turns with this layout.
            [float(turn_advantages[0]) for turn_advantages in advantages],
            row_tokens=row_tokens,
            row_multiple=row_multiple,
            microbatch=microbatch,
        )


class EpisodeSequence(NamedTuple):
    """Episode as a sequence of S tokens, of which R are scored."""

    tokens: IntArray  # [S]
    first: int  # index of the first response; all tokens attend to those before it
    targets: IntArray  # [R] indices of the scored tokens in `tokens`
    behavior_logp: FloatArray  # [R] log-probabilities when sampled


def to_sequence(episode: Episode, decode: Decode) -> EpisodeSequence:
    """Return the sequence of an episode in the layout of the published trainer.

    Args:
        episode: at least one turn.
        decode: function from token ids to text, called if a response contains a thought.

    Raises:
        ValueError: the last prompt does not contain a response as it was sampled.
    """
    # 1. Find each earlier response in the last prompt, in order.
    *earlier, last = episode.turns
    starts: list[int] = []
    end = 0
    for number, turn in enumerate(earlier):
        start = _find_response(turn, last.prompt_ids, end)
        if start < 0:
            raise ValueError(
                'grpo.sequence_layout="webagent_r1_release" needs every response in the last '
                f"prompt as it was sampled, but the response of turn {number} of "
                f"{episode.task.id} is missing"
            )
        starts.append(start)
        end = start + len(turn.completion.token_ids)
    # 2. The last response follows the last prompt.
    starts.append(len(last.prompt_ids))

    # 3. Score the tokens of each response after its thought.
    targets, logp = [], []
    for start, turn in zip(starts, episode.turns, strict=True):
        num_thought = _count_thought_tokens(turn, decode)
        stop = start + len(turn.completion.token_ids)
        targets.append(np.arange(start + num_thought, stop, dtype=np.int32))
        logp.append(turn.completion.behavior_logp[num_thought:])
    tokens = np.concatenate([last.prompt_ids, last.completion.token_ids])
    return EpisodeSequence(tokens, starts[0], np.concatenate(targets), np.concatenate(logp))


def _find_response(turn: Turn, history: IntArray, start: int) -> int:
    """Return the index from `start` of the response of a turn in a later prompt, or -1.

    Both prompts are equal up to the observation of that turn, so the response cannot come earlier.
    It follows the token that ended its own prompt.
    """
    response, prompt = turn.completion.token_ids, turn.prompt_ids
    # At least 1, because a match needs a token before the response.
    start = max(start, forest.common_prefix(prompt, history), 1)
    if len(history) - len(response) < start:
        return -1
    # windows [W, C]: all slices of C tokens from `start`. previous [W]: the token before each.
    windows = np.lib.stride_tricks.sliding_window_view(history, len(response))[start:]
    previous = history[start - 1 :][: len(windows)]
    is_match = (windows == response).all(axis=1) & (previous == prompt[-1])
    return start + int(np.argmax(is_match)) if is_match.any() else -1


def _count_thought_tokens(turn: Turn, decode: Decode) -> int:
    """Return the number of tokens up to the end of the thought, less than all of the response."""
    if _THOUGHT_ENDS not in turn.response_text:
        return 0
    ids = turn.completion.token_ids
    # A longer prefix still contains the end tag, so bisection decodes few prefixes. The result is
    # below len(ids): at least the last token is scored.
    return bisect_left(range(len(ids) - 1), True, key=lambda n: _THOUGHT_ENDS in decode(ids[:n]))


def pack_sequences(
    sequences: Sequence[EpisodeSequence],
    weights: Sequence[float],
    advantages: Sequence[float],
    *,
    row_tokens: int,
    row_multiple: int = 1,
    microbatch: int | None = None,
) -> Forest:
    """Pack sequences into rows.

    Args:
        sequences: sequences of episodes.
        weights: loss weight of each scored token of each sequence.
        advantages: advantage of each sequence.
        row_tokens: as in `forest.pack_branches`, like the next two.
        row_multiple: divisor of the number of rows.
        microbatch: number of rows that are computed at once.

    Raises:
        ValueError: a sequence does not fit a row.
    """
    lengths = [len(sequence.tokens) for sequence in sequences]
    forest.check_length(max(lengths), row_tokens)
    length, rows = forest.fit_rows(
        partial(_assign_rows, lengths),
        row_tokens=row_tokens,
        min_tokens=max(lengths),
        microbatch=microbatch,
    )
    packed_rows = [
        _fill_row([(sequences[i], weights[i], advantages[i]) for i in row], length) for row in rows
    ]
    return forest.stack_rows(
        packed_rows, row_tokens=length, row_multiple=row_multiple, num_path_tokens=sum(lengths)
    )


def _assign_rows(lengths: Sequence[int], row_tokens: int) -> list[list[int]]:
    """Assign sequences to rows, longest first, each to the first row with enough space."""
    rows: list[list[int]] = []
    used: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fitting = [row for row, count in enumerate(used) if count + lengths[number] <= row_tokens]
        if not fitting:
            rows.append([])
            used.append(0)
        row = fitting[0] if fitting else len(rows) - 1
        rows[row].append(number)
        used[row] += lengths[number]
    return rows


def _fill_row(items: Sequence[tuple[EpisodeSequence, float, float]], row_tokens: int) -> PackedRow:
    tokens, positions, parents, ends = forest.padding(row_tokens)
    targets: list[IntArray] = []
    used = 0
    for sequence, _, _ in items:
        start, used = used, used + len(sequence.tokens)
        tokens[start:used] = sequence.tokens
        positions[start:used] = np.arange(len(sequence.tokens))
        parents[start + 1 : used] = np.arange(start, used - 1)
        targets.append(start + sequence.targets)
        # The whole sequence attends to the first prompt, and later tokens to scored ones. Others
        # keep a subtree of one token, so they are hidden.
        ends[start : start + sequence.first] = used
        ends[targets[-1]] = used

    def per_token(values: Sequence[float]) -> FloatArray:
        return np.repeat(np.asarray(values, np.float32), [len(t) for t in targets])

    return PackedRow(
        tokens,
        positions,
        parents,
        ends,
        target_indices=np.concatenate(targets).astype(np.int32),
        loss_weights=per_token([weight for _, weight, _ in items]),
        advantages=per_token([advantage for _, _, advantage in items]),
        behavior_logp=np.concatenate([sequence.behavior_logp for sequence, _, _ in items]),
        used=used,
    )
