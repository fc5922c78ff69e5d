"""One optimizer update as one jitted, donating function: forest rows in, new TrainState out.

The loss is a sum over rows, so the gradient is accumulated over microbatches without changing it.
The loop runs over the microbatches that hold something, so rows that only fill up a shape cost
nothing.
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
from webagent_jax.learn.losses import Surrogate
from webagent_jax.learn.microbatches import (
    Objective,
    Params,
    Sums,
    accumulate,
    live,
    own_rows,
    part,
    split,
)
from webagent_jax.policy import ModelConfig, Scores, lora, score, sharding
from webagent_jax.policy.lora import Base
from webagent_jax.types import ForestRows, PolicySnapshot

Optimizer: TypeAlias = optax.GradientTransformationExtraArgs


@flax.struct.dataclass
class TrainState:
    step: Array  # int32, optimizer updates done
    params: Params  # what is trained: all, or adapters (policy.lora)
    opt_state: Any


class NonFiniteUpdate(FloatingPointError):
    """The loss or its gradient was not finite; `state` is the one before the update, unharmed."""

    def __init__(self, message: str, state: TrainState) -> None:
        super().__init__(message)
        self.state = state


def init_state(params: Params, optimizer: Optimizer) -> TrainState:
    """The state before the first update; moments lie where their params do.

    Holds a copy of `params`: updates consume the state.
    """

    params = jax.tree.map(jnp.asarray, params)
    at = jax.tree.map(lambda x: x.sharding, abstract_state(params, optimizer))
    state: TrainState = jax.jit(partial(_first_state, optimizer), out_shardings=at)(params)
    return state


def abstract_state(params: Params, optimizer: Optimizer) -> TrainState:
    """Shapes, dtypes and shardings of the state; `params` may be shapes with shardings."""
    shapes = jax.eval_shape(partial(_first_state, optimizer), params)
    at = state_shardings(shapes, jax.tree.map(lambda x: x.sharding, params))
    abstract: TrainState = sharding.placed(shapes, at)
    return abstract


def _first_state(optimizer: Optimizer, params: Params) -> TrainState:
    params = jax.tree.map(jnp.copy, params)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def state_shardings(state: TrainState, param_shardings: Any) -> Any:
    """A tree of shardings like `state`, which may be shapes alone: moments lie where params do."""
    one: Sharding = jax.tree.leaves(param_shardings)[0]
    whole = NamedSharding(one.mesh, PartitionSpec()) if isinstance(one, NamedSharding) else one
    return sharding.like_params(state, state.params, param_shardings, whole)


def snapshot(state: TrainState, base: Base | None = None) -> PolicySnapshot:
    """What the engine samples with. To be copied before the next update, which consumes it."""
    return PolicySnapshot(int(state.step), lora.whole(base, state.params))


def grpo_update(
    config: ModelConfig,
    optimizer: Optimizer,
    state: TrainState,
    rows: ForestRows,
    *,
    grpo: GRPOConfig,
    temperature: float = 1.0,
    base: Base | None = None,
    ref_params: Params | None = None,
    microbatch: int = 1,
    mesh: Mesh | None = None,
) -> tuple[TrainState, dict[str, float]]:
    """One M-GRPO update.

    Args:
        state: consumed.
        rows: B a multiple of `microbatch`.
        temperature: of sampling; policy and reference are scored at it.
        base: of the adapters that are trained; without one the state holds all params.
        ref_params: the reference policy; not looked at when `grpo.kl_beta` is 0.
        microbatch: rows whose activations exist at once.
        mesh: over which the params are cut, and the rows of a microbatch.

    Returns:
        The new state, "loss" and "grad_norm", and means over the weighted tokens: "entropy" and the
        fields of `losses.GRPOStats`.

    Raises:
        NonFiniteUpdate: and the update was not applied.
        ValueError: the reference policy is missing, or the rows are not a multiple.
    """
    options = _grpo_options(grpo, temperature, base, ref_params, mesh)
    parts = split(rows, microbatch, mesh)
    return _checked(*_grpo_update(config, optimizer, state, parts, **options))


def lower_grpo_update(
    config: ModelConfig,
    optimizer: Optimizer,
    state: TrainState,
    parts: ForestRows,
    *,
    grpo: GRPOConfig,
    temperature: float = 1.0,
    base: Base | None = None,
    ref_params: Params | None = None,
    mesh: Mesh | None = None,
) -> jax.stages.Lowered:
    """The program of `grpo_update`, to be compiled ahead of time.

    Args:
        state, base, ref_params: shapes with shardings, see `abstract_state`.
        parts: shapes with shardings of microbatches [n, b, ...].
    """
    options = _grpo_options(grpo, temperature, base, ref_params, mesh)
    lowered: jax.stages.Lowered = _grpo_update.lower(config, optimizer, state, parts, **options)
    return lowered


def _grpo_options(
    grpo: GRPOConfig,
    temperature: float,
    base: Base | None,
    ref_params: Params | None,
    mesh: Mesh | None,
) -> dict[str, Any]:
    if grpo.kl_beta > 0 and ref_params is None:
        raise ValueError("grpo.kl_beta is above 0: give ref_params, or set kl_beta to 0")
    return {
        # Of the whole config only this is compiled in: other options must not compile it again.
        "surrogate": Surrogate(
            policy_loss=grpo.policy_loss,
            clip_low=grpo.clip_low,
            clip_high=grpo.clip_high,
            kl=grpo.kl,
            kl_beta=grpo.kl_beta,
            importance_cap=grpo.importance_cap,
        ),
        "temperature": temperature,
        "base": base,
        "ref_params": ref_params if grpo.kl_beta > 0 else None,
        "mesh": mesh,
    }


def bc_update(
    config: ModelConfig,
    optimizer: Optimizer,
    state: TrainState,
    rows: ForestRows,
    *,
    base: Base | None = None,
    microbatch: int = 1,
    mesh: Mesh | None = None,
) -> tuple[TrainState, dict[str, float]]:
    """One update of behaviour cloning; as `grpo_update`; metrics "loss", "grad_norm", "entropy"."""
    parts = split(rows, microbatch, mesh)
    return _checked(*_bc_update(config, optimizer, state, parts, base=base, mesh=mesh))


def proximal(
    config: ModelConfig,
    params: Params,
    rows: ForestRows,
    *,
    temperature: float = 1.0,
    base: Base | None = None,
    microbatch: int = 1,
    mesh: Mesh | None = None,
) -> ForestRows:
    """The rows with the log-probabilities of a proximal policy, which the clip is held against.

    Args:
        params: before the update, what `TrainState.params` holds; not consumed.
        temperature, base, microbatch, mesh: as in `grpo_update`.
    """
    parts = split(rows, microbatch, mesh)
    logp = own_rows(_score_parts(config, params, parts, temperature, base=base, mesh=mesh))
    return dataclasses.replace(rows, prox_logp=logp.reshape(rows.weights.shape))


@partial(
    jax.jit,
    static_argnames=("config", "optimizer", "surrogate", "temperature", "mesh"),
    donate_argnames=("state",),
)
def _grpo_update(
    config: ModelConfig,
    optimizer: Optimizer,
    state: TrainState,
    parts: ForestRows,
    *,
    surrogate: Surrogate,
    temperature: float,
    base: Base | None,
    ref_params: Params | None,
    mesh: Mesh | None,
) -> tuple[TrainState, Sums]:
    """`parts` holds microbatches [n, b, ...]. `state` is donated: params and moments are updated in
    place, so that a device holds them once."""

    def score_rows(params: Params, rows: ForestRows) -> Scores:
        return score(config, params, rows, temperature=temperature, mesh=mesh)

    def objective(params: Params, rows: ForestRows) -> tuple[Array, Sums]:
        scores = score_rows(lora.whole(base, params), rows)
        ref_logp = None if ref_params is None else score_rows(ref_params, rows).logp
        loss, stats = losses.grpo_loss(
            scores.logp,
            rows.behaviour_logp,
            rows.advantages,
            rows.weights,
            surrogate=surrogate,
            prox_logp=rows.prox_logp,
            ref_logp=ref_logp,
        )
        return loss, _sums(loss, rows, scores) | stats._asdict()

    return _update(objective, optimizer, state, parts, mesh)


@partial(jax.jit, static_argnames=("config", "optimizer", "mesh"), donate_argnames=("state",))
def _bc_update(
    config: ModelConfig,
    optimizer: Optimizer,
    state: TrainState,
    parts: ForestRows,
    *,
    base: Base | None,
    mesh: Mesh | None,
) -> tuple[TrainState, Sums]:
    """As `_grpo_update`."""

    def objective(params: Params, rows: ForestRows) -> tuple[Array, Sums]:
        scores = score(config, lora.whole(base, params), rows, mesh=mesh)
        loss = losses.bc_loss(scores.logp, rows.weights)
        return loss, _sums(loss, rows, scores)

    return _update(objective, optimizer, state, parts, mesh)


def _sums(loss: Array, rows: ForestRows, scores: Scores) -> Sums:
    entropy = jnp.sum(rows.weights * scores.entropy)
    return {"loss": loss, "weight": jnp.sum(rows.weights), "entropy": entropy}


def _update(
    objective: Objective,
    optimizer: Optimizer,
    state: TrainState,
    parts: ForestRows,
    mesh: Mesh | None,
) -> tuple[TrainState, Sums]:
    """The state after one update, or as it was where loss or gradient are not finite."""
    grads, sums = accumulate(objective, state.params, parts, mesh)
    metrics = sums | {"grad_norm": optax.tree.norm(grads)}
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    after = TrainState(state.step + 1, optax.apply_updates(state.params, updates), opt_state)
    finite = jnp.isfinite(metrics["loss"]) & jnp.isfinite(metrics["grad_norm"])
    state = jax.tree.map(partial(jnp.where, finite), after, state)
    if mesh is not None:  # XLA may prefer to leave the state elsewhere than it found it
        at = state_shardings(state, sharding.param_shardings(state.params, mesh))
        state = jax.lax.with_sharding_constraint(state, at)
    return state, metrics


@partial(jax.jit, static_argnames=("config", "temperature", "mesh"))
def _score_parts(
    config: ModelConfig,
    params: Params,
    parts: ForestRows,
    temperature: float,
    *,
    base: Base | None,
    mesh: Mesh | None,
) -> Array:
    """Log-probabilities of the weighted tokens of microbatches [n, b, ...], 0 for others."""
    params = lora.whole(base, params)

    def scored(i: Array, logp: Array) -> Array:
        rows = part(parts, i)
        scores = score(config, params, rows, temperature=temperature, mesh=mesh)
        weighted = jnp.where(rows.weights != 0, scores.logp, 0.0)
        return jax.lax.dynamic_update_index_in_dim(logp, weighted, i, 0)

    logp = jax.lax.fori_loop(0, live(parts), scored, jnp.zeros_like(parts.weights))
    if mesh is not None:
        at = sharding.batch_sharding(mesh, logp.shape, rows_axis=1)
        logp = jax.lax.with_sharding_constraint(logp, at)
    return logp


def _checked(state: TrainState, metrics: Sums) -> tuple[TrainState, dict[str, float]]:
    values = {name: float(value) for name, value in jax.device_get(metrics).items()}
    weight = values.pop("weight") or 1.0  # rows that hold nothing have nothing to divide
    values |= {k: v / weight for k, v in values.items() if k not in ("loss", "grad_norm")}
    if not np.isfinite([values["loss"], values["grad_norm"]]).all():
        raise NonFiniteUpdate(
            f"update {int(state.step) + 1} was not applied: its loss is {values['loss']}, "
            f"the norm of its gradient {values['grad_norm']}. Lower the learning rate, or look for "
            "rewards and log-probabilities that are not finite",
            state,
        )
    return state, values
