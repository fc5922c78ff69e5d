"""Export of trained policies: Hugging Face directories and PEFT adapters."""

from __future__ import annotations

import contextlib
from pathlib import Path

from webagent_jax import checkpoint, policy
from webagent_jax.agent import ChatTokenizer
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.policy import (
    ModelConfig,
    Params,
    hf_writer,
    loading,
    lora,
    peft_adapter,
    prompt_record,
    weights,
)
from webagent_jax.policy.loading import with_policy_path
from webagent_jax.policy.lora import Adapters, FrozenBase
from webagent_jax.tracking import run_metadata


def export_weights(
    source: Path, destination: Path, *, dtype: str = "", update: int | None = None
) -> None:
    """Write an imported policy, or a checkpoint of a training run, as a Hugging Face directory.

    Args:
        source: directory of an imported policy, or workdir of a training run.
        destination: directory to create or overwrite.
        dtype: dtype of the tensors; empty means that of an imported policy, and float32, the dtype
            of training, for a training run.
        update: update of the checkpoint to export; the latest by default.

    Raises:
        FileNotFoundError, ValueError: there is nothing to export; the message names the missing
            part.
    """
    if (source / "checkpoints").is_dir():
        run = _run_config(source)
        config, params = _trained_params(source, run, update)
        dtype = dtype or "float32"
    else:
        run = None
        policy_dir = policy.resolve_dir(source)
        config, params = weights.load(policy_dir, mesh=weights.mesh_for(policy_dir))
        dtype = dtype or policy.checkpoint_dtype(policy_dir)
    policy.save_hf(destination, config, params, dtype)
    if run:
        copy_text_files(run, destination)
    else:
        _copy_tokenizer(policy_dir, destination)


def export_adapter(
    workdir: Path,
    destination: Path,
    *,
    dtype: str = "",
    update: int | None = None,
    max_rank: int | None = None,
) -> None:
    """Write the adapters of a training run as a directory that PEFT loads.

    Args:
        workdir: workdir of a training run with `lora.rank` above 0.
        destination: directory to create or overwrite.
        dtype: dtype of the tensors; empty means float32, the dtype of training.
        update: update of the checkpoint to export; the latest by default.
        max_rank: rank to reduce the adapters to; see `write_adapter`.

    Raises:
        FileNotFoundError: the workdir contains no training.
        ValueError: the training has no adapters or no such checkpoint.
    """
    run = _run_config(workdir)
    if not run.lora.rank:
        raise ValueError(f"{workdir} trained all weights (lora.rank=0): omit --adapter")
    policy_dir = policy.tokenizer_dir(run.policy.path)
    config = policy.load_config(policy_dir)
    # Only shapes of the base: its weights are not part of an adapter.
    abstract_adapters = lora.abstract_adapters(
        policy.abstract_params(config), run.lora.rank, run.lora.target_modules
    )
    with checkpoint.Checkpointer(workdir / "checkpoints", read_only=True) as checkpoints:
        adapters = checkpoints.restore_params(
            weights.with_default_shardings(abstract_adapters, weights.mesh_for(policy_dir)), update
        )
    write_adapter(destination, run, adapters, dtype=dtype or "float32", max_rank=max_rank)


def write_adapter(
    destination: Path,
    run: RunConfig,
    adapters: Adapters,
    *,
    dtype: str = "float32",
    max_rank: int | None = None,
) -> None:
    """Write adapters as a directory that PEFT loads.

    If the frozen base of the run consists of PEFT adapters, the written adapter includes them, so
    its base is a model. If an adapter at `policy.path` has a tokenizer, which may differ from that
    of the base, it is copied.

    Args:
        destination: directory to create or overwrite.
        run: config of the training.
        adapters: tree of `lora.init`.
        dtype: dtype of the tensors.
        max_rank: rank to reduce the adapters to. By default, the written adapter has the rank of
            the run plus those of the adapters in its frozen base.
    """
    initial_adapters, base_name = policy.adapter_chain(loading.frozen_base_path(run))
    peft_adapter.save(
        destination,
        policy.load_config(base_name),
        adapters,
        rank=run.lora.rank,
        alpha=run.lora.alpha,
        base_name=base_name,
        initial_adapters=initial_adapters,
        max_rank=max_rank,
        dtype=dtype,
    )
    adapter_dirs, _ = policy.adapter_chain(run.policy.path)
    if any((directory / "tokenizer.json").is_file() for directory in adapter_dirs):
        _copy_tokenizer(policy.tokenizer_dir(run.policy.path), destination)
    prompt_record.write(destination, prompt_record.with_template(run).prompt.template)


def copy_text_files(run: RunConfig, destination: Path) -> None:
    """Copy the tokenizer of the initial policy, and record stop ids and template of the training.

    Rollouts also end a response at the token of the chat template, which the generation_config.json
    of a base model without instruction tuning does not name. Servers read the stop ids there.
    """
    tokenizer_dir = policy.tokenizer_dir(run.policy.path)
    _copy_tokenizer(tokenizer_dir, destination)
    # Export succeeds without a usable tokenizer, so that the weights of a training are not lost.
    with contextlib.suppress(ConfigError, FileNotFoundError):
        hf_writer.write_stop_ids(destination, ChatTokenizer(tokenizer_dir).stop_ids)
    prompt_record.write(destination, prompt_record.with_template(run).prompt.template)


def _copy_tokenizer(source: Path, destination: Path) -> None:
    """Copy the tokenizer of a directory without its sampling options."""
    policy.copy_tokenizer(source, destination)
    hf_writer.remove_sampling_options(destination)


def _run_config(workdir: Path) -> RunConfig:
    """Return the config of a training run.

    Raises:
        ConfigError: config.json is not that of a training run.
        FileNotFoundError: the workdir contains no training.
    """
    if not (workdir / "checkpoints").is_dir():
        raise FileNotFoundError(f"no training in {workdir}: it contains no checkpoints/")
    return with_policy_path(run_metadata.read_config(workdir), run_metadata.policy_path(workdir))


def _trained_params(
    workdir: Path, run: RunConfig, update: int | None
) -> tuple[ModelConfig, Params]:
    """Return the config of the frozen base, and the params with their adapters."""
    policy_dir = policy.resolve_dir(loading.frozen_base_path(run))
    mesh = weights.mesh_for(policy_dir)
    base = None
    if run.lora.rank:
        # The checkpoint contains only the adapters.
        config, params = weights.load(policy_dir, mesh=mesh)
        base = FrozenBase(params, run.lora.alpha / run.lora.rank)
        abstract_params = lora.abstract_adapters(params, run.lora.rank, run.lora.target_modules)
    else:
        # The checkpoint contains all params, so the initial weights are not read.
        config = policy.load_config(policy_dir)
        abstract_params = policy.abstract_params(config)
    with checkpoint.Checkpointer(workdir / "checkpoints", read_only=True) as checkpoints:
        trained = checkpoints.restore_params(
            weights.with_default_shardings(abstract_params, mesh), update
        )
    return config, lora.attach(base, trained)
