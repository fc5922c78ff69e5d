"""Loading and saving of Hugging Face directories without transformers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import operator
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, Sharding
from safetensors import SafetensorError, safe_open

from webagent_jax.config import ConfigError, PolicyNotFoundError
from webagent_jax.policy import (
    hf_config,
    hf_tensors,
    hf_writer,
    hub,
    hub_id,
    lora,
    peft_adapter,
    sharding,
)
from webagent_jax.policy.attention import resolve_implementation
from webagent_jax.policy.hf_tensors import ParamMapping, Slices, Weight
from webagent_jax.policy.pretrained import (
    PRETRAINED,
    imported_dir,
    merged_dir,
    merged_tokenizer_dir,
    pretrained_dir,
)
from webagent_jax.policy.transformer import ModelConfig, Params, abstract_params

WEBAGENT_TINY = Path(__file__).parent / "webagent_tiny"
"""Directory of the base policy in the package: `policy.path = "webagent-tiny"`."""

PACKAGED_ADAPTERS = Path(__file__).parent / "adapters"
"""Directory of the adapters in the package; the name of each folder is a policy name."""

_ROWS_PER_READ = 4096  # rows of embedding and head that are compared at a time
_LOCAL_FOLDERS = ("weights/", "runs/")  # of the documented commands; not owners of Hub models


def resolve_dir(path: str | Path, *, download: bool = True, needs_weights: bool = True) -> Path:
    """Return the Hugging Face directory of a policy.

    Models of the Hub and pretrained policies are fetched on first use. A GGUF file is imported
    once, in the cache, and a PEFT adapter is merged once into the base that it names.

    Args:
        path: name of a policy in the package, a pretrained policy, a Hugging Face directory or
            Hub id, a GGUF file or a directory with one, or the directory of a PEFT adapter.
        download: whether to fetch what is missing; otherwise it is an error.
        needs_weights: whether the weights of a model of the Hub are necessary too. Otherwise only
            its config and tokenizer are fetched, also if it is the base of an adapter, which is
            then not merged.

    Raises:
        PolicyNotFoundError: the policy does not exist, or there is no network to fetch from.
        ConfigError: an adapter or a GGUF file is not supported, or an adapter does not fit its
            base.
    """
    directory = _locate(str(path), download=download, needs_weights=needs_weights)
    gguf_file = _gguf_file(directory)
    if gguf_file:
        return imported_dir(gguf_file)
    if peft_adapter.is_adapter(directory):
        # The base may be anything that this function accepts, except the adapter itself.
        adapter_chain(directory, download=download)
        base_name = peft_adapter.base_path(directory)
        base = resolve_dir(base_name, download=download, needs_weights=needs_weights)
        has_base = needs_weights or is_policy_dir(base_name)
        return merged_dir(directory, base) if has_base else base
    _require_config(directory)
    return directory


def tokenizer_dir(path: str | Path, *, download: bool = True) -> Path:
    """Return a directory with config.json and tokenizer of a policy.

    Unlike `resolve_dir`, it needs no weights: those of the Hub are not downloaded, and an
    adapter is not merged. The base of an adapter may be an imported policy.

    Args:
        path: policy path or name; see `resolve_dir`.
        download: whether to fetch what is missing; otherwise it is an error.

    Raises:
        PolicyNotFoundError, ConfigError: see `resolve_dir`.
    """
    adapters, base_name = adapter_chain(path, download=download)
    directory = resolve_dir(base_name, download=download, needs_weights=False)
    for adapter in reversed(adapters):
        directory = merged_tokenizer_dir(adapter, directory)
    return directory


def adapter_chain(path: str | Path, *, download: bool = True) -> tuple[list[Path], str]:
    """Return the directories of the adapters that a policy consists of, and its base.

    Args:
        path: policy path or name; see `resolve_dir`.
        download: whether to fetch what is missing; otherwise it is an error.

    Returns:
        Adapters, the last one first; empty for a policy without adapters. Then the policy path
        that the others modify.

    Raises:
        ConfigError: an adapter is its own base, or that of its base, or the base is quantized.
        PolicyNotFoundError: an adapter or the base does not exist, or is not downloaded.
    """
    adapters: list[Path] = []
    name = str(path)
    while peft_adapter.is_adapter(directory := _locate_base(name, adapters, download=download)):
        if directory.resolve() in [adapter.resolve() for adapter in adapters]:
            raise ConfigError(
                f"the base of the adapter {directory} is the adapter itself: set "
                f"base_model_name_or_path in its {peft_adapter.CONFIG_FILE} to a model"
            )
        adapters.append(directory)
        name = peft_adapter.base_path(directory)
    return adapters, name


def is_policy_dir(path: str | Path) -> bool:
    """Return whether a policy path or name resolves to a policy on this machine.

    A model of the Hub is one if the cache contains its weights.
    """
    try:
        resolve_dir(path, download=False)
    except FileNotFoundError:
        return False
    return True


def load_config(
    path: str | Path, dtype: str = "float32", remat: str = "none", attention: str = "auto"
) -> ModelConfig:
    """Return the architecture of a policy; download no weights of the Hub and merge no adapter.

    Args:
        path: policy path or name; see `resolve_dir`.
        dtype: dtype of the activations; the params are float32.
        remat: key of `transformer.REMAT`.
        attention: key of `attention.IMPLEMENTATIONS`, or "auto" for that of the backend.

    Raises:
        FileNotFoundError: the directory does not exist.
        ValueError: the architecture or one of its options is not supported; the message names it.
    """
    directory = tokenizer_dir(path)
    _check_unquantized(directory)
    config = hf_config.read(directory / "config.json")
    return dataclasses.replace(
        config,
        dtype=dtype,
        remat=remat,
        attention=resolve_implementation(attention, jax.default_backend(), config.head_dim),
    )


def checkpoint_dtype(path: str | Path) -> str:
    """Return the dtype of the tensors from config.json; "float32" if config.json has none."""
    raw = json.loads((resolve_dir(path, needs_weights=False) / "config.json").read_text())
    return str(raw.get("dtype") or raw.get("torch_dtype") or "float32")


def load_hf(
    path: str | Path,
    dtype: str = "float32",
    remat: str = "none",
    attention: str = "auto",
    mesh: Mesh | None = None,
) -> tuple[ModelConfig, Params]:
    """Load the architecture and params of a Hugging Face directory; see `hf_config`.

    Every device reads its own shards, one param after another, so host memory contains the shards
    of one param at a time.

    Args:
        path: policy path or name; its directory contains config.json and *.safetensors.
        dtype: dtype of the activations; the params are float32.
        remat: key of `transformer.REMAT`.
        attention: key of `attention.IMPLEMENTATIONS`, or "auto" for that of the backend.
        mesh: mesh to shard the params over (`sharding`); None for a single device.

    Raises:
        FileNotFoundError: the directory does not exist, or none of its files contains a tensor.
        ValueError: the architecture or one of its options is not supported, or the shape of a
            tensor differs from config.json, or a tied model has a head of its own; the message
            names it.
        ShardingError: a param does not divide over the mesh.
    """
    directory = resolve_dir(path)
    config = load_config(directory, dtype, remat, attention)
    shardings = sharding.default_shardings(abstract_params(config), mesh)
    params: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        files: dict[str, Any] = {}  # open file of each tensor, by tensor name
        for file_path in sorted(directory.glob("*.safetensors")):
            # Only the header is read here; `_read_param` reads the slices that a device needs.
            try:
                file = stack.enter_context(safe_open(file_path, framework="numpy"))
            except SafetensorError as error:
                raise PolicyNotFoundError(
                    f"{file_path} cannot be read ({error}): copy or download it again"
                ) from error
            files |= dict.fromkeys(file.keys(), file)
        if config.tie_embeddings:
            _check_tied_head(files, directory)
        for mapping in hf_tensors.param_mappings(config):
            _check_tensors(mapping, files, directory)
            param = _read_param(mapping, files, _get_path(shardings, mapping.path))
            _set_path(params, mapping.path, param)
    return config, params


def save_hf(
    path: str | Path,
    config: ModelConfig,
    params: Params,
    dtype: str = "float32",
    file_bytes: int = 5 * 10**9,
) -> None:
    """Write a Hugging Face directory that `load_hf` and `transformers` can read.

    Params that `load_hf` read from tensors of this `dtype` are written back bit for bit. Host
    memory contains one param at a time, and the tensors of one file. Attached adapters are merged
    one projection at a time, because a merged copy of all may not fit the device.

    Args:
        path: directory to write.
        config: architecture of the policy.
        params: params of the policy.
        dtype: dtype of the tensors.
        file_bytes: approximate maximum size of one file.
    """
    hf_writer.write_directory(
        Path(path),
        config,
        dtype,
        lambda mapping: mapping.write(
            np.asarray(_merged_param(params, mapping.path)).astype(jnp.dtype(dtype))
        ),
        file_bytes,
    )


def copy_tokenizer(source: Path, destination: Path) -> None:
    """Replace the tokenizer files in `destination` with those of a Hugging Face directory.

    Args:
        source: directory to copy from.
        destination: directory to copy to, which exists.
    """
    if source.resolve() == destination.resolve():
        return
    hf_writer.remove_tokenizer(destination)
    for pattern in hf_writer.TOKENIZER_FILES:
        for file in source.glob(pattern):
            shutil.copy(file, destination / file.name)


def _locate_base(name: str, adapters: Sequence[Path], *, download: bool) -> Path:
    """Return `_locate` of the base of the last adapter, or of a policy without `adapters`.

    Raises:
        ConfigError: the base does not exist or is quantized; the message names the adapter.
    """
    try:
        directory = _locate(name, download=download, needs_weights=False)
        if adapters and not peft_adapter.is_adapter(directory) and not _gguf_file(directory):
            _require_config(directory)
            _check_unquantized(directory)
        return directory
    except ConfigError as error:
        if not adapters:
            raise
        raise type(error)(
            f"the base of the adapter {adapters[-1]}: {error}\nFor another base, set "
            f"base_model_name_or_path in a copy of its {peft_adapter.CONFIG_FILE}"
        ) from error


def _require_config(directory: Path) -> None:
    """Check that a directory contains config.json.

    Raises:
        PolicyNotFoundError: it does not.
    """
    if (directory / "config.json").is_file():
        return
    names = ", ".join((*_packaged_policies(), *PRETRAINED))
    message = (
        f"no policy at {directory}: expected a Hugging Face directory with config.json or a "
        f"Hub id (OWNER/NAME), a GGUF file, a PEFT adapter, or one of the names {names}"
    )
    if str(directory).startswith("weights/"):
        message += f"\nTo download it: hf download OWNER/NAME --local-dir {directory}"
    raise PolicyNotFoundError(message)


def _check_config(directory: Path) -> None:
    """Check that a directory contains a supported model, or an adapter.

    Raises:
        ConfigError: the model is not supported.
    """
    if not peft_adapter.is_adapter(directory):
        _check_unquantized(directory)
        hf_config.read(directory / "config.json")


def _check_unquantized(directory: Path) -> None:
    """Check that the weights of a directory are not quantized, as those of QLoRA bases are.

    Raises:
        ConfigError: they are.
    """
    file = directory / "config.json"
    try:
        is_quantized = bool(json.loads(file.read_text(encoding="utf-8"))["quantization_config"])
    except (ValueError, TypeError, KeyError):  # `hf_config.read` reports a damaged file
        is_quantized = False
    if is_quantized:
        raise ConfigError(
            f"{file} has a quantization_config, and quantized weights are not supported: use "
            "the unquantized model (such as the Hub id without -bnb-4bit, -GPTQ or -AWQ); its "
            "projections can be quantized by engine.quantization"
        )


def _locate(name: str, *, download: bool = True, needs_weights: bool = True) -> Path:
    """Return the file or directory of a policy path, as it is before import and merge."""
    if name in PRETRAINED:
        return pretrained_dir(name, download=download)
    path = _packaged_policies().get(name, Path(name))
    is_local = path.exists() or name.startswith(_LOCAL_FOLDERS)
    if not is_local and hub_id.is_hub_id(name):
        if needs_weights and download:
            # A model that is not supported is refused before its weights are downloaded.
            _check_config(hub.snapshot_dir(name, needs_weights=False))
        return hub.snapshot_dir(name, download=download, needs_weights=needs_weights)
    return path


def _packaged_policies() -> dict[str, Path]:
    """Return the directories of the policies in the package by name."""
    adapters = sorted(PACKAGED_ADAPTERS.glob(f"*/{peft_adapter.CONFIG_FILE}"))
    return {"webagent-tiny": WEBAGENT_TINY} | {file.parent.name: file.parent for file in adapters}


def _gguf_file(path: Path) -> Path | None:
    """Return the GGUF file at a path, or in a folder without config.json; None if there is none.

    Raises:
        ConfigError: the directory contains several.
    """
    if path.is_file():
        return path
    if (path / "config.json").is_file():
        return None
    files = sorted(path.glob("*.gguf"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ConfigError(f"{path} contains several GGUF files: add one to the path: {names}")
    return files[0] if files else None


def _check_tensors(mapping: ParamMapping, files: dict[str, Any], directory: Path) -> None:
    for name in mapping.names:
        if name not in files:
            raise PolicyNotFoundError(
                f"no *.safetensors of {directory} contains the tensor {name}; "
                f"{hf_tensors.missing_files_fix(directory)}"
            )
        shape = tuple(files[name].get_slice(name).get_shape())
        if shape != mapping.file_shape:
            expected = f"config.json requires {mapping.file_shape}"
            raise ConfigError(
                f"the tensor {name} of {directory} has the shape {shape}, but {expected}"
            )


def _check_tied_head(files: dict[str, Any], directory: Path) -> None:
    """Check that lm_head of a tied model, if the files contain one, is the embedding.

    transformers 5 uses a head with other values in spite of the config; earlier versions do not.

    Raises:
        ConfigError: it is not.
    """
    names = ("model.embed_tokens.weight", "lm_head.weight")
    if not all(name in files for name in names):
        return
    embedding, head = (files[name].get_slice(name) for name in names)
    num_rows = head.get_shape()[0]
    starts = range(0, num_rows, _ROWS_PER_READ)
    blocks = [slice(start, min(start + _ROWS_PER_READ, num_rows)) for start in starts]
    is_tied = embedding.get_shape() == head.get_shape() and all(
        np.array_equal(embedding[block], head[block]) for block in blocks
    )
    if not is_tied:
        raise ConfigError(
            f"{directory / 'config.json'} has tie_word_embeddings=true, but the tensor "
            "lm_head.weight is not the embedding:\nset tie_word_embeddings=false there to use this "
            "head, as transformers 5 does, or remove the tensor"
        )


def _read_param(
    mapping: ParamMapping, files: dict[str, Any], param_sharding: Sharding
) -> jax.Array:
    """Return a param, of which each device reads its shard from the files."""

    def read_slice(name: str, index: Slices) -> Weight:
        part: Weight = files[name].get_slice(name)[index]
        return part

    cache: dict[Any, Weight] = {}  # replicas read the same shard

    def read_shard(index: Any) -> Weight:
        # Slices are not hashable in Python 3.11.
        key = tuple((axis.start, axis.stop) for axis in index)
        if key not in cache:
            cache[key] = mapping.read(index, read_slice)
        return cache[key]

    return jax.make_array_from_callback(mapping.param_shape, param_sharding, read_shard)


def _merged_param(params: Params, path: tuple[str, ...]) -> Any:
    *parents, name = path
    part = _get_path(params, tuple(parents))
    return lora.merged_kernel(part) if name == "kernel" and lora.DOWN in part else part[name]


def _get_path(tree: Any, path: tuple[str, ...]) -> Any:
    return functools.reduce(operator.getitem, path, tree)


def _set_path(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *parents, last = path
    for name in parents:
        tree = tree.setdefault(name, {})
    tree[last] = value
