"""Loading and saving of Hugging Face directories without transformers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import operator
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, Sharding
from safetensors import SafetensorError, safe_open

from webagent_jax.config import ConfigError, PolicyNotFoundError
from webagent_jax.policy import hf_config, hf_tensors, hf_writer, peft_adapter, sharding
from webagent_jax.policy.attention import resolve_implementation
from webagent_jax.policy.hf_tensors import ParamMapping, Slices, Weight
from webagent_jax.policy.pretrained import PRETRAINED, merged_dir, pretrained_dir
from webagent_jax.policy.transformer import ModelConfig, Params, abstract_params

WEBAGENT_TINY = Path(__file__).parent / "webagent_tiny"
"""Directory of the base policy in the package: `policy.path = "webagent-tiny"`."""

_TOKENIZER_FILES = (
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "generation_config.json",
)


def resolve_dir(path: str | Path) -> Path:
    """Return the Hugging Face directory of a policy path or name.

    A pretrained policy is fetched on first use. A PEFT adapter is merged once, in the cache, into
    the base that it names.

    Raises:
        PolicyNotFoundError: the directory does not exist, or there is no network to fetch from.
        ConfigError: an adapter is not supported or does not fit its base.
    """
    if str(path) in PRETRAINED:
        return pretrained_dir(str(path))
    directory = WEBAGENT_TINY if str(path) == "webagent-tiny" else Path(path)
    if peft_adapter.is_adapter(directory):
        # The base may be a name, a directory or another adapter.
        base = resolve_dir(peft_adapter.read_config(directory)["base_model_name_or_path"])
        return merged_dir(directory, base)
    if not (directory / "config.json").is_file():
        raise PolicyNotFoundError(
            f"no policy at {directory}: expected a Hugging Face directory with config.json, "
            f"a PEFT adapter, or one of the names {', '.join(('webagent-tiny', *PRETRAINED))}"
        )
    return directory


def is_policy_dir(path: str | Path) -> bool:
    """Return whether a policy path or name resolves to an existing policy."""
    try:
        resolve_dir(path)
    except FileNotFoundError:
        return False
    return True


def load_config(
    path: str | Path, dtype: str = "float32", remat: str = "none", attention: str = "auto"
) -> ModelConfig:
    """Return the architecture of a policy.

    Args:
        path: policy path or name; see `resolve_dir`.
        dtype: dtype of the activations; the params are float32.
        remat: key of `transformer.REMAT`.
        attention: key of `attention.IMPLEMENTATIONS`, or "auto" for that of the backend.

    Raises:
        FileNotFoundError: the directory does not exist.
        ValueError: the architecture or one of its options is not supported; the message names it.
    """
    return dataclasses.replace(
        hf_config.read(resolve_dir(path) / "config.json"),
        dtype=dtype,
        remat=remat,
        attention=resolve_implementation(attention, jax.default_backend()),
    )


def checkpoint_dtype(path: str | Path) -> str:
    """Return the dtype of the tensors from config.json; "float32" if config.json has none."""
    raw = json.loads((resolve_dir(path) / "config.json").read_text())
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
            tensor differs from config.json; the message names it.
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
    memory contains one param at a time, and the tensors of one file.

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
            np.asarray(_get_path(params, mapping.path)).astype(jnp.dtype(dtype))
        ),
        file_bytes,
    )


def copy_tokenizer(source: Path, destination: Path) -> None:
    """Copy the tokenizer files of a Hugging Face directory."""
    for pattern in _TOKENIZER_FILES:
        for file in source.glob(pattern):
            shutil.copy(file, destination / file.name)


def _check_tensors(mapping: ParamMapping, files: dict[str, Any], directory: Path) -> None:
    for name in mapping.names:
        if name not in files:
            raise PolicyNotFoundError(
                f"no *.safetensors of {directory} contains the tensor {name}: "
                "the directory is incomplete; copy or download it again"
            )
        shape = tuple(files[name].get_slice(name).get_shape())
        if shape != mapping.file_shape:
            expected = f"config.json requires {mapping.file_shape}"
            raise ConfigError(
                f"the tensor {name} of {directory} has the shape {shape}, but {expected}"
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


def _get_path(tree: Any, path: tuple[str, ...]) -> Any:
    return functools.reduce(operator.getitem, path, tree)


def _set_path(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *parents, last = path
    for name in parents:
        tree = tree.setdefault(name, {})
    tree[last] = value
