"""Scoring of response tokens: exact, and lean in the program that XLA makes of it."""

from __future__ import annotations

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from webagent_jax import learn, policy

VOCABULARY = 1_543  # no other size of the program
CONFIG = policy.ModelConfig(VOCABULARY, 32, 2, 4, 2, 8, 48)
PARAMS = policy.init(CONFIG, jax.random.key(0))


def rows(response_tokens, row_tokens):
    rng = np.random.default_rng(0)

    def ids(count):
        return rng.integers(0, VOCABULARY, count).astype(np.int32)

    zeros = np.zeros(response_tokens, np.float32)
    branches = [learn.Branch(ids(40), ids(response_tokens), zeros, weight=0.01, advantage=1.0)] * 2
    return learn.pack_branches(branches, row_tokens=row_tokens, row_multiple=2).rows


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("response_tokens", [30, 300])  # less than a chunk, and two of them
def test_scores_and_gradients_are_those_of_whole_logits(response_tokens, temperature):
    given = rows(response_tokens, 640)

    def added_up(logp, entropy):
        return jnp.sum(given.loss_weights * (logp + 0.5 * entropy))

    def ours(params):
        return added_up(*policy.score(CONFIG, params, given, temperature=temperature))

    def direct(params):
        hidden = policy.forward(CONFIG, params, given.tokens, given.positions, given.subtree_ends)
        logp = jax.nn.log_softmax(policy.unembed(params, hidden) / temperature)
        at = np.take_along_axis(given.parents, given.target_indices, axis=1)
        labels = np.take_along_axis(given.tokens, given.target_indices, axis=1)
        logp = jnp.take_along_axis(logp, at[:, :, None], axis=1)
        chosen = jnp.take_along_axis(logp, labels[:, :, None], axis=2)[:, :, 0]
        return added_up(chosen, -jnp.sum(jnp.exp(logp) * logp, axis=-1))

    found, expected = (jax.jit(jax.value_and_grad(f))(PARAMS) for f in (ours, direct))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, expected)


def test_no_array_of_rows_by_tokens_by_vocabulary_is_in_the_program():
    given = rows(700, 2048)
    loss = lambda params: jnp.sum(given.loss_weights * policy.score(CONFIG, params, given).logp)  # noqa: E731
    program = jax.jit(jax.grad(loss)).lower(PARAMS).compile().as_text()
    shapes = {tuple(map(int, found.split(","))) for found in re.findall(r"\[([\d,]+)\]", program)}
    wide = [shape for shape in shapes if VOCABULARY in shape]
    assert wide  # the search finds what there is
    count = len(given.tokens) * 256  # rows times the tokens of a chunk
    assert max(math.prod(shape) for shape in wide) <= count * VOCABULARY
    assert count < given.target_indices.size
