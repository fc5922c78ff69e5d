"""The policy under training: what spoils an update is named, and checkpoints know their run."""

from __future__ import annotations

import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

from webagent_jax import learn, policy
from webagent_jax.config import ConfigError, OptimizerConfig, PolicyConfig, RunConfig
from webagent_jax.inference import Engine
from webagent_jax.learn import Branch, NonFiniteStepError
from webagent_jax.train.learner import Learner

CFG = RunConfig()
STEPS = OptimizerConfig(learning_rate=1e-3)


def rows_of(learner, logps):
    """A row for each: 8 tokens of prompt, 4 of response."""
    rng = np.random.default_rng(0)
    ids = rng.integers(10, 90, (len(logps), 12)).astype(np.int32)
    branches = [
        Branch(one[:8], one[8:], np.full(4, logp, np.float32), weight=0.1, advantage=1.0)
        for one, logp in zip(ids, logps, strict=True)
    ]
    return learn.pack_branches(branches, row_tokens=12, row_multiple=learner.row_multiple).rows


def grpo_loss(learner, cfg):
    return learn.GRPOLoss.from_config(
        learner.model, cfg.grpo, cfg.rollout.temperature, learner.mesh
    )


@pytest.fixture(scope="module")
def learner(tmp_path_factory):
    with Learner(CFG, tmp_path_factory.mktemp("learner")) as learner:
        learner.restore_or_init(grpo_loss(learner, CFG), STEPS, 10, reference=True)
        yield learner


def test_the_rows_that_spoil_an_update_are_named_and_nothing_is_lost(learner):
    rows = rows_of(learner, [-1.0, -1.0, -np.inf, -1.0, np.nan])
    before = jax.tree.map(np.array, learner.state.params)
    spoilt = [i for i in range(5) if not np.isfinite(rows.behavior_logp[i]).all()]
    named = ", ".join(map(str, spoilt))
    with pytest.raises(NonFiniteStepError, match=f"step 1 was not applied.*Rows {named} of the"):
        learner.step(rows).fetch()
    jax.tree.map(np.testing.assert_array_equal, learner.state.params, before)
    stats = learner.step(rows_of(learner, [-1.0, -2.0])).fetch()
    assert np.isfinite(stats["loss"]) and int(learner.state.step) == 1


def test_learner_and_engine_agree_at_the_temperature_of_rollouts(tmp_path):
    temperature = 0.6
    cfg = replace(CFG, rollout=replace(CFG.rollout, temperature=temperature))
    with Learner(cfg, tmp_path) as learner:
        learner.restore_or_init(grpo_loss(learner, cfg), STEPS, 10, reference=True)
        snapshot = learner.snapshot()
        prompt = np.arange(10, 40, dtype=np.int32)
        with Engine(learner.model, snapshot.params, slots=2, max_model_len=64) as engine:
            done = engine.submit(prompt, max_new_tokens=20, temperature=temperature, seed=1).result(
                timeout=120
            )
        branch = Branch(
            prompt,
            done.token_ids,
            done.behavior_logp,
            weight=1 / len(done.token_ids),
            advantage=1.0,
        )
        rows = learn.pack_branches([branch], row_tokens=64, row_multiple=learner.row_multiple).rows
        weighted = rows.loss_weights != 0
        prox_logp = learner.compute_prox_logp(rows).prox_logp[weighted]
        np.testing.assert_allclose(prox_logp, rows.behavior_logp[weighted], atol=1e-4)
        stats = learner.step(rows).fetch()
        assert stats["logp_difference"] < 1e-4
        assert stats["kl"] == pytest.approx(0, abs=1e-6)
        assert np.abs(done.logp - done.behavior_logp).max() > 0.01  # the temperature matters


def test_other_weights_under_a_run_are_refused(tmp_path):
    weights = tmp_path / "weights"
    shutil.copytree(policy.resolve_dir("webagent-tiny"), weights)
    cfg = replace(CFG, policy=PolicyConfig(path=str(weights)))
    with Learner(cfg, tmp_path / "run") as learner:
        assert learner.restore_or_init(learn.BCLoss(learner.model), STEPS, 10) == {}
        learner.save(1, {"update": 1})
    with Learner(cfg, tmp_path / "run") as learner:
        assert learner.restore_or_init(learn.BCLoss(learner.model), STEPS, 10) == {"update": 1}
    model, params = policy.load_hf(weights)
    params["final_norm"] = params["final_norm"] * 1.01
    policy.save_hf(weights, model, params)
    with (
        Learner(cfg, tmp_path / "run") as learner,
        pytest.raises(ConfigError, match="differ from those that this run and its reference"),
    ):
        learner.restore_or_init(learn.BCLoss(learner.model), STEPS, 10)
