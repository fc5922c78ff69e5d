"""Tests of scoring: exact results, and no full logits in the compiled program."""

from __future__ import annotations

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from webagent_jax import learn, policy

VOCABULARY = 1_543  # differs from all other sizes in the program
CONFIG = policy.ModelConfig(VOCABULARY, 32, 2, 4, 2, 8, 48)
PARAMS = policy.init(CONFIG, jax.random.key(0))


def make_rows(response_tokens, row_tokens):
    rng = np.random.default_rng(0)

    def ids(count):
        return rng.integers(0, VOCABULARY, count).astype(np.int32)

    zeros = np.zeros(response_tokens, np.float32)
    branches = [learn.Branch(ids(40), ids(response_tokens), zeros, weight=0.01, advantage=1.0)] * 2
    return learn.pack_branches(branches, row_tokens=row_tokens, row_multiple=2).rows


# Responses of less than a chunk, and of two chunks.
@pytest.mark.parametrize(("response_tokens", "temperature"), [(30, 1.0), (300, 0.7)])
def test_score_and_gradients_match_full_logits(response_tokens, temperature):
    rows = make_rows(response_tokens, 384)

    def objective(logp, entropy):
        return jnp.sum(rows.loss_weights * (logp + 0.5 * entropy))

    def score_objective(params):
        return objective(*policy.score(CONFIG, params, rows, temperature=temperature))

    def logits_objective(params):
        hidden = policy.forward(CONFIG, params, rows.tokens, rows.positions, rows.subtree_ends)
        logp = jax.nn.log_softmax(policy.unembed(CONFIG, params, hidden) / temperature)
        parents = np.take_along_axis(rows.parents, rows.target_indices, axis=1)
        labels = np.take_along_axis(rows.tokens, rows.target_indices, axis=1)
        logp = jnp.take_along_axis(logp, parents[:, :, None], axis=1)
        label_logp = jnp.take_along_axis(logp, labels[:, :, None], axis=2)[:, :, 0]
        return objective(label_logp, -jnp.sum(jnp.exp(logp) * logp, axis=-1))

    actual, expected = (
        jax.jit(jax.value_and_grad(f))(PARAMS) for f in (score_objective, logits_objective)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), actual, expected)


def test_score_program_contains_no_full_logits():
    rows = make_rows(700, 2048)
    loss = lambda params: jnp.sum(rows.loss_weights * policy.score(CONFIG, params, rows).logp)  # noqa: E731
    program = jax.jit(jax.grad(loss)).lower(PARAMS).compile().as_text()
    shapes = {tuple(map(int, match.split(","))) for match in re.findall(r"\[([\d,]+)\]", program)}
    vocabulary_shapes = [shape for shape in shapes if VOCABULARY in shape]
    assert vocabulary_shapes  # the expression matches shapes of the program
    count = len(rows.tokens) * 256  # rows times the tokens of a chunk
    assert max(math.prod(shape) for shape in vocabulary_shapes) <= count * VOCABULARY
    assert count < rows.target_indices.size
