"""The policy's directory: family, tokenizer, every tensor there, and disk for its checkpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import jax
from safetensors import SafetensorError, safe_open

from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer
from webagent_jax.config import RunConfig
from webagent_jax.doctor.findings import Finding, broken, from_error, gib, ok, warning
from webagent_jax.doctor.machine import existing
from webagent_jax.policy import ModelConfig, hf_tensors, lora

_PATH = "--config.policy.path=DIR"
_AGAIN = "fetch the directory again, all of it"
_CHECKPOINTS = 3  # two are kept while the next is written
_ARRAYS = 3  # params and two moments, in float32


def check(cfg: RunConfig, workdir: Path) -> Iterator[Finding]:
    try:
        where = policy.directory(cfg.policy.path)
        model = policy.load_config(where)
    except KeyError as error:
        yield broken("weights", f"config.json lacks {error}", _AGAIN)
        return
    except (FileNotFoundError, ValueError) as error:
        yield from_error("weights", error, f"{_PATH} of a supported model")
        return
    yield _tokenizer(where)
    if cfg.policy.kind == "weights":
        yield _tensors(cfg, where, model)
        yield _disk(cfg, workdir, model)


def _tokenizer(where: Path) -> Finding:
    try:
        tokenizer = ChatTokenizer(where)
    except (FileNotFoundError, ValueError) as error:
        return from_error("tokenizer", error, _AGAIN)
    return ok("tokenizer", f"with a chat template; a reply ends with {list(tokenizer.stop_ids)}")


def _tensors(cfg: RunConfig, where: Path, model: ModelConfig) -> Finding:
    told = (
        f"{where}: {policy.count_params(model):,} params, {policy.stored_dtype(where)} on disk, "
        f"activations {cfg.policy.dtype}"
    )
    if (where / "params").is_dir():
        return ok("weights", f"{told}, imported")
    found: set[str] = set()
    for file in sorted(where.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy") as tensors:
                found |= set(tensors.keys())
        except (SafetensorError, OSError) as error:
            return broken("weights", f"{file} cannot be read: {error}", _AGAIN)
    names = [name for leaf in hf_tensors.leaves(model) for name in leaf.names]
    missing = [name for name in names if name not in found]
    if missing:
        return broken(
            "weights",
            f"{len(missing)} of {len(names)} tensors are missing in {where}, first {missing[0]}",
            _listed(where) or _AGAIN,
        )
    return ok("weights", told)


def _listed(where: Path) -> str:
    """Which files the index lists and the directory lacks."""
    index = where / "model.safetensors.index.json"
    if not index.exists():
        return ""
    files = set(json.loads(index.read_text())["weight_map"].values())
    lacking = sorted(name for name in files if not (where / name).exists())
    return f"fetch {', '.join(lacking)} again" if lacking else ""


def _disk(cfg: RunConfig, workdir: Path, model: ModelConfig) -> Finding:
    count = policy.count_params(model)
    if cfg.lora.rank:
        params = policy.abstract_params(model)
        adapters = lora.abstract(params, cfg.lora.rank, cfg.lora.projections)
        count = sum(leaf.size for leaf in jax.tree.leaves(adapters))
    one = 4 * _ARRAYS * count
    free = shutil.disk_usage(existing(workdir)).free
    what = f"{_CHECKPOINTS} checkpoints of {gib(one)} at once, {gib(free)} free"
    if _CHECKPOINTS * one > free:
        return warning("disk", what, "make room, or choose a --workdir with more")
    return ok("disk", what)
