"""Import of GGUF files as Hugging Face directories: weights, config, tokenizer, chat template.

GGUF is the file format of llama.cpp (ggml-org/ggml, docs/gguf.md). The `gguf` package reads the
file and dequantizes its tensors to float32. They have the layout of Hugging Face checkpoints under
other names, except that llama.cpp permutes the rows of q and k of the Llama family: the two numbers
of a rotary pair are adjacent instead of half a head apart.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from webagent_jax.policy import hf_tensors, hf_writer
from webagent_jax.policy.hf_tensors import ParamMapping, Weight
from webagent_jax.policy.transformer import ModelConfig, RopeScaling, rope_frequencies

_ARCHITECTURES = ("llama", "qwen2", "qwen3")

_LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OTHER_TENSORS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_ROPE_FACTORS = "rope_freqs.weight"  # Llama 3.1 and later: divisors of the rotary frequencies

_ROPE_PARAMS = (("layers", "q", "kernel"), ("layers", "k", "kernel"))

_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type

# Llama 3 and Qwen2 differ only in the digits per number; braces are doubled for str.format.
_GPT4_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTES: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


def _split(pattern: str) -> list[dict[str, Any]]:
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    # ByteLevel only maps bytes to characters, since the pattern has split the words already.
    return [split, _BYTES | {"use_regex": False}]


# Steps that split text into words before BPE, by tokenizer.ggml.pre.
_PRE_TOKENIZERS = {
    "smollm": [{"type": "Digits", "individual_digits": True}, _BYTES | {"use_regex": True}],
    "llama-bpe": _split(_GPT4_WORDS.format(digits="{1,3}")),
    "qwen2": _split(_GPT4_WORDS.format(digits="")),
}
_NORMALIZERS = {"qwen2": {"type": "NFC"}}


def import_gguf(file: Path, destination: Path) -> None:
    """Write the policy of a GGUF file as a Hugging Face directory, its tensors in float32.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a readable GGUF file, or uses an unsupported feature, which the
            message names.
    """
    if not file.is_file():
        raise FileNotFoundError(f"no GGUF file at {file}: check the path")
    gguf_file = _GGUFFile(file)
    config = _model_config(gguf_file)
    tokenizer = _tokenizer_files(gguf_file)
    mappings = hf_tensors.param_mappings(config)
    names = {_gguf_name(name) for mapping in mappings for name in mapping.names}
    gguf_file.check_tensors(names)
    is_permuted = gguf_file.architecture == "llama"
    hf_writer.write_directory(
        destination,
        config,
        "float32",
        lambda mapping: _read_tensors(gguf_file, mapping, is_permuted),
    )
    hf_writer.remove_tokenizer(destination)
    for name, content in tokenizer.items():
        (destination / name).write_text(content, encoding="utf-8")


class _GGUFFile:
    """Metadata and tensors of one GGUF file."""

    def __init__(self, path: Path) -> None:
        import gguf

        self.path = path
        try:
            reader = gguf.GGUFReader(path)
            self._fields = {name: field.contents() for name, field in reader.fields.items()}
            self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        except (ValueError, IndexError, KeyError, OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a complete GGUF file: {error}") from error
        self._dequantize = gguf.quants.dequantize
        parts = int(self.get("split.count", 1))
        if parts > 1:
            raise ValueError(
                f"{path} is one of {parts} parts of a model: join them with llama.cpp, "
                "llama-gguf-split --merge FIRST_PART OUTPUT.gguf"
            )
        self.architecture = str(self.get("general.architecture"))
        if self.architecture not in _ARCHITECTURES:
            raise ValueError(
                f"{path}: architecture {self.architecture!r} is not supported; "
                f"supported: {', '.join(_ARCHITECTURES)}"
            )

    def get(self, name: str, default: Any = None) -> Any:
        """Return a metadata value; raise ValueError if it is missing and has no default."""
        if name not in self._fields and default is None:
            raise ValueError(f"{self.path} lacks the field {name}")
        return self._fields.get(name, default)

    def model(self, name: str, default: Any = None) -> Any:
        """Return a metadata value of the architecture."""
        return self.get(f"{self.architecture}.{name}", default)

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._tensors

    def num_rows(self, tensor: str) -> int:
        """Return the length of the outermost axis of a tensor.

        Raises:
            ValueError: there is no such tensor.
        """
        # GGUF lists the innermost axis first.
        if tensor not in self:
            raise ValueError(f"the GGUF file has no tensor {tensor}: choose one with weights")
        return int(self._tensors[tensor].shape[-1])

    def read(self, name: str) -> Weight:
        """Return a tensor in float32, outermost axis first."""
        tensor = self._tensors[name]
        try:
            return np.asarray(self._dequantize(tensor.data, tensor.tensor_type), np.float32)
        except NotImplementedError as error:
            raise ValueError(
                f"{self.path}: tensors of type {tensor.tensor_type.name} are not supported"
            ) from error

    def check_tensors(self, expected: set[str]) -> None:
        """Check that the tensors are those expected.

        Raises:
            ValueError: a tensor is missing or unknown.
        """
        missing = sorted(expected - set(self._tensors))
        # A tensor that is not read, such as a bias, would change the model silently.
        unknown = sorted(set(self._tensors) - expected - {_ROPE_FACTORS})
        if missing or unknown:
            problem = f"lacks the tensor {missing[0]}" if missing else f"has {unknown[0]}, which"
            raise ValueError(f"{self.path} {problem}{'' if missing else ' is not supported'}")


def _gguf_name(name: str) -> str:
    """Return the GGUF name of a Hugging Face tensor."""
    if name in _OTHER_TENSORS:
        return _OTHER_TENSORS[name]
    match = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
    assert match is not None, name
    layer, module, kind = match.groups()
    return f"blk.{layer}.{_LAYER_TENSORS[module]}.{kind}"


def _read_tensors(
    file: _GGUFFile, mapping: ParamMapping, is_permuted: bool
) -> Iterator[tuple[str, Weight]]:
    """Yield the Hugging Face tensors of one param."""
    for name in mapping.names:
        tensor = file.read(_gguf_name(name))
        if tensor.shape != mapping.file_shape:
            raise ValueError(
                f"{file.path}: {_gguf_name(name)} has the shape {tensor.shape}, "
                f"but the metadata imply {mapping.file_shape}"
            )
        if is_permuted and mapping.path in _ROPE_PARAMS:
            tensor = _unpermute(tensor, head_dim=mapping.shape[-1])
        yield name, tensor


def _unpermute(tensor: Weight, head_dim: int) -> Weight:
    """Move the rows [H * E, D] of each head from adjacent rotary pairs to two halves."""
    # [H, E / 2, 2, D] in the file, [H, 2, E / 2, D] in the result.
    pairs = tensor.reshape(-1, head_dim // 2, 2, tensor.shape[-1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(tensor.shape)


def _model_config(file: _GGUFFile) -> ModelConfig:
    heads = int(file.model("attention.head_count"))
    width = int(file.model("embedding_length"))
    head_dim = int(file.model("attention.key_length", width // heads))
    theta = float(file.model("rope.freq_base", 10_000.0))
    rope_dim = int(file.model("rope.dimension_count", head_dim))
    if rope_dim != head_dim:
        raise ValueError(
            f"{file.path}: rotary embedding of {rope_dim} of {head_dim} dimensions is not supported"
        )
    scaling = str(file.model("rope.scaling.type", "none"))
    if scaling != "none":
        raise ValueError(f"{file.path}: rope.scaling.type={scaling} is not supported")
    config = ModelConfig(
        vocab_size=file.num_rows("token_embd.weight"),
        d_model=width,
        num_layers=int(file.model("block_count")),
        num_heads=heads,
        num_kv_heads=int(file.model("attention.head_count_kv", heads)),
        head_dim=head_dim,
        d_ff=int(file.model("feed_forward_length")),
        rope_theta=theta,
        # The shortest decimal of the float32 is the value before its conversion to float32.
        rms_eps=float(str(np.float32(file.model("attention.layer_norm_rms_epsilon")))),
        tie_embeddings="output.weight" not in file,
        qkv_bias=file.architecture == "qwen2",
        qk_norm=file.architecture == "qwen3",
        max_positions=int(file.model("context_length")),
    )
    return dataclasses.replace(config, rope_scaling=_rope_scaling(file, config))


def _rope_scaling(file: _GGUFFile, config: ModelConfig) -> RopeScaling | None:
    """Return the RoPE scaling of the divisors in the file, which stores no other parameters."""
    if _ROPE_FACTORS not in file:
        return None
    divisors = file.read(_ROPE_FACTORS)
    # All published models of Llama 3.1 and later differ only in the factor.
    # The lowest frequencies are divided by the whole factor, so it is the largest divisor.
    scaling = RopeScaling(float(divisors.max()), 1.0, 4.0, original_positions=8192)
    scaled_config = dataclasses.replace(config, rope_scaling=scaling)
    expected = rope_frequencies(config) / rope_frequencies(scaled_config)
    if divisors.shape != expected.shape or not np.allclose(divisors, expected, rtol=1e-4):
        raise ValueError(f"{file.path}: the divisors in {_ROPE_FACTORS} are not those of Llama 3")
    return scaling


def _tokenizer_files(file: _GGUFFile) -> dict[str, str]:
    """Return the contents of the tokenizer files by name."""
    model = file.get("tokenizer.ggml.model")
    pre_tokenizer = file.get("tokenizer.ggml.pre", "default")
    if model != "gpt2" or pre_tokenizer not in _PRE_TOKENIZERS:
        raise ValueError(
            f"{file.path}: tokenizer {model}/{pre_tokenizer} is not supported; "
            f"supported: {', '.join(f'gpt2/{name}' for name in _PRE_TOKENIZERS)}"
        )
    tokens: list[str] = file.get("tokenizer.ggml.tokens")
    types: list[int] = file.get("tokenizer.ggml.token_type")
    added_ids = [i for i, kind in enumerate(types) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(i, tokens[i], types[i] == _CONTROL) for i in added_ids],
        "normalizer": _NORMALIZERS.get(pre_tokenizer),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[pre_tokenizer]},
        "post_processor": None,
        "decoder": _BYTES | {"use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre_tokenizer == "llama-bpe",  # as in the tokenizer.json of Llama 3
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in file.get("tokenizer.ggml.merges")],
        },
    }
    # An id of -1 means that the file does not define the token.
    special = {
        f"{name}_token": tokens[int(file.get(f"tokenizer.ggml.{gguf_name}_token_id"))]
        for name, gguf_name in (
            ("bos", "bos"),
            ("eos", "eos"),
            ("unk", "unknown"),
            ("pad", "padding"),
        )
        if file.get(f"tokenizer.ggml.{gguf_name}_token_id", -1) != -1
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(file.model("context_length")),
    }
    files = {
        "tokenizer.json": json.dumps(tokenizer, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(config | special, ensure_ascii=False, indent=2),
    }
    if "eos_token" in special:
        # transformers stops a response at these tokens.
        stop = {"eos_token_id": int(file.get("tokenizer.ggml.eos_token_id"))}
        files["generation_config.json"] = json.dumps(stop)
    template = file.get("tokenizer.chat_template", "")
    return files | ({"chat_template.jinja": template} if template else {})


def _added_token(number: int, text: str, is_special: bool) -> Mapping[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": text, "special": is_special} | flags
