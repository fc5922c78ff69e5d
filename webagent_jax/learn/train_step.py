"""Optimizer steps of M-GRPO and BC: jitted functions of forest rows and a donated TrainState.

The loss is a sum over rows, so accumulating the gradient over microbatches does not change it. The
loop skips trailing empty microbatches, so rows that only pad a shape cost nothing.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, TypeAlias

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from webagent_jax.config import GRPOConfig
from webagent_jax.learn import losses
from webagent_jax.learn.losses import PolicyLossConfig
from webagent_jax.learn.microbatches import (
    Objective,
    Params,
    Sums,
    accumulate_gradients,
    gather_local_rows,
    num_nonempty,
    split_microbatches,
    take_microbatch,
)
from webagent_jax.policy import ModelConfig, Scores, lora, score, sharding
from webagent_jax.policy.lora import FrozenBase
from webagent_jax.types import ForestRows, PolicySnapshot

Optimizer: TypeAlias = optax.GradientTransformationExtraArgs


@flax.struct.dataclass
class TrainState:
    """Trained params, optimizer state and step count."""

    step: Array  # int32 scalar, number of completed optimizer steps
    params: Params  # trained params: all of the policy, or adapters (policy.lora)
    opt_state: Any


class NonFiniteStepError(FloatingPointError):
    """Loss or gradient that is not finite; `state` is the valid state before the step."""

    def __init__(self, message: str, state: TrainState) -> None:
        super().__init__(message)
        self.state = state


def init_state(params: Params, optimizer: Optimizer) -> TrainState:
    """Return the state before the first step; moments are sharded like their params.

    It contains a copy of `params`, because steps donate the state.
    """

    params = jax.tree.map(jnp.asarray, params)
    shardings = jax.tree.map(lambda x: x.sharding, abstract_state(params, optimizer))
    state: TrainState = jax.jit(partial(_first_state, optimizer), out_shardings=shardings)(params)
    return state


def abstract_state(params: Params, optimizer: Optimizer) -> TrainState:
    """Return shapes, dtypes and shardings of the state of `params`, which may be abstract too."""
    shapes = jax.eval_shape(partial(_first_state, optimizer), params)
    shardings = state_shardings(shapes, jax.tree.map(lambda x: x.sharding, params))
    abstract: TrainState = sharding.with_shardings(shapes, shardings)
    return abstract


def _first_state(optimizer: Optimizer, params: Params) -> TrainState:
    params = jax.tree.map(jnp.copy, params)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def state_shardings(state: TrainState, param_shardings: Any) -> Any:
    """Return the shardings of a state, which may be abstract: moments are sharded like params."""
    first: Sharding = jax.tree.leaves(param_shardings)[0]
    replicated = (
        NamedSharding(first.mesh, PartitionSpec()) if isinstance(first, NamedSharding) else first
    )
    return sharding.shardings_like_params(state, state.params, param_shardings, replicated)


def policy_snapshot(state: TrainState, base: FrozenBase | None = None) -> PolicySnapshot:
    """Return the policy for sampling; copy it before the next step, which donates it."""
    return PolicySnapshot(int(state.step), lora.attach(base, state.params))


def grpo_step(
    config: ModelConfig,
    optimizer: Optimizer,
    state: TrainState,
    rows: ForestRows,
    *,
    grpo: GRPOConfig,
    temperature: float = 1.0,
    base: FrozenBase | None = None,
    ref_params: Params | None = None,
    microbatch: int = 1,
    mesh: Mesh | None = None,
) -> tuple[TrainState, dict[str, float]]:
    """Run one M-GRPO optimizer step.

    Args:
        config: config of the policy.
        optimizer: applied to the accumulated gradient.
        state: donated, so it cannot be used again.
        rows: B rows, a multiple of `microbatch`.
        grpo: options of the policy loss.
        temperature: sampling temperature; policy and reference are scored at it.
        base: frozen base of trained adapters; None if the state contains all params.
        ref_params: reference policy; ignored if `grpo.kl_beta` is 0.
        microbatch: number of rows whose activations exist at once.
        mesh: shards the params, and the rows of a microbatch.

    Returns:
        The new state, and metrics: "loss", "grad_norm", and means over the weighted tokens of
        "entropy" and the fields of `losses.GRPOStats`.

    Raises:
        NonFiniteStepError: loss or gradient is not finite; the step was not applied.
        ValueError: the reference policy is missing, or `microbatch` does not divide B.
    """
    options = _grpo_options(grpo, temperature, base, ref_params, mesh)
    parts = split_microbatches(rows, microbatch, mesh)
    return _check_finite(*_jit_grpo_step(config, optimizer, state, parts, **options))


def lower_grpo_step(
    config: ModelConfig,
    optimizer: Optimizer,
    state: TrainState,
    parts: ForestRows,
    *,
    grpo: GRPOConfig,
    temperature: float = 1.0,
    base: FrozenBase | None = None,
    ref_params: Params | None = None,
    mesh: Mesh | None = None,
) -> jax.stages.Lowered:
    """Lower `grpo_step` for ahead-of-time compilation.

    Args:
        config: config of the policy.
        optimizer: as in `grpo_step`.
        state: shapes with shardings, see `abstract_state`.
        parts: shapes with shardings of microbatches [n, b, ...].
        grpo: options of the policy loss.
        temperature: sampling temperature.
        base: shapes with shardings of the frozen base; None without adapters.
        ref_params: shapes with shardings of the reference policy.
        mesh: as in `grpo_step`.
    """
    options = _grpo_options(grpo, temperature, base, ref_params, mesh)
    lowered: jax.stages.Lowered = _jit_grpo_step.lower(config, optimizer, state, parts, **options)
    return lowered


def _grpo_options(
    grpo: GRPOConfig,
    temperature: float,
    base: FrozenBase | None,
    ref_params: Params | None,
    mesh: Mesh | None,
) -> dict[str, Any]:
    if grpo.kl_beta > 0 and ref_params is None:
        raise ValueError("grpo.kl_beta is above 0: pass ref_params, or set grpo.kl_beta=0")
    return {
        # Only these options are static: changing others must not trigger a compilation.
        "surrogate": PolicyLossConfig(
            policy_loss=grpo.policy_loss,
            clip_low=grpo.clip_low,
            clip_high=grpo.clip_high,
            kl_estimator=grpo.kl_estimator,
            kl_beta=grpo.kl_beta,
            importance_weight_cap=grpo.importance_weight_cap,
        ),
        "temperature": temperature,
        "base": base,
        "ref_params": ref_params if grpo.kl_beta > 0 else None,
        "mesh": mesh,
    }


def bc_step(
    config: ModelConfig,
    optimizer: Optimizer,
    state: TrainState,
    rows: ForestRows,
    *,
    base: FrozenBase | None = None,
    microbatch: int = 1,
    mesh: Mesh | None = None,
) -> tuple[TrainState, dict[str, float]]:
    """Run one optimizer step of behavior cloning.

    Args and errors are those of `grpo_step`; the metrics are "loss", "grad_norm" and "entropy".
    """
    parts = split_microbatches(rows, microbatch, mesh)
    return _check_finite(*_jit_bc_step(config, optimizer, state, parts, base=base, mesh=mesh))


def compute_prox_logp(
    config: ModelConfig,
    params: Params,
    rows: ForestRows,
    *,
    temperature: float = 1.0,
    base: FrozenBase | None = None,
    microbatch: int = 1,
    mesh: Mesh | None = None,
) -> ForestRows:
    """Return the rows with log-probabilities of the proximal policy, the reference of the clip.

    Args:
        config: config of the policy.
        params: `TrainState.params` before the update; not donated.
        rows: B rows, a multiple of `microbatch`.
        temperature: sampling temperature.
        base: as in `grpo_step`.
        microbatch: as in `grpo_step`.
        mesh: as in `grpo_step`.
    """
    parts = split_microbatches(rows, microbatch, mesh)
    logp = gather_local_rows(_score_parts(config, params, parts, temperature, base=base, mesh=mesh))
    return dataclasses.replace(rows, prox_logp=logp.reshape(rows.loss_weights.shape))


@partial(
    jax.jit,
    static_argnames=("config", "optimizer", "surrogate", "temperature", "mesh"),
    donate_argnames=("state",),
)
def _jit_grpo_step(
    config: ModelConfig,
    optimizer: Optimizer,
    state: TrainState,
    parts: ForestRows,
    *,
    surrogate: PolicyLossConfig,
    temperature: float,
    base: FrozenBase | None,
    ref_params: Params | None,
    mesh: Mesh | None,
) -> tuple[TrainState, Sums]:
    """Run one step on microbatches [n, b, ...].

    `state` is donated: params and moments are updated in place, so memory contains them once.
    """

    def score_rows(params: Params, rows: ForestRows) -> Scores:
        return score(config, params, rows, temperature=temperature, mesh=mesh)

    def objective(params: Params, rows: ForestRows) -> tuple[Array, Sums]:
        scores = score_rows(lora.attach(base, params), rows)
        ref_logp = None if ref_params is None else score_rows(ref_params, rows).logp
        loss, stats = losses.grpo_loss(
            scores.logp,
            rows.behavior_logp,
            rows.advantages,
            rows.loss_weights,
            surrogate=surrogate,
            prox_logp=rows.prox_logp,
            ref_logp=ref_logp,
        )
        return loss, _sums(loss, rows, scores) | stats._asdict()

    return _apply_gradients(objective, optimizer, state, parts, mesh)


@partial(jax.jit, static_argnames=("config", "optimizer", "mesh"), donate_argnames=("state",))
def _jit_bc_step(
    config: ModelConfig,
    optimizer: Optimizer,
    state: TrainState,
    parts: ForestRows,
    *,
    base: FrozenBase | None,
    mesh: Mesh | None,
) -> tuple[TrainState, Sums]:
    """Run one step on microbatches [n, b, ...]; `state` is donated."""

    def objective(params: Params, rows: ForestRows) -> tuple[Array, Sums]:
        scores = score(config, lora.attach(base, params), rows, mesh=mesh)
        loss = losses.bc_loss(scores.logp, rows.loss_weights)
        return loss, _sums(loss, rows, scores)

    return _apply_gradients(objective, optimizer, state, parts, mesh)


def _sums(loss: Array, rows: ForestRows, scores: Scores) -> Sums:
    entropy = jnp.sum(rows.loss_weights * scores.entropy)
    return {"loss": loss, "weight": jnp.sum(rows.loss_weights), "entropy": entropy}


def _apply_gradients(
    objective: Objective,
    optimizer: Optimizer,
    state: TrainState,
    parts: ForestRows,
    mesh: Mesh | None,
) -> tuple[TrainState, Sums]:
    """Return the state after one step, or unchanged if loss or gradient are not finite."""
    grads, sums = accumulate_gradients(objective, state.params, parts, mesh)
    metrics = sums | {"grad_norm": optax.tree.norm(grads)}
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    new_state = TrainState(state.step + 1, optax.apply_updates(state.params, updates), opt_state)
    is_finite = jnp.isfinite(metrics["loss"]) & jnp.isfinite(metrics["grad_norm"])
    state = jax.tree.map(partial(jnp.where, is_finite), new_state, state)
    # XLA may otherwise choose other shardings for the result than those of the input.
    if mesh is not None:
        shardings = state_shardings(state, sharding.param_shardings(state.params, mesh))
        state = jax.lax.with_sharding_constraint(state, shardings)
    return state, metrics


@partial(jax.jit, static_argnames=("config", "temperature", "mesh"))
def _score_parts(
    config: ModelConfig,
    params: Params,
    parts: ForestRows,
    temperature: float,
    *,
    base: FrozenBase | None,
    mesh: Mesh | None,
) -> Array:
    """Return log-probabilities of tokens of microbatches [n, b, ...]; 0 where the weight is 0."""
    params = lora.attach(base, params)

    def score_microbatch(i: Array, logp: Array) -> Array:
        rows = take_microbatch(parts, i)
        scores = score(config, params, rows, temperature=temperature, mesh=mesh)
        weighted = jnp.where(rows.loss_weights != 0, scores.logp, 0.0)
        return jax.lax.dynamic_update_index_in_dim(logp, weighted, i, 0)

    initial = jnp.zeros_like(parts.loss_weights)
    logp = jax.lax.fori_loop(0, num_nonempty(parts), score_microbatch, initial)
    if mesh is not None:
        batch_sharding = sharding.batch_sharding(mesh, logp.shape, rows_axis=1)
        logp = jax.lax.with_sharding_constraint(logp, batch_sharding)
    return logp


def _check_finite(state: TrainState, metrics: Sums) -> tuple[TrainState, dict[str, float]]:
    """Return the state and the metrics as floats.

    Raises:
        NonFiniteStepError: loss or gradient is not finite.
    """
    values = {name: float(value) for name, value in jax.device_get(metrics).items()}
    # The weight of empty rows is 0, and so are their sums.
    weight = values.pop("weight") or 1.0
    values |= {k: v / weight for k, v in values.items() if k not in ("loss", "grad_norm")}
    if not np.isfinite([values["loss"], values["grad_norm"]]).all():
        raise NonFiniteStepError(
            f"step {int(state.step) + 1} was not applied: its loss is {values['loss']} and its "
            f"gradient norm is {values['grad_norm']}. Lower the learning rate, or check rewards "
            "and log-probabilities for values that are not finite",
            state,
        )
    return state, values
