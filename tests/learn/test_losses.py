"""The losses and their gradients, against the slow twin and by the properties they must have."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from webagent_jax.learn import bc_loss, group_advantages, grpo_loss, three_level_weights

V = 7
TOKENS = 96  # one shape, one compilation
COLUMNS = ("behaviour", "ref", "weights", "advantages")
CLIP = {"clip_low": 0.2, "clip_high": 0.3}
EPS = 1e-4


def draw_groups(seed: int, gap: float = 0.5) -> list[list[reference.Episode]]:
    """Three groups of uneven shape; `gap` spreads the log-ratios, 0.5 over both clip bounds."""
    rng = np.random.default_rng(seed)

    def turn() -> reference.Turn:
        logits = rng.normal(size=(rng.integers(1, 5), V))
        tokens = [int(token) for token in rng.integers(0, V, len(logits))]
        logp = [reference.log_softmax(row)[t] for row, t in zip(logits, tokens, strict=True)]
        return reference.Turn(
            logits,
            tokens,
            behaviour_logp=[x + gap * rng.normal() for x in logp],
            ref_logp=[x + 0.5 * rng.normal() for x in logp],
        )

    def episode(reward: float) -> reference.Episode:
        return reference.Episode(reward, [turn() for _ in range(rng.integers(1, 4))])

    return [[episode(r) for r in rewards] for rewards in ([0, 1, 0, 0], [1, 0, 1], [1, 1, 1, 0, 0])]


def flatten(groups: list[list[reference.Episode]]) -> dict[str, np.ndarray]:
    """Per-token float32 arrays of one row, as the package is fed, padded with weight 0."""
    episodes = [episode for group in groups for episode in group]
    advantages = np.concatenate(
        [group_advantages(np.array([e.reward for e in g]), std_eps=EPS) for g in groups]
    )
    weights = three_level_weights([[len(t.tokens) for t in e.turns] for e in episodes])
    a = {name: np.zeros((1, TOKENS), np.float32) for name in COLUMNS}
    a["tokens"] = np.zeros((1, TOKENS), np.int32)
    a["logits"] = np.zeros((1, TOKENS, V), np.float32)
    start = 0
    for episode, advantage, turn_weights in zip(episodes, advantages, weights, strict=True):
        for turn, weight in zip(episode.turns, turn_weights, strict=True):
            here = np.s_[0, start : start + len(turn.tokens)]
            a["logits"][here] = turn.logits
            a["tokens"][here] = turn.tokens
            a["behaviour"][here] = turn.behaviour_logp
            a["ref"][here] = turn.ref_logp
            a["weights"][here] = weight
            a["advantages"][here] = advantage
            start += len(turn.tokens)
    return a


def logp_of(logits, tokens):
    return jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1)[..., 0]


@jax.jit
@partial(jax.value_and_grad, has_aux=True)
def objective(logits, a, beta):
    logp = logp_of(logits, a["tokens"])
    data = (a["behaviour"], a["advantages"], a["weights"])
    return grpo_loss(logp, *data, kl_beta=beta, ref_logp=a["ref"], **CLIP)


@jax.jit
@jax.value_and_grad
def cloning(logits, a):
    return bc_loss(logp_of(logits, a["tokens"]), a["weights"])


@jax.jit
@jax.grad
def reinforce(logits, a):
    return -jnp.sum(a["weights"] * a["advantages"] * logp_of(logits, a["tokens"]))


def loss_and_grad(a, beta=0.0):
    (loss, stats), grad = objective(a["logits"], a, beta)
    return float(loss), np.asarray(grad), stats


def padded(grads):
    grad = np.concatenate(grads)
    return np.pad(grad, ((0, TOKENS - len(grad)), (0, 0)))


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_agrees_with_the_slow_twin(beta):
    groups = draw_groups(0)
    loss, grad, stats = loss_and_grad(flatten(groups), beta)
    expected_loss, expected_grads = reference.m_grpo(groups, beta=beta, eps=EPS, **CLIP)
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    np.testing.assert_allclose(grad[0], padded(expected_grads), atol=1e-6)
    assert 0 < stats.clip_fraction < 1, "the draw must cross the clip, or this test shows little"
    assert stats.kl > 0


def test_shifted_rewards_change_nothing():
    groups = draw_groups(1)
    before = loss_and_grad(flatten(groups), 0.1)
    for episode in groups[1]:
        episode.reward += 5
    after = loss_and_grad(flatten(groups), 0.1)
    assert after[0] == pytest.approx(before[0], abs=1e-6)
    np.testing.assert_allclose(after[1], before[1], atol=1e-6)


def test_flat_groups_have_no_gradient():
    groups = draw_groups(2)
    for episode in groups[0] + groups[1] + groups[2]:
        episode.reward = 1
    assert not loss_and_grad(flatten(groups))[1].any()
    assert loss_and_grad(flatten(groups), 0.1)[1].any()


def test_permuting_a_group_permutes_the_gradient():
    groups = draw_groups(3)
    lengths = [sum(len(t.tokens) for t in e.turns) for e in groups[0]]
    loss, grad, _ = loss_and_grad(flatten(groups), 0.1)
    permuted_loss, permuted, _ = loss_and_grad(flatten([groups[0][::-1], *groups[1:]]), 0.1)
    assert permuted_loss == pytest.approx(loss, abs=1e-6)
    *episodes, others = np.split(grad[0], np.cumsum(lengths))
    np.testing.assert_allclose(permuted[0], np.concatenate([*episodes[::-1], others]), atol=1e-6)


def test_on_policy_the_gradient_is_reinforce():
    a = flatten(draw_groups(4, gap=0.0))
    _, grad, stats = loss_and_grad(a)
    np.testing.assert_allclose(grad, reinforce(a["logits"], a), atol=1e-6)
    assert stats.ratio == pytest.approx(1, abs=1e-5)
    assert stats.clip_fraction == 0
    assert stats.logp_gap == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("garbage", [1e30, -1e30, np.inf, np.nan])
def test_garbage_under_zero_weight_changes_nothing(garbage):
    a = flatten(draw_groups(5))
    empty = a["weights"] == 0
    assert empty.any()
    dirty = {name: np.where(empty, garbage, a[name]).astype(np.float32) for name in COLUMNS}
    dirty |= {"tokens": a["tokens"], "weights": a["weights"]}
    logits = np.where(empty[..., None], 1e30 * np.arange(V), a["logits"]).astype(np.float32)
    jax.tree.map(
        np.testing.assert_array_equal,
        *(
            (objective(logits, dirty, 0.1), cloning(logits, dirty)),
            (objective(a["logits"], a, 0.1), cloning(a["logits"], a)),
        ),
    )


def test_microbatches_sum_to_the_batch():
    a = flatten(draw_groups(6))
    whole = objective(a["logits"], a, 0.1)
    first = np.arange(TOKENS) < 9
    parts = [
        objective(a["logits"], a | {"weights": np.where(part, a["weights"], 0)}, 0.1)
        for part in (first[None], ~first[None])
    ]
    summed = jax.tree.map(np.add, *parts)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), summed, whole)


def test_cloning_agrees_with_the_slow_twin():
    groups = draw_groups(7)
    a = flatten(groups)
    turns = [turn for group in groups for episode in group for turn in episode.turns]
    a["weights"] = (a["weights"] > 0) / np.float32(sum(len(turn.tokens) for turn in turns))
    loss, grad = cloning(a["logits"], a)
    expected_loss, expected_grads = reference.cloning(turns)
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    np.testing.assert_allclose(grad[0], padded(expected_grads), atol=1e-6)


def test_kl_needs_a_reference():
    one = jnp.ones((1, 1))
    with pytest.raises(ValueError, match="ref_logp"):
        grpo_loss(one, one, one, one, kl_beta=0.1, **CLIP)
