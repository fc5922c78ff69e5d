"""Train step of M-GRPO and BC: a jitted function of forest rows and a donated TrainState.

`make_train_step` builds it from a loss function. The loss is a sum over rows, so accumulating the
gradient over microbatches does not change it. The loop skips trailing empty microbatches, so rows
that only pad a shape cost nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from webagent_jax.config import GRPOConfig, RunStoppedError
from webagent_jax.learn import losses
from webagent_jax.learn.losses import PolicyLossConfig
from webagent_jax.learn.microbatches import (
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


@flax.struct.dataclass
class FrozenParams:
    """Params that a loss reads and no step changes."""

    base: FrozenBase | None = None  # base of trained adapters; None if all params are trained
    # Reference policy as adapters of the base, or all its params without a base. A second copy of
    # the base would be another array for XLA. Required if `grpo.needs_reference`.
    reference: Params | None = None


LossFn: TypeAlias = Callable[[FrozenParams, Params, ForestRows], tuple[Array, Sums]]
"""Function of frozen params, trained params and one microbatch: its loss and sums over tokens.

It is hashable, and a sum over rows. The sums include "loss", "weight" and "entropy".
"""


class NonFiniteStepError(RunStoppedError):
    """Loss or gradient that is not finite; the step was not applied."""


def init_state(params: Params, optimizer: Optimizer) -> TrainState:
    """Return the state before the first step; moments are sharded like their params.

    It contains a copy of `params`, because steps donate the state.
    """

    # NumPy arrays have no sharding to copy to the moments.
    params = jax.tree.map(jnp.asarray, params)
    shardings = jax.tree.map(lambda x: x.sharding, abstract_state(params, optimizer))
    # Under jit with `out_shardings`, the moments are created in their shards.
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
    # Leaves that are not copies of the params, such as step counts, are replicated.
    replicated = (
        NamedSharding(first.mesh, PartitionSpec()) if isinstance(first, NamedSharding) else first
    )
    return sharding.shardings_like_params(state, state.params, param_shardings, replicated)


def policy_snapshot(state: TrainState, base: FrozenBase | None = None) -> PolicySnapshot:
    """Return the policy for sampling; copy it before the next step, which donates it."""
    return PolicySnapshot(int(state.step), lora.attach(base, state.params))


@functools.cache
def make_train_step(
    loss_fn: LossFn, optimizer: Optimizer, mesh: Mesh | None = None
) -> jax.stages.Wrapped:
    """Return the jitted optimizer step `train_step(state, frozen, microbatches)`.

    It returns the new state and the sums that `fetch_metrics` reads. `state` is donated: params and
    moments are updated in place, so memory contains them once. If loss or gradient are not finite,
    params, moments and step count are returned unchanged. Equal arguments return the same function.

    Args:
        loss_fn: loss of a microbatch, `BCLoss` or `GRPOLoss`.
        optimizer: applied to the accumulated gradient.
        mesh: shards the params, and the rows of a microbatch; None on a single device.
    """

    @partial(jax.jit, donate_argnames="state")
    def train_step(
        state: TrainState, frozen: FrozenParams, microbatches: ForestRows
    ) -> tuple[TrainState, Sums]:
        objective = partial(loss_fn, frozen)
        grads, sums = accumulate_gradients(objective, state.params, microbatches, mesh)
        # The norm before clipping; it is not finite if any element of the gradient is not.
        metrics = sums | {"grad_norm": optax.tree.norm(grads), "step": state.step + 1}
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        is_finite = jnp.isfinite(metrics["loss"]) & jnp.isfinite(metrics["grad_norm"])
        new_state = TrainState(metrics["step"], params, opt_state)
        # Selected on the device, so the host need not wait for the result to reject a step.
        state = jax.tree.map(partial(jnp.where, is_finite), new_state, state)
        # XLA may otherwise choose other shardings for the result than those of the input.
        if mesh is not None:
            shardings = state_shardings(state, sharding.param_shardings(state.params, mesh))
            state = jax.lax.with_sharding_constraint(state, shardings)
        return state, metrics

    return train_step


def fetch_metrics(sums: Sums) -> dict[str, float]:
    """Wait for a train step and return its metrics.

    Returns:
        "loss", "grad_norm", and the other sums divided by the sum of the loss weights: "entropy"
        and, for M-GRPO, the fields of `losses.GRPOStats`.

    Raises:
        NonFiniteStepError: loss or gradient is not finite; the step was not applied.
    """
    values = {name: float(value) for name, value in jax.device_get(sums).items()}
    step = int(values.pop("step"))
    # The weight of empty rows is 0, and so are their sums.
    weight = values.pop("weight") or 1.0
    # Weights of constant_length sum to less than 1; divided by the sum, metrics are token means.
    values |= {k: v / weight for k, v in values.items() if k not in ("loss", "grad_norm")}
    if not np.isfinite([values["loss"], values["grad_norm"]]).all():
        raise NonFiniteStepError(
            f"step {step} was not applied: its loss is {values['loss']} and its gradient norm is "
            f"{values['grad_norm']}. Lower the learning rate, or check rewards and "
            "log-probabilities for values that are not finite"
        )
    return values


@dataclasses.dataclass(frozen=True)
class BCLoss:
    """Loss of behavior cloning over forest rows."""

    model: ModelConfig
    mesh: Mesh | None = None

    def __call__(
        self, frozen: FrozenParams, params: Params, rows: ForestRows
    ) -> tuple[Array, Sums]:
        """Return the loss and the sums of one microbatch."""
        scores = score(self.model, lora.attach(frozen.base, params), rows, mesh=self.mesh)
        loss = losses.bc_loss(scores.logp, rows.loss_weights)
        return loss, _sums(loss, rows, scores)


@dataclasses.dataclass(frozen=True)
class GRPOLoss:
    """Loss of M-GRPO over forest rows; policy and reference are scored at `temperature`."""

    model: ModelConfig
    options: PolicyLossConfig
    temperature: float = 1.0
    mesh: Mesh | None = None

    @classmethod
    def from_config(
        cls,
        model: ModelConfig,
        grpo: GRPOConfig,
        temperature: float = 1.0,
        mesh: Mesh | None = None,
    ) -> GRPOLoss:
        """Return the loss with the options of `grpo` that affect the compiled step."""
        # The fields have the names of their options in GRPOConfig.
        names = PolicyLossConfig._fields
        options = PolicyLossConfig(**{name: getattr(grpo, name) for name in names})
        return cls(model, options, temperature, mesh)

    def __call__(
        self, frozen: FrozenParams, params: Params, rows: ForestRows
    ) -> tuple[Array, Sums]:
        """Return the loss and the sums of one microbatch.

        Raises:
            ValueError: the loss needs a reference policy, and there is none.
        """

        def score_rows(params: Params) -> Scores:
            return score(self.model, params, rows, temperature=self.temperature, mesh=self.mesh)

        if self.options.needs_reference and frozen.reference is None:
            raise ValueError("kl_beta is above 0: pass a reference policy, or set grpo.kl_beta=0")
        scores = score_rows(lora.attach(frozen.base, params))
        ref_logp = None
        if self.options.needs_reference:
            # The reference does not depend on `params`, so its pass is not differentiated.
            ref_logp = score_rows(lora.attach(frozen.base, frozen.reference)).logp
        loss, stats = losses.grpo_loss(
            scores.logp,
            rows.behavior_logp,
            rows.advantages,
            rows.loss_weights,
            config=self.options,
            prox_logp=rows.prox_logp,
            ref_logp=ref_logp,
        )
        return loss, _sums(loss, rows, scores) | stats._asdict()


def _sums(loss: Array, rows: ForestRows, scores: Scores) -> Sums:
    entropy = jnp.sum(rows.loss_weights * scores.entropy)
    return {"loss": loss, "weight": jnp.sum(rows.loss_weights), "entropy": entropy}


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
        base: base of trained adapters.
        microbatch: number of rows whose activations exist at once.
        mesh: as in `make_train_step`.
    """
    parts = split_microbatches(rows, microbatch, mesh)
    # [n, b, R] of this process; its microbatches are in the order of `rows`.
    logp = gather_local_rows(_score_parts(config, params, parts, temperature, base=base, mesh=mesh))
    return dataclasses.replace(rows, prox_logp=logp.reshape(rows.loss_weights.shape))


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
        # [b, R]; padding points at token 0, whose score has no meaning.
        weighted = jnp.where(rows.loss_weights != 0, scores.logp, 0.0)
        return jax.lax.dynamic_update_index_in_dim(logp, weighted, i, 0)

    # Microbatches that the loop skips have no weights, so 0 is correct for them too.
    initial = jnp.zeros_like(parts.loss_weights)
    logp = jax.lax.fori_loop(0, num_nonempty(parts), score_microbatch, initial)
    if mesh is not None:
        # `gather_local_rows` requires the sharding of `parts`: over axis 1, the rows.
        batch_sharding = sharding.batch_sharding(mesh, logp.shape, rows_axis=1)
        logp = jax.lax.with_sharding_constraint(logp, batch_sharding)
    return logp
