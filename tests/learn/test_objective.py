"""Every objective from groups to gradient, against its slow twin and by what must not change it."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tests import reference
from tests.learn import random_batches
from tests.learn.random_batches import TOKENS, Batch, as_batch, batches
from webagent_jax import learn
from webagent_jax.config import ConfigError, GRPOConfig, RolloutConfig, RunConfig
from webagent_jax.learn import BatchTotals, PolicyLossConfig, count_totals, has_signal, pack_groups
from webagent_jax.train.batches import split_minibatches
from webagent_jax.types import ForestRows, Group

ROLLOUT = RolloutConfig(max_turns=3, max_new_tokens=7)
ROW = 64
PAPER = GRPOConfig(kl_beta=0.0, row_tokens=ROW)
ASYNCHRONOUS = {"prox": True, "importance_weight_cap": 1.3}
OBJECTIVES = {
    "M-GRPO": {},
    "M-GRPO with its KL": {"kl_beta": 0.3},
    "k1": {"kl_beta": 0.3, "kl_estimator": "k1"},
    "token mean": {"loss_aggregation": "token_mean"},
    "Dr. GRPO": {"loss_aggregation": "constant_length", "advantage_estimator": "group_mean"},
    "clip-higher": {"loss_aggregation": "token_mean", "clip_high": 0.5},
    "RLOO": {"advantage_estimator": "leave_one_out", "policy_loss": "logp"},
    "REINFORCE": {"advantage_estimator": "batch_mean", "policy_loss": "logp"},
    "filtered BC": {
        "advantage_estimator": "success",
        "policy_loss": "logp",
        "loss_aggregation": "token_mean",
    },
    "AWR": {"advantage_estimator": "exponential", "policy_loss": "logp", "awr_temperature": 0.2},
    "limits masked": {"truncated_episodes": "mask"},
    "limits masked, token mean": {"truncated_episodes": "mask", "loss_aggregation": "token_mean"},
    "limits are failures": {"truncated_episodes": "zero", "advantage_estimator": "group_mean"},
    "decoupled": {"kl_beta": 0.1, **ASYNCHRONOUS},
    "decoupled, k1": {"kl_beta": 0.1, "kl_estimator": "k1", **ASYNCHRONOUS},
    "decoupled REINFORCE": {
        "advantage_estimator": "batch_mean",
        "policy_loss": "logp",
        **ASYNCHRONOUS,
    },
    "released": {"sequence_layout": "webagent_r1_release", "policy_loss": "logp", "kl_beta": 0.1},
    "released, token mean": {
        "sequence_layout": "webagent_r1_release",
        "policy_loss": "logp",
        "loss_aggregation": "token_mean",
    },
}
every_objective = pytest.mark.parametrize("name", OBJECTIVES)


def options_of(name: str) -> dict:
    return {k: v for k, v in OBJECTIVES[name].items() if k != "prox"}


def config_of(name: str) -> GRPOConfig:
    return replace(PAPER, **options_of(name))


def drawn_for(name: str) -> st.SearchStrategy[Batch]:
    options = OBJECTIVES[name]
    return batches(
        off_policy="prox" in options,
        thoughts=options.get("sequence_layout") == "webagent_r1_release",
    )


def learnt(batch: Batch, config: GRPOConfig, groups=None, **options) -> ForestRows:
    """The rows of all groups, or of those given, with the proximal policy where there is one."""
    given = batch.groups if groups is None else groups
    layout = learn.make_layout(config, random_batches.decode(batch))
    rows = pack_groups(given, config, ROLLOUT, layout=layout, **options).rows
    rows = learn.pad_to_shape(rows, count=64, row_targets=ROW)
    numbers = np.take_along_axis(rows.tokens, rows.target_indices, axis=1) % TOKENS
    return replace(rows, prox_logp=np.where(rows.loss_weights != 0, batch.prox_logp[numbers], 0))


def loss_and_grad(batch: Batch, config: GRPOConfig, rows: ForestRows):
    surrogate = PolicyLossConfig(*(getattr(config, name) for name in PolicyLossConfig._fields))
    (loss, stats), grad = random_batches.loss_and_grad(
        batch.logits, batch.labels, batch.ref_logp, rows, surrogate=surrogate
    )
    return float(loss), np.asarray(grad, np.float64), stats


def assert_same(found, expected):
    """Loss and gradient within 1e-5; a loss may cancel, a gradient is compared by its norm."""
    assert found[0] == pytest.approx(expected[0], rel=1e-5, abs=1e-6)
    apart = np.linalg.norm(found[1] - expected[1])
    assert apart <= 1e-5 * np.linalg.norm(expected[1]) + 1e-9


def has_something(batch: Batch, config: GRPOConfig) -> bool:
    layout = learn.make_layout(config, random_batches.decode(batch))
    return count_totals(batch.groups, config, layout).episodes > 0


@every_objective
@settings(deadline=None, max_examples=12)
@given(data=st.data())
def test_agrees_with_the_slow_twin(name, data):
    batch, config = data.draw(drawn_for(name)), config_of(name)
    if not has_something(batch, config):
        with pytest.raises(ValueError, match="can be trained on"):
            learnt(batch, config)
        return
    loss, grad, _ = loss_and_grad(batch, config, learnt(batch, config))
    expected_loss, grads = reference.objective(
        batch.twin,
        **{"kl_beta": 0.0, **options_of(name)},
        max_length=ROLLOUT.max_turns * ROLLOUT.max_new_tokens,
    )
    expected = np.concatenate(grads)
    assert not grad[len(expected) :].any()
    assert_same((loss, grad[: len(expected)]), (expected_loss, expected))


@every_objective
@settings(deadline=None, max_examples=4)
@given(data=st.data())
def test_packing_and_order_change_nothing(name, data):
    batch, config = data.draw(drawn_for(name)), config_of(name)
    if not has_something(batch, config):
        return
    random = data.draw(st.randoms(use_true_random=False))
    groups = [
        Group(g.task, tuple(random.sample(g.episodes, len(g.episodes)))) for g in batch.groups
    ]
    random.shuffle(groups)
    short = learnt(batch, replace(config, row_tokens=32), groups, row_multiple=3)
    long = learnt(batch, config)
    assert_same(loss_and_grad(batch, config, short), loss_and_grad(batch, config, long))


@every_objective
@settings(deadline=None, max_examples=4)
@given(data=st.data())
def test_hosts_add_up_to_the_batch(name, data):
    """Each builds the rows of its groups, with the totals of all."""
    batch, config = data.draw(drawn_for(name)), config_of(name)
    if not has_something(batch, config):
        return
    layout = learn.make_layout(config, random_batches.decode(batch))
    cut = data.draw(st.integers(0, len(batch.groups)))
    hosts = [batch.groups[:cut], batch.groups[cut:]]
    totals = BatchTotals(
        *np.sum([count_totals(groups, config, layout) for groups in hosts], axis=0)
    )
    assert totals == pytest.approx(count_totals(batch.groups, config, layout))
    parts = [
        loss_and_grad(batch, config, learnt(batch, config, groups, totals=totals, full_size=4))
        for groups in hosts
    ]
    alone = loss_and_grad(batch, config, learnt(batch, config, full_size=4))
    assert_same((sum(p[0] for p in parts), sum(p[1] for p in parts)), alone)
    stats = [sum(part) for part in zip(*(p[2] for p in parts), strict=True)]
    np.testing.assert_allclose(stats, alone[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["M-GRPO", "Dr. GRPO", "RLOO", "filtered BC", "AWR", "limits masked"]
)
@settings(deadline=None, max_examples=4)
@given(data=st.data())
def test_flat_groups_move_the_policy_only_where_they_are_said_to(name, data):
    batch, config = data.draw(drawn_for(name)), config_of(name)
    reward = data.draw(st.sampled_from([0.0, 1.0]))
    for group in batch.twin:
        for episode in group:
            episode.reward = reward
    batch = as_batch(batch.twin)
    if not has_something(batch, config):
        return
    moved = loss_and_grad(batch, config, learnt(batch, config))[1].any()
    signal = any(has_signal(group, config) for group in batch.groups)
    assert moved == (signal or config.advantage_estimator == "exponential")


@pytest.mark.parametrize("advantages", ["group_std", "group_mean", "leave_one_out", "batch_mean"])
@settings(deadline=None, max_examples=4)
@given(batch=batches())
def test_shifted_rewards_change_nothing(advantages, batch):
    config = replace(PAPER, advantage_estimator=advantages)
    before = loss_and_grad(batch, config, learnt(batch, config))
    for group in batch.twin:
        for episode in group:
            episode.reward += 4
    shifted = as_batch(batch.twin)
    after = loss_and_grad(shifted, config, learnt(shifted, config))
    assert after[0] == pytest.approx(before[0], abs=1e-5)
    np.testing.assert_allclose(after[1], before[1], atol=1e-5)


# --- hand-made -----------------------------------------------------------------------------------


def episode(reward: float, *lengths: int, truncated: bool = False) -> reference.Episode:
    turns = [
        reference.Turn(np.zeros((n, random_batches.V)), [0] * n, [-1.0] * n, [-1.0] * n)
        for n in lengths
    ]
    return reference.Episode(reward, turns, truncated)


def shares(groups, **options) -> dict[tuple[float, float], int]:
    """How many tokens have this weight and this advantage, in thousandths."""
    rows = pack_groups(as_batch(groups).groups, replace(PAPER, **options), ROLLOUT).rows
    found: dict[tuple[float, float], int] = {}
    for pair in zip(rows.loss_weights.flat, rows.advantages.flat, strict=True):
        if pair[0]:
            key = (round(1000 * float(pair[0])), round(1000 * float(pair[1])))
            found[key] = found.get(key, 0) + 1
    return found


def test_golden_weights_and_advantages():
    groups = [[episode(1, 1, 4), episode(0, 5)], [episode(0, 2), episode(0, 2), episode(0, 1)]]
    half = 707  # 1 / sqrt(2): (1 - 1/2) / unbiased std of (1, 0)
    assert shares(groups) == {
        (100, half): 1,
        (25, half): 4,
        (40, -half): 5,
        (100, 0): 4,
        (200, 0): 1,
    }
    assert shares(groups, loss_aggregation="token_mean", advantage_estimator="group_mean") == {
        (67, 500): 5,
        (67, -500): 5,
        (67, 0): 5,
    }
    # 1 / (5 episodes · 3 turns · 7 tokens)
    assert shares(
        groups, loss_aggregation="constant_length", advantage_estimator="leave_one_out"
    ) == {
        (10, 1000): 5,
        (10, -1000): 5,
        (10, 0): 5,
    }
    assert shares(groups, loss_aggregation="token_mean", advantage_estimator="batch_mean") == {
        (67, 800): 5,
        (67, -200): 10,
    }
    assert shares(groups, advantage_estimator="success") == {(500, 1000): 1, (125, 1000): 4}
    assert shares(groups, advantage_estimator="exponential", loss_aggregation="token_mean") == {
        (67, 1649): 5,  # exp(1/2)
        (67, 607): 5,
        (67, 1000): 5,
    }


@pytest.mark.parametrize(("tasks", "count"), [(6, 4), (7, 3), (4, 4), (8, 2)])
def test_full_minibatches_keep_the_advantages_of_their_groups(tasks, count):
    grpo = replace(PAPER, std_eps=0.0, tasks_per_update=tasks, minibatches=count)
    groups = as_batch([[episode(1, 2), episode(0, 5)]] * tasks).groups
    parts = split_minibatches(groups, grpo)
    assert sum(len(part.groups) for part in parts) == tasks
    for part in parts:
        rows = pack_groups(part.groups, grpo, ROLLOUT, full_size=part.full_size).rows
        assert rows.advantages.max() == pytest.approx(2**-0.5)
    # Without two of the groups, those that are left push as much as they do in a full batch.
    fewer = split_minibatches(groups[:-2], grpo)
    pushes = [
        np.abs(
            pack_groups(part.groups, grpo, ROLLOUT, full_size=part.full_size).rows.advantages
        ).max()
        for part in fewer
        if part.groups
    ]
    sizes = [len(part.groups) / part.full_size for part in fewer if part.groups]
    np.testing.assert_allclose(pushes, np.array(sizes) * 2**-0.5, rtol=1e-6)


def test_branches_carry_the_log_probabilities_of_the_sampled_distribution():
    (group,) = as_batch([[episode(1, 2), episode(0, 2)]]).groups
    first = group.episodes[0]
    completion = replace(first.turns[0].completion, sampling_logp=np.full(2, -0.25, np.float32))
    tempered = replace(first, turns=(replace(first.turns[0], completion=completion),))
    rows = pack_groups(
        [replace(group, episodes=(tempered, *group.episodes[1:]))], PAPER, ROLLOUT
    ).rows
    weighted = rows.loss_weights != 0
    assert sorted(rows.behavior_logp[weighted]) == [-1, -1, -0.25, -0.25]


def test_a_cap_bounds_what_awr_may_weigh():
    groups = [[episode(1, 1), episode(0, 1)]]
    assert set(shares(groups, advantage_estimator="exponential", awr_temperature=1e-3)) == {
        (500, 20_000),
        (500, 0),
    }


def test_episodes_that_a_limit_ended():
    groups = [[episode(1, 1, truncated=True), episode(0, 1), episode(1, 1), episode(0, 1)]]
    assert shares(groups, advantage_estimator="group_mean") == {(250, 500): 2, (250, -500): 2}
    # Left out, but counted in the mean of the group.
    assert shares(groups, advantage_estimator="group_mean", truncated_episodes="mask") == {
        (333, 500): 1,
        (333, -500): 2,
    }
    assert shares(groups, advantage_estimator="group_mean", truncated_episodes="zero") == {
        (250, 750): 1,
        (250, -250): 3,
    }


def test_which_groups_have_a_signal():
    (mixed, failed, solved) = as_batch(
        [
            [episode(1, 1), episode(0, 1)],
            [episode(0, 1), episode(0, 1)],
            [episode(1, 1, truncated=True), episode(1, 1, truncated=True)],
        ]
    ).groups

    def signals(**options) -> list[bool]:
        return [has_signal(g, replace(PAPER, **options)) for g in (mixed, failed, solved)]

    assert signals() == signals(advantage_estimator="exponential") == [True, False, False]
    assert signals(advantage_estimator="success") == [True, False, True]
    assert signals(advantage_estimator="batch_mean") == [True, True, True]
    assert signals(advantage_estimator="success", truncated_episodes="mask") == [True, False, False]
    assert signals(advantage_estimator="batch_mean", truncated_episodes="mask") == [
        True,
        True,
        False,
    ]
    lone = Group(mixed.task, mixed.episodes[:2])  # one of them has lost its reward
    assert not has_signal(lone, PAPER)


def test_episodes_without_a_reward_or_a_turn_never_get_in():
    (group,) = as_batch([[episode(1, 2, 3), episode(0, 5), episode(0, 1)]]).groups
    lost = [e for e in group.episodes if e.reward is None]
    assert lost
    *others, last = group.episodes
    group = Group(group.task, (*others, replace(last, turns=())))
    totals = count_totals([group, Group(group.task, ())], PAPER)
    assert totals == BatchTotals(groups=2, scored=3, rewards=1, episodes=2, tokens=10)
    rows = pack_groups([group], PAPER, ROLLOUT).rows
    assert np.count_nonzero(rows.loss_weights) == 10
    # rewards (1, 0, 0): mean 1/3, unbiased variance 1/3; an episode without turns counts in them
    np.testing.assert_allclose(rows.advantages.max(), 2 / 3**0.5, rtol=1e-3)


def test_a_group_weighs_in_a_rest_what_it_weighs_in_the_whole_batch():
    def push(count, whole):
        groups = as_batch([[episode(1, 2, 3), episode(0, 5)]] * count).groups
        rows = pack_groups(groups, replace(PAPER, std_eps=0.0), ROLLOUT, full_size=whole).rows
        return np.sum(np.abs(rows.advantages) * rows.loss_weights)

    assert push(6, 6) == pytest.approx(2**-0.5)
    assert push(2, 6) == pytest.approx(2**-0.5 / 3)
    assert push(6, 2.5) == pytest.approx(2**-0.5)  # more than asked for is no more


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequence_layout": "webagent_r1_release"}, "policy_loss=logp and grpo.max_staleness=0"),
        (
            {"sequence_layout": "webagent_r1_release", "policy_loss": "logp", "max_staleness": 1},
            "max_staleness=0",
        ),
        ({"importance_weight_cap": 0.5}, "importance_weight_cap must be at least 1"),
        ({"awr_temperature": 0.0}, "awr_temperature must be above 0"),
        ({"kl_beta": -0.1}, "kl_beta must not be negative"),
        ({"tasks_per_update": 3, "minibatches": 4}, "at most grpo.tasks_per_update"),
        ({"policy_loss": "logp", "minibatches": 2}, "needs grpo.minibatches=1"),
        (
            {"policy_loss": "logp", "advantage_estimator": "leave_one_out", "epochs": 2},
            "needs grpo.minibatches=1 and grpo.epochs=1",
        ),
    ],
)
def test_options_that_make_no_objective_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig(grpo=GRPOConfig(**options))


def test_a_host_without_episodes_brings_rows_that_hold_nothing():
    batch = as_batch([[episode(1, 2), episode(0, 2)]])
    totals = count_totals(batch.groups, PAPER)
    forest = pack_groups([], PAPER, ROLLOUT, totals=totals, row_multiple=2)
    assert forest.rows.tokens.shape == (2, ROW)
    assert not forest.rows.loss_weights.any()
    assert forest.shared_fraction == forest.padding_fraction == 0
    with pytest.raises(ValueError, match="pass the largest shape of all processes"):
        learn.pad_to_shape(forest.rows, count=1, row_targets=ROW)
