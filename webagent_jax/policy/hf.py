"""Hugging Face directories in and out: safetensors <-> params, without transformers."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save_file

from webagent_jax.policy import hf_config
from webagent_jax.policy.attention import choose
from webagent_jax.policy.transformer import ModelConfig, Params

Weight = npt.NDArray[Any]

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
    """The directory a policy path names. Raises FileNotFoundError, saying what is looked for."""
    where = WEBAGENT_TINY if str(path) == "webagent-tiny" else Path(path)
    if not (where / "config.json").is_file():
        raise FileNotFoundError(
            f"no policy at {where}: expected a Hugging Face directory with config.json, "
            'or the name "webagent-tiny"'
        )
    return where


def load_hf(
    path: str | Path, dtype: str = "float32", remat: bool = False, attention: str = "auto"
) -> tuple[ModelConfig, Params]:
    """Reads a directory of one of the supported architectures, see `hf_config`.

    Args:
        path: directory with config.json and *.safetensors, or "webagent-tiny".
        dtype: of activations; the params are float32.
        remat: see ModelConfig.
        attention: one of `attention.IMPLEMENTATIONS`, or "auto" for the backend's own.

    Raises:
        FileNotFoundError: no such directory, or a tensor is in none of its files.
        ValueError: the architecture or one of its options is not supported; names it.
    """
    where = directory(path)
    config = dataclasses.replace(
        hf_config.read(where / "config.json"),
        dtype=dtype,
        remat=remat,
        attention=choose(attention, jax.default_backend()),
    )
    files: dict[str, Path] = {}
    for file in sorted(where.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as opened:
            files |= dict.fromkeys(opened.keys(), file)

    def read(name: str) -> Weight:
        if name not in files:
            raise FileNotFoundError(f"no *.safetensors of {where} holds the tensor {name}")
        with safe_open(files[name], framework="numpy") as opened:
            return opened.get_tensor(name).astype(np.float32)

    return config, _assemble(config, read)


def save_hf(path: str | Path, config: ModelConfig, params: Params) -> None:
    """Writes config.json and model.safetensors, bit for bit what `load_hf` would read back."""
    where = Path(path)
    where.mkdir(parents=True, exist_ok=True)
    hf_config.write(where / "config.json", config)
    host = jax.tree.map(np.asarray, params)
    tensors = {name: np.ascontiguousarray(value) for name, value in _flatten(config, host)}
    save_file(tensors, where / "model.safetensors", metadata={"format": "pt"})


def copy_tokenizer(source: Path, destination: Path) -> None:
    """Copies whatever belongs to the tokenizer of a Hugging Face directory."""
    for pattern in _TOKENIZER_FILES:
        for file in source.glob(pattern):
            shutil.copy(file, destination / file.name)


# A Linen kernel is [in, out...]; a Hugging Face weight is [out, in]. Heads are flattened there.
_LINEAR = {
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.o_proj": "o",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}
_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "mlp_norm"}
_HEAD_NORMS = {"self_attn.q_norm": "q_norm", "self_attn.k_norm": "k_norm"}
_BIASED = ("q", "k", "v")


def _norms(config: ModelConfig) -> dict[str, str]:
    return _NORMS | _HEAD_NORMS if config.qk_norm else _NORMS


def _kernel_shape(config: ModelConfig, part: str) -> tuple[int, ...]:
    d, e = config.d_model, config.head_dim
    return {
        "q": (d, config.num_heads, e),
        "k": (d, config.num_kv_heads, e),
        "v": (d, config.num_kv_heads, e),
        "o": (config.num_heads, e, d),
        "gate": (d, config.d_ff),
        "up": (d, config.d_ff),
        "down": (config.d_ff, d),
    }[part]


def _assemble(config: ModelConfig, read: Callable[[str], Weight]) -> Params:
    """Params from named tensors, layers stacked."""

    def stack(name: str, shape: tuple[int, ...], transpose: bool = False) -> Weight:
        names = [f"model.layers.{i}.{name}" for i in range(config.num_layers)]
        tensors = [read(n).T if transpose else read(n) for n in names]
        return np.stack([tensor.reshape(shape) for tensor in tensors])

    layers: dict[str, dict[str, Weight]] = {}
    for theirs, ours in _norms(config).items():
        layers[ours] = {"scale": stack(f"{theirs}.weight", (-1,))}
    for theirs, ours in _LINEAR.items():
        shape = _kernel_shape(config, ours)
        layers[ours] = {"kernel": stack(f"{theirs}.weight", shape, transpose=True)}
        if ours in _BIASED and config.qkv_bias:
            layers[ours]["bias"] = stack(f"{theirs}.bias", shape[1:])
    params = {
        "embed": read("model.embed_tokens.weight"),
        "layers": layers,
        "final_norm": read("model.norm.weight"),
    }
    if not config.tie_embeddings:
        params["head"] = read("lm_head.weight").T
    return jax.tree.map(jax.numpy.asarray, params)


def _flatten(config: ModelConfig, params: Params) -> Iterator[tuple[str, Weight]]:
    """The inverse of `_assemble`: named tensors of params."""
    yield "model.embed_tokens.weight", params["embed"]
    yield "model.norm.weight", params["final_norm"]
    if "head" in params:
        yield "lm_head.weight", params["head"].T
    for index in range(config.num_layers):
        layer = jax.tree.map(lambda stacked, i=index: stacked[i], params["layers"])
        prefix = f"model.layers.{index}"
        for theirs, ours in _norms(config).items():
            yield f"{prefix}.{theirs}.weight", layer[ours]["scale"]
        for theirs, ours in _LINEAR.items():
            kernel = layer[ours]["kernel"]
            fan_in = kernel.shape[0] * kernel.shape[1] if ours == "o" else kernel.shape[0]
            yield f"{prefix}.{theirs}.weight", kernel.reshape(fan_in, -1).T
            if "bias" in layer[ours]:
                yield f"{prefix}.{theirs}.bias", layer[ours]["bias"].reshape(-1)
