"""Conversion between config.json of a Hugging Face directory and ModelConfig.

Unsupported features raise an error that names the field: ignoring a field would load a wrong model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from webagent_jax.config import ConfigError
from webagent_jax.policy.transformer import ModelConfig, RopeScaling

Raw = Mapping[str, Any]


class _Architecture(NamedTuple):
    model_type: str
    qkv_bias: bool
    qk_norm: bool


_ARCHITECTURES = {
    "LlamaForCausalLM": _Architecture("llama", qkv_bias=False, qk_norm=False),
    "Qwen2ForCausalLM": _Architecture("qwen2", qkv_bias=True, qk_norm=False),
    "Qwen3ForCausalLM": _Architecture("qwen3", qkv_bias=False, qk_norm=True),
}

# Fields of config.json with a single supported value.
_SUPPORTED_VALUES = {
    "hidden_act": "silu",
    "use_sliding_window": False,
    "attention_dropout": 0.0,
    "attention_bias": False,  # Qwen2 has biases without this field
    "mlp_bias": False,
    "quantization_config": None,
}

# Fields of config.json that servers read, and that exports keep.
_SPECIAL_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def read(file: Path) -> ModelConfig:
    """Return the architecture that a config.json describes.

    Raises:
        ConfigError: the file is damaged, lacks a field, or has a feature that is not supported.
    """
    try:
        return _parse(file, json.loads(file.read_text(encoding="utf-8")))
    except KeyError as error:
        raise ConfigError(f"{file} has no field {error}: copy the directory again") from error
    except (AttributeError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{file} is damaged ({error}): copy the directory again") from error


def _parse(file: Path, raw: Raw) -> ModelConfig:
    architecture = _architecture(file, raw)
    for name, value in _SUPPORTED_VALUES.items():
        if raw.get(name, value) != value:
            raise ConfigError(f"{file}: {name}={raw[name]!r} is not supported, only {value!r}")
    theta, scaling = _rope(file, raw)
    heads = raw["num_attention_heads"]
    if not isinstance(heads, int) or heads < 1:
        raise ConfigError(f"{file}: num_attention_heads={heads!r} must be at least 1")
    return ModelConfig(
        vocab_size=raw["vocab_size"],
        d_model=raw["hidden_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=heads,
        # These fields may be missing or null.
        num_kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        d_ff=raw["intermediate_size"],
        rope_theta=theta,
        rope_scaling=scaling,
        rms_eps=raw["rms_norm_eps"],
        tie_embeddings=raw.get("tie_word_embeddings", False),
        qkv_bias=architecture.qkv_bias,
        qk_norm=architecture.qk_norm,
        max_positions=raw["max_position_embeddings"],
        # null differs from a missing field, for which transformers has defaults.
        special_token_ids=tuple(
            (name, tuple(ids) if isinstance(ids := raw[name], list) else ids)
            for name in _SPECIAL_TOKEN_IDS
            if name in raw
        ),
    )


def to_json(config: ModelConfig, dtype: str) -> str:
    """Return the content of the config.json of an architecture.

    Args:
        config: architecture of the policy.
        dtype: dtype of the tensors in the directory.

    Raises:
        ConfigError: no supported architecture has this combination of features.
    """
    features = (config.qkv_bias, config.qk_norm)
    names = [name for name, a in _ARCHITECTURES.items() if (a.qkv_bias, a.qk_norm) == features]
    if not names:
        raise ConfigError(
            f"no architecture has qkv_bias={config.qkv_bias} and qk_norm={config.qk_norm}: "
            "disable one of them or use the features of Llama, Qwen2 or Qwen3"
        )
    raw = {
        "architectures": names,
        "model_type": _ARCHITECTURES[names[0]].model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.d_ff,
        "rope_theta": config.rope_theta,
        "rope_scaling": _scaling_fields(config.rope_scaling),
        "rms_norm_eps": config.rms_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "max_position_embeddings": config.max_positions,
        "hidden_act": "silu",
        "dtype": dtype,
        **dict(config.special_token_ids),
    }
    return json.dumps(raw, indent=2) + "\n"


def _architecture(file: Path, raw: Raw) -> _Architecture:
    if raw.keys() >= {"command", "config"}:
        raise ConfigError(
            f"{file.parent} is the workdir of a run and not a policy: use its subfolder policy or "
            "adapter, which a finished training has"
        )
    names = raw.get("architectures") or []
    if len(names) != 1 or names[0] not in _ARCHITECTURES:
        raise ConfigError(
            f"{file}: architecture {names} is not supported; supported: {', '.join(_ARCHITECTURES)}"
        )
    return _ARCHITECTURES[names[0]]


def _rope(file: Path, raw: Raw) -> tuple[float, RopeScaling | None]:
    """Return theta and scaling of the rotary embedding.

    transformers 5 stores both in `rope_parameters`, earlier versions in two fields.
    """
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ConfigError(
            f"{file}: rope_scaling of type {kind!r} is not supported, only 'default' and "
            "'llama3'.\n"
            "If the model was not trained with it, such as YaRN in a config of Qwen for longer "
            'contexts, set rope_type to "default" in this file.'
        )
    return theta, RopeScaling(
        factor=float(rope["factor"]),
        low_frequency_factor=float(rope["low_freq_factor"]),
        high_frequency_factor=float(rope["high_freq_factor"]),
        original_positions=int(rope["original_max_position_embeddings"]),
    )


def _scaling_fields(scaling: RopeScaling | None) -> Raw | None:
    if scaling is None:
        return None
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_frequency_factor,
        "high_freq_factor": scaling.high_frequency_factor,
        "original_max_position_embeddings": scaling.original_positions,
    }
