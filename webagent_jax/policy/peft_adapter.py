"""LoRA adapters in the format of PEFT: adapter_config.json and adapter_model.safetensors.

PEFT stores A as `lora_A.weight` [rank, in] and B as `lora_B.weight` [out, rank] of each module. It
adds lora_alpha / r times B A to the weight [out, in] of the base (huggingface/peft, LoRA).
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from webagent_jax.config import ConfigError
from webagent_jax.policy import hf_config, hf_tensors, hub_id
from webagent_jax.policy.hf_tensors import Weight
from webagent_jax.policy.hf_writer import PROMPT_FILE, TOKENIZER_FILES, save_tensors
from webagent_jax.policy.lora import DOWN, UP, Adapters, num_input_axes
from webagent_jax.policy.transformer import ModelConfig

CONFIG_FILE = "adapter_config.json"
TENSOR_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_HEAD = f"{_PREFIX}lm_head.lora_A.weight"

_REQUIRED = ("base_model_name_or_path", "r", "lora_alpha")

# PEFT options that change the function of an adapter, with their supported values.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "fan_in_fan_out": (False, None),
    "use_dora": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    # Other initializations (PiSSA, OLoRA, LoftQ, CorDA) also change the weights of the base.
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
    "use_qalora": (False, None),
    "alora_invocation_tokens": (None,),
    "layer_replication": (None, []),
}


def is_adapter(directory: Path) -> bool:
    """Return whether a directory contains an adapter and no model of its own.

    It may contain config.json of its base.
    """
    return (directory / CONFIG_FILE).is_file() and not _has_weights(directory)


def read_config(directory: Path) -> dict[str, Any]:
    """Return adapter_config.json of an adapter.

    Raises:
        ConfigError: the file is damaged, the adapter is not LoRA, or an option is not supported.
    """
    file = directory / CONFIG_FILE
    try:
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        missing = [name for name in _REQUIRED if not config.get(name)]
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            f"{file} is not a JSON object ({error}): save the adapter again"
        ) from error
    if missing:
        raise ConfigError(f"{file} has no {', '.join(missing)}: save the adapter again with PEFT")
    for option, values in _SUPPORTED.items():
        if option in config and config[option] not in values:
            raise ConfigError(
                f"{file}: {option}={config[option]!r} is not supported.\n"
                "Merge the adapter with PEFT (merge_and_unload) and use the merged directory."
            )
    return config


def base_path(directory: Path) -> str:
    """Return the policy path of the base of an adapter, with the revision of a model of the Hub.

    Raises:
        ConfigError: see `read_config`.
    """
    config = read_config(directory)
    path, revision = str(config["base_model_name_or_path"]), config.get("revision")
    is_hub_model = hub_id.is_hub_id(path) and not Path(path).exists()
    return f"{path}@{revision}" if revision and is_hub_model and "@" not in path else path


def merge(adapter: Path, base: Path, destination: Path) -> None:
    """Write the Hugging Face directory of a base with an adapter merged into its weights.

    Merged weights are float32, because rounding to the bfloat16 of most models would remove small
    updates; the other tensors keep the dtype of the base. Memory contains the tensors of one file
    at a time.

    Args:
        adapter: directory of the adapter.
        base: Hugging Face directory of the base.
        destination: directory to create.

    Raises:
        ConfigError: a module that the adapter modifies is missing in the base or has another shape,
            or the adapter modifies an lm_head that the base shares with the embedding. Or weights
            of the base are missing or damaged.
    """
    config = read_config(adapter)
    scale = _scale(config)
    tensors = _read_tensors(adapter)
    if _HEAD in tensors and hf_config.read(base / "config.json").tie_embeddings:
        # The head of a tied model is the embedding, so a merged lm_head would not be read.
        raise ConfigError(
            f"{adapter} adapts lm_head, but that of {base} is the embedding "
            "(tie_word_embeddings=true):\nuse an adapter without lm_head, or set "
            f"base_model_name_or_path in {adapter / CONFIG_FILE} to a copy of the base with "
            "tie_word_embeddings=false and a tensor lm_head.weight"
        )
    modules = {name.rsplit(".lora_", 1)[0] for name in tensors}
    merged_modules = set()
    files = sorted(base.glob("*.safetensors"))
    if not files:
        raise _no_tensors_error(adapter, base)
    destination.mkdir(parents=True)
    copy_text_files(adapter, base, destination)
    _set_float32(destination / "config.json")
    for file in files:
        try:
            weights: dict[str, Weight] = load_file(file)
        except SafetensorError as error:
            raise ConfigError(
                f"{file} cannot be read ({error}): copy or download it again"
            ) from error
        for name, weight in weights.items():
            module = _PREFIX + name.removesuffix(".weight")
            if module not in modules:
                continue
            down, up = (tensors[f"{module}.lora_{x}.weight"].astype(np.float32) for x in "AB")
            if (len(up), down.shape[1]) != weight.shape:
                raise _base_error(
                    adapter,
                    f"{adapter} does not fit {base}: {name} is {weight.shape} in the base, and "
                    f"{(len(up), down.shape[1])} in the adapter",
                )
            # B [out, rank] times A [rank, in] has the layout [out, in] of the weight.
            weights[name] = weight.astype(np.float32) + scale * (up @ down)
            merged_modules.add(module)
        save_tensors(destination / file.name, weights)
    missing = modules - merged_modules
    if missing:
        raise _base_error(adapter, f"{adapter} does not fit {base}: the base has no {min(missing)}")


def adapts_head(directory: Path) -> bool:
    """Return whether an adapter modifies lm_head, which `load` does not support."""
    return _HEAD in _read_tensors(directory)


def load(
    directory: Path, config: ModelConfig, *, scale: float, all_layers: bool = False
) -> Adapters:
    """Return an adapter as a tree of `lora.init`, of NumPy arrays in float32.

    A projection with an adapter in some layers only has zeros in the others.

    Args:
        directory: directory of the adapter.
        config: architecture of the base.
        scale: factor of A B of the tree; B is rescaled from the factor of the adapter.
        all_layers: whether a projection without an adapter in some layers is an error, since zeros
            cannot be trained.

    Raises:
        ConfigError: the adapter is damaged, does not fit the architecture, or adapts lm_head.
    """
    factor = _scale(read_config(directory)) / scale
    tensors = {name: x.astype(np.float32) for name, x in _read_tensors(directory).items()}
    # Trained adapters are those of the layers (`lora.init`).
    if _HEAD in tensors:
        raise ConfigError(
            f"{directory} adapts lm_head, which cannot be trained: set "
            "lora.create_new_adapter=True to train a new adapter on top of it, or use an adapter "
            "without lm_head"
        )
    layers = {}
    try:
        for mapping in hf_tensors.param_mappings(config):
            modules = [_PREFIX + name.removesuffix(".weight") for name in mapping.names]
            missing = [i for i, m in enumerate(modules) if f"{m}.lora_A.weight" not in tensors]
            if len(missing) == len(modules):
                continue
            projection = mapping.path[1]
            if missing and all_layers:
                raise _missing_layers_error(directory, projection, missing)
            inner = num_input_axes(projection)
            downs, ups = (_pop_layers(tensors, modules, part) for part in "AB")
            layers[projection] = {
                DOWN: downs.reshape(len(modules), *mapping.shape[:inner], -1),
                UP: factor * ups.reshape(len(modules), ups.shape[1], *mapping.shape[inner:]),
            }
    except ConfigError:
        raise
    except ValueError as error:
        raise _base_error(
            directory, f"{directory} does not fit the architecture of its base ({error})"
        ) from error
    if tensors:
        raise _base_error(
            directory, f"{directory}: the base has no module of the tensor {min(tensors)}"
        )
    return {"layers": layers}


def copy_text_files(adapter: Path, base: Path, destination: Path) -> None:
    """Copy config and tokenizer of the base; files of the adapter's tokenizer replace them."""

    def copy(source: Path, *patterns: str) -> None:
        for pattern in patterns:
            for file in source.glob(pattern):
                shutil.copy(file, destination)

    # The index of a sharded base remains valid, since file names are kept.
    copy(base, "config.json", hf_tensors.INDEX_FILE, *TOKENIZER_FILES)
    if not (adapter / "tokenizer.json").is_file():
        copy(adapter, PROMPT_FILE)
        return
    options = adapter / "tokenizer_config.json"
    if options.is_file() and '"chat_template"' in options.read_text(encoding="utf-8"):
        # transformers would prefer the template files of the base to this option.
        for file in destination.glob("chat_template*"):
            file.unlink()
    copy(adapter, *TOKENIZER_FILES)


def _set_float32(config_file: Path) -> None:
    """Set the dtype of a model to float32, unless it is; readers would round the weights to it."""
    config = json.loads(config_file.read_text(encoding="utf-8"))
    names = [name for name in ("dtype", "torch_dtype") if config.get(name, "float32") != "float32"]
    if names:
        config |= dict.fromkeys(names, "float32")
        config_file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _pop_layers(tensors: dict[str, Weight], modules: Sequence[str], part: str) -> Weight:
    """Remove A or B of a projection and return it as [layers, in, rank] or [layers, rank, out].

    Layers without an adapter are zeros.
    """
    names = [f"{module}.lora_{part}.weight" for module in modules]
    zeros = np.zeros_like(next(tensors[name] for name in names if name in tensors))
    return np.stack([tensors.pop(name, zeros).T for name in names])


def _missing_layers_error(adapter: Path, projection: str, layers: Sequence[int]) -> ConfigError:
    return ConfigError(
        f"lora.create_new_adapter=False: {adapter} has no adapter of {projection} in the layers "
        f"{', '.join(map(str, layers))}; set lora.create_new_adapter=True to train a new adapter "
        "on top of it"
    )


def _has_weights(directory: Path) -> bool:
    """Return whether a directory contains the weights of a model."""
    return any(directory.glob("model*.safetensors")) or (directory / "params").is_dir()


def _no_tensors_error(adapter: Path, base: Path) -> ConfigError:
    """Return the error of a base without *.safetensors: an imported or an incomplete policy."""
    problem = f"{base} contains no *.safetensors to merge {adapter} into"
    if not (base / "params").is_dir():
        return ConfigError(f"{problem}; {hf_tensors.missing_files_fix(base)}")
    return ConfigError(
        f"{problem}.\n"
        f"Write a Hugging Face directory: webagent export --input={base} --output_dir=DIR\n"
        f"Then set base_model_name_or_path in {adapter / CONFIG_FILE} to DIR."
    )


def _base_error(adapter: Path, problem: str) -> ConfigError:
    """Return the error of an adapter that does not fit its base."""
    return ConfigError(
        f"{problem}. Set base_model_name_or_path in {adapter / CONFIG_FILE} to the base of the "
        "adapter"
    )


def _scale(config: Mapping[str, Any]) -> float:
    """Return the factor of B A from adapter_config.json."""
    rank = config["r"]
    # rsLoRA divides alpha by the root of the rank (arXiv 2312.03732).
    return float(config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _read_tensors(adapter: Path) -> dict[str, Weight]:
    """Return the tensors of an adapter by name, without copies of the base.

    Raises:
        ConfigError: the file is missing or damaged, or adapts modules other than projections.
    """
    file = adapter / TENSOR_FILE
    if not file.is_file():
        raise ConfigError(
            f"{adapter} contains no {TENSOR_FILE}: save the adapter with PEFT, "
            "save_pretrained(DIR, safe_serialization=True)"
        )
    try:
        tensors: dict[str, Weight] = load_file(file)
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{file} cannot be read ({error}): copy the adapter again") from error
    # PEFT stores a copy of an adapted lm_head (`save_embedding_layers`).
    tensors = {name: x for name, x in tensors.items() if not name.endswith(".base_layer.weight")}
    for name in tensors:
        if not name.startswith(_PREFIX) or not name.endswith((".lora_A.weight", ".lora_B.weight")):
            raise ConfigError(
                f"{file}: the tensor {name} is not supported, only LoRA of linear layers.\n"
                "Merge the adapter with PEFT (merge_and_unload) and use the merged directory."
            )
    modules = {name.rsplit(".lora_", 1)[0] for name in tensors}
    missing = {f"{module}.lora_{part}.weight" for module in modules for part in "AB"} - set(tensors)
    if missing:
        raise ConfigError(f"{file} contains no {min(missing)}: save the adapter again with PEFT")
    return tensors


def save(
    directory: Path,
    config: ModelConfig,
    adapters: Adapters,
    *,
    rank: int,
    alpha: float,
    base_name: str,
    initial_adapters: Sequence[Path] = (),
    max_rank: int | None = None,
    dtype: str = "float32",
) -> None:
    """Write adapters as a directory that `peft` can load.

    Args:
        directory: directory to create or overwrite.
        config: architecture of the base.
        adapters: tree of `lora.init`.
        rank: rank of the adapters.
        alpha: numerator of the scale alpha / rank.
        base_name: name or path of the base policy.
        initial_adapters: directories of adapters to include: the base of `adapters` is the base
            policy with these.
        max_rank: rank to reduce the sum with `initial_adapters` to; None keeps the sum of ranks.
        dtype: dtype of the tensors.

    Raises:
        ConfigError: the directory contains a model, whose weights would be loaded instead.
    """
    if (directory / "config.json").exists() or _has_weights(directory):
        raise ConfigError(f"{directory} contains a model: choose another directory for the adapter")
    directory.mkdir(parents=True, exist_ok=True)
    # In float32 up to the end, so that the tensors are rounded once.
    tensors = dict(_tensors(config, adapters))
    for initial in initial_adapters:
        options = read_config(initial)
        tensors = _sum((_read_tensors(initial), _scale(options)), (tensors, alpha / rank))
        rank += options["r"]
        alpha = float(rank)
    if max_rank is not None and max_rank < rank:
        tensors = _reduce_rank(tensors, alpha / rank, max_rank)
        rank, alpha = max_rank, float(max_rank)
    tensors = {name: tensor.astype(jnp.dtype(dtype)) for name, tensor in tensors.items()}
    save_tensors(directory / TENSOR_FILE, tensors)
    modules = sorted({name.split(".lora_")[0].rsplit(".", 1)[1] for name in tensors})
    revision: str | None = None
    if hub_id.is_hub_id(base_name) and not Path(base_name).exists():
        base_name, revision = hub_id.split(base_name)
    content = {
        "base_model_name_or_path": base_name,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "revision": revision,
        "target_modules": modules,
        "task_type": "CAUSAL_LM",
        "use_rslora": False,
    }
    # Written last, since `is_adapter` checks for this file.
    (directory / CONFIG_FILE).write_text(json.dumps(content, indent=2) + "\n")


def _sum(*adapters: tuple[Mapping[str, Weight], float]) -> dict[str, Weight]:
    """Return the tensors of an adapter of scale 1 that is the sum of adapters.

    Its rank is the sum of their ranks: [B1 B2] times [A1; A2] is B1 A1 + B2 A2.

    Args:
        adapters: tensors and scale of each adapter.
    """
    # In an adapter, A has the same number of rows for every module.
    ranks = [next(len(x) for name, x in t.items() if ".lora_A." in name) for t, _ in adapters]
    result = {}
    for name in {name: None for tensors, _ in adapters for name in tensors}:
        rank_axis = 0 if ".lora_A." in name else 1
        width = next(t[name].shape[1 - rank_axis] for t, _ in adapters if name in t)
        blocks = []
        for (tensors, scale), rank in zip(adapters, ranks, strict=True):
            shape = (rank, width) if rank_axis == 0 else (width, rank)
            # An adapter without this module adds 0.
            block = tensors.get(name, np.zeros(shape)).astype(np.float32)
            blocks.append(scale * block if rank_axis == 1 else block)
        result[name] = np.concatenate(blocks, axis=rank_axis)
    return result


def _reduce_rank(tensors: Mapping[str, Weight], scale: float, rank: int) -> dict[str, Weight]:
    """Return the adapter of scale 1 and the given rank with the closest products B A.

    The closest matrix of a rank in the Frobenius norm keeps its largest singular values (Eckart and
    Young, 1936).
    """
    result = {}
    for module in {name.rsplit(".lora_", 1)[0]: None for name in tensors}:
        names = [f"{module}.lora_{part}.weight" for part in "AB"]
        down, up = (tensors[name] for name in names)
        # B A = Q_B (R_B R_A^T) Q_A^T: only the core [rank, rank] needs a decomposition.
        down_basis, down_core = np.linalg.qr(down.T)
        up_basis, up_core = np.linalg.qr(up)
        left, values, right = np.linalg.svd(scale * up_core @ down_core.T)
        root = np.sqrt(values[:rank])
        parts = (
            root[:, None] * (right[:rank] @ down_basis.T),
            (up_basis @ left[:, :rank]) * root,
        )
        for name, part in zip(names, parts, strict=True):
            result[name] = np.ascontiguousarray(part, np.float32)
    return result


def _tensors(config: ModelConfig, adapters: Adapters) -> Iterator[tuple[str, Weight]]:
    for mapping in hf_tensors.param_mappings(config):
        is_kernel = mapping.path[-1] == "kernel"
        adapter = adapters["layers"].get(mapping.path[1]) if is_kernel else None
        if adapter is None:
            continue
        # Stacked over layers: [layers, in..., rank] and [layers, rank, out...].
        downs, ups = (np.asarray(adapter[part], np.float32) for part in (DOWN, UP))
        for name, down, up in zip(mapping.names, downs, ups, strict=True):
            module = _PREFIX + name.removesuffix(".weight")
            rank = len(up)
            yield f"{module}.lora_A.weight", np.ascontiguousarray(down.reshape(-1, rank).T)
            yield f"{module}.lora_B.weight", np.ascontiguousarray(up.reshape(rank, -1).T)
