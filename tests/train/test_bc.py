"""Behavior cloning: the share of each demonstrated token in the loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.demos.test_demos import episode
from webagent_jax import demos
from webagent_jax.agent import ChatTokenizer
from webagent_jax.config import BCConfig, RunConfig
from webagent_jax.policy import directory
from webagent_jax.train.bc import make_forest

CFG = RunConfig(bc=BCConfig(row_tokens=1024))


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(directory("webagent-tiny"))


@pytest.fixture(scope="module")
def batch():
    """Three demonstrations, of 1, 2 and 5 turns."""
    return [demos.from_episode(episode(turns, turns=turns)) for turns in (1, 2, 5)]


def weight_of_each_turn(forest) -> np.ndarray:
    """Return the sums of the weights of adjacent response tokens, ascending."""
    sums = []
    for targets, weights in zip(forest.rows.targets, forest.rows.weights, strict=True):
        scored = targets[weights != 0]
        starts = np.flatnonzero(np.diff(scored, prepend=-2) != 1)
        if len(scored):
            sums += list(np.add.reduceat(weights[weights != 0], starts))
    return np.sort(sums)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (BCConfig().loss_aggregation, [1 / 8] * 8),  # every (history, action) pair alike
        ("episode_turn_token_mean", [1 / 15] * 5 + [1 / 6] * 2 + [1 / 3]),
    ],
)
def test_weights_of_turns(tokenizer, batch, aggregation, expected):
    cfg = replace(CFG, bc=replace(CFG.bc, loss_aggregation=aggregation))
    forest = make_forest(cfg, 1, tokenizer, batch)
    np.testing.assert_allclose(weight_of_each_turn(forest), expected, rtol=1e-5)
