"""Policies as Orbax checkpoints: load, import from Hugging Face, save and restore params.

An imported policy is a directory with config.json and tokenizer of the original, and `params/`, an
Orbax checkpoint of which each device reads its shards. Every option that accepts a Hugging Face
directory also accepts an imported policy.
"""

from __future__ import annotations

import functools
import hashlib
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from jax.sharding import Mesh

from webagent_jax.config import ConfigError
from webagent_jax.policy import hf, hf_tensors, hf_writer, peft_adapter, sharding
from webagent_jax.policy.transformer import ModelConfig, Params, abstract_params

# Patterns of the files that a policy consists of.
_MODEL_FILES = (
    "config.json",
    "*.safetensors",
    hf_tensors.INDEX_FILE,
    "params/**/*",
    *hf_writer.TOKENIZER_FILES,
)
_ADAPTER_FILES = (
    peft_adapter.CONFIG_FILE,
    peft_adapter.TENSOR_FILE,
    *hf_writer.TOKENIZER_FILES,
)


def load(
    path: str | Path,
    dtype: str = "float32",
    remat: str = "none",
    attention: str = "auto",
    mesh: Mesh | None = None,
) -> tuple[ModelConfig, Params]:
    """Load a Hugging Face directory or an imported policy.

    Args:
        path: policy path or name.
        dtype: dtype of the activations; the params are float32.
        remat: key of `transformer.REMAT`.
        attention: key of `attention.IMPLEMENTATIONS`, or "auto" for that of the backend.
        mesh: mesh to shard the params over; None for a single device.

    Raises:
        FileNotFoundError: the policy or one of its tensors does not exist; see `hf.load_hf`.
        ValueError: the policy is not supported or damaged; see `hf.load_hf`.
    """
    directory = hf.resolve_dir(path)
    if not (directory / "params").is_dir():
        return hf.load_hf(directory, dtype, remat, attention, mesh)
    config = hf.load_config(directory, dtype, remat, attention)
    shapes = with_default_shardings(abstract_params(config), mesh)
    return config, restore_params(directory / "params", shapes)


def checksum(path: str | Path) -> str:
    """Return the SHA-256 of the files of a policy, in hexadecimal digits.

    Other files of its directory, such as a README, do not count.

    Args:
        path: policy path or name.

    Raises:
        PolicyNotFoundError: the policy does not exist.
        ConfigError: an adapter does not fit its base.
    """
    state = hashlib.sha256()
    adapters, base_name = hf.adapter_chain(path)
    base = hf.resolve_dir(base_name) if adapters else None
    if base is None or not (base / "params").is_dir():
        _add_files(state, hf.resolve_dir(path), _MODEL_FILES)
    else:
        # Shards of Orbax cannot be merged.
        for adapter in adapters:
            _add_files(state, adapter, _ADAPTER_FILES)
        _add_files(state, base, _MODEL_FILES)
    return state.hexdigest()


def _add_files(state: hashlib._Hash, directory: Path, patterns: Sequence[str]) -> None:
    """Add the names and contents of the matching files of a directory to a checksum."""
    files = {file for pattern in patterns for file in directory.glob(pattern)}
    for file in sorted(file for file in files if file.is_file()):
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        state.update(f"{file.relative_to(directory)} {digest}\n".encode())


def import_weights(source: str | Path, destination: Path) -> None:
    """Write a Hugging Face directory as an imported policy; each device reads and writes a shard.

    Args:
        source: policy path or name.
        destination: directory to write.

    Raises:
        FileNotFoundError: the policy or one of its tensors does not exist; see `hf.load_hf`.
        ValueError: the policy is not supported; see `hf.load_hf`. Or it is imported already, or
            `destination` is its directory.
    """
    directory = hf.resolve_dir(source)
    if (directory / "params").is_dir():
        raise ConfigError(f"{source} is an imported policy already: set policy.path to it")
    if destination.resolve() == directory.resolve():
        raise ConfigError(f"{destination} is the directory to import: choose another output folder")
    _, params = hf.load_hf(directory, mesh=mesh_for(directory))
    destination.mkdir(parents=True, exist_ok=True)
    save_params(destination / "params", params)
    hf.copy_tokenizer(directory, destination)
    # config.json is written last: it marks the directory as a complete policy.
    shutil.copy(directory / "config.json", destination / "config.json")


def mesh_for(directory: Path) -> Mesh:
    """Return a mesh of as many devices as divide the width of a policy."""
    width = hf.load_config(directory).d_model
    count = math.gcd(width, jax.device_count())
    return sharding.make_mesh(fsdp=count, devices=jax.devices()[:count])


def with_default_shardings(shapes: Params, mesh: Mesh | None) -> Params:
    """Return abstract params with the default shardings of a mesh, or of one device."""
    return sharding.with_shardings(shapes, sharding.default_shardings(shapes, mesh))


def save_params(directory: Path, params: Params) -> None:
    """Write params, each device its own shards; replace the directory if it exists."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.absolute(), params, force=True)


def restore_params(
    directory: Path, abstract_params: Params, *, key_path: tuple[str, ...] = ()
) -> Params:
    """Read params of `save_params` into the shardings of `abstract_params`.

    Args:
        directory: directory with the params.
        abstract_params: shapes, dtypes and shardings of the params.
        key_path: keys that lead to the params in a larger tree; the rest of the tree is not read.

    Raises:
        ValueError: the params are missing or damaged, or have other shapes.
    """
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, abstract_params)
    for name in reversed(key_path):
        target = {name: target}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        try:
            # A read that fails halfway leaves threads running: check the shapes first.
            _check_shapes(reader.metadata(directory.absolute()).item_metadata.tree, target)
            restore_args = ocp.checkpoint_utils.construct_restore_args(target)
            args = ocp.args.PyTreeRestore(target, restore_args, partial_restore=True)
            params = reader.restore(directory.absolute(), args=args)
        # Orbax raises errors of several types; callers expect one.
        except Exception as error:
            message = f"cannot read params of this model from {directory}: {error}"
            raise ConfigError(message) from error
    for name in key_path:
        params = params[name]
    return params


def _check_shapes(tree: Any, target: Any) -> None:
    """Check that the tree contains every array of `target` with its shape.

    Raises:
        KeyError: an array is missing.
        ValueError: an array has another shape.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(target):
        metadata = functools.reduce(lambda node, part: node[part.key], path, tree)
        if tuple(metadata.shape) != tuple(leaf.shape):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise ValueError(
                f"{name} is {tuple(metadata.shape)} in the checkpoint, "
                f"and {leaf.shape} in the model"
            )
