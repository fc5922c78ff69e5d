"""Weights from one form to another: Hugging Face directories, and those that Orbax reads in shards.

An imported policy is a directory with the config.json and the tokenizer of the original beside
`params/`, an Orbax checkpoint. Wherever a run takes a Hugging Face directory, it takes this too.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import jax
from jax.sharding import Mesh

from webagent_jax import checkpoint, policy
from webagent_jax.config import RunConfig, from_config_dict
from webagent_jax.policy import ModelConfig, Params, lora, peft_adapter, sharding
from webagent_jax.policy.lora import Base


def load(
    path: str | Path,
    dtype: str = "float32",
    remat: str = "none",
    attention: str = "auto",
    mesh: Mesh | None = None,
) -> tuple[ModelConfig, Params]:
    """Reads a Hugging Face directory or an imported policy, see `policy.load_hf`.

    Raises:
        FileNotFoundError, ValueError: as `policy.load_hf`.
    """
    where = policy.directory(path)
    if not (where / "params").is_dir():
        return policy.load_hf(where, dtype, remat, attention, mesh)
    config = policy.load_config(where, dtype, remat, attention)
    wanted = _wanted(policy.abstract_params(config), mesh)
    return config, checkpoint.restore_params(where / "params", wanted)


def import_weights(source: str | Path, destination: Path) -> None:
    """Hugging Face directory -> imported policy. Every device reads and writes a share of it.

    Raises:
        FileNotFoundError, ValueError: as `policy.load_hf`.
    """
    where = policy.directory(source)
    _, params = policy.load_hf(where, mesh=_shared(where))
    destination.mkdir(parents=True, exist_ok=True)
    checkpoint.save_params(destination / "params", params)
    policy.copy_tokenizer(where, destination)
    shutil.copy(where / "config.json", destination / "config.json")  # last: now it is a policy


def export_weights(
    source: Path,
    destination: Path,
    *,
    dtype: str = "",
    step: int | None = None,
) -> None:
    """Imported policy, or the workdir of a training -> Hugging Face directory.

    Args:
        dtype: of the tensors; empty means what config.json of the policy says.
        step: which checkpoint of a training; the latest by default.

    Raises:
        FileNotFoundError, ValueError: there is nothing to export; says what was looked for.
    """
    if (source / "checkpoints").is_dir():
        where, config, params = _trained(source, step)
    else:
        where = policy.directory(source)
        config, params = load(where, mesh=_shared(where))
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
        adapters = checkpoints.restore_params(_wanted(wanted, _shared(where)), step)
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


def _trained(workdir: Path, step: int | None) -> tuple[Path, ModelConfig, Params]:
    """Return the directory of the initial policy, its config, and the params of a checkpoint."""
    run = _run_config(workdir)
    where = policy.directory(run.policy.path)
    mesh = _shared(where)
    base = None
    if run.lora.rank:
        config, params = load(where, mesh=mesh)
        base = Base(params, run.lora.alpha / run.lora.rank)
        wanted = lora.abstract(params, run.lora.rank, run.lora.projections)
    else:
        config = policy.load_config(where)
        wanted = policy.abstract_params(config)
    with checkpoint.Checkpointer(workdir / "checkpoints", read_only=True) as checkpoints:
        trained = checkpoints.restore_params(_wanted(wanted, mesh), step)
    return where, config, lora.merge(lora.whole(base, trained))


def _shared(where: Path) -> Mesh:
    """A mesh that cuts the params of a policy over as many devices as divide its width."""
    width = policy.load_config(where).d_model
    count = math.gcd(width, jax.device_count())
    return sharding.make_mesh(fsdp=count, devices=jax.devices()[:count])


def _wanted(shapes: Params, mesh: Mesh | None) -> Params:
    return sharding.placed(shapes, sharding.placement(shapes, mesh))
