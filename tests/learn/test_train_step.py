"""Tests of the jitted train step: results, errors and bit-exact resume."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import reference
from tests.adapters import merge_adapters
from tests.learn.tiny import MODEL, make_params, run_step
from webagent_jax import learn, policy
from webagent_jax.checkpoint import Checkpointer
from webagent_jax.config import GRPOConfig, OptimizerConfig
from webagent_jax.policy import lora

GRPO = GRPOConfig(kl_beta=0.1, std_eps=1e-4)
GRPO_LOSS = learn.GRPOLoss.from_config(MODEL, GRPO)
BC_LOSS = learn.BCLoss(MODEL)
OPTIMIZER = learn.make_optimizer(OptimizerConfig(learning_rate=0.01, max_grad_norm=10.0), 10)
PROMPTS = [[3, 4, 5, 6], [3, 4, 7], [3, 4, 5, 6], [3, 4, 5, 6, 8]]
RESPONSES = [[10, 11], [12, 13, 14], [15], [10, 16]]
REWARDS = [1.0, 0.0, 0.0, 1.0]
TOKENS = np.arange(40).reshape(2, 20)


@pytest.fixture(scope="module")
def params():
    return make_params(1)


@pytest.fixture(scope="module")
def ref_params(params):
    return jax.tree.map(lambda x: x * 1.1, params)


def make_rows(rewards=REWARDS, behavior_logp=-4.0):
    advantages = learn.group_advantages(np.array(rewards), std_eps=GRPO.std_eps)
    weights = learn.episode_turn_token_weights([[len(response)] for response in RESPONSES])
    branches = [
        learn.Branch(
            np.array(prompt, np.int32),
            np.array(response, np.int32),
            np.full(len(response), behavior_logp, np.float32),
            weight=float(weight[0]),
            advantage=float(advantage),
        )
        for prompt, response, weight, advantage in zip(
            PROMPTS, RESPONSES, weights, advantages, strict=True
        )
    ]
    return learn.pack_branches(branches, row_tokens=16, row_multiple=2).rows


def run_grpo_step(state, ref_params, rows=None, base=None):
    rows = make_rows() if rows is None else rows
    frozen = learn.FrozenParams(base, ref_params)
    return run_step(GRPO_LOSS, OPTIMIZER, state, rows, frozen, microbatch=2)


def assert_trees_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_grpo_step_loss_matches_reference(params, ref_params):
    """Compute the expected loss from logits of plain causal rows."""

    def response_logits(params):
        tokens = np.zeros((4, 8), np.int32)
        for row, prompt, response in zip(tokens, PROMPTS, RESPONSES, strict=True):
            row[: len(prompt) + len(response)] = prompt + response
        logits = np.asarray(
            jax.jit(policy.logits, static_argnums=0)(MODEL, params, tokens), np.float64
        )
        return [
            row[len(p) - 1 : len(p) + len(r) - 1]
            for row, p, r in zip(logits, PROMPTS, RESPONSES, strict=True)
        ]

    group = []
    for logits, ref_logits, response, reward in zip(
        response_logits(params), response_logits(ref_params), RESPONSES, REWARDS, strict=True
    ):
        ref_logp = [reference.log_softmax(x)[t] for x, t in zip(ref_logits, response, strict=True)]
        turn = reference.Turn(logits, response, [-4.0] * len(response), ref_logp)
        group.append(reference.Episode(reward, [turn]))
    expected, _ = reference.objective([group], kl_beta=0.1)
    _, metrics = run_grpo_step(learn.init_state(params, OPTIMIZER), ref_params)
    assert metrics["loss"] == pytest.approx(expected, abs=1e-5)
    assert metrics["kl"] > 0
    assert metrics["entropy"] == pytest.approx(np.log(61), abs=0.1)


def test_grpo_steps_reduce_loss(params, ref_params):
    state = learn.init_state(params, OPTIMIZER)
    losses = []
    for _ in range(4):
        state, metrics = run_grpo_step(state, ref_params)
        losses.append(metrics["loss"])
    assert losses[-1] < losses[0] - 0.01
    assert learn.policy_snapshot(state).version == int(state.step) == 4


def test_resume_from_checkpoint_is_bit_exact(params, ref_params, tmp_path):
    expected_state = learn.init_state(params, OPTIMIZER)
    for _ in range(3):
        expected_state, expected_metrics = run_grpo_step(expected_state, ref_params)

    state, _ = run_grpo_step(learn.init_state(params, OPTIMIZER), ref_params)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state, {"next_update": 1})
    with Checkpointer(tmp_path) as checkpointer:
        restored = checkpointer.restore(learn.init_state(params, OPTIMIZER))
    assert restored is not None
    state, loop_state = restored
    assert loop_state == {"next_update": 1}
    for _ in range(2):
        state, metrics = run_grpo_step(state, ref_params)
    assert_trees_equal(state, expected_state)
    assert metrics == expected_metrics


@pytest.mark.parametrize("behavior_logp", [np.nan, -np.inf])
def test_non_finite_step_is_not_applied(params, ref_params, behavior_logp):
    state, _ = run_grpo_step(learn.init_state(params, OPTIMIZER), ref_params)
    initial_state = jax.tree.map(np.array, state)
    train_step = learn.make_train_step(GRPO_LOSS, OPTIMIZER)
    microbatches = learn.split_microbatches(make_rows(behavior_logp=behavior_logp), 2)
    state, sums = train_step(state, learn.FrozenParams(reference=ref_params), microbatches)
    with pytest.raises(learn.NonFiniteStepError, match="step 2 was not applied"):
        learn.fetch_metrics(sums)
    assert_trees_equal(state, initial_state)


def large_gradient_loss(frozen, params, rows):
    """Return a finite loss whose gradient norm overflows float32."""
    weight = jnp.sum(rows.loss_weights)
    loss = weight * 1e25 * jnp.sum(params)
    return loss, {"loss": loss, "weight": weight, "entropy": jnp.zeros(())}


def infinite_loss(frozen, params, rows):
    """Return an infinite loss with a finite gradient."""
    weight = jnp.sum(rows.loss_weights)
    loss = weight * (jnp.sum(params) + jnp.inf)
    return loss, {"loss": loss, "weight": weight, "entropy": jnp.zeros(())}


@pytest.mark.parametrize(
    ("loss_fn", "invalid_name"), [(large_gradient_loss, "grad_norm"), (infinite_loss, "loss")]
)
def test_single_non_finite_value_rejects_step(loss_fn, invalid_name):
    state = learn.init_state(jnp.array([1.0, 2.0]), OPTIMIZER)
    initial_state = jax.tree.map(np.array, state)
    train_step = learn.make_train_step(loss_fn, OPTIMIZER)
    microbatches = learn.split_microbatches(make_rows(), 2)
    state, sums = train_step(state, learn.FrozenParams(), microbatches)
    names = ("loss", "grad_norm")
    assert [name for name in names if not np.isfinite(sums[name])] == [invalid_name]
    with pytest.raises(learn.NonFiniteStepError, match="step 1 was not applied"):
        learn.fetch_metrics(sums)
    assert state.step == 0
    assert_trees_equal(state, initial_state)


def test_grpo_step_does_not_modify_initial_params(params, ref_params):
    initial_params = jax.tree.map(jnp.asarray, params)
    run_grpo_step(learn.init_state(initial_params, OPTIMIZER), ref_params)
    assert_trees_equal(initial_params, params)


def test_bc_steps_reduce_loss(params):
    state = learn.init_state(params, OPTIMIZER)
    rows = make_rows()
    losses = []
    for _ in range(12):
        state, metrics = run_step(BC_LOSS, OPTIMIZER, state, rows, microbatch=2)
        losses.append(metrics["loss"])
    assert losses[0] == pytest.approx(np.log(61), abs=0.3)
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("microbatch", [1, 2, 4])
def test_accumulate_gradients_sums_over_microbatches(microbatch):
    """Use an objective that compiles fast; the last two rows are empty."""
    rng = np.random.default_rng(0)
    rows = make_rows()
    size = (4, 3)
    weights = rng.uniform(size=size).astype(np.float32)
    weights[2:] = 0
    rows = dataclasses.replace(
        rows,
        tokens=rng.normal(size=size),
        target_indices=rng.normal(size=size),
        loss_weights=weights,
    )

    def objective(w, batch):
        loss = jnp.sum(
            batch.loss_weights * jnp.tanh(batch.tokens @ w)[:, None] * batch.target_indices
        )
        return loss, {"loss": loss, "tokens": jnp.sum(batch.loss_weights > 0)}

    w = rng.normal(size=3).astype(np.float32)
    used_names = ("tokens", "target_indices", "loss_weights")
    unused_fields = {
        f.name: np.zeros((4, 1)) for f in dataclasses.fields(rows) if f.name not in used_names
    }
    rows = dataclasses.replace(rows, **unused_fields)
    microbatches = jax.tree.map(lambda x: x.reshape(-1, microbatch, *x.shape[1:]), rows)
    grad, sums = jax.jit(learn.accumulate_gradients, static_argnums=0)(objective, w, microbatches)
    expected_grad, expected = jax.grad(objective, has_aux=True)(w, rows)
    np.testing.assert_allclose(grad, expected_grad, rtol=1e-5)
    np.testing.assert_allclose(sums["loss"], expected["loss"], rtol=1e-5)
    assert sums["tokens"] == expected["tokens"] == 6


def test_prox_logp_is_logp_before_step(params, ref_params):
    """Check that the ratio is 1 before the step for any behavior policy."""
    rows = make_rows()
    prox_rows = learn.compute_prox_logp(MODEL, params, rows, microbatch=2)
    np.testing.assert_array_equal(prox_rows.behavior_logp, rows.behavior_logp)
    assert not prox_rows.prox_logp[rows.loss_weights == 0].any()
    state, metrics = run_grpo_step(learn.init_state(params, OPTIMIZER), ref_params, prox_rows)
    assert metrics["ratio"] == pytest.approx(1, abs=1e-6)
    importance_weight = np.minimum(
        np.exp(prox_rows.prox_logp - prox_rows.behavior_logp), GRPO.importance_weight_cap
    )
    assert metrics["importance_weight"] == pytest.approx(
        np.sum(rows.loss_weights * importance_weight), rel=1e-5
    )
    later_rows = learn.compute_prox_logp(MODEL, state.params, prox_rows, microbatch=2)
    assert np.max(np.abs(later_rows.prox_logp - prox_rows.prox_logp)) > 1e-3


def test_expected_gradient_is_zero_for_constant_advantage(params):
    """E[A grad log pi] = 0 for a constant A if sampling and scoring use the same temperature.

    The expectation is exact: one branch per vocabulary token, weighted by its probability.
    """
    prompt = np.array(PROMPTS[0], np.int32)
    logits = np.asarray(policy.logits(MODEL, params, prompt[None]), np.float64)[0, -1]
    logp = reference.log_softmax(logits / 0.5)
    branches = [
        learn.Branch(
            prompt,
            np.array([token], np.int32),
            np.array([logp[token]], np.float32),
            weight=float(np.exp(logp[token])),
            advantage=1.0,
        )
        for token in range(MODEL.vocab_size)
    ]
    rows = learn.pack_branches(branches, row_tokens=80, row_multiple=2).rows
    grpo = GRPOConfig(kl_beta=0.0)

    def step_at_temperature(temperature):
        state = learn.init_state(params, OPTIMIZER)
        loss_fn = learn.GRPOLoss.from_config(MODEL, grpo, temperature)
        return run_step(loss_fn, OPTIMIZER, state, rows, microbatch=2)[1]

    metrics = step_at_temperature(0.5)
    assert metrics["logp_difference"] < 1e-5
    assert metrics["ratio"] == pytest.approx(1, abs=1e-5)
    assert metrics["entropy"] == pytest.approx(-np.sum(np.exp(logp) * logp), abs=1e-4)
    assert metrics["grad_norm"] < 1e-5
    # The expectation is not zero at a temperature other than that of sampling.
    assert step_at_temperature(1.0)["grad_norm"] > 0.01


def test_grpo_stats_are_independent_of_weight_sum(params, ref_params):
    rows = make_rows()
    scaled_rows = dataclasses.replace(rows, loss_weights=rows.loss_weights / 8)
    _, metrics = run_grpo_step(learn.init_state(params, OPTIMIZER), ref_params, rows)
    _, scaled_metrics = run_grpo_step(learn.init_state(params, OPTIMIZER), ref_params, scaled_rows)
    assert metrics["loss"] == pytest.approx(8 * scaled_metrics["loss"], rel=1e-5)
    for name in ("entropy", *learn.GRPOStats._fields):
        assert metrics[name] == pytest.approx(scaled_metrics[name], rel=1e-5)


def test_train_step_rejects_invalid_inputs(params, ref_params):
    state = learn.init_state(params, OPTIMIZER)
    with pytest.raises(ValueError, match="pass a reference policy"):
        run_step(GRPO_LOSS, OPTIMIZER, state, make_rows())
    with pytest.raises(ValueError, match="row_multiple=3"):
        run_step(BC_LOSS, OPTIMIZER, state, make_rows(), microbatch=3)
    short_rows = dataclasses.replace(make_rows(), advantages=np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match=r"ForestRows\.advantages must be float32 \[2, 8\]"):
        run_step(BC_LOSS, OPTIMIZER, state, short_rows)
    int64_rows = dataclasses.replace(make_rows(), tokens=make_rows().tokens.astype(np.int64))
    with pytest.raises(ValueError, match=r"ForestRows\.tokens must be int32"):
        run_step(BC_LOSS, OPTIMIZER, state, int64_rows)


@pytest.fixture(scope="module")
def adapters(params):
    return lora.init(params, jax.random.key(0), rank=2, projections=("q", "o", "down"))


def test_lora_step_trains_only_adapters(params, adapters):
    base = lora.FrozenBase(jax.tree.map(jnp.asarray, params), scale=4.0)
    state = learn.init_state(adapters, OPTIMIZER)
    losses = []
    for _ in range(4):
        # The reference policy has no adapters.
        state, metrics = run_grpo_step(state, lora.NO_ADAPTERS, base=base)
        losses.append(metrics["loss"])
        assert metrics["kl"] > 0 if len(losses) > 1 else metrics["kl"] == pytest.approx(0, abs=1e-9)
    assert losses[-1] < losses[0] - 0.01
    assert jax.tree.structure(state.params) == jax.tree.structure(adapters)
    assert_trees_equal(base.params, params)
    sampling_params = learn.policy_snapshot(state, base).params
    expected = policy.logits(MODEL, merge_adapters(sampling_params), TOKENS)
    np.testing.assert_allclose(policy.logits(MODEL, sampling_params, TOKENS), expected, atol=1e-5)
    assert np.max(np.abs(expected - policy.logits(MODEL, params, TOKENS))) > 1e-2


def test_adapter_gradient_follows_chain_rule(params, adapters):
    """Check dB = s A' dW for W + s A B; the gradient of A is 0 because B is 0."""
    rows = make_rows()
    base = lora.FrozenBase(params, scale=4.0)

    def loss(model_params):
        return learn.bc_loss(policy.score(MODEL, model_params, rows).logp, rows.loss_weights)

    actual = jax.grad(lambda adapters: loss(lora.attach(base, adapters)))(adapters)["layers"]
    kernel_grads = jax.grad(loss)(jax.tree.map(jnp.asarray, params))["layers"]
    for name, contraction in (("q", "lir,lihe->lrhe"), ("o", "lher,lhed->lrd")):
        down = adapters["layers"][name][lora.DOWN]
        expected = 4.0 * jnp.einsum(contraction, down, kernel_grads[name]["kernel"])
        np.testing.assert_allclose(actual[name][lora.UP], expected, rtol=1e-4, atol=1e-7)
        np.testing.assert_array_equal(actual[name][lora.DOWN], 0)
