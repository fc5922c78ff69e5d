"""Weights in and out, and logits against transformers on the same weights."""

from __future__ import annotations

import functools
import json
import operator
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from webagent_jax import policy
from webagent_jax.policy import hf_tensors
from webagent_jax.policy.presets import MODEL_PRESETS

LLAMA = {"qkv_bias": False}
QWEN3 = {"qkv_bias": False, "qk_norm": True}
LONGER = policy.RopeScaling(8.0, 1.0, 4.0, original_positions=64)

# vocabulary, d_model, layers, heads, key-value heads, head_dim, d_ff
SIZES = {
    "qwen2 tied": policy.ModelConfig(97, 32, 3, 4, 2, 8, 48, rope_theta=1_000.0),
    "qwen2 untied": policy.ModelConfig(101, 24, 2, 3, 3, 8, 40, tie_embeddings=False),
    "qwen2 one group": policy.ModelConfig(64, 48, 2, 6, 1, 8, 64, rope_theta=1_000_000.0),
    "qwen2 seven heads a group": policy.ModelConfig(130, 56, 2, 14, 2, 4, 100),
    "llama": policy.ModelConfig(97, 32, 3, 4, 2, 8, 48, **LLAMA),
    "llama untied": policy.ModelConfig(300, 24, 2, 3, 3, 8, 40, tie_embeddings=False, **LLAMA),
    "llama scaled": policy.ModelConfig(97, 32, 2, 4, 2, 16, 48, rope_scaling=LONGER, **LLAMA),
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
    """Params with no zero anywhere, so that a forgotten bias or norm shows."""
    shapes = policy.abstract_params(config)
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        is_norm = "norm" in str(path)
        return jnp.asarray(is_norm + 0.15 * rng.standard_normal(leaf.shape, np.float32))

    return jax.tree_util.tree_map_with_path(draw, shapes)


def at(params, path):
    return np.asarray(functools.reduce(operator.getitem, path, params))


@pytest.mark.parametrize("config", SIZES.values(), ids=SIZES)
def test_logits_agree_with_transformers(config, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    params = random_params(config)
    policy.save_hf(tmp_path, config, params)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, 1024))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert model.config.architectures[0].lower().startswith(model.config.model_type)
    with torch.no_grad():
        theirs = model(torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(policy.logits(config, params, tokens), theirs, atol=1e-4)


@pytest.mark.parametrize("config", SIZES.values(), ids=SIZES)
def test_round_trip_is_bit_exact(config, tmp_path):
    params = random_params(config)
    policy.save_hf(tmp_path, config, params)
    loaded_config, loaded = policy.load_hf(tmp_path, attention=config.attention)
    assert loaded_config == config
    jax.tree.map(np.testing.assert_array_equal, loaded, params)


@pytest.mark.parametrize("config", [SIZES["qwen2 tied"], SIZES["qwen3 untied wide heads"]])
def test_many_files_of_bfloat16_come_back_bit_for_bit(config, tmp_path):
    once, again = tmp_path / "once", tmp_path / "again"
    policy.save_hf(once, config, random_params(config), dtype="bfloat16", file_bytes=9_000)
    _, params = policy.load_hf(once)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(params)} == {"float32"}
    policy.save_hf(again, config, params, dtype="bfloat16", file_bytes=9_000)
    files = sorted(file.name for file in once.iterdir())
    assert len(files) > 4 and "model.safetensors.index.json" in files
    assert all((once / name).read_bytes() == (again / name).read_bytes() for name in files)
    policy.save_hf(again, config, params)
    assert sorted(file.name for file in again.iterdir()) == ["config.json", "model.safetensors"]


def test_transformers_reads_many_files(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = SIZES["qwen2 untied"]
    params = random_params(config)
    policy.save_hf(tmp_path, config, params, file_bytes=9_000)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    theirs = model.lm_head.weight.detach().numpy()
    np.testing.assert_array_equal(theirs, np.asarray(params["head"]).T)


def test_a_slice_of_a_param_is_read_from_slices_of_tensors(tmp_path):
    config = SIZES["qwen3 untied wide heads"]
    params = random_params(config)
    leaves = hf_tensors.param_mappings(config)
    files = {name: t for leaf in leaves for name, t in leaf.write(at(params, leaf.path))}
    asked = []

    def read(name, cut):
        asked.append(files[name][cut].size)
        return files[name][cut]

    for leaf in leaves:
        whole = at(params, leaf.path)
        for axis, size in enumerate(whole.shape):
            if (
                leaf.path[-1] != "scale"
                and leaf.path != ("final_norm",)
                and size == config.head_dim
            ):
                continue  # never cut
            index = [slice(None)] * whole.ndim
            index[axis] = slice(size // 2, size)
            asked.clear()
            part = leaf.read(tuple(index), read)
            np.testing.assert_array_equal(part, whole[tuple(index)])
            assert sum(asked) == part.size


def test_a_cut_inside_a_head_is_refused():
    (leaf,) = (
        leaf
        for leaf in hf_tensors.param_mappings(SIZES["llama"])
        if leaf.path[1:] == ("q", "kernel")
    )
    with pytest.raises(ValueError, match="layers/q/kernel: axis 2"):
        leaf.read((slice(0, 1), slice(0, 1), slice(0, 1), slice(0, 4)), lambda name, cut: None)


def test_a_tensor_of_another_shape_is_named(tmp_path):
    config = SIZES["qwen2 tied"]
    policy.save_hf(tmp_path, config, policy.init(config, jax.random.key(0)))
    raw = json.loads((tmp_path / "config.json").read_text()) | {"vocab_size": 98}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=r"embed_tokens.* \(97, 32\).*\(98, 32\)"):
        policy.load_hf(tmp_path)


def test_reading_holds_one_param_at_a_time(tmp_path, monkeypatch):
    config = policy.ModelConfig(2048, 256, 24, 4, 2, 64, 512)
    params = random_params(config)
    policy.save_hf(tmp_path, config, params, dtype="bfloat16")
    sizes = [leaf.nbytes for leaf in jax.tree.leaves(params)]

    def place(shape, sharding, shard):  # on a device that is not the host's memory
        return shard((slice(None),) * len(shape)).nbytes

    monkeypatch.setattr(jax, "make_array_from_callback", place)
    tracemalloc.start()
    try:
        _, placed = policy.load_hf(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(jax.tree.leaves(placed)) == sum(sizes)
    assert peak < 2 * max(sizes) < sum(sizes) / 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architectures", ["GPT2LMHeadModel"]),
        ("hidden_act", "gelu"),
        ("use_sliding_window", True),
        ("attention_bias", True),
        ("mlp_bias", True),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
    ],
)
def test_unsupported_models_are_refused_by_name(field, value, tmp_path):
    config = SIZES["qwen2 tied"]
    policy.save_hf(tmp_path, config, policy.init(config, jax.random.key(0)))
    raw = json.loads((tmp_path / "config.json").read_text()) | {field: value}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=field.rstrip("s")):
        policy.load_hf(tmp_path)


# What the makers count.
PARAMS = {
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
def test_published_sizes_have_the_published_number_of_params(name):
    shapes = policy.abstract_params(MODEL_PRESETS[name])
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == PARAMS[name]


def test_a_missing_directory_says_what_is_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match="webagent-tiny"):
        policy.load_hf(tmp_path / "nothing")
