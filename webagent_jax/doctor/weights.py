"""Check of the policy directory: model family, tokenizer, tensors, disk space for checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer
from webagent_jax.config import ConfigError, PolicyNotFoundError, RunConfig
from webagent_jax.doctor.check_result import (
    CheckResult,
    failure,
    from_error,
    gib,
    ok,
    warning,
)
from webagent_jax.doctor.machine import nearest_existing_folder
from webagent_jax.policy import ModelConfig, hf_tensors, hub, lora, prompt_record

_PATH_OPTION = "--config.policy.path"
_FETCH_AGAIN = "fetch the complete directory again"
_NUM_CHECKPOINTS = 3  # two stored and one being written
_ARRAYS_PER_PARAM = 3  # float32 param and two moments


def check(cfg: RunConfig, workdir: Path) -> Iterator[CheckResult]:
    """Yield the results about the policy's weights; download none from the Hub."""
    try:
        directory = policy.resolve_dir(cfg.policy.path, needs_weights=False)
        model = policy.load_config(directory)
    except (FileNotFoundError, ValueError) as error:
        yield from_error("weights", error, f"set {_PATH_OPTION} to a supported model")
        return
    yield _check_tokenizer(directory)
    yield _check_template(cfg)
    if cfg.policy.kind == "weights":
        yield _check_tensors(cfg, directory, model)
        yield _check_disk(cfg, workdir, model)


def _check_tokenizer(directory: Path) -> CheckResult:
    try:
        tokenizer = ChatTokenizer(directory)
    except (FileNotFoundError, ValueError) as error:
        return from_error("tokenizer", error, _FETCH_AGAIN)
    return ok("tokenizer", f"has a chat template; stop token ids {list(tokenizer.stop_ids)}")


def _check_template(cfg: RunConfig) -> CheckResult:
    try:
        template = prompt_record.with_template(cfg).prompt.template
    except ConfigError as error:
        return from_error("prompt", error, "set --config.prompt.template=auto")
    return ok("prompt", f"template {template}")


def _check_tensors(cfg: RunConfig, directory: Path, model: ModelConfig) -> CheckResult:
    summary = (
        f"{directory}: {policy.count_params(model):,} params, "
        f"{policy.checkpoint_dtype(directory)} on disk, activations {cfg.policy.dtype}"
    )
    if not policy.is_policy_dir(cfg.policy.path):
        return _check_download(cfg, model)
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
            _missing_files_fix(directory),
        )
    return ok("weights", summary)


def _check_download(cfg: RunConfig, model: ModelConfig) -> CheckResult:
    """Check that the Hub has the weights that the cache of the Hub lacks."""
    _, name = policy.adapter_chain(cfg.policy.path)
    try:
        size = hub.download_bytes(name)
    except PolicyNotFoundError as error:
        return from_error("weights", error)
    return ok(
        "weights",
        f"{name}: {policy.count_params(model):,} params, not downloaded yet; the first run "
        f"downloads {gib(size)}",
    )


def _missing_files_fix(directory: Path) -> str:
    """Return the fix for a directory without some of its tensors."""
    try:
        return hf_tensors.missing_files_fix(directory)
    except ConfigError:  # the index is damaged too
        return _FETCH_AGAIN


def _check_disk(cfg: RunConfig, workdir: Path, model: ModelConfig) -> CheckResult:
    count = policy.count_params(model)
    if cfg.lora.rank:
        # With LoRA, checkpoints contain the adapters only.
        params = policy.abstract_params(model)
        count = lora.count_params(params, cfg.lora.rank, cfg.lora.target_modules)
    checkpoint_bytes = 4 * _ARRAYS_PER_PARAM * count
    free = shutil.disk_usage(nearest_existing_folder(workdir)).free
    description = (
        f"{_NUM_CHECKPOINTS} checkpoints of {gib(checkpoint_bytes)} each, {gib(free)} free"
    )
    if _NUM_CHECKPOINTS * checkpoint_bytes > free:
        return warning("disk", description, "free disk space, or choose a --workdir with more")
    return ok("disk", description)
