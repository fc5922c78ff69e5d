"""Rows as the published trainer makes them: what is seen, what is scored, and by which logits."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tests.learn.tiny import MODEL, make_params
from webagent_jax import learn, policy
from webagent_jax.config import GRPOConfig, RolloutConfig
from webagent_jax.learn import pack_groups
from webagent_jax.types import (
    Completion,
    Episode,
    Group,
    Observation,
    Outcome,
    ParseError,
    Task,
    Turn,
)

TASK = Task("shop/7", "s", ("a",), "do", "http://localhost/")
CONFIG = GRPOConfig(
    sequence_layout="webagent_r1_release", policy_loss="logp", kl_beta=0.0, row_tokens=64
)
STOP, THOUGHT_ENDS, HEADER, PLACEHOLDER = 1, 2, 3, 4
SYSTEM = [5, 6, 7]


def decode(ids) -> str:
    return "".join("</think>" if i == THOUGHT_ENDS else chr(97 + int(i) % 26) for i in ids)


def episode(replies: list[list[int]], pages: list[list[int]], reward: float = 1.0) -> Episode:
    history, turns = SYSTEM, []
    for reply, page in zip(replies, pages, strict=True):
        completion = Completion(
            np.array(reply, np.int32),
            -np.arange(1, len(reply) + 1, dtype=np.float32),
            np.zeros(len(reply), np.int32),
            "stop",
        )
        prompt = np.array([*history, *page, HEADER], np.int32)
        turns.append(Turn(prompt, completion, decode(reply), ParseError(""), Observation("", "")))
        history = [*history, PLACEHOLDER, HEADER, *reply]
    return Episode(TASK, "do", tuple(turns), reward, Outcome.FAILURE)


LAYOUT = learn.make_layout(CONFIG, decode)
LONG = episode(
    [[20, 21, THOUGHT_ENDS, 22, 23, STOP], [24, 25, STOP], [26, THOUGHT_ENDS, 27]],
    [[30, 31], [32], [33, 34, 35]],
)
SHORT = episode([[28, STOP]], [[36]], reward=0.0)

# LONG by hand. p: first prompt, e: environment, t: thought, a: action.
TOKENS = [*SYSTEM, 4, 3, 20, 21, 2, 22, 23, 1, 4, 3, 24, 25, 1, 33, 34, 35, 3, 26, 2, 27]
ROLES = "ppppptttaaaeeaaaeeeetta"


def rows_and_offset():
    """The one row that both episodes share, and where LONG begins in it."""
    rows = pack_groups([Group(TASK, (SHORT, LONG))], CONFIG, RolloutConfig(), layout=LAYOUT).rows
    assert rows.tokens.shape == (1, 64)
    return rows, rows.tokens[0].tolist().index(TOKENS[0])


def test_what_is_seen_is_the_first_prompt_and_earlier_actions():
    rows, start = rows_and_offset()
    here = slice(start, start + len(TOKENS))
    assert rows.tokens[0, here].tolist() == TOKENS
    index = np.arange(64)
    sees = (index[None] <= index[:, None]) & (index[:, None] < rows.subtree_ends[0][None])
    expected = np.zeros((len(TOKENS), 64), bool)
    for i in range(len(TOKENS)):
        for j in range(i + 1):
            expected[i, start + j] = ROLES[j] in "pa" or i == j
    np.testing.assert_array_equal(sees[here], expected)
    assert not sees[: start + len(TOKENS) + 1, here][start + len(TOKENS) :].any()
    assert rows.positions[0, here].tolist() == list(range(len(TOKENS)))
    assert rows.parents[0, here].tolist() == [start, *range(start, start + len(TOKENS) - 1)]


def test_actions_are_scored_evenly_within_their_episode():
    rows, start = rows_and_offset()
    actions = [start + i for i, role in enumerate(ROLES) if role == "a"]
    of_long = np.isin(rows.target_indices, actions) & (rows.loss_weights > 0)
    assert rows.target_indices[of_long].tolist() == actions
    np.testing.assert_allclose(rows.loss_weights[of_long], 1 / (2 * len(actions)), rtol=1e-6)
    assert rows.behavior_logp[of_long].tolist() == [-4, -5, -6, -1, -2, -3, -3]
    other = (rows.loss_weights > 0) & ~of_long
    np.testing.assert_allclose(rows.loss_weights[other], 1 / (2 * 2), rtol=1e-6)
    np.testing.assert_allclose(rows.advantages[of_long], 2**-0.5, rtol=1e-3)
    np.testing.assert_allclose(rows.advantages[other], -(2**-0.5), rtol=1e-3)


def test_scores_are_those_of_the_tokens_that_are_seen_alone():
    """Hidden tokens cut out of plain causal rows, the others left at their positions."""
    params = make_params(3)
    rows, start = rows_and_offset()
    actions = [i for i, role in enumerate(ROLES) if role == "a"]
    length = len(TOKENS)
    tokens = np.zeros((len(actions), length), np.int32)
    positions = np.zeros_like(tokens)
    ends = np.tile(np.arange(1, length + 1), (len(actions), 1))
    last = []
    for row, action in enumerate(actions):
        seen = [j for j in range(action - 1) if ROLES[j] in "pa"] + [action - 1]
        tokens[row, : len(seen)] = np.array(TOKENS)[seen]
        positions[row, : len(seen)] = seen
        ends[row, : len(seen)] = len(seen)
        last.append(len(seen) - 1)

    @jax.jit
    def plain(params, tokens, positions, ends):
        hidden = policy.forward(MODEL, params, tokens, positions, ends)
        return jax.nn.log_softmax(policy.unembed(params, hidden))

    logp = np.asarray(plain(params, tokens, positions, ends))
    expected = logp[range(len(actions)), last, np.array(TOKENS)[actions]]
    found = learn.compute_prox_logp(MODEL, params, rows).prox_logp[0]
    slots = [rows.target_indices[0].tolist().index(start + action) for action in actions]
    np.testing.assert_allclose(found[slots], expected, atol=1e-5)


def test_replies_are_found_where_they_were_said():
    """Though the same tokens stand in the prompts and in every turn."""
    twice = episode([SYSTEM[1:], SYSTEM[1:], [40, STOP]], [[30], [PLACEHOLDER, 31], [32]])
    echo = episode([[PLACEHOLDER], [41, STOP]], [[30], [31]])
    rows = pack_groups([Group(TASK, (twice, SHORT))], CONFIG, RolloutConfig(), layout=LAYOUT).rows
    start = rows.tokens[0].tolist().index(SYSTEM[0])
    scored = rows.target_indices[rows.loss_weights > 0] - start
    assert scored[:6].tolist() == [5, 6, 9, 10, 13, 14]
    rows = pack_groups([Group(TASK, (echo, SHORT))], CONFIG, RolloutConfig(), layout=LAYOUT).rows
    assert rows.target_indices[rows.loss_weights > 0].tolist()[:3] == [5, 8, 9]


def test_what_cannot_be_told_apart_is_refused():
    encoded_again = LONG.turns[2].prompt_ids.copy()
    encoded_again[9] = 50
    *earlier, last = LONG.turns
    changed = Turn(encoded_again, last.completion, "", last.action, last.observation)
    broken = Episode(TASK, "do", (*earlier, changed), 1.0, Outcome.FAILURE)
    with pytest.raises(ValueError, match=r"turn 0 of shop/7 is missing"):
        pack_groups([Group(TASK, (broken, SHORT))], CONFIG, RolloutConfig(), layout=LAYOUT)


def test_as_many_sequences_stand_in_a_row_as_fit():
    group = Group(TASK, (LONG, SHORT, LONG, SHORT, LONG))
    forest = pack_groups([group], CONFIG, RolloutConfig(), layout=LAYOUT)
    used = 3 * len(TOKENS) + 2 * 7
    assert np.count_nonzero(forest.rows.loss_weights.any(axis=1)) == 2
    assert forest.padding_fraction == pytest.approx(1 - used / 128)
    assert forest.shared_fraction == 0
