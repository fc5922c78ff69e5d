"""Check of the policy directory: model family, tokenizer, tensors, disk space for checkpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import jax
from safetensors import SafetensorError, safe_open

from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.doctor.findings import Finding, failure, from_error, gib, ok, warning
from webagent_jax.doctor.machine import existing
from webagent_jax.policy import ModelConfig, hf_tensors, lora, prompt_record

_PATH_OPTION = "--config.policy.path"
_FETCH_AGAIN = "fetch the complete directory again"
_NUM_CHECKPOINTS = 3  # two stored and one being written
_ARRAYS_PER_PARAM = 3  # float32 param and two moments


def check(cfg: RunConfig, workdir: Path) -> Iterator[Finding]:
    """Yield the findings about the policy's weights."""
    try:
        directory = policy.resolve_dir(cfg.policy.path)
        model = policy.load_config(directory)
    except (FileNotFoundError, ValueError) as error:
        yield from_error("weights", error, f"set {_PATH_OPTION} to a supported model")
        return
    yield _check_tokenizer(directory)
    yield _check_template(cfg)
    if cfg.policy.kind == "weights":
        yield _check_tensors(cfg, directory, model)
        yield _check_disk(cfg, workdir, model)


def _check_tokenizer(directory: Path) -> Finding:
    try:
        tokenizer = ChatTokenizer(directory)
    except (FileNotFoundError, ValueError) as error:
        return from_error("tokenizer", error, _FETCH_AGAIN)
    return ok("tokenizer", f"has a chat template; stop token ids {list(tokenizer.stop_ids)}")


def _check_template(cfg: RunConfig) -> Finding:
    try:
        template = prompt_record.with_template(cfg).prompt.template
    except ConfigError as error:
        return from_error("prompt", error, "set --config.prompt.template=auto")
    return ok("prompt", f"template {template}")


def _check_tensors(cfg: RunConfig, directory: Path, model: ModelConfig) -> Finding:
    summary = (
        f"{directory}: {policy.count_params(model):,} params, "
        f"{policy.checkpoint_dtype(directory)} on disk, activations {cfg.policy.dtype}"
    )
    # Imported params are an Orbax checkpoint without safetensors files.
    if (directory / "params").is_dir():
        return ok("weights", f"{summary}, imported")
    names_on_disk: set[str] = set()
    for file in sorted(directory.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy") as tensors:
                # Only the headers of the files are read, not the tensors.
                names_on_disk |= set(tensors.keys())
        except (SafetensorError, OSError) as error:
            return failure("weights", f"{file} cannot be read: {error}", _FETCH_AGAIN)
    names = [name for leaf in hf_tensors.param_mappings(model) for name in leaf.names]
    missing = [name for name in names if name not in names_on_disk]
    if missing:
        return failure(
            "weights",
            f"{len(missing)} of {len(names)} tensors are missing in {directory}, "
            f"first {missing[0]}",
            _missing_files_fix(directory) or _FETCH_AGAIN,
        )
    return ok("weights", summary)


def _missing_files_fix(directory: Path) -> str:
    """Return the fix for files that the index lists and the directory lacks; empty if none."""
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        return ""
    files = set(json.loads(index.read_text())["weight_map"].values())
    missing = sorted(name for name in files if not (directory / name).exists())
    return f"fetch {', '.join(missing)} again" if missing else ""


def _check_disk(cfg: RunConfig, workdir: Path, model: ModelConfig) -> Finding:
    count = policy.count_params(model)
    if cfg.lora.rank:
        # With LoRA, checkpoints contain the adapters only.
        params = policy.abstract_params(model)
        adapters = lora.abstract_adapters(params, cfg.lora.rank, cfg.lora.target_modules)
        count = sum(leaf.size for leaf in jax.tree.leaves(adapters))
    checkpoint_bytes = 4 * _ARRAYS_PER_PARAM * count
    free = shutil.disk_usage(existing(workdir)).free
    description = (
        f"{_NUM_CHECKPOINTS} checkpoints of {gib(checkpoint_bytes)} each, {gib(free)} free"
    )
    if _NUM_CHECKPOINTS * checkpoint_bytes > free:
        return warning("disk", description, "free disk space, or choose a --workdir with more")
    return ok("disk", description)
