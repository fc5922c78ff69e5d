"""Export of trained policies: Hugging Face directories and PEFT adapters."""

from __future__ import annotations

import json
from pathlib import Path

from webagent_jax import checkpoint, policy
from webagent_jax.config import RunConfig, from_config_dict
from webagent_jax.policy import ModelConfig, Params, lora, peft_adapter, weights
from webagent_jax.policy.lora import Base


def export_weights(
    source: Path, destination: Path, *, dtype: str = "", step: int | None = None
) -> None:
    """Write an imported policy, or a checkpoint of a training, as a Hugging Face directory.

    Args:
        source: imported policy, or workdir of a training.
        destination: to create or overwrite.
        dtype: of the tensors; empty means that of config.json of the policy.
        step: checkpoint of the training; the latest by default.

    Raises:
        FileNotFoundError, ValueError: there is nothing to export; names the missing part.
    """
    if (source / "checkpoints").is_dir():
        where, config, params = _trained_params(source, step)
    else:
        where = policy.directory(source)
        config, params = weights.load(where, mesh=weights.mesh_for(where))
    policy.save_hf(destination, config, params, dtype or policy.stored_dtype(where))
    policy.copy_tokenizer(where, destination)


def export_adapter(
    workdir: Path, destination: Path, *, dtype: str = "", step: int | None = None
) -> None:
    """Write the adapters of a training as a directory that PEFT loads.

    Args:
        workdir: of a training with `lora.rank` above 0.
        destination: to create or overwrite.
        dtype: of the tensors; empty means float32, as they are trained.
        step: checkpoint to export; the latest by default.

    Raises:
        FileNotFoundError: the workdir contains no training or no such checkpoint.
        ValueError: the training has no adapters.
    """
    run = _run_config(workdir)
    if not run.lora.rank:
        raise ValueError(f"{workdir} trained all weights (lora.rank=0): leave out --adapter")
    where = policy.directory(run.policy.path)
    config = policy.load_config(where)
    wanted = lora.abstract(policy.abstract_params(config), run.lora.rank, run.lora.projections)
    with checkpoint.Checkpointer(workdir / "checkpoints", read_only=True) as checkpoints:
        adapters = checkpoints.restore_params(
            weights.with_shardings(wanted, weights.mesh_for(where)), step
        )
    peft_adapter.save(
        destination,
        config,
        adapters,
        rank=run.lora.rank,
        alpha=run.lora.alpha,
        base_name=run.policy.path,
        dtype=dtype or "float32",
    )


def _run_config(workdir: Path) -> RunConfig:
    """Return the config of a training; raises FileNotFoundError if the workdir has none."""
    if not (workdir / "checkpoints").is_dir():
        raise FileNotFoundError(f"no training in {workdir}: it contains no checkpoints/")
    return from_config_dict(json.loads((workdir / "config.json").read_text())["config"])


def _trained_params(workdir: Path, step: int | None) -> tuple[Path, ModelConfig, Params]:
    """Return the directory of the initial policy, its config, and the params of a checkpoint."""
    run = _run_config(workdir)
    where = policy.directory(run.policy.path)
    mesh = weights.mesh_for(where)
    base = None
    if run.lora.rank:
        config, params = weights.load(where, mesh=mesh)
        base = Base(params, run.lora.alpha / run.lora.rank)
        wanted = lora.abstract(params, run.lora.rank, run.lora.projections)
    else:
        config = policy.load_config(where)
        wanted = policy.abstract_params(config)
    with checkpoint.Checkpointer(workdir / "checkpoints", read_only=True) as checkpoints:
        trained = checkpoints.restore_params(weights.with_shardings(wanted, mesh), step)
    return where, config, lora.merge(lora.whole(base, trained))
