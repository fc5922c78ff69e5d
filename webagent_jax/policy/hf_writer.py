"""Writer of Hugging Face directories: config.json and safetensors, sharded if they are large."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import jax.numpy as jnp
from safetensors.numpy import save_file

from webagent_jax.config import ConfigError
from webagent_jax.policy import hf_config, hf_tensors
from webagent_jax.policy.hf_tensors import ParamMapping, Weight
from webagent_jax.policy.transformer import ModelConfig

PROMPT_FILE = "webagent_prompt.json"
_GENERATION_FILE = "generation_config.json"
TOKENIZER_FILES = (
    PROMPT_FILE,
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    _GENERATION_FILE,
)
"""Patterns of the other files of a directory, which are copied."""


def write_directory(
    directory: Path,
    config: ModelConfig,
    dtype: str,
    tensors_of: Callable[[ParamMapping], Iterable[tuple[str, Weight]]],
    file_bytes: int = 5 * 10**9,
) -> None:
    """Write the tensors of every param and config.json.

    A directory that an interrupted call leaves has no config.json, so that it is not a policy.

    Args:
        directory: directory to write.
        config: architecture of the policy.
        dtype: dtype of the tensors.
        tensors_of: returns names and contents of the tensors of a param.
        file_bytes: approximate maximum size of one file.

    Raises:
        ConfigError: the directory contains an imported policy, which `weights.load` would prefer,
            or no supported architecture has the features of the config.
    """
    if (directory / "params").exists():
        raise ConfigError(
            f"{directory} contains the Orbax shards of another policy (params): choose another "
            "directory"
        )
    config_json = hf_config.to_json(config, dtype)
    directory.mkdir(parents=True, exist_ok=True)
    # The one of an earlier policy must not describe a mixture of its tensors and new ones.
    (directory / "config.json").unlink(missing_ok=True)
    parts = _parts(config, jnp.dtype(dtype).itemsize, file_bytes)
    names = (
        ["model.safetensors"]
        if len(parts) == 1
        else [f"model-{n:05d}-of-{len(parts):05d}.safetensors" for n in range(1, len(parts) + 1)]
    )
    index: dict[str, str] = {}
    total_bytes = 0
    for file, part in zip(names, parts, strict=True):
        tensors: dict[str, Weight] = {}
        for mapping in part:
            tensors |= tensors_of(mapping)
        save_tensors(directory / file, tensors)
        index |= dict.fromkeys(tensors, file)
        total_bytes += sum(tensor.nbytes for tensor in tensors.values())
    # `hf.load_hf` reads all *.safetensors, so files of an earlier policy must not remain.
    for old_file in directory.glob("model*.safetensors*"):
        if old_file.name not in names:
            old_file.unlink()
    if len(parts) > 1:
        content = {
            "metadata": {"total_size": total_bytes},
            "weight_map": dict(sorted(index.items())),
        }
        (directory / hf_tensors.INDEX_FILE).write_text(json.dumps(content, indent=2) + "\n")
    # Written last: it marks the directory as a complete policy.
    (directory / "config.json").write_text(config_json)


def remove_tokenizer(directory: Path) -> None:
    """Remove the tokenizer of an earlier policy.

    transformers would prefer its chat_template.jinja to the template in another
    tokenizer_config.json.
    """
    for pattern in TOKENIZER_FILES:
        for file in directory.glob(pattern):
            file.unlink()


def remove_sampling_options(directory: Path) -> None:
    """Keep only the token ids, such as those that end a response, in generation_config.json.

    Servers would apply the repetition penalty and filters of the base, without which the policy was
    trained.
    """
    file = directory / _GENERATION_FILE
    if file.is_file():
        options = json.loads(file.read_text(encoding="utf-8"))
        ids = {name: value for name, value in options.items() if name.endswith("_token_id")}
        file.write_text(json.dumps(ids, indent=2) + "\n", encoding="utf-8")


def write_stop_ids(directory: Path, stop_ids: Sequence[int]) -> None:
    """Write the ids that end a response to generation_config.json, unless it has exactly these."""
    file = directory / _GENERATION_FILE
    options = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    ids = options.get("eos_token_id")
    if set(ids if isinstance(ids, list) else [ids]) != set(stop_ids):
        options["eos_token_id"] = list(stop_ids)
        file.write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")


def save_tensors(path: Path, tensors: dict[str, Weight]) -> None:
    """Write a safetensors file atomically, with the permissions of the umask."""
    temporary = path.with_name(f"{path.name}.partial")
    temporary.touch()
    mode = temporary.stat().st_mode
    try:
        save_file(tensors, temporary, metadata={"format": "pt"})
    except BaseException:
        # On a full disk, a partial file would keep it full.
        temporary.unlink()
        raise
    # save_file makes the file readable by its owner only: other users could not load the policy.
    temporary.chmod(mode)
    # A rename makes the file appear complete or not at all.
    temporary.replace(path)


def _parts(config: ModelConfig, itemsize: int, file_bytes: int) -> list[list[ParamMapping]]:
    """Distribute the params over files of about `file_bytes` at most."""
    parts: list[list[ParamMapping]] = [[]]
    free_bytes = file_bytes
    for mapping in hf_tensors.param_mappings(config):
        size = math.prod(mapping.param_shape) * itemsize
        # A param above the limit has a file of its own.
        if size > free_bytes and parts[-1]:
            parts.append([])
            free_bytes = file_bytes
        parts[-1].append(mapping)
        free_bytes -= size
    return parts
