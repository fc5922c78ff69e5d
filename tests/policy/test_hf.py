"""Tests of Hugging Face weights: round trips, and logits against transformers."""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import os
import shutil
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from webagent_jax import policy
from webagent_jax.config import ConfigError, PolicyNotFoundError
from webagent_jax.policy import hf_tensors
from webagent_jax.policy.presets import MODEL_PRESETS
from webagent_jax.train import export

LLAMA = {"qkv_bias": False}
QWEN3 = {"qkv_bias": False, "qk_norm": True}
ROPE_SCALING = policy.RopeScaling(8.0, 1.0, 4.0, original_positions=64)

# vocabulary, d_model, layers, heads, key-value heads, head_dim, d_ff
SIZES = {
    "qwen2 tied": policy.ModelConfig(97, 32, 3, 4, 2, 8, 48, rope_theta=1_000.0),
    "qwen2 untied": policy.ModelConfig(101, 24, 2, 3, 3, 8, 40, tie_embeddings=False),
    "qwen2 one group": policy.ModelConfig(64, 48, 2, 6, 1, 8, 64, rope_theta=1_000_000.0),
    "qwen2 seven heads a group": policy.ModelConfig(130, 56, 2, 14, 2, 4, 100),
    "llama": policy.ModelConfig(97, 32, 3, 4, 2, 8, 48, **LLAMA),
    "llama untied": policy.ModelConfig(300, 24, 2, 3, 3, 8, 40, tie_embeddings=False, **LLAMA),
    "llama scaled": policy.ModelConfig(97, 32, 2, 4, 2, 16, 48, rope_scaling=ROPE_SCALING, **LLAMA),
    "llama wide heads": policy.ModelConfig(65, 40, 2, 2, 1, 32, 72, rms_eps=1e-5, **LLAMA),
    "llama seven heads a group": policy.ModelConfig(97, 56, 1, 7, 1, 8, 48, **LLAMA),
    "qwen3": policy.ModelConfig(97, 32, 3, 4, 2, 8, 48, **QWEN3),
    "qwen3 untied wide heads": policy.ModelConfig(
        151, 24, 2, 4, 2, 16, 40, tie_embeddings=False, rope_theta=1_000_000.0, **QWEN3
    ),
    "qwen3 narrow heads": policy.ModelConfig(64, 48, 2, 3, 3, 8, 64, **QWEN3),
    "qwen3 seven heads a group": policy.ModelConfig(127, 56, 2, 14, 2, 8, 52, **QWEN3),
}


def random_params(config):
    """Return params without zeros, so that a missing bias or norm changes the logits."""
    shapes = policy.abstract_params(config)
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        is_norm = "norm" in str(path)
        return jnp.asarray(is_norm + 0.15 * rng.standard_normal(leaf.shape, np.float32))

    return jax.tree_util.tree_map_with_path(draw, shapes)


def get_param(params, path):
    return np.asarray(functools.reduce(operator.getitem, path, params))


@pytest.mark.parametrize("config", SIZES.values(), ids=SIZES)
def test_logits_match_transformers(config, tmp_path):
    import torch
    import transformers

    params = random_params(config)
    policy.save_hf(tmp_path, config, params)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, 1024))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert model.config.architectures[0].lower().startswith(model.config.model_type)
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(policy.logits(config, params, tokens), expected, atol=1e-4)


@pytest.mark.parametrize("config", SIZES.values(), ids=SIZES)
def test_round_trip_is_bit_exact(config, tmp_path):
    params = random_params(config)
    policy.save_hf(tmp_path, config, params)
    loaded_config, loaded_params = policy.load_hf(tmp_path, attention=config.attention)
    assert loaded_config == config
    jax.tree.map(np.testing.assert_array_equal, loaded_params, params)


@pytest.mark.parametrize("config", [SIZES["qwen2 tied"], SIZES["qwen3 untied wide heads"]])
def test_bfloat16_round_trip_of_several_files_is_bit_exact(config, tmp_path):
    first, second = tmp_path / "once", tmp_path / "again"
    policy.save_hf(first, config, random_params(config), dtype="bfloat16", file_bytes=9_000)
    _, params = policy.load_hf(first)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(params)} == {"float32"}
    policy.save_hf(second, config, params, dtype="bfloat16", file_bytes=9_000)
    files = sorted(file.name for file in first.iterdir())
    assert len(files) > 4 and "model.safetensors.index.json" in files
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in files)
    policy.save_hf(second, config, params)
    assert sorted(file.name for file in second.iterdir()) == ["config.json", "model.safetensors"]


def test_export_keeps_special_token_ids_of_source(tmp_path):
    import transformers

    config = SIZES["llama"]
    policy.save_hf(tmp_path, config, random_params(config))
    file = tmp_path / "config.json"
    unchanged = file.read_text()
    policy.save_hf(tmp_path, *policy.load_hf(tmp_path))
    assert file.read_text() == unchanged
    ids = {"bos_token_id": None, "eos_token_id": [5, 7], "pad_token_id": 3}
    file.write_text(json.dumps(json.loads(unchanged) | ids))
    loaded_config, params = policy.load_hf(tmp_path)
    policy.save_hf(tmp_path / "exported", loaded_config, params)
    assert hash(loaded_config)  # a static argument of jitted functions
    exported = transformers.AutoConfig.from_pretrained(tmp_path / "exported")
    assert {name: getattr(exported, name) for name in ids} == ids


def test_export_replaces_tokenizer_of_earlier_policy(tmp_path):
    """transformers prefers chat_template.jinja to a template in tokenizer_config.json."""
    tiny = policy.resolve_dir("webagent-tiny")
    source = shutil.copytree(tiny, tmp_path / "source", ignore=shutil.ignore_patterns("README.md"))
    for name in ("chat_template.jinja", "webagent_prompt.json"):
        (source / name).unlink()
    export.export_weights(tiny, tmp_path / "copy")
    assert (tmp_path / "copy" / "chat_template.jinja").exists()
    export.export_weights(source, tmp_path / "copy")
    names = sorted(path.name for path in source.iterdir())
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == names
    policy.copy_tokenizer(source, source)
    assert sorted(path.name for path in source.iterdir()) == names


def test_saved_files_have_permissions_of_umask(tmp_path):
    config = SIZES["qwen2 tied"]
    previous = os.umask(0o027)
    try:
        policy.save_hf(tmp_path, config, random_params(config))
    finally:
        os.umask(previous)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"config.json": 0o640, "model.safetensors": 0o640}


def test_interrupted_write_leaves_no_policy(tmp_path):
    config = SIZES["qwen2 tied"]
    params = random_params(config)
    # The writer fails at the last param.
    params_of_interrupted = {name: params[name] for name in params if name != "final_norm"}
    with pytest.raises(KeyError):
        policy.save_hf(tmp_path, config, params_of_interrupted, file_bytes=9_000)
    assert list(tmp_path.glob("*.safetensors"))
    with pytest.raises(PolicyNotFoundError, match="no policy at"):
        policy.load_hf(tmp_path)
    policy.save_hf(tmp_path, config, params, file_bytes=9_000)
    assert policy.load_hf(tmp_path)[0].d_model == config.d_model
    # The files of another policy are not mixed with those of an earlier one.
    with pytest.raises(KeyError):
        policy.save_hf(tmp_path, config, params_of_interrupted, file_bytes=9_000)
    with pytest.raises(PolicyNotFoundError, match="no policy at"):
        policy.load_hf(tmp_path)


def test_unsupported_features_are_rejected_before_writing(tmp_path):
    config = dataclasses.replace(SIZES["qwen3"], qkv_bias=True)
    with pytest.raises(ConfigError, match="no architecture has qkv_bias=True and qk_norm=True"):
        policy.save_hf(tmp_path / "policy", config, random_params(config))
    assert not (tmp_path / "policy").exists()


def test_missing_tensor_error_names_missing_file(tmp_path):
    config = SIZES["qwen2 tied"]
    policy.save_hf(tmp_path, config, random_params(config), file_bytes=9_000)
    _, file, *_ = sorted(tmp_path.glob("*.safetensors"))
    file.unlink()
    with pytest.raises(PolicyNotFoundError, match=f"copy or download {file.name} again"):
        policy.load_hf(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(ConfigError, match=r"index.json is damaged"):
        policy.load_hf(tmp_path)


def test_transformers_loads_several_files(tmp_path):
    import torch
    import transformers

    config = SIZES["qwen2 untied"]
    params = random_params(config)
    policy.save_hf(tmp_path, config, params, file_bytes=9_000)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    head = model.lm_head.weight.detach().numpy()
    np.testing.assert_array_equal(head, np.asarray(params["head"]).T)


def test_param_slice_reads_only_tensor_slices(tmp_path):
    config = SIZES["qwen3 untied wide heads"]
    params = random_params(config)
    leaves = hf_tensors.param_mappings(config)
    files = {name: t for leaf in leaves for name, t in leaf.write(get_param(params, leaf.path))}
    sizes_read = []

    def read(name, tensor_index):
        sizes_read.append(files[name][tensor_index].size)
        return files[name][tensor_index]

    for leaf in leaves:
        param = get_param(params, leaf.path)
        for axis, size in enumerate(param.shape):
            if (
                leaf.path[-1] != "scale"
                and leaf.path != ("final_norm",)
                and size == config.head_dim
            ):
                continue  # never sharded
            index = [slice(None)] * param.ndim
            index[axis] = slice(size // 2, size)
            sizes_read.clear()
            actual = leaf.read(tuple(index), read)
            np.testing.assert_array_equal(actual, param[tuple(index)])
            assert sum(sizes_read) == actual.size


def test_slice_inside_head_is_rejected():
    (leaf,) = (
        leaf
        for leaf in hf_tensors.param_mappings(SIZES["llama"])
        if leaf.path[1:] == ("q", "kernel")
    )
    with pytest.raises(ValueError, match="layers/q/kernel: axis 2"):
        leaf.read((slice(0, 1), slice(0, 1), slice(0, 1), slice(0, 4)), lambda name, index: None)


def test_shape_mismatch_error_names_tensor(tmp_path):
    config = SIZES["qwen2 tied"]
    policy.save_hf(tmp_path, config, policy.init(config, jax.random.key(0)))
    raw = json.loads((tmp_path / "config.json").read_text()) | {"vocab_size": 98}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=r"embed_tokens.* \(97, 32\).*\(98, 32\)"):
        policy.load_hf(tmp_path)


def test_head_of_tied_model_is_not_ignored(tmp_path):
    """transformers 5 uses such a head; PEFT writes it when it merges a tuned lm_head."""
    import torch
    import transformers

    config = SIZES["qwen2 untied"]
    params = random_params(config)
    policy.save_hf(tmp_path, config, params)
    file = tmp_path / "config.json"
    untied = file.read_text()
    file.write_text(json.dumps(json.loads(untied) | {"tie_word_embeddings": True}))
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (1, 32))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(policy.logits(config, params, tokens), expected, atol=1e-4)
    with pytest.raises(ConfigError, match=r"set tie_word_embeddings=false there") as error:
        policy.load_hf(tmp_path)
    assert len(str(error.value).splitlines()) == 2
    # A copy of the embedding is no head of its own.
    params["head"] = params["embed"].T
    policy.save_hf(tmp_path, config, params)
    file.write_text(json.dumps(json.loads(untied) | {"tie_word_embeddings": True}))
    assert "head" not in policy.load_hf(tmp_path)[1]


def test_load_hf_holds_one_param_at_once(tmp_path, monkeypatch):
    config = policy.ModelConfig(2048, 256, 24, 4, 2, 64, 512)
    params = random_params(config)
    policy.save_hf(tmp_path, config, params, dtype="bfloat16")
    sizes = [leaf.nbytes for leaf in jax.tree.leaves(params)]

    def make_array(shape, sharding, shard):  # as on a device with its own memory
        return shard((slice(None),) * len(shape)).nbytes

    monkeypatch.setattr(jax, "make_array_from_callback", make_array)
    tracemalloc.start()
    try:
        _, array_sizes = policy.load_hf(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(jax.tree.leaves(array_sizes)) == sum(sizes)
    assert peak < 2 * max(sizes) < sum(sizes) / 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architectures", ["GPT2LMHeadModel"]),
        ("hidden_act", "gelu"),
        ("use_sliding_window", True),
        ("attention_bias", True),
        ("mlp_bias", True),
        ("quantization_config", {"quant_method": "compressed-tensors"}),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
    ],
)
def test_unsupported_config_error_names_field(field, value, tmp_path):
    config = SIZES["qwen2 tied"]
    policy.save_hf(tmp_path, config, policy.init(config, jax.random.key(0)))
    raw = json.loads((tmp_path / "config.json").read_text()) | {field: value}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=field.rstrip("s")):
        policy.load_hf(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"architectures": ["LlamaForCausalLM"], "vocab', r"config.json is damaged"),
        ("[]", r"config.json is damaged"),
        (
            '{"architectures": ["LlamaForCausalLM"], "num_attention_heads": 0, "rope_theta": 1.0}',
            "num_attention_heads=0 must be at least 1",
        ),
        ('{"architectures": ["LlamaForCausalLM"]}', "has no field 'num_attention_heads'"),
        ('{"command": "train bc", "config": {}}', "is the workdir of a run and not a policy"),
    ],
)
def test_damaged_config_error_names_file(content, message, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        policy.load_config(tmp_path)


def test_rope_scaling_error_names_fix(tmp_path):
    """A model that was trained without the scaling can be used without it."""
    config = SIZES["qwen2 tied"]
    policy.save_hf(tmp_path, config, policy.init(config, jax.random.key(0)))
    file = tmp_path / "config.json"
    raw = json.loads(file.read_text())
    for key in ("type", "rope_type"):
        scaling = {key: "yarn", "factor": 4.0}
        file.write_text(json.dumps(raw | {"rope_scaling": scaling}))
        with pytest.raises(ConfigError, match='set rope_type to "default" in this file'):
            policy.load_config(tmp_path)
        file.write_text(json.dumps(raw | {"rope_scaling": scaling | {"rope_type": "default"}}))
        assert policy.load_config(tmp_path).rope_scaling is None


def test_save_does_not_hide_behind_imported_policy(tmp_path):
    config = SIZES["qwen2 tied"]
    (tmp_path / "params").mkdir()
    with pytest.raises(ConfigError, match="choose another directory"):
        policy.save_hf(tmp_path, config, policy.init(config, jax.random.key(0)))


# Numbers of parameters from the model publishers.
NUM_PARAMS = {
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3.1-8B": 8_030_261_248,
}


@pytest.mark.parametrize("name", MODEL_PRESETS)
def test_presets_have_published_number_of_params(name):
    shapes = policy.abstract_params(MODEL_PRESETS[name])
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == NUM_PARAMS[name]


def test_missing_directory_error_names_webagent_tiny(tmp_path):
    with pytest.raises(FileNotFoundError, match="webagent-tiny"):
        policy.load_hf(tmp_path / "nothing")
