"""Tests of the optimizer steps of an M-GRPO update: number, skipped minibatches, schedule."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.rollout.fakes import TASK
from webagent_jax import learn
from webagent_jax.config import EngineConfig, GRPOConfig, OptimizerConfig, RolloutConfig, RunConfig
from webagent_jax.train import grpo
from webagent_jax.train.batches import Batch
from webagent_jax.train.learner import Learner
from webagent_jax.types import (
    Completion,
    Episode,
    ForestRows,
    Group,
    Observation,
    Outcome,
    ParseError,
    Turn,
)

# Short rows and no reference policy: the compilation dominates the time of these tests.
CFG = RunConfig(
    engine=EngineConfig(max_model_len=64),
    rollout=RolloutConfig(max_new_tokens=32),
    grpo=GRPOConfig(
        tasks_per_update=2,
        group_size=2,
        kl_beta=0.0,
        row_tokens=64,
        optimizer=OptimizerConfig(learning_rate=1e-3),
    ),
)
# Turns as training sequences need no decoded text.
RUNTIME = SimpleNamespace(tokenizer=SimpleNamespace(decode=None))


def make_group(index: int, rewards=(0.0, 1.0)) -> Group:
    """Return a group of one-turn episodes; token ids depend on `index` and the attempt."""
    episodes = []
    for attempt, reward in enumerate(rewards):
        ids = np.random.default_rng([index, attempt]).integers(10, 90, 12).astype(np.int32)
        logp = np.full(4, -1.0, np.float32)
        completion = Completion(ids[8:], logp, np.zeros(4, np.int32), "stop")
        turn = Turn(ids[:8], completion, "", ParseError(""), Observation("", ""))
        outcome = Outcome.INFRA if reward is None else Outcome.FAILURE
        episodes.append(
            Episode(TASK, "", (turn,), reward, outcome, group=index, attempt=attempt, update=0)
        )
    return Group(TASK, tuple(episodes))


@pytest.fixture(scope="module")
def learner(tmp_path_factory):
    with Learner(CFG, tmp_path_factory.mktemp("learner")) as learner:
        loss = learn.GRPOLoss.from_config(
            learner.model, CFG.grpo, CFG.rollout.temperature, learner.mesh
        )
        learner.restore_or_init(loss, CFG.grpo.optimizer, 100)
        yield learner


@pytest.fixture
def train(learner, monkeypatch):
    """Return a function that trains on groups.

    It returns the metrics of the update, the rows of each step and its metrics.
    """
    real_step = learner.step

    def run(groups, **options):
        step_rows: list[ForestRows] = []
        pending = []

        def step(rows):
            step_rows.append(rows)
            pending.append(real_step(rows))
            return pending[-1]

        monkeypatch.setattr(learner, "step", step)
        cfg = replace(CFG, grpo=replace(CFG.grpo, **options))
        first_step = int(learner.state.step)
        metrics = grpo._train_on_batch(cfg, RUNTIME, learner, Batch(groups, [], 0))
        assert int(learner.state.step) - first_step == len(step_rows)
        return metrics, step_rows, [each.fetch() for each in pending]

    return run


def tokens_of(step_rows: list[ForestRows]) -> list[bytes]:
    return [rows.tokens.tobytes() for rows in step_rows]


@pytest.mark.parametrize(("minibatches", "epochs"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_update_has_one_step_per_minibatch_and_epoch(train, minibatches, epochs):
    groups = [make_group(0), make_group(1)]
    metrics, step_rows, step_metrics = train(groups, minibatches=minibatches, epochs=epochs)
    tokens = tokens_of(step_rows)
    assert len(tokens) == minibatches * epochs
    # Every epoch has the same minibatches, and these have different groups.
    assert tokens == tokens[:minibatches] * epochs
    assert len(set(tokens)) == minibatches
    assert metrics["loss"] == pytest.approx(np.mean([each["loss"] for each in step_metrics]))
    # Later steps change the params, so their difference is not only that of the sampler.
    assert metrics["sampling_logp_difference"] == step_metrics[0]["logp_difference"]


def test_update_skips_minibatches_without_trainable_episodes(train):
    infra_group = make_group(1, (None, None))
    # Round-robin, the second minibatch has no group, then only a group without a reward.
    for groups in ([make_group(0)], [make_group(0), infra_group]):
        metrics, step_rows, _ = train(groups, minibatches=2, epochs=2)
        assert len(step_rows) == 2 and len(set(tokens_of(step_rows))) == 1
        assert np.isfinite(metrics["loss"])
    for groups in ([], [infra_group]):
        assert train(groups, minibatches=2, epochs=2) == ({}, [], [])


def test_missing_groups_shrink_advantages(train):
    complete, partial = (
        train([make_group(0)], tasks_per_update=count)[1][0].advantages for count in (1, 4)
    )
    # The other three groups of the update count as groups with equal rewards.
    assert complete.any()
    np.testing.assert_allclose(partial, complete / 4, rtol=1e-6)


def test_proximal_policy_is_the_policy_before_the_update(train, learner, monkeypatch):
    groups, prox_steps = [make_group(0), make_group(1)], []
    compute_prox_logp = learner.compute_prox_logp

    def record_step(rows):
        prox_steps.append(int(learner.state.step))
        return compute_prox_logp(rows)

    monkeypatch.setattr(learner, "compute_prox_logp", record_step)
    first_step = int(learner.state.step)
    _, step_rows, _ = train(groups, minibatches=2, epochs=2, max_staleness=1)
    # Computed once per minibatch, before the first step.
    assert prox_steps == [first_step] * 2
    first_epoch, second_epoch = (
        [rows.prox_logp.tobytes() for rows in each] for each in (step_rows[:2], step_rows[2:])
    )
    assert first_epoch == second_epoch


class _ScheduleKnown(Exception):
    pass


def test_schedule_of_run_has_all_optimizer_steps(tmp_path, monkeypatch):
    calls = []

    def restore_or_init(learner, loss_fn, optimizer, steps, **options):
        calls.append((optimizer, steps, options))
        raise _ScheduleKnown

    monkeypatch.setattr(Learner, "restore_or_init", restore_or_init)
    cfg = replace(CFG, grpo=replace(CFG.grpo, updates=5, minibatches=2, epochs=3))
    with pytest.raises(_ScheduleKnown):
        grpo.train_grpo(cfg, tmp_path)
    assert calls == [(cfg.grpo.optimizer, 5 * 2 * 3, {"reference": False})]
