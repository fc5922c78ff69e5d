"""Tests of all objectives from groups to gradient: reference, invariances and golden values."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tests import reference
from tests.learn import random_batches
from tests.learn.random_batches import MAX_TOKENS, Batch, batches, make_batch
from webagent_jax import learn
from webagent_jax.config import ConfigError, GRPOConfig, RolloutConfig, RunConfig
from webagent_jax.learn import (
    BatchTotals,
    PolicyLossConfig,
    count_totals,
    has_signal,
    make_layout,
    minibatch_totals,
    pack_groups,
)
from webagent_jax.train.batches import split_minibatches
from webagent_jax.types import ForestRows, Group

ROLLOUT = RolloutConfig(max_turns=3, max_new_tokens=7)
ROW_TOKENS = 64
PAPER_CONFIG = GRPOConfig(kl_beta=0.0, row_tokens=ROW_TOKENS)
RELEASE = {"sequence_layout": "webagent_r1_release", "policy_loss": "logp"}
ASYNC_OPTIONS = {"prox": True, "importance_weight_cap": 1.3}
OBJECTIVES = {
    "M-GRPO": {},
    "M-GRPO with its KL": {"kl_beta": 0.3},
    "k1": {"kl_beta": 0.3, "kl_estimator": "k1"},
    "trust region": {"kl_beta": 0.3, "kl_reference": "previous", "prox": True},
    "trust region, k1": {
        **{"kl_beta": 0.3, "kl_reference": "previous", "kl_estimator": "k1"},
        "prox": True,
    },
    "constant turns": {"loss_aggregation": "constant_turns"},
    "scaled negatives": {"negative_advantage_scale": 0.3, "advantage_estimator": "group_mean"},
    "step advantages": {"step_advantage_weight": 0.7, "step_discount": 0.8},
    "step advantages, limits are failures": {
        **{"step_advantage_weight": 0.7, "step_discount": 0.8, "truncated_episodes": "zero"},
        "advantage_estimator": "group_mean",
    },
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
    "decoupled": {"kl_beta": 0.1, **ASYNC_OPTIONS},
    "decoupled, k1": {"kl_beta": 0.1, "kl_estimator": "k1", **ASYNC_OPTIONS},
    "decoupled REINFORCE": {
        "advantage_estimator": "batch_mean",
        "policy_loss": "logp",
        **ASYNC_OPTIONS,
    },
    "released": {**RELEASE, "kl_beta": 0.1},
    "released, token mean": {**RELEASE, "loss_aggregation": "token_mean"},
}
parametrize_objectives = pytest.mark.parametrize("name", OBJECTIVES)


def grpo_options(name: str) -> dict:
    return {key: value for key, value in OBJECTIVES[name].items() if key != "prox"}


def grpo_config(name: str) -> GRPOConfig:
    return replace(PAPER_CONFIG, **grpo_options(name))


def batch_strategy(name: str) -> st.SearchStrategy[Batch]:
    options = OBJECTIVES[name]
    return batches(
        off_policy="prox" in options,
        thoughts=options.get("sequence_layout") == "webagent_r1_release",
    )


def pack_batch(batch: Batch, config: GRPOConfig, groups=None, **options) -> ForestRows:
    """Return the rows of `groups`, by default of the whole batch, with `prox_logp` of the batch."""
    train_groups = batch.groups if groups is None else groups
    layout = learn.make_layout(config, random_batches.make_decoder(batch))
    rows = pack_groups(train_groups, config, ROLLOUT, layout=layout, **options).rows
    rows = learn.pad_to_shape(rows, count=64, row_targets=ROW_TOKENS)
    indices = np.take_along_axis(rows.tokens, rows.target_indices, axis=1) % MAX_TOKENS
    return replace(rows, prox_logp=np.where(rows.loss_weights != 0, batch.prox_logp[indices], 0))


def loss_and_grad(batch: Batch, config: GRPOConfig, rows: ForestRows):
    surrogate = PolicyLossConfig(*(getattr(config, name) for name in PolicyLossConfig._fields))
    (loss, stats), grad = random_batches.loss_and_grad(
        batch.logits, batch.labels, batch.ref_logp, rows, surrogate=surrogate
    )
    return float(loss), np.asarray(grad, np.float64), stats


def assert_close(actual, expected):
    """Compare the losses, and the gradients by norm: terms of the loss may cancel."""
    assert actual[0] == pytest.approx(expected[0], rel=1e-5, abs=1e-6)
    difference = np.linalg.norm(actual[1] - expected[1])
    assert difference <= 1e-5 * np.linalg.norm(expected[1]) + 1e-9


def has_train_episodes(batch: Batch, config: GRPOConfig) -> bool:
    layout = learn.make_layout(config, random_batches.make_decoder(batch))
    return count_totals(batch.groups, config, layout).episodes > 0


@parametrize_objectives
@settings(deadline=None, max_examples=12)
@given(data=st.data())
def test_objective_matches_reference(name, data):
    batch, config = data.draw(batch_strategy(name)), grpo_config(name)
    if not has_train_episodes(batch, config):
        with pytest.raises(ValueError, match="can be trained on"):
            pack_batch(batch, config)
        return
    loss, grad, _ = loss_and_grad(batch, config, pack_batch(batch, config))
    expected_loss, grads = reference.objective(
        batch.reference_groups,
        **{"kl_beta": 0.0, **grpo_options(name)},
        max_length=ROLLOUT.max_turns * ROLLOUT.max_new_tokens,
        max_turns=ROLLOUT.max_turns,
    )
    expected = np.concatenate(grads)
    assert not grad[len(expected) :].any()
    assert_close((loss, grad[: len(expected)]), (expected_loss, expected))


@parametrize_objectives
@settings(deadline=None, max_examples=4)
@given(data=st.data())
def test_objective_ignores_packing_and_order(name, data):
    batch, config = data.draw(batch_strategy(name)), grpo_config(name)
    if not has_train_episodes(batch, config):
        return
    random = data.draw(st.randoms(use_true_random=False))
    groups = [
        Group(group.task, tuple(random.sample(group.episodes, len(group.episodes))))
        for group in batch.groups
    ]
    random.shuffle(groups)
    short_rows = pack_batch(batch, replace(config, row_tokens=32), groups, row_multiple=3)
    long_rows = pack_batch(batch, config)
    assert_close(loss_and_grad(batch, config, short_rows), loss_and_grad(batch, config, long_rows))
    fitted_rows = pack_batch(batch, replace(config, row_tokens=4 * ROW_TOKENS), microbatch=8)
    assert fitted_rows.tokens.shape[1] < 4 * ROW_TOKENS
    assert_close(loss_and_grad(batch, config, fitted_rows), loss_and_grad(batch, config, long_rows))


@parametrize_objectives
@settings(deadline=None, max_examples=4)
@given(data=st.data())
def test_objective_sums_over_processes(name, data):
    """Pack the groups of each process with the totals of all processes."""
    batch, config = data.draw(batch_strategy(name)), grpo_config(name)
    if not has_train_episodes(batch, config):
        return
    layout = learn.make_layout(config, random_batches.make_decoder(batch))
    split = data.draw(st.integers(0, len(batch.groups)))
    process_groups = [batch.groups[:split], batch.groups[split:]]
    totals = BatchTotals(
        *np.sum([count_totals(groups, config, layout) for groups in process_groups], axis=0)
    )
    assert totals == pytest.approx(count_totals(batch.groups, config, layout))
    results = [
        loss_and_grad(batch, config, pack_batch(batch, config, groups, totals=totals, full_size=4))
        for groups in process_groups
    ]
    expected = loss_and_grad(batch, config, pack_batch(batch, config, full_size=4))
    assert_close(
        (sum(result[0] for result in results), sum(result[1] for result in results)), expected
    )
    stats = [sum(values) for values in zip(*(result[2] for result in results), strict=True)]
    np.testing.assert_allclose(stats, expected[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["M-GRPO", "Dr. GRPO", "RLOO", "filtered BC", "AWR", "limits masked"]
)
@settings(deadline=None, max_examples=4)
@given(data=st.data())
def test_equal_rewards_give_gradient_only_with_signal_or_awr(name, data):
    batch, config = data.draw(batch_strategy(name)), grpo_config(name)
    reward = data.draw(st.sampled_from([0.0, 1.0]))
    for group in batch.reference_groups:
        for episode in group:
            episode.reward = reward
    batch = make_batch(batch.reference_groups)
    if not has_train_episodes(batch, config):
        return
    has_gradient = loss_and_grad(batch, config, pack_batch(batch, config))[1].any()
    has_any_signal = any(has_signal(group, config) for group in batch.groups)
    assert has_gradient == (has_any_signal or config.advantage_estimator == "exponential")


@pytest.mark.parametrize(
    "advantage_estimator", ["group_std", "group_mean", "leave_one_out", "batch_mean"]
)
@settings(deadline=None, max_examples=4)
@given(batch=batches())
def test_objective_is_invariant_to_reward_shift(advantage_estimator, batch):
    config = replace(PAPER_CONFIG, advantage_estimator=advantage_estimator)
    expected = loss_and_grad(batch, config, pack_batch(batch, config))
    for group in batch.reference_groups:
        for episode in group:
            episode.reward += 4
    shifted_batch = make_batch(batch.reference_groups)
    actual = loss_and_grad(shifted_batch, config, pack_batch(shifted_batch, config))
    assert actual[0] == pytest.approx(expected[0], abs=1e-5)
    np.testing.assert_allclose(actual[1], expected[1], atol=1e-5)


# --- golden values -------------------------------------------------------------------------------


def make_episode(reward: float, *lengths: int, truncated: bool = False) -> reference.Episode:
    turns = [
        reference.Turn(
            np.zeros((length, random_batches.V)), [0] * length, [-1.0] * length, [-1.0] * length
        )
        for length in lengths
    ]
    return reference.Episode(reward, turns, truncated)


def count_weighted_tokens(groups, **options) -> dict[tuple[float, float], int]:
    """Return the number of tokens per pair of loss weight and advantage, in thousandths."""
    rows = pack_groups(make_batch(groups).groups, replace(PAPER_CONFIG, **options), ROLLOUT).rows
    counts: dict[tuple[float, float], int] = {}
    for pair in zip(rows.loss_weights.flat, rows.advantages.flat, strict=True):
        if pair[0]:
            key = (round(1000 * float(pair[0])), round(1000 * float(pair[1])))
            counts[key] = counts.get(key, 0) + 1
    return counts


def test_pack_groups_matches_golden_weights_and_advantages():
    groups = [
        [make_episode(1, 1, 4), make_episode(0, 5)],
        [make_episode(0, 2), make_episode(0, 2), make_episode(0, 1)],
    ]
    advantage = 707  # 1 / sqrt(2): (1 - 1/2) / unbiased std of (1, 0)
    assert count_weighted_tokens(groups) == {
        (100, advantage): 1,
        (25, advantage): 4,
        (40, -advantage): 5,
        (100, 0): 4,
        (200, 0): 1,
    }
    assert count_weighted_tokens(
        groups, loss_aggregation="token_mean", advantage_estimator="group_mean"
    ) == {
        (67, 500): 5,
        (67, -500): 5,
        (67, 0): 5,
    }
    # 1 / (5 episodes · 3 turns · 7 tokens)
    assert count_weighted_tokens(
        groups, loss_aggregation="constant_length", advantage_estimator="leave_one_out"
    ) == {
        (10, 1000): 5,
        (10, -1000): 5,
        (10, 0): 5,
    }
    assert count_weighted_tokens(
        groups, loss_aggregation="token_mean", advantage_estimator="batch_mean"
    ) == {
        (67, 800): 5,
        (67, -200): 10,
    }
    assert count_weighted_tokens(groups, advantage_estimator="success") == {
        (500, 1000): 1,
        (125, 1000): 4,
    }
    assert count_weighted_tokens(
        groups, advantage_estimator="exponential", loss_aggregation="token_mean"
    ) == {
        (67, 1649): 5,  # exp(1/2)
        (67, 607): 5,
        (67, 1000): 5,
    }


def test_batch_mean_is_that_of_all_minibatches_and_processes():
    config = replace(PAPER_CONFIG, advantage_estimator="batch_mean")
    # Two minibatches of one group each, on two processes.
    groups = make_batch(
        [[make_episode(reward, 2), make_episode(reward, 2)] for reward in (1, 0, 0, 0)]
    ).groups
    layout = make_layout(config, str)
    counts = [count_totals([group], config, layout) for group in groups]
    totals = minibatch_totals([counts[:2], counts[2:]])
    assert [each.episodes for each in totals] == [4, 4]
    rows = pack_groups(groups[:1], config, ROLLOUT, totals=totals[0]).rows
    assert set(rows.advantages[rows.loss_weights > 0]) == {0.75}


@pytest.mark.parametrize(("tasks", "count"), [(6, 4), (7, 3), (4, 4), (8, 2)])
def test_minibatches_preserve_group_advantages(tasks, count):
    grpo = replace(PAPER_CONFIG, std_eps=0.0, tasks_per_update=tasks, minibatches=count)
    groups = make_batch([[make_episode(1, 2), make_episode(0, 5)]] * tasks).groups
    minibatches = split_minibatches(groups, grpo)
    assert sum(len(minibatch.groups) for minibatch in minibatches) == tasks
    for minibatch in minibatches:
        rows = pack_groups(minibatch.groups, grpo, ROLLOUT, full_size=minibatch.full_size).rows
        assert rows.advantages.max() == pytest.approx(2**-0.5)
    # Without two groups, the contribution of each remaining group is unchanged.
    smaller_minibatches = split_minibatches(groups[:-2], grpo)
    max_advantages = [
        np.abs(
            pack_groups(
                minibatch.groups, grpo, ROLLOUT, full_size=minibatch.full_size
            ).rows.advantages
        ).max()
        for minibatch in smaller_minibatches
        if minibatch.groups
    ]
    group_fractions = [
        len(minibatch.groups) / minibatch.full_size
        for minibatch in smaller_minibatches
        if minibatch.groups
    ]
    np.testing.assert_allclose(max_advantages, np.array(group_fractions) * 2**-0.5, rtol=1e-6)


def test_behavior_logp_is_sampling_logp_of_completion():
    (group,) = make_batch([[make_episode(1, 2), make_episode(0, 2)]]).groups
    first_episode = group.episodes[0]
    completion = replace(
        first_episode.turns[0].completion, sampling_logp=np.full(2, -0.25, np.float32)
    )
    tempered_episode = replace(
        first_episode, turns=(replace(first_episode.turns[0], completion=completion),)
    )
    rows = pack_groups(
        [replace(group, episodes=(tempered_episode, *group.episodes[1:]))], PAPER_CONFIG, ROLLOUT
    ).rows
    weight_mask = rows.loss_weights != 0
    assert sorted(rows.behavior_logp[weight_mask]) == [-1, -1, -0.25, -0.25]


def test_awr_advantages_are_capped():
    groups = [[make_episode(1, 1), make_episode(0, 1)]]
    assert set(
        count_weighted_tokens(groups, advantage_estimator="exponential", awr_temperature=1e-3)
    ) == {
        (500, 20_000),
        (500, 0),
    }


def test_truncated_episodes_are_scored_masked_or_zeroed():
    groups = [
        [
            make_episode(1, 1, truncated=True),
            make_episode(0, 1),
            make_episode(1, 1),
            make_episode(0, 1),
        ]
    ]
    assert count_weighted_tokens(groups, advantage_estimator="group_mean") == {
        (250, 500): 2,
        (250, -500): 2,
    }
    # The mean of the group includes masked episodes.
    assert count_weighted_tokens(
        groups, advantage_estimator="group_mean", truncated_episodes="mask"
    ) == {
        (333, 500): 1,
        (333, -500): 2,
    }
    assert count_weighted_tokens(
        groups, advantage_estimator="group_mean", truncated_episodes="zero"
    ) == {
        (250, 750): 1,
        (250, -250): 3,
    }


def test_has_signal_depends_on_estimator_and_truncation():
    (mixed_group, failed_group, solved_group) = make_batch(
        [
            [make_episode(1, 1), make_episode(0, 1)],
            [make_episode(0, 1), make_episode(0, 1)],
            [make_episode(1, 1, truncated=True), make_episode(1, 1, truncated=True)],
        ]
    ).groups

    def group_signals(**options) -> list[bool]:
        return [
            has_signal(group, replace(PAPER_CONFIG, **options))
            for group in (mixed_group, failed_group, solved_group)
        ]

    assert (
        group_signals() == group_signals(advantage_estimator="exponential") == [True, False, False]
    )
    assert group_signals(advantage_estimator="success") == [True, False, True]
    assert group_signals(advantage_estimator="batch_mean") == [True, True, True]
    assert group_signals(advantage_estimator="success", truncated_episodes="mask") == [
        True,
        False,
        False,
    ]
    assert group_signals(advantage_estimator="batch_mean", truncated_episodes="mask") == [
        True,
        True,
        False,
    ]
    # One of the two episodes has no reward.
    incomplete_group = Group(mixed_group.task, mixed_group.episodes[:2])
    assert not has_signal(incomplete_group, PAPER_CONFIG)


def test_pack_groups_skips_episodes_without_reward_or_turns():
    (group,) = make_batch([[make_episode(1, 2, 3), make_episode(0, 5), make_episode(0, 1)]]).groups
    infra_episodes = [e for e in group.episodes if e.reward is None]
    assert infra_episodes
    *other_episodes, last_episode = group.episodes
    group = Group(group.task, (*other_episodes, replace(last_episode, turns=())))
    totals = count_totals([group, Group(group.task, ())], PAPER_CONFIG)
    assert totals == BatchTotals(groups=2, scored=3, rewards=1, episodes=2, tokens=10)
    rows = pack_groups([group], PAPER_CONFIG, ROLLOUT).rows
    assert np.count_nonzero(rows.loss_weights) == 10
    # rewards (1, 0, 0), with the episode without turns: mean 1/3, unbiased variance 1/3
    np.testing.assert_allclose(rows.advantages.max(), 2 / 3**0.5, rtol=1e-3)


def test_group_contribution_scales_with_full_size():
    def compute_contribution(num_groups, full_size):
        groups = make_batch([[make_episode(1, 2, 3), make_episode(0, 5)]] * num_groups).groups
        rows = pack_groups(
            groups, replace(PAPER_CONFIG, std_eps=0.0), ROLLOUT, full_size=full_size
        ).rows
        return np.sum(np.abs(rows.advantages) * rows.loss_weights)

    assert compute_contribution(6, 6) == pytest.approx(2**-0.5)
    assert compute_contribution(2, 6) == pytest.approx(2**-0.5 / 3)
    # A full size below the number of groups has no effect.
    assert compute_contribution(6, 2.5) == pytest.approx(2**-0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequence_layout": "webagent_r1_release"}, "policy_loss=logp, grpo.kl_reference=initial"),
        ({**RELEASE, "max_staleness": 1}, "max_staleness=0"),
        ({**RELEASE, "success_replay": True}, "success_replay=False"),
        (
            {
                **RELEASE,
                "advantage_estimator": "success",
                "epochs": 2,
                "kl_reference": "previous",
            },
            "kl_reference=initial",
        ),
        ({**RELEASE, "step_advantage_weight": 0.5}, "step_advantage_weight needs"),
        ({"step_discount": 1.5}, "step_discount must be above 0 and at most 1"),
        ({"kl_reference": "previous"}, "kl_reference=previous needs several optimizer steps"),
        ({"negative_advantage_scale": 1.5}, "negative_advantage_scale must be in"),
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
def test_run_config_rejects_invalid_objectives(options, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig(grpo=GRPOConfig(**options))


def test_pack_groups_without_groups_returns_empty_rows():
    batch = make_batch([[make_episode(1, 2), make_episode(0, 2)]])
    totals = count_totals(batch.groups, PAPER_CONFIG)
    forest = pack_groups([], PAPER_CONFIG, ROLLOUT, totals=totals, row_multiple=2)
    assert forest.rows.tokens.shape == (2, ROW_TOKENS)
    assert not forest.rows.loss_weights.any()
    assert forest.shared_fraction == forest.padding_fraction == 0
    with pytest.raises(ValueError, match="pass the largest shape of all processes"):
        learn.pad_to_shape(forest.rows, count=1, row_targets=ROW_TOKENS)
