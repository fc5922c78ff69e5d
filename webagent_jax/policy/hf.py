"""Hugging Face directories in and out: safetensors <-> params, without transformers."""

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
from safetensors import safe_open

from webagent_jax.config import PolicyNotFoundError
from webagent_jax.policy import hf_config, hf_tensors, hf_writer, peft_adapter, sharding
from webagent_jax.policy.attention import choose
from webagent_jax.policy.hf_tensors import Leaf, Slices, Weight
from webagent_jax.policy.pretrained import PRETRAINED, merged_dir, pretrained_dir
from webagent_jax.policy.transformer import ModelConfig, Params, abstract_params

WEBAGENT_TINY = Path(__file__).parent / "webagent_tiny"
"""The base policy that is shipped with the package: `policy.path = "webagent-tiny"`."""

_TOKENIZER_FILES = (
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "generation_config.json",
)


def directory(path: str | Path) -> Path:
    """Return the Hugging Face directory of a policy path or name.

    A pretrained policy is fetched on first use. An adapter in the format of PEFT is merged into
    the base that it names, once, in the cache.

    Raises:
        PolicyNotFoundError: no such directory, or no network to fetch from.
        ConfigError: an adapter that is not supported or does not fit its base.
    """
    if str(path) in PRETRAINED:
        return pretrained_dir(str(path))
    where = WEBAGENT_TINY if str(path) == "webagent-tiny" else Path(path)
    if peft_adapter.is_adapter(where):
        base = directory(peft_adapter.read_config(where)["base_model_name_or_path"])
        return merged_dir(where, base)
    if not (where / "config.json").is_file():
        raise PolicyNotFoundError(
            f"no policy at {where}: expected a Hugging Face directory with config.json, "
            f"a PEFT adapter, or one of the names {', '.join(('webagent-tiny', *PRETRAINED))}"
        )
    return where


def is_directory(path: str | Path) -> bool:
    """Whether a policy path names a policy that is there."""
    try:
        directory(path)
    except FileNotFoundError:
        return False
    return True


def load_config(
    path: str | Path, dtype: str = "float32", remat: str = "none", attention: str = "auto"
) -> ModelConfig:
    """The model of a directory with config.json, or of "webagent-tiny".

    Args:
        dtype: of activations; the params are float32.
        remat: one of `transformer.REMAT`.
        attention: one of `attention.IMPLEMENTATIONS`, or "auto" for the backend's own.

    Raises:
        FileNotFoundError: no such directory.
        ValueError: the architecture or one of its options is not supported; names it.
    """
    return dataclasses.replace(
        hf_config.read(directory(path) / "config.json"),
        dtype=dtype,
        remat=remat,
        attention=choose(attention, jax.default_backend()),
    )


def stored_dtype(path: str | Path) -> str:
    """That of the tensors of a directory, as its config.json tells; "float32" where it does not."""
    raw = json.loads((directory(path) / "config.json").read_text())
    return str(raw.get("dtype") or raw.get("torch_dtype") or "float32")


def load_hf(
    path: str | Path,
    dtype: str = "float32",
    remat: str = "none",
    attention: str = "auto",
    mesh: Mesh | None = None,
) -> tuple[ModelConfig, Params]:
    """Reads a directory of one of the supported architectures, see `hf_config`.

    Every device reads what it holds, param after param: host memory holds the shards of one param
    at a time.

    Args:
        path: directory with config.json and *.safetensors, or "webagent-tiny".
        dtype, remat, attention: as of `load_config`.
        mesh: over which the params are cut, see `sharding`; without one they go to one device.

    Raises:
        FileNotFoundError: no such directory, or a tensor is in none of its files.
        ValueError: the architecture or one of its options is not supported, or a tensor has another
            shape than config.json says; names it.
        ShardingError: a param does not divide over the mesh.
    """
    where = directory(path)
    config = load_config(where, dtype, remat, attention)
    shardings = sharding.placement(abstract_params(config), mesh)
    params: dict[str, Any] = {}
    with contextlib.ExitStack() as opened:
        files: dict[str, Any] = {}  # by tensor
        for file in sorted(where.glob("*.safetensors")):
            tensors = opened.enter_context(safe_open(file, framework="numpy"))
            files |= dict.fromkeys(tensors.keys(), tensors)
        for leaf in hf_tensors.leaves(config):
            _check(leaf, files, where)
            _put(params, leaf.path, _sharded(leaf, files, _at(shardings, leaf.path)))
    return config, params


def save_hf(
    path: str | Path,
    config: ModelConfig,
    params: Params,
    dtype: str = "float32",
    file_bytes: int = 5 * 10**9,
) -> None:
    """Writes a directory that `load_hf` and `transformers` read.

    Params that `load_hf` read from tensors of this `dtype` are written back bit for bit. One param
    at a time is on the host, and the tensors of one file, of about `file_bytes` at most.
    """
    hf_writer.write_directory(
        Path(path),
        config,
        dtype,
        lambda leaf: leaf.write(np.asarray(_at(params, leaf.path)).astype(jnp.dtype(dtype))),
        file_bytes,
    )


def copy_tokenizer(source: Path, destination: Path) -> None:
    """Copies whatever belongs to the tokenizer of a Hugging Face directory."""
    for pattern in _TOKENIZER_FILES:
        for file in source.glob(pattern):
            shutil.copy(file, destination / file.name)


def _check(leaf: Leaf, files: dict[str, Any], where: Path) -> None:
    for name in leaf.names:
        if name not in files:
            raise FileNotFoundError(f"no *.safetensors of {where} holds the tensor {name}")
        shape = tuple(files[name].get_slice(name).get_shape())
        if shape != leaf.file_shape:
            told = f"config.json says {leaf.file_shape}"
            raise ValueError(f"the tensor {name} of {where} has the shape {shape}, but {told}")


def _sharded(leaf: Leaf, files: dict[str, Any], at: Sharding) -> jax.Array:
    """The param, each device's part of it read from the files."""

    def read(name: str, cut: Slices) -> Weight:
        part: Weight = files[name].get_slice(name)[cut]
        return part

    read_once: dict[Any, Weight] = {}  # replicas ask for the same

    def shard(index: Any) -> Weight:
        key = tuple((cut.start, cut.stop) for cut in index)
        if key not in read_once:
            read_once[key] = leaf.read(index, read)
        return read_once[key]

    return jax.make_array_from_callback(leaf.param_shape, at, shard)


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    return functools.reduce(operator.getitem, path, tree)


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *above, last = path
    for name in above:
        tree = tree.setdefault(name, {})
    tree[last] = value
