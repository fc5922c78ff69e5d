"""Forest rows: what each token sees, and that sharing changes neither loss nor gradient."""

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
from webagent_jax.types import ForestRows

L, ROWS = 24, 16

# Few distinct tokens, so that prompts agree often and in many ways.
token_lists = partial(st.lists, st.integers(0, 2), min_size=1)


def branch(prompt, response, weight=1.0, advantage=1.0) -> Branch:
    logp = -np.arange(1, len(response) + 1, dtype=np.float32)
    ids = (np.array(prompt, np.int32), np.array(response, np.int32))
    return Branch(*ids, logp, weight=weight, advantage=advantage)


@st.composite
def drawn_branches(draw, max_size=12):
    """Branches of all lengths that fit a row, no two of the same weight."""
    pairs = draw(
        st.lists(
            st.tuples(token_lists(max_size=14), token_lists(max_size=10)),
            min_size=1,
            max_size=max_size,
        )
    )
    signs = draw(st.lists(st.sampled_from([-1.5, 0.5]), min_size=len(pairs), max_size=len(pairs)))
    return [
        branch(prompt, response, weight=(1 + i) / 100, advantage=sign)
        for i, ((prompt, response), sign) in enumerate(zip(pairs, signs, strict=True))
    ]


def path_to(rows: ForestRows, row: int, index: int) -> list[int]:
    """Indices from the root to a token, by its parents."""
    path = [index]
    while rows.parents[row, path[0]] != path[0]:
        path.insert(0, int(rows.parents[row, path[0]]))
    return path


def branches_in(rows: ForestRows) -> list[tuple]:
    """Reads the branches back: prompt, response, weights, advantages and log-probabilities."""
    found = []
    for row, targets in enumerate(rows.target_indices):
        live = np.flatnonzero(rows.loss_weights[row])
        starts = [k for k in live if rows.parents[row, targets[k]] not in targets[live]]
        for first, stop in zip(starts, [*starts[1:], len(live)], strict=False):
            slots = slice(first, stop)
            path = path_to(rows, row, targets[stop - 1])
            fork = len(path) - (stop - first)
            assert path[fork:] == targets[slots].tolist()
            tokens = rows.tokens[row, path].tolist()
            values = (rows.loss_weights, rows.advantages, rows.behavior_logp, rows.prox_logp)
            found.append((tokens[:fork], tokens[fork:], *(v[row, slots].tolist() for v in values)))
    return found


def expected_of(given: list[Branch]) -> list[tuple]:
    return [
        (
            b.prompt_ids.tolist(),
            b.response_ids.tolist(),
            [np.float32(b.weight)] * len(b.response_ids),
            [b.advantage] * len(b.response_ids),
            b.behavior_logp.tolist(),
            b.behavior_logp.tolist(),
        )
        for b in given
    ]


@settings(deadline=None, max_examples=60)
@given(drawn_branches())
def test_every_branch_is_there_once_and_sees_its_own_path_alone(given):
    rows = pack_branches(given, row_tokens=L, row_multiple=3).rows
    assert sorted(branches_in(rows)) == sorted(expected_of(given))
    assert rows.tokens.shape[0] in (3, 6, 12)
    index = np.arange(L)
    for row in range(len(rows.tokens)):
        sees = (index[None] <= index[:, None]) & (index[:, None] < rows.subtree_ends[row][None])
        for i in index:
            path = path_to(rows, row, i)
            assert np.flatnonzero(sees[i]).tolist() == path
            assert rows.positions[row, i] == len(path) - 1


def test_golden_layout():
    given = [branch([1, 2], [7]), branch([1, 2], [8, 9]), branch([1, 3], [7])]
    forest = pack_branches(given, row_tokens=9)
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


def test_a_tree_that_does_not_fit_is_cut_and_takes_its_ancestors_along():
    given = [branch([5] * 6, [i] * 4) for i in range(4)]
    rows = pack_branches(given, row_tokens=14).rows
    assert sorted(branches_in(rows)) == sorted(expected_of(given))
    np.testing.assert_array_equal(rows.tokens[:, :6], [[5] * 6] * 2)


def test_gaps_are_filled_from_other_trees():
    given = [branch([5] * 8, [1] * 4), branch([6] * 8, [2] * 4), branch([7], [3] * 3)]
    assert len(pack_branches(given, row_tokens=16).rows.tokens) == 2


def test_shapes_come_from_few_buckets():
    shapes = set()
    for n in range(1, 40):
        rows = pack_branches([branch([1, 2], [3] * 5)] * n, row_tokens=32, row_multiple=2).rows
        shapes.add((*rows.tokens.shape, rows.target_indices.shape[1]))
    assert shapes <= {(b, 32, r) for b in (2, 4, 8) for r in (4, 8, 16, 32)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "no branches"),
        ([branch([1] * 20, [2] * 5)], "raise row_tokens"),
        ([branch([], [2])], "at least one token"),
        ([branch([1], [])], "at least one token"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        pack_branches(given, row_tokens=L)


# --- the numbers --------------------------------------------------------------------------------


def one_row_per_turn(given: list[Branch]) -> ForestRows:
    """The plain layout that the forest must agree with."""
    shape = (ROWS, L)
    rows = ForestRows(
        tokens=np.zeros(shape, np.int32),
        positions=np.tile(np.arange(L, dtype=np.int32), (ROWS, 1)),
        parents=np.tile(np.maximum(np.arange(L, dtype=np.int32) - 1, 0), (ROWS, 1)),
        subtree_ends=np.full(shape, L, np.int32),
        target_indices=np.zeros(shape, np.int32),
        loss_weights=np.zeros(shape, np.float32),
        advantages=np.zeros(shape, np.float32),
        behavior_logp=np.zeros(shape, np.float32),
        prox_logp=np.zeros(shape, np.float32),
    )
    for row, b in enumerate(given):
        fork, stop = len(b.prompt_ids), len(b.prompt_ids) + len(b.response_ids)
        rows.tokens[row, :stop] = [*b.prompt_ids, *b.response_ids]
        rows.target_indices[row, : stop - fork] = np.arange(fork, stop)
        rows.loss_weights[row, : stop - fork] = b.weight
        rows.advantages[row, : stop - fork] = b.advantage
        rows.behavior_logp[row, : stop - fork] = b.behavior_logp
        rows.prox_logp[row, : stop - fork] = b.behavior_logp
    return rows


SURROGATES = (
    PolicyLossConfig(),
    PolicyLossConfig(kl_beta=0.2, clip_high=0.5),
    PolicyLossConfig(kl_beta=0.2, kl_estimator="k1"),
    PolicyLossConfig(policy_loss="logp"),
)


@jax.jit
@jax.value_and_grad
def loss_and_grad(params, rows, which):
    """By the `which`-th surrogate; one compilation does for all of them."""
    logp = policy.score(MODEL, params, rows).logp

    def by(surrogate):
        return lambda logp: grpo_loss(
            logp,
            rows.behavior_logp,
            rows.advantages,
            rows.loss_weights,
            surrogate=surrogate,
            prox_logp=rows.behavior_logp - 0.2,
            ref_logp=rows.behavior_logp + 0.1,
        )[0]

    return jax.lax.switch(which, [by(surrogate) for surrogate in SURROGATES], logp)


@pytest.fixture(scope="module")
def params():
    return make_params(0)


@pytest.mark.parametrize("which", range(len(SURROGATES)))
@settings(deadline=None, max_examples=12)
@given(given=drawn_branches(max_size=ROWS))
def test_forest_rows_give_the_loss_and_gradient_of_one_row_per_turn(params, given, which):
    forest = pad_to_shape(pack_branches(given, row_tokens=L).rows, count=ROWS, row_targets=L)
    loss, grad = loss_and_grad(params, forest, which)
    plain_loss, plain_grad = loss_and_grad(params, one_row_per_turn(given), which)
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    close(loss, plain_loss)
    jax.tree.map(close, grad, plain_grad)


def test_widened_rows_hold_nothing_more():
    given = [branch([1, 2], [7]), branch([1, 2], [8, 9]), branch([1, 3], [7])]
    rows = pad_to_shape(pack_branches(given, row_tokens=9).rows, count=3, row_targets=6)
    assert sorted(branches_in(rows)) == sorted(expected_of(given))
    np.testing.assert_array_equal(rows.subtree_ends[2], np.arange(1, 10))
    np.testing.assert_array_equal(rows.parents[2], np.arange(9))
    assert rows.target_indices.shape == rows.prox_logp.shape == (3, 6)
    assert pad_to_shape(rows, count=3, row_targets=6) is rows
