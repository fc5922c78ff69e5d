"""The policy under training: where it lies, what of it is trained, how it is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from webagent_jax import distributed, learn, policy, seeds
from webagent_jax.checkpoint import Checkpointer
from webagent_jax.config import ConfigError, OptimizerConfig, RunConfig
from webagent_jax.learn import NonFiniteUpdate, TrainState
from webagent_jax.policy import lora, sharding
from webagent_jax.policy.loading import load_policy
from webagent_jax.policy.lora import Base
from webagent_jax.seeds import Stream
from webagent_jax.types import ForestRows, PolicySnapshot

_MICROBATCHES = 16  # rows come in multiples: empty ones cost nothing, a new shape a compilation

Json = dict[str, Any]


class Learner:
    """Holds the policy on its mesh, the train state and the checkpoints of the run: use `with`."""

    def __init__(self, cfg: RunConfig, workdir: Path) -> None:
        self._cfg = cfg
        self.mesh = sharding.make_mesh(cfg.mesh.data, cfg.mesh.fsdp, cfg.mesh.tensor)
        if self.microbatch % distributed.process_count():
            raise ConfigError(
                f"microbatches of {self.microbatch} rows do not divide over "
                f"{distributed.process_count()} processes: "
                "choose mesh.data x mesh.fsdp x mesh.rows_per_device as a multiple of their number"
            )
        self.model, params = load_policy(cfg, self.mesh)
        self._begun_with = int(_checksum(params))
        self._base, trained = _parted(cfg, params, self.mesh)
        self._reference: policy.Params | None = params
        self.state = TrainState(jnp.zeros((), jnp.int32), trained, None)  # until `begin`
        self._checkpoints = Checkpointer(workdir / "checkpoints")

    def begin(self, optimizer: OptimizerConfig, steps: int, *, reference: bool = False) -> Json:
        """Takes up the latest checkpoint, or begins.

        Args:
            steps: optimizer steps of the whole run, for the schedule of the learning rate.
            reference: whether the policy as it was loaded is needed as a reference.

        Returns:
            The position in the run that the checkpoint was saved with; empty when it begins.

        Raises:
            ConfigError: the run began with other weights than stand at `policy.path` now.
        """
        self._optimizer = learn.make_optimizer(optimizer, steps)
        first = learn.init_state(self.state.params, self._optimizer)
        self.state, position = self._checkpoints.restore(first) or (first, {})
        if position and position.pop("begun_with") != self._begun_with:
            raise ConfigError(
                f"the weights at {self._cfg.policy.path} are not those that this run began with, "
                "and that its reference policy is: put them back, or choose another --workdir"
            )
        if not reference:
            self._reference = None
        return position

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._checkpoints.close()

    # --- learning --------------------------------------------------------------------------------

    @property
    def microbatch(self) -> int:
        """Rows whose activations exist at once, on all devices together."""
        return self._cfg.mesh.rows_per_device * sharding.rows_apart(self.mesh)

    @property
    def row_multiple(self) -> int:
        """What the number of rows that this host brings to a batch must be a multiple of."""
        return _MICROBATCHES * self.microbatch // distributed.process_count()

    def even(self, rows: ForestRows) -> ForestRows:
        """The same rows, with empty ones to make as many as every other host brings."""
        shapes = np.max(distributed.allgather(rows.targets.shape), axis=0)
        return learn.widened(rows, count=int(shapes[0]), row_targets=int(shapes[1]))

    def proximal(self, rows: ForestRows) -> ForestRows:
        """The rows with their log-probabilities under the policy as it is now."""
        return learn.proximal(
            self.model,
            self.state.params,
            rows,
            temperature=self._cfg.rollout.temperature,
            base=self._base,
            microbatch=self.microbatch,
            mesh=self.mesh,
        )

    def clone(self, rows: ForestRows) -> dict[str, float]:
        """One update of behaviour cloning; raises as `learn.bc_update`, naming the rows."""
        return self._updated(partial(learn.bc_update, base=self._base), rows)

    def reinforce(self, rows: ForestRows) -> dict[str, float]:
        """One update of M-GRPO; raises as `learn.grpo_update`, naming the rows."""
        update = partial(
            learn.grpo_update,
            grpo=self._cfg.grpo,
            temperature=self._cfg.rollout.temperature,
            base=self._base,
            ref_params=self._reference,
        )
        return self._updated(update, rows)

    def _updated(self, update: Callable[..., Any], rows: ForestRows) -> dict[str, float]:
        given = {"microbatch": self.microbatch, "mesh": self.mesh}
        try:
            self.state, stats = update(self.model, self._optimizer, self.state, rows, **given)
        except NonFiniteUpdate as error:
            self.state = error.state
            told = f"{error}. {self._about_spoilt(rows)}"
            raise NonFiniteUpdate(told, error.state) from error
        return dict(stats)

    def _about_spoilt(self, rows: ForestRows) -> str:
        """Which rows have brought something that is not finite, or make the policy say it."""
        given = np.stack([rows.behaviour_logp, rows.advantages, rows.weights])
        for what, values in (
            ("are given log-probabilities or advantages that are not finite", given.sum(axis=0)),
            ("have log-probabilities that are not finite", self.proximal(rows).prox_logp),
        ):
            spoilt = np.flatnonzero(~np.isfinite(values).all(axis=1))
            if len(spoilt):
                return f"Rows {', '.join(map(str, spoilt[:8]))} of the batch {what}"
        return "No row of the batch is to blame: the gradient has overflowed"

    def snapshot(self) -> PolicySnapshot:
        """What an engine samples with; to be copied before the next update, which consumes it."""
        whole = learn.snapshot(self.state, self._base)
        here = sharding.on_host(whole.params, self._cfg.engine.tensor)
        return PolicySnapshot(whole.version, here)

    def about(self) -> str:
        sizes = " x ".join(f"{axis}={size}" for axis, size in self.mesh.shape.items())
        return f"attention: {self.model.attention}; mesh: {sizes}"

    # --- keeping ---------------------------------------------------------------------------------

    def save(self, update: int, position: Json) -> None:
        """Begins to write a checkpoint; what it holds does not change any more."""
        whole = position | {"begun_with": self._begun_with}
        self._checkpoints.save(update, self.state, whole)

    def export(self, directory: Path, trained: policy.Params | None = None) -> Path:
        """A Hugging Face directory that stands alone: weights, config and tokenizer.

        Args:
            trained: other params than those of the state, of the same form.
        """
        params = self.state.params if trained is None else trained
        merged = sharding.on_host(lora.merge(lora.whole(self._base, params)))
        if distributed.process_index() == 0:
            policy.save_hf(directory, self.model, merged)
            policy.copy_tokenizer(policy.directory(self._cfg.policy.path), directory)
        distributed.barrier("export")
        return directory


def _parted(cfg: RunConfig, params: policy.Params, mesh: Mesh) -> tuple[Base | None, policy.Params]:
    """What stays and what is trained: all params, or adapters on them."""
    if cfg.lora.rank == 0:
        return None, params
    key = jax.random.key(seeds.derive(cfg.seed, Stream.ADAPTERS))
    adapters = lora.init(params, key, rank=cfg.lora.rank, projections=cfg.lora.projections)
    adapters = jax.device_put(adapters, sharding.param_shardings(adapters, mesh))
    return Base(params, cfg.lora.alpha / cfg.lora.rank), adapters


@jax.jit
def _checksum(params: policy.Params) -> jax.Array:
    """Of the bits as integers: it does not depend on how the arrays are cut over devices."""
    bits = (jax.lax.bitcast_convert_type(x, jnp.int32) for x in jax.tree.leaves(params))
    return jnp.stack([jnp.sum(x) * (2 * i + 1) for i, x in enumerate(bits)]).sum()
