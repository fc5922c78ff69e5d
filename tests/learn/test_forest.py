"""Tests of forest rows: layout, token visibility, loss and gradient."""

from __future__ import annotations

from functools import partial

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings

from tests.learn.tiny import MODEL, make_params
from webagent_jax import policy
from webagent_jax.learn import Branch, PolicyLossConfig, grpo_loss, pack_branches, pad_to_shape
from webagent_jax.learn.forest import fit_rows
from webagent_jax.types import ForestRows

L, NUM_ROWS = 24, 16

# With few distinct tokens, prompts often share prefixes of different lengths.
token_lists = partial(st.lists, st.integers(0, 2), min_size=1)


def make_branch(prompt, response, weight=1.0, advantage=1.0) -> Branch:
    logp = -np.arange(1, len(response) + 1, dtype=np.float32)
    ids = (np.array(prompt, np.int32), np.array(response, np.int32))
    return Branch(*ids, logp, weight=weight, advantage=advantage)


@st.composite
def branch_lists(draw, max_size=12):
    """Draw branches that fit a row; all weights differ."""
    pairs = draw(
        st.lists(
            st.tuples(token_lists(max_size=14), token_lists(max_size=10)),
            min_size=1,
            max_size=max_size,
        )
    )
    advantages = draw(
        st.lists(st.sampled_from([-1.5, 0.5]), min_size=len(pairs), max_size=len(pairs))
    )
    return [
        make_branch(prompt, response, weight=(1 + i) / 100, advantage=advantage)
        for i, ((prompt, response), advantage) in enumerate(zip(pairs, advantages, strict=True))
    ]


def find_path(rows: ForestRows, row: int, index: int) -> list[int]:
    """Return the indices from the root to a token."""
    path = [index]
    while rows.parents[row, path[0]] != path[0]:
        path.insert(0, int(rows.parents[row, path[0]]))
    return path


def extract_branches(rows: ForestRows) -> list[tuple]:
    """Return prompt, response, weights, advantages and log-probabilities of each branch."""
    branches = []
    for row, target_indices in enumerate(rows.target_indices):
        weighted_slots = np.flatnonzero(rows.loss_weights[row])
        starts = [
            slot
            for slot in weighted_slots
            if rows.parents[row, target_indices[slot]] not in target_indices[weighted_slots]
        ]
        for first, stop in zip(starts, [*starts[1:], len(weighted_slots)], strict=False):
            slots = slice(first, stop)
            path = find_path(rows, row, target_indices[stop - 1])
            prompt_length = len(path) - (stop - first)
            assert path[prompt_length:] == target_indices[slots].tolist()
            tokens = rows.tokens[row, path].tolist()
            values = (rows.loss_weights, rows.advantages, rows.behavior_logp, rows.prox_logp)
            branches.append(
                (
                    tokens[:prompt_length],
                    tokens[prompt_length:],
                    *(array[row, slots].tolist() for array in values),
                )
            )
    return branches


def expected_branches(branches: list[Branch]) -> list[tuple]:
    return [
        (
            branch.prompt_ids.tolist(),
            branch.response_ids.tolist(),
            [np.float32(branch.weight)] * len(branch.response_ids),
            [branch.advantage] * len(branch.response_ids),
            branch.behavior_logp.tolist(),
            branch.behavior_logp.tolist(),
        )
        for branch in branches
    ]


@settings(deadline=None, max_examples=60)
@given(branch_lists())
def test_pack_branches_preserves_branches_and_visible_paths(branches):
    rows = pack_branches(branches, row_tokens=L, row_multiple=3).rows
    assert sorted(extract_branches(rows)) == sorted(expected_branches(branches))
    assert rows.tokens.shape[0] in (3, 6, 12)
    indices = np.arange(L)
    for row in range(len(rows.tokens)):
        visible = (indices[None] <= indices[:, None]) & (
            indices[:, None] < rows.subtree_ends[row][None]
        )
        for token_index in indices:
            path = find_path(rows, row, token_index)
            assert np.flatnonzero(visible[token_index]).tolist() == path
            assert rows.positions[row, token_index] == len(path) - 1


def test_pack_branches_matches_golden_layout():
    branches = [make_branch([1, 2], [7]), make_branch([1, 2], [8, 9]), make_branch([1, 3], [7])]
    forest = pack_branches(branches, row_tokens=9)
    rows = forest.rows
    # 1 ─ 2 ─ 7
    # │   └── 8 ─ 9
    # └── 3 ─ 7
    np.testing.assert_array_equal(rows.tokens, [[1, 2, 7, 8, 9, 3, 7, 0, 0]])
    np.testing.assert_array_equal(rows.positions, [[0, 1, 2, 2, 3, 1, 2, 0, 0]])
    np.testing.assert_array_equal(rows.parents, [[0, 0, 1, 1, 3, 0, 5, 7, 8]])
    np.testing.assert_array_equal(rows.subtree_ends, [[7, 5, 3, 5, 5, 7, 7, 8, 9]])
    np.testing.assert_array_equal(rows.target_indices, [[2, 3, 4, 6]])
    np.testing.assert_array_equal(rows.behavior_logp, [[-1, -1, -2, -1]])
    assert forest.shared_fraction == pytest.approx(1 - 7 / 10)
    assert forest.padding_fraction == pytest.approx(2 / 9)


def test_pack_branches_repeats_prompt_of_split_tree():
    branches = [make_branch([5] * 6, [i] * 4) for i in range(4)]
    rows = pack_branches(branches, row_tokens=14).rows
    assert sorted(extract_branches(rows)) == sorted(expected_branches(branches))
    np.testing.assert_array_equal(rows.tokens[:, :6], [[5] * 6] * 2)


def test_pack_branches_fills_gaps_from_other_trees():
    branches = [
        make_branch([5] * 8, [1] * 4),
        make_branch([6] * 8, [2] * 4),
        make_branch([7], [3] * 3),
    ]
    assert len(pack_branches(branches, row_tokens=16).rows.tokens) == 2


def test_pack_branches_rounds_shapes_to_buckets():
    shapes = set()
    for n in range(1, 40):
        rows = pack_branches([make_branch([1, 2], [3] * 5)] * n, row_tokens=32, row_multiple=2).rows
        shapes.add((*rows.tokens.shape, rows.target_indices.shape[1]))
    assert shapes <= {(b, 32, r) for b in (2, 4, 8) for r in (4, 8, 16, 32)}


@pytest.mark.parametrize(
    ("num_tokens", "microbatch", "expected"),
    [
        ([20], None, (64, 1)),  # one length
        ([20], 1, (32, 1)),
        ([16], 1, (16, 1)),
        ([16, 16], 1, (32, 1)),  # a quarter is not shorter than a half
        ([16] * 4, 1, (64, 1)),  # full
        ([16] * 4, 4, (16, 4)),  # one row would leave three of the microbatch empty
        ([33], 1, (64, 1)),  # does not fit a half
        ([16] * 5, 1, (32, 3)),  # 96 tokens instead of 128; a quarter, 80, saves too little more
        ([16] * 7, 1, (64, 2)),  # 112 of 128 tokens: saves less than a fifth
        ([10] * 12, 2, (64, 2)),  # 120 of 128
    ],
)
def test_fit_rows_selects_length_with_fewest_tokens(num_tokens, microbatch, expected):
    def assign(length):
        rows = []
        for count in num_tokens:
            if not rows or sum(rows[-1]) + count > length:
                rows.append([])
            rows[-1].append(count)
        return rows

    length, rows = fit_rows(
        assign, row_tokens=64, min_tokens=max(num_tokens), microbatch=microbatch
    )
    assert (length, len(rows)) == expected
    assert [count for row in rows for count in row] == num_tokens


@settings(deadline=None, max_examples=30)
@given(branch_lists(), st.integers(1, 8))
def test_rows_of_fitted_length_contain_the_branches(branches, microbatch):
    rows = pack_branches(branches, row_tokens=4 * L, microbatch=microbatch).rows
    assert sorted(extract_branches(rows)) == sorted(expected_branches(branches))
    assert rows.tokens.shape[1] in (L, 2 * L, 4 * L)
    if len(branches) == 1:
        assert rows.tokens.shape[1] == L


@pytest.mark.parametrize(
    ("branches", "message"),
    [
        ([], "no branches"),
        ([make_branch([1] * 20, [2] * 5)], "raise row_tokens"),
        ([make_branch([], [2])], "at least one token"),
        ([make_branch([1], [])], "at least one token"),
    ],
)
def test_pack_branches_rejects_invalid_branches(branches, message):
    with pytest.raises(ValueError, match=message):
        pack_branches(branches, row_tokens=L)


# --- loss and gradient ---------------------------------------------------------------------------


def make_plain_rows(branches: list[Branch]) -> ForestRows:
    """Return rows of one branch each, without shared prompts."""
    shape = (NUM_ROWS, L)
    rows = ForestRows(
        tokens=np.zeros(shape, np.int32),
        positions=np.tile(np.arange(L, dtype=np.int32), (NUM_ROWS, 1)),
        parents=np.tile(np.maximum(np.arange(L, dtype=np.int32) - 1, 0), (NUM_ROWS, 1)),
        subtree_ends=np.full(shape, L, np.int32),
        target_indices=np.zeros(shape, np.int32),
        loss_weights=np.zeros(shape, np.float32),
        advantages=np.zeros(shape, np.float32),
        behavior_logp=np.zeros(shape, np.float32),
        prox_logp=np.zeros(shape, np.float32),
    )
    for row, branch in enumerate(branches):
        prompt_length, length = (
            len(branch.prompt_ids),
            len(branch.prompt_ids) + len(branch.response_ids),
        )
        rows.tokens[row, :length] = [*branch.prompt_ids, *branch.response_ids]
        rows.target_indices[row, : length - prompt_length] = np.arange(prompt_length, length)
        rows.loss_weights[row, : length - prompt_length] = branch.weight
        rows.advantages[row, : length - prompt_length] = branch.advantage
        rows.behavior_logp[row, : length - prompt_length] = branch.behavior_logp
        rows.prox_logp[row, : length - prompt_length] = branch.behavior_logp
    return rows


SURROGATES = (
    PolicyLossConfig(),
    PolicyLossConfig(kl_beta=0.2, clip_high=0.5),
    PolicyLossConfig(kl_beta=0.2, kl_estimator="k1"),
    PolicyLossConfig(policy_loss="logp"),
)


@jax.jit
@jax.value_and_grad
def loss_and_grad(params, rows, surrogate_index):
    """Return loss and gradient of one surrogate; all surrogates share one compilation."""
    logp = policy.score(MODEL, params, rows).logp

    def make_loss_fn(surrogate):
        return lambda logp: grpo_loss(
            logp,
            rows.behavior_logp,
            rows.advantages,
            rows.loss_weights,
            config=surrogate,
            prox_logp=rows.behavior_logp - 0.2,
            ref_logp=rows.behavior_logp + 0.1,
        )[0]

    return jax.lax.switch(
        surrogate_index, [make_loss_fn(surrogate) for surrogate in SURROGATES], logp
    )


@pytest.fixture(scope="module")
def params():
    return make_params(0)


@pytest.mark.parametrize("surrogate_index", range(len(SURROGATES)))
@settings(deadline=None, max_examples=12)
@given(branches=branch_lists(max_size=NUM_ROWS))
def test_forest_rows_match_loss_and_gradient_of_plain_rows(params, branches, surrogate_index):
    forest = pad_to_shape(pack_branches(branches, row_tokens=L).rows, count=NUM_ROWS, row_targets=L)
    loss, grad = loss_and_grad(params, forest, surrogate_index)
    expected_loss, expected_grad = loss_and_grad(params, make_plain_rows(branches), surrogate_index)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, atol=1e-5)
    # Importance ratios reach thousands, and large terms cancel: errors scale with the gradient.
    scale = max(float(abs(leaf).max()) for leaf in jax.tree.leaves(expected_grad))
    atol = 1e-5 * max(1.0, scale)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=atol), grad, expected_grad)


def test_pad_to_shape_adds_no_branches():
    branches = [make_branch([1, 2], [7]), make_branch([1, 2], [8, 9]), make_branch([1, 3], [7])]
    rows = pad_to_shape(pack_branches(branches, row_tokens=9).rows, count=3, row_targets=6)
    assert sorted(extract_branches(rows)) == sorted(expected_branches(branches))
    np.testing.assert_array_equal(rows.subtree_ends[2], np.arange(1, 10))
    np.testing.assert_array_equal(rows.parents[2], np.arange(9))
    assert rows.target_indices.shape == rows.prox_logp.shape == (3, 6)
    assert pad_to_shape(rows, count=3, row_targets=6) is rows
