"""The losses and their gradients, against the slow twin and by the properties they must have."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from webagent_jax.learn import bc_loss, group_advantages, grpo_loss, three_level_weights

V = 7
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
    """Per-token float32 arrays of one row, as the package is fed."""
    episodes = [episode for group in groups for episode in group]
    advantages = np.concatenate(
        [group_advantages(np.array([e.reward for e in g]), std_eps=EPS) for g in groups]
    )
    weights = three_level_weights([[len(t.tokens) for t in e.turns] for e in episodes])
    columns: dict[str, list] = {
        name: [] for name in ("logits", "tokens", "behaviour", "ref", "weights", "advantages")
    }
    for episode, advantage, turn_weights in zip(episodes, advantages, weights, strict=True):
        for turn, weight in zip(episode.turns, turn_weights, strict=True):
            columns["logits"].append(turn.logits)
            columns["tokens"].append(turn.tokens)
            columns["behaviour"].append(turn.behaviour_logp)
            columns["ref"].append(turn.ref_logp)
            columns["weights"].append([weight] * len(turn.tokens))
            columns["advantages"].append([advantage] * len(turn.tokens))
    flat = {name: np.concatenate(parts)[None] for name, parts in columns.items()}
    return {k: v.astype(np.int32 if k == "tokens" else np.float32) for k, v in flat.items()}


def logp_of(logits, tokens):
    return jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1)[..., 0]


def loss_of(logits, a, beta):
    return grpo_loss(
        logp_of(logits, a["tokens"]),
        a["behaviour"],
        a["advantages"],
        a["weights"],
        kl_beta=beta,
        ref_logp=a["ref"] if beta else None,
        **CLIP,
    )


def loss_and_grad(a, beta=0.0):
    (loss, stats), grad = jax.value_and_grad(loss_of, has_aux=True)(a["logits"], a, beta)
    return float(loss), np.asarray(grad), stats


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_agrees_with_the_slow_twin(beta):
    groups = draw_groups(0)
    loss, grad, stats = loss_and_grad(flatten(groups), beta)
    expected_loss, expected_grads = reference.m_grpo(groups, beta=beta, eps=EPS, **CLIP)
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    np.testing.assert_allclose(grad[0], np.concatenate(expected_grads), atol=1e-6)
    assert 0 < stats.clip_fraction < 1, "the draw must cross the clip, or this test shows little"
    assert (stats.kl > 0) == (beta > 0)


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
    pieces = np.split(grad[0], np.cumsum(lengths))
    np.testing.assert_allclose(
        permuted[0], np.concatenate([*pieces[:-1][::-1], pieces[-1]]), atol=1e-6
    )


def test_on_policy_the_gradient_is_reinforce():
    a = flatten(draw_groups(4, gap=0.0))

    def reinforce(logits):
        return -jnp.sum(a["weights"] * a["advantages"] * logp_of(logits, a["tokens"]))

    _, grad, stats = loss_and_grad(a)
    np.testing.assert_allclose(grad, jax.grad(reinforce)(a["logits"]), atol=1e-6)
    assert stats.ratio == pytest.approx(1, abs=1e-5)
    assert stats.clip_fraction == 0
    assert stats.logp_gap == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("garbage", [1e30, -1e30, np.inf, np.nan])
def test_garbage_under_zero_weight_changes_nothing(garbage):
    a = flatten(draw_groups(5))
    logp = np.asarray(logp_of(a["logits"], a["tokens"]))

    def value_and_grad(pad):
        def wide(x, value):
            return np.concatenate([x, np.full((1, 3), value, np.float32)], axis=1) if pad else x

        def loss(logp):
            return grpo_loss(
                logp,
                wide(a["behaviour"], garbage),
                wide(a["advantages"], garbage),
                wide(a["weights"], 0),
                kl_beta=0.1,
                ref_logp=wide(a["ref"], garbage),
                **CLIP,
            )

        def cloning(logp):
            return bc_loss(logp, wide(a["weights"], 0))

        given = wide(logp, garbage)
        return jax.value_and_grad(loss, has_aux=True)(given), jax.value_and_grad(cloning)(given)

    ((loss, stats), grad), (cloned, cloned_grad) = value_and_grad(pad=False)
    ((wide_loss, wide_stats), wide_grad), (wide_cloned, wide_cloned_grad) = value_and_grad(pad=True)
    np.testing.assert_allclose(
        [wide_loss, wide_cloned, *wide_stats], [loss, cloned, *stats], rtol=1e-6
    )
    n = grad.shape[1]
    np.testing.assert_array_equal(wide_grad[:, :n], grad)
    np.testing.assert_array_equal(wide_cloned_grad[:, :n], cloned_grad)
    assert not wide_grad[:, n:].any()
    assert not wide_cloned_grad[:, n:].any()


def test_microbatches_sum_to_the_batch():
    a = flatten(draw_groups(6))
    loss, grad, stats = loss_and_grad(a, 0.1)
    parts = [loss_and_grad({k: v[:, s] for k, v in a.items()}, 0.1) for s in (np.s_[:9], np.s_[9:])]
    assert sum(part[0] for part in parts) == pytest.approx(loss, abs=1e-6)
    np.testing.assert_allclose(np.concatenate([p[1] for p in parts], axis=1), grad, atol=1e-6)
    np.testing.assert_allclose(np.add(parts[0][2], parts[1][2]), stats, rtol=1e-5, atol=1e-6)


def test_cloning_agrees_with_the_slow_twin():
    groups = draw_groups(7)
    a = flatten(groups)
    turns = [turn for group in groups for episode in group for turn in episode.turns]
    weights = np.full_like(a["weights"], 1 / a["weights"].size)
    loss, grad = jax.value_and_grad(lambda x: bc_loss(logp_of(x, a["tokens"]), weights))(
        a["logits"]
    )
    expected_loss, expected_grads = reference.cloning(turns)
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    np.testing.assert_allclose(grad[0], np.concatenate(expected_grads), atol=1e-6)


def test_kl_needs_a_reference():
    one = jnp.ones((1, 1))
    with pytest.raises(ValueError, match="ref_logp"):
        grpo_loss(one, one, one, one, kl_beta=0.1, **CLIP)
