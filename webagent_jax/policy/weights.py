"""Policies as Orbax checkpoints: load, import from Hugging Face, save and restore params.

An imported policy is a directory with the config.json and the tokenizer of the original beside
`params/`, an Orbax checkpoint, of which each device reads its shards. Every option that takes a
Hugging Face directory takes an imported policy too.
"""

from __future__ import annotations

import functools
import math
import shutil
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from jax.sharding import Mesh

from webagent_jax.policy import hf, sharding
from webagent_jax.policy.transformer import ModelConfig, Params, abstract_params


def load(
    path: str | Path,
    dtype: str = "float32",
    remat: str = "none",
    attention: str = "auto",
    mesh: Mesh | None = None,
) -> tuple[ModelConfig, Params]:
    """Load a Hugging Face directory or an imported policy; see `hf.load_hf`.

    Raises:
        FileNotFoundError, ValueError: as `hf.load_hf`.
    """
    where = hf.directory(path)
    if not (where / "params").is_dir():
        return hf.load_hf(where, dtype, remat, attention, mesh)
    config = hf.load_config(where, dtype, remat, attention)
    return config, restore_params(where / "params", with_shardings(abstract_params(config), mesh))


def import_weights(source: str | Path, destination: Path) -> None:
    """Write a Hugging Face directory as an imported policy; each device reads and writes a shard.

    Raises:
        FileNotFoundError, ValueError: as `hf.load_hf`.
    """
    where = hf.directory(source)
    _, params = hf.load_hf(where, mesh=mesh_for(where))
    destination.mkdir(parents=True, exist_ok=True)
    save_params(destination / "params", params)
    hf.copy_tokenizer(where, destination)
    # config.json is last: it makes the directory a policy.
    shutil.copy(where / "config.json", destination / "config.json")


def mesh_for(directory: Path) -> Mesh:
    """Return a mesh that shards a policy over as many devices as divide its width."""
    width = hf.load_config(directory).d_model
    count = math.gcd(width, jax.device_count())
    return sharding.make_mesh(fsdp=count, devices=jax.devices()[:count])


def with_shardings(shapes: Params, mesh: Mesh | None) -> Params:
    """Return abstract params with the default shardings of a mesh, or of one device."""
    return sharding.placed(shapes, sharding.placement(shapes, mesh))


def save_params(directory: Path, params: Params) -> None:
    """Write params, each device its shards; replace the directory if it exists."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.absolute(), params, force=True)


def restore_params(
    directory: Path, abstract_params: Params, *, within: tuple[str, ...] = ()
) -> Params:
    """Read params of `save_params` into the shardings of `abstract_params`.

    Args:
        directory: that contains them.
        abstract_params: shapes, dtypes and shardings.
        within: path to the params in a larger tree; other parts of the tree are not read.

    Raises:
        ValueError: they are missing, damaged, or of other shapes.
    """
    wanted = jax.tree.map(ocp.utils.to_shape_dtype_struct, abstract_params)
    for name in reversed(within):
        wanted = {name: wanted}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        try:
            # Check before reading: a read that fails half-way leaves threads running.
            _check_shapes(reader.metadata(directory.absolute()).item_metadata.tree, wanted)
            restore_args = ocp.checkpoint_utils.construct_restore_args(wanted)
            args = ocp.args.PyTreeRestore(wanted, restore_args, partial_restore=True)
            params = reader.restore(directory.absolute(), args=args)
        except Exception as error:
            message = f"no params of this model can be read from {directory}: {error}"
            raise ValueError(message) from error
    for name in within:
        params = params[name]
    return params


def _check_shapes(tree: Any, wanted: Any) -> None:
    """Raise KeyError or ValueError for an array that is missing or has another shape."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(wanted):
        stored = functools.reduce(lambda node, part: node[part.key], path, tree)
        if tuple(stored.shape) != tuple(leaf.shape):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise ValueError(
                f"{name} is {tuple(stored.shape)} there, and {leaf.shape} in the model"
            )
