"""Policy under training: params on the device mesh, train state, checkpoints and export."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from webagent_jax import distributed, learn, policy, seeds
from webagent_jax.checkpoint import Checkpointer
from webagent_jax.config import ConfigError, OptimizerConfig, PreemptedError, RunConfig
from webagent_jax.inference import serving_params
from webagent_jax.learn import FrozenParams, LossFn, NonFiniteStepError, TrainState
from webagent_jax.learn.microbatches import Sums
from webagent_jax.policy import ModelConfig, loading, lora, sharding
from webagent_jax.policy.loading import load_policy, with_policy_path
from webagent_jax.policy.lora import FrozenBase
from webagent_jax.seeds import RandomStream
from webagent_jax.tracking import atomic_files
from webagent_jax.train import export
from webagent_jax.train.preemption import PreemptionNotice
from webagent_jax.types import ForestRows, PolicySnapshot

# Batches are padded to a multiple of this many microbatches: empty rows cost nothing, and a new
# shape costs a compilation.
_MICROBATCH_MULTIPLE = 16

Json = dict[str, Any]


class Learner:
    """Policy on its mesh, train state and checkpoints of a run; a context manager.

    The exit raises PreemptedError if SIGTERM arrived after the last update or during it.
    """

    def __init__(self, cfg: RunConfig, workdir: Path) -> None:
        self._cfg, self._workdir = cfg, workdir
        self.mesh = sharding.make_mesh(cfg.mesh.data, cfg.mesh.fsdp, cfg.mesh.tensor)
        sharding.check_row_shards(self.mesh)
        # The base of adapters, or the policy itself.
        self.model, params = load_policy(
            with_policy_path(cfg, loading.frozen_base_path(cfg)), self.mesh
        )
        # Created once: every new jitted function is traced and compiled again.
        self._cast = jax.jit(partial(serving_params.cast_params, self.model))
        self._base, trained = _split_trainable(cfg, self.model, params, self.mesh)
        if self._base is None:
            reference = params
        elif cfg.lora.create_new_adapter:
            reference = lora.NO_ADAPTERS
        else:
            # A copy, because a step donates the trained params.
            reference = jax.tree.map(jnp.copy, trained)
        # A resumed run needs the same initial params, as the base of adapters and as reference.
        self._initial_params_checksum = int(_checksum(lora.attach(self._base, reference)))
        # `restore_or_init` drops the reference if the objective does not use it.
        self._frozen = FrozenParams(self._base, reference)
        # `restore_or_init` replaces this state.
        self.state = TrainState(jnp.zeros((), jnp.int32), trained, None)
        self._checkpoints = Checkpointer(workdir / "checkpoints")
        self._preemption = PreemptionNotice()
        self._is_preempted = False  # SIGTERM arrived before the last call of `needs_checkpoint`
        self._saved_update = 0  # update of the last checkpoint

    def restore_or_init(
        self, loss_fn: LossFn, optimizer: OptimizerConfig, steps: int, *, reference: bool = False
    ) -> Json:
        """Restore the latest checkpoint, or initialize the train state if there is none.

        Args:
            loss_fn: loss of `step`.
            optimizer: options of the optimizer.
            steps: optimizer steps of the complete run, for the learning rate schedule.
            reference: keep the initial policy in memory as the reference policy.

        Returns:
            The loop state stored with the checkpoint; empty for a new run.

        Raises:
            ConfigError: the run started from other weights than those at `policy.path`.
        """
        transform = learn.make_optimizer(optimizer, steps)
        self._train_step = learn.make_train_step(loss_fn, transform, self.mesh)
        # Shapes only: the moments of a new run beside those of the checkpoint may not fit.
        shapes = learn.abstract_state(self.state.params, transform)
        if (checkpoint := self._checkpoints.restore(shapes)) is not None:
            self.state, loop_state = checkpoint
        else:
            self.state, loop_state = learn.init_state(self.state.params, transform), {}
        self._check_initial_params(loop_state.pop("initial_params_checksum", None))
        self._saved_update = loop_state.get("update", 0)
        if not reference:
            self._frozen = FrozenParams(self._base)
        return loop_state

    def _check_initial_params(self, checksum: int | None) -> None:
        """Check that the run started from the initial params, or record them; a collective call.

        Args:
            checksum: checksum in the checkpoint; None without a checkpoint.

        Raises:
            ConfigError: the run started from others.
        """
        path = self._workdir / "initial_params.json"
        # Without a checkpoint, a resumed run still reuses its episodes.
        has_episodes = any((self._workdir / "episodes").glob("update-*.jsonl"))
        if checksum is None and has_episodes and path.exists():
            checksum = atomic_files.read_json(path)["checksum"]
        has_changed = checksum not in (None, self._initial_params_checksum)
        # Collective, so no process writes the file or an episode before all have read.
        if any(distributed.allgather(has_changed)):
            raise ConfigError(
                f"the weights at {self._cfg.policy.path} differ from those that this run and its "
                "reference policy started from: restore them, or choose another --workdir"
            )
        if distributed.process_index() == 0:
            atomic_files.write_json(path, {"checksum": self._initial_params_checksum})

    def __enter__(self) -> Self:
        self._preemption.__enter__()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            self._checkpoints.close()
        finally:
            self._preemption.__exit__()
        # No update follows that checks the signal, but the next phase of a quickstart may.
        if error_type is None and self._preemption.is_received:
            raise PreemptedError(self._saved_update)

    # --- training --------------------------------------------------------------------------------

    @property
    def microbatch(self) -> int:
        """Number of rows, over all devices, whose activations exist at once."""
        return self._cfg.mesh.microbatch_rows_per_device * sharding.num_row_shards(self.mesh)

    @property
    def packing_options(self) -> dict[str, int]:
        """Arguments of `learn.pack_branches` that depend on mesh and number of processes."""
        num_processes = distributed.process_count()
        options = {"row_multiple": _MICROBATCH_MULTIPLE * self.microbatch // num_processes}
        # Several processes would have to agree on a shorter length of rows.
        return options if num_processes > 1 else options | {"microbatch": self.microbatch}

    def pad_across_processes(self, rows: ForestRows) -> ForestRows:
        """Return the rows, padded with empty ones to the largest shape of any process."""
        # [B, R] of each process; L is the same everywhere.
        shapes = np.max(distributed.allgather(rows.target_indices.shape), axis=0)
        return learn.pad_to_shape(rows, count=int(shapes[0]), row_targets=int(shapes[1]))

    def compute_prox_logp(self, rows: ForestRows) -> ForestRows:
        """Return the rows with `prox_logp` under the current params."""
        return learn.compute_prox_logp(
            self.model,
            self.state.params,
            rows,
            temperature=self._cfg.rollout.temperature,
            base=self._base,
            microbatch=self.microbatch,
            mesh=self.mesh,
        )

    def step(self, rows: ForestRows) -> PendingMetrics:
        """Dispatch one optimizer step and return its metrics, which are still on the device."""
        microbatches = learn.split_microbatches(rows, self.microbatch, self.mesh)
        self.state, sums = self._train_step(self.state, self._frozen, microbatches)
        return PendingMetrics(self, rows, sums)

    def find_nonfinite_rows(self, rows: ForestRows) -> str:
        """Describe the rows whose inputs or log-probabilities are not finite."""
        # [3, B, R]; the sum over axis 0 is not finite if one of the three values is not.
        inputs = np.stack([rows.behavior_logp, rows.advantages, rows.loss_weights])
        # The tuple is complete before the loop starts. So every process calls the collective
        # `compute_prox_logp`, even if its own inputs contain the cause.
        for problem, values in (
            (
                "have behavior log-probabilities, advantages or loss weights that are not finite",
                inputs.sum(axis=0),
            ),
            (
                "have log-probabilities under the policy that are not finite",
                self.compute_prox_logp(rows).prox_logp,
            ),
        ):
            indices = np.flatnonzero(~np.isfinite(values).all(axis=1))
            if len(indices):
                return f"Rows {', '.join(map(str, indices[:8]))} of the batch {problem}"
        return "All rows of the batch are finite: the gradient overflowed"

    def snapshot(self) -> PolicySnapshot:
        """Return the policy for sampling; copy it before the next step, which donates it."""
        snapshot = learn.policy_snapshot(self.state, self._base)
        engine, params = self._cfg.engine, snapshot.params
        # Each process receives all params. The dtypes of its engine, such as bfloat16, save memory;
        # an engine with quantization needs the params as they are.
        if distributed.process_count() > 1 and engine.quantization == "none":
            params = self._cast(params)
        params = sharding.copy_to_each_process(params, engine.tensor_parallel_size)
        return PolicySnapshot(snapshot.version, params)

    def describe(self) -> str:
        """Return a line for the log: attention implementation and mesh shape."""
        sizes = " x ".join(f"{axis}={size}" for axis, size in self.mesh.shape.items())
        return f"attention: {self.model.attention}; mesh: {sizes}"

    # --- checkpoints and export ------------------------------------------------------------------

    def needs_checkpoint(self, update: int, interval: int) -> bool:
        """Return whether to save this update: every `interval` updates, and after SIGTERM."""
        self._is_preempted = self._preemption.has_arrived()
        return self._is_preempted or update % interval == 0

    def stop_if_preempted(self, update: int) -> None:
        """Stop the training after SIGTERM; call `needs_checkpoint` for the update first.

        Raises:
            PreemptedError: SIGTERM arrived in this process or another one of the job.
        """
        if self._is_preempted:
            raise PreemptedError(update)

    def save(self, update: int, loop_state: Json) -> None:
        """Start writing a checkpoint; later steps do not change its content.

        Args:
            update: number of completed updates, the key of the checkpoint.
            loop_state: state of the loop, which `restore_or_init` returns on resume.
        """
        record = loop_state | {"initial_params_checksum": self._initial_params_checksum}
        self._checkpoints.save(update, self.state, record)
        self._saved_update = update

    def export(self, directory: Path, trained: policy.Params | None = None) -> Path:
        """Write a self-contained Hugging Face directory: weights, config and tokenizer.

        With LoRA, the weights are merged, and the sibling directory `adapter` contains the adapters
        in the format of PEFT.

        Args:
            directory: directory to create or overwrite.
            trained: params of the same structure to export instead of those of the state.

        Returns:
            `directory`.
        """
        params = self.state.params if trained is None else trained
        # Collective, so it precedes the branch on the process index.
        attached = _gather_merged(lora.attach(self._base, params))
        adapters = sharding.gather_to_first_process(params) if self._base else None
        if distributed.process_index() == 0:
            policy.save_hf(directory, self.model, attached)
            export.copy_text_files(self._cfg, directory)
            if adapters is not None:
                export.write_adapter(directory.with_name("adapter"), self._cfg, adapters)
        # No process returns before the files are complete.
        distributed.barrier("export")
        return directory


class PendingMetrics:
    """Metrics of a dispatched optimizer step."""

    def __init__(self, learner: Learner, rows: ForestRows, sums: Sums) -> None:
        self._learner, self._rows, self._sums = learner, rows, sums

    def fetch(self) -> dict[str, float]:
        """Wait for the step and return its metrics, see `learn.fetch_metrics`.

        Raises:
            NonFiniteStepError: loss or gradient is not finite; the message lists the rows.
        """
        try:
            return learn.fetch_metrics(self._sums)
        except NonFiniteStepError as error:
            cause = self._learner.find_nonfinite_rows(self._rows)
            raise NonFiniteStepError(f"{error}. {cause}") from error


def _split_trainable(
    cfg: RunConfig, model: ModelConfig, params: policy.Params, mesh: Mesh
) -> tuple[FrozenBase | None, policy.Params]:
    """Return the frozen base and its adapters, or None and all params without LoRA."""
    if cfg.lora.rank == 0:
        return None, params
    if cfg.lora.create_new_adapter:
        # The key depends on the run seed only, so all processes create the same adapters.
        key = jax.random.key(seeds.derive_seed(cfg.seed, RandomStream.ADAPTERS))
        adapters = lora.init(params, key, rank=cfg.lora.rank, projections=cfg.lora.target_modules)
    else:
        adapters = loading.load_trained_adapter(cfg, model)
    adapters = jax.device_put(adapters, sharding.param_shardings(adapters, mesh))
    return FrozenBase(params, cfg.lora.alpha / cfg.lora.rank), adapters


def _gather_merged(params: policy.Params) -> policy.Params:
    """Return `sharding.gather_to_first_process` of params with their attached adapters merged.

    With one process the params are returned unchanged: `policy.save_hf` merges the adapters.
    """
    if distributed.process_count() == 1:
        return params
    gathered = sharding.gather_to_first_process({**params, "layers": {}})
    for name, layer in params["layers"].items():
        if lora.DOWN in layer:
            # On the mesh, one projection at a time: process 0 alone may not have the memory.
            merge = jax.jit(lora.merged_kernel, out_shardings=layer["kernel"].sharding)
            layer = {key: layer[key] for key in layer if key == "bias"} | {"kernel": merge(layer)}
        gathered["layers"] |= sharding.gather_to_first_process({"layers": {name: layer}})["layers"]
    return gathered


@jax.jit
def _checksum(params: policy.Params) -> jax.Array:
    """Return a checksum of the params as integers, which does not depend on their sharding."""
    bits = (jax.lax.bitcast_convert_type(x, jnp.int32) for x in jax.tree.leaves(params))
    # Integer sums wrap around and do not depend on the order of the terms. The odd factors make
    # the order of the leaves count.
    return jnp.stack([jnp.sum(x) * (2 * i + 1) for i, x in enumerate(bits)]).sum()
