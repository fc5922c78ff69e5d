"""Tests of the row layout of the WebAgent-R1 release: visibility, loss tokens and logits."""

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
STOP, THOUGHT_END, HEADER, PLACEHOLDER = 1, 2, 3, 4
SYSTEM = [5, 6, 7]


def decode(ids) -> str:
    return "".join("</think>" if i == THOUGHT_END else chr(97 + int(i) % 26) for i in ids)


def make_episode(
    responses: list[list[int]], pages: list[list[int]], reward: float = 1.0
) -> Episode:
    history, turns = SYSTEM, []
    for response, page in zip(responses, pages, strict=True):
        completion = Completion(
            np.array(response, np.int32),
            -np.arange(1, len(response) + 1, dtype=np.float32),
            np.zeros(len(response), np.int32),
            "stop",
        )
        prompt = np.array([*history, *page, HEADER], np.int32)
        turns.append(
            Turn(prompt, completion, decode(response), ParseError(""), Observation("", ""))
        )
        history = [*history, PLACEHOLDER, HEADER, *response]
    return Episode(TASK, "do", tuple(turns), reward, Outcome.FAILURE)


LAYOUT = learn.make_layout(CONFIG, decode)
LONG_EPISODE = make_episode(
    [[20, 21, THOUGHT_END, 22, 23, STOP], [24, 25, STOP], [26, THOUGHT_END, 27]],
    [[30, 31], [32], [33, 34, 35]],
)
SHORT_EPISODE = make_episode([[28, STOP]], [[36]], reward=0.0)

# Tokens and roles of LONG_EPISODE. p: first prompt, e: environment, t: thought, a: action.
TOKENS = [*SYSTEM, 4, 3, 20, 21, 2, 22, 23, 1, 4, 3, 24, 25, 1, 33, 34, 35, 3, 26, 2, 27]
ROLES = "ppppptttaaaeeaaaeeeetta"


def make_rows():
    """Return one row with both episodes, and the offset of the long one."""
    rows = pack_groups(
        [Group(TASK, (SHORT_EPISODE, LONG_EPISODE))], CONFIG, RolloutConfig(), layout=LAYOUT
    ).rows
    assert rows.tokens.shape == (1, 64)
    return rows, rows.tokens[0].tolist().index(TOKENS[0])


def test_tokens_attend_to_first_prompt_and_earlier_actions():
    rows, start = make_rows()
    span = slice(start, start + len(TOKENS))
    assert rows.tokens[0, span].tolist() == TOKENS
    index = np.arange(64)
    visible = (index[None] <= index[:, None]) & (index[:, None] < rows.subtree_ends[0][None])
    expected = np.zeros((len(TOKENS), 64), bool)
    for i in range(len(TOKENS)):
        for j in range(i + 1):
            expected[i, start + j] = ROLES[j] in "pa" or i == j
    np.testing.assert_array_equal(visible[span], expected)
    assert not visible[: start + len(TOKENS) + 1, span][start + len(TOKENS) :].any()
    assert rows.positions[0, span].tolist() == list(range(len(TOKENS)))
    assert rows.parents[0, span].tolist() == [start, *range(start, start + len(TOKENS) - 1)]


def test_action_tokens_have_equal_weights_per_episode():
    rows, start = make_rows()
    action_indices = [start + i for i, role in enumerate(ROLES) if role == "a"]
    long_mask = np.isin(rows.target_indices, action_indices) & (rows.loss_weights > 0)
    assert rows.target_indices[long_mask].tolist() == action_indices
    np.testing.assert_allclose(
        rows.loss_weights[long_mask], 1 / (2 * len(action_indices)), rtol=1e-6
    )
    assert rows.behavior_logp[long_mask].tolist() == [-4, -5, -6, -1, -2, -3, -3]
    short_mask = (rows.loss_weights > 0) & ~long_mask
    np.testing.assert_allclose(rows.loss_weights[short_mask], 1 / (2 * 2), rtol=1e-6)
    np.testing.assert_allclose(rows.advantages[long_mask], 2**-0.5, rtol=1e-3)
    np.testing.assert_allclose(rows.advantages[short_mask], -(2**-0.5), rtol=1e-3)


def test_logp_matches_causal_rows_of_visible_tokens():
    """Compare with causal rows without the hidden tokens, at unchanged positions."""
    params = make_params(3)
    rows, start = make_rows()
    actions = [i for i, role in enumerate(ROLES) if role == "a"]
    length = len(TOKENS)
    tokens = np.zeros((len(actions), length), np.int32)
    positions = np.zeros_like(tokens)
    subtree_ends = np.tile(np.arange(1, length + 1), (len(actions), 1))
    last_indices = []
    for row, action in enumerate(actions):
        visible = [j for j in range(action - 1) if ROLES[j] in "pa"] + [action - 1]
        tokens[row, : len(visible)] = np.array(TOKENS)[visible]
        positions[row, : len(visible)] = visible
        subtree_ends[row, : len(visible)] = len(visible)
        last_indices.append(len(visible) - 1)

    @jax.jit
    def compute_logp(params, tokens, positions, subtree_ends):
        hidden = policy.forward(MODEL, params, tokens, positions, subtree_ends)
        return jax.nn.log_softmax(policy.unembed(MODEL, params, hidden))

    logp = np.asarray(compute_logp(params, tokens, positions, subtree_ends))
    expected = logp[range(len(actions)), last_indices, np.array(TOKENS)[actions]]
    actual = learn.compute_prox_logp(MODEL, params, rows).prox_logp[0]
    slots = [rows.target_indices[0].tolist().index(start + action) for action in actions]
    np.testing.assert_allclose(actual[slots], expected, atol=1e-5)


def test_response_targets_are_correct_for_repeated_tokens():
    """Use the same tokens in prompts and in all turns."""
    repeated_response_episode = make_episode(
        [SYSTEM[1:], SYSTEM[1:], [40, STOP]], [[30], [PLACEHOLDER, 31], [32]]
    )
    placeholder_episode = make_episode([[PLACEHOLDER], [41, STOP]], [[30], [31]])
    rows = pack_groups(
        [Group(TASK, (repeated_response_episode, SHORT_EPISODE))],
        CONFIG,
        RolloutConfig(),
        layout=LAYOUT,
    ).rows
    start = rows.tokens[0].tolist().index(SYSTEM[0])
    target_offsets = rows.target_indices[rows.loss_weights > 0] - start
    assert target_offsets[:6].tolist() == [5, 6, 9, 10, 13, 14]
    rows = pack_groups(
        [Group(TASK, (placeholder_episode, SHORT_EPISODE))], CONFIG, RolloutConfig(), layout=LAYOUT
    ).rows
    assert rows.target_indices[rows.loss_weights > 0].tolist()[:3] == [5, 8, 9]


def test_pack_groups_rejects_prompt_without_earlier_response():
    prompt_ids = LONG_EPISODE.turns[2].prompt_ids.copy()
    prompt_ids[9] = 50
    *earlier_turns, last_turn = LONG_EPISODE.turns
    changed_turn = Turn(
        prompt_ids, last_turn.completion, "", last_turn.action, last_turn.observation
    )
    changed_episode = Episode(TASK, "do", (*earlier_turns, changed_turn), 1.0, Outcome.FAILURE)
    with pytest.raises(ValueError, match=r"turn 0 of shop/7 is missing"):
        pack_groups(
            [Group(TASK, (changed_episode, SHORT_EPISODE))], CONFIG, RolloutConfig(), layout=LAYOUT
        )


def test_pack_groups_fills_rows_with_sequences():
    group = Group(TASK, (LONG_EPISODE, SHORT_EPISODE, LONG_EPISODE, SHORT_EPISODE, LONG_EPISODE))
    forest = pack_groups([group], CONFIG, RolloutConfig(), layout=LAYOUT)
    num_tokens = 3 * len(TOKENS) + 2 * 7
    assert np.count_nonzero(forest.rows.loss_weights.any(axis=1)) == 2
    assert forest.padding_fraction == pytest.approx(1 - num_tokens / 128)
    assert forest.shared_fraction == 0
