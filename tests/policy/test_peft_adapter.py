"""Tests of adapters in the format of PEFT, against the peft package."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from configs import miniwob
from webagent_jax import policy
from webagent_jax.config import (
    ConfigError,
    EngineConfig,
    LoRAConfig,
    PolicyConfig,
    PolicyNotFoundError,
    RunConfig,
)
from webagent_jax.evaluate import evaluate
from webagent_jax.policy import (
    hf,
    loading,
    lora,
    matmul,
    peft_adapter,
    pretrained,
    prompt_record,
    weights,
)
from webagent_jax.policy.pretrained import PRETRAINED
from webagent_jax.train import export

CONFIGS = {
    "llama": policy.ModelConfig(97, 32, 3, 4, 2, 8, 48, qkv_bias=False),
    "qwen2 untied": policy.ModelConfig(101, 24, 2, 3, 3, 8, 40, tie_embeddings=False),
}
RANK, ALPHA = 3, 5.0

# peft reads an attribute that transformers has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def random_adapters(params, projections=lora.PROJECTIONS):
    rng = np.random.default_rng(1)
    adapters = lora.init(params, jax.random.key(0), rank=RANK, projections=projections)
    return jax.tree.map(lambda x: jnp.asarray(0.2 * rng.normal(size=x.shape), x.dtype), adapters)


def write_base(folder, config, **options):
    params = policy.init(config, jax.random.key(0))
    policy.save_hf(folder, config, params, **options)
    return params


def write_adapter(folder, config, adapters, base, **options):
    peft_adapter.save(
        folder, config, adapters, rank=RANK, alpha=ALPHA, base_name=str(base), **options
    )


def load_with_peft(base, adapter):
    import peft
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype="float32")
    return peft.PeftModel.from_pretrained(model, adapter)


def torch_logits(model, tokens):
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(tokens)).logits.numpy()


def random_tokens(config):
    return np.random.default_rng(0).integers(0, config.vocab_size, (2, 40))


@pytest.mark.parametrize("projections", [lora.PROJECTIONS, ("q", "o")])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_saved_adapter_has_equal_logits_in_peft(config, projections, tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    params = write_base(base, config)
    adapters = random_adapters(params, projections)
    write_adapter(adapter, config, adapters, base)
    tokens = random_tokens(config)
    actual = policy.logits(
        config, lora.attach(lora.FrozenBase(params, ALPHA / RANK), adapters), tokens
    )
    expected = torch_logits(load_with_peft(base, adapter), tokens)
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert np.abs(actual - policy.logits(config, params, tokens)).max() > 0.1


@pytest.mark.parametrize("rslora", [False, True])
def test_adapter_of_peft_has_equal_logits(rslora, tmp_path):
    import peft
    import torch
    import transformers

    base, adapter = tmp_path / "base", tmp_path / "adapter"
    config = CONFIGS["qwen2 untied"]
    write_base(base, config, file_bytes=9_000)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype="float32")
    options = peft.LoraConfig(r=4, lora_alpha=6, use_rslora=rslora, target_modules="all-linear")
    model = peft.get_peft_model(model, options)
    torch.manual_seed(0)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(adapter)
    tokens = random_tokens(config)
    loaded_config, params = policy.load_hf(adapter)
    actual = policy.logits(loaded_config, params, tokens)
    np.testing.assert_allclose(actual, torch_logits(model, tokens), atol=1e-4)


def test_adapter_includes_adapters_of_its_base(tmp_path):
    """A run that started from an adapter exports the sum of both, for the base model."""
    base, first, second = (tmp_path / name for name in ("base", "first", "second"))
    config = CONFIGS["llama"]
    params = write_base(base, config)
    write_adapter(first, config, random_adapters(params, ("q", "down")), base)
    _, first_params = policy.load_hf(first)
    adapters = jax.tree.map(lambda x: 0.5 * x, random_adapters(params, ("q", "o")))
    run = RunConfig(
        policy=PolicyConfig(path=str(first)),
        lora=LoRAConfig(rank=RANK, alpha=7.0, target_modules=("q", "o")),
    )
    export.write_adapter(second, run, adapters)
    saved = json.loads((second / "adapter_config.json").read_text())
    assert (saved["base_model_name_or_path"], saved["r"]) == (str(base), 2 * RANK)
    tokens = random_tokens(config)
    expected = policy.logits(
        config, lora.attach(lora.FrozenBase(first_params, 7.0 / RANK), adapters), tokens
    )
    np.testing.assert_allclose(
        torch_logits(load_with_peft(base, second), tokens), expected, atol=1e-4
    )


@pytest.mark.parametrize("create_new_adapter", [True, False])
def test_adapter_includes_tokenizer_of_initial_adapter(create_new_adapter, tmp_path):
    base, first, second, third = (tmp_path / name for name in ("base", "first", "second", "third"))
    config = CONFIGS["llama"]
    adapters = random_adapters(write_base(base, config))
    for name in ("tokenizer.json", "chat_template.jinja"):
        (base / name).write_text("base")
    write_adapter(first, config, adapters, base)
    options = LoRAConfig(rank=RANK, alpha=ALPHA, create_new_adapter=create_new_adapter)
    run = RunConfig(policy=PolicyConfig(path=str(first)), lora=options)
    export.write_adapter(second, run, adapters)
    assert not (second / "tokenizer.json").exists()  # the base has it

    for name in ("tokenizer.json", "chat_template.jinja"):
        (first / name).write_text("adapter")
    run = dataclasses.replace(run, prompt=dataclasses.replace(run.prompt, template="compact"))
    export.write_adapter(third, run, adapters)
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (policy.tokenizer_dir(third) / name).read_text() == "adapter"
    assert prompt_record.read(third) == "compact"


def test_revision_of_base_has_its_own_option(tmp_path):
    """PEFT passes `revision` to the base and accepts no @ in its name."""
    import peft

    config = CONFIGS["llama"]
    adapters = random_adapters(policy.init(config, jax.random.key(0)))
    write_adapter(tmp_path / "adapter", config, adapters, "owner/model@v1.0")
    saved = peft.PeftConfig.from_pretrained(tmp_path / "adapter")
    assert (saved.base_model_name_or_path, saved.revision) == ("owner/model", "v1.0")
    assert peft_adapter.base_path(tmp_path / "adapter") == "owner/model@v1.0"
    edit_config(tmp_path / "adapter", revision=None)
    assert peft_adapter.base_path(tmp_path / "adapter") == "owner/model"
    # The revision of an adapter whose base is a directory is that of PEFT's own repository.
    edit_config(tmp_path / "adapter", base_model_name_or_path=str(tmp_path), revision="main")
    assert peft_adapter.base_path(tmp_path / "adapter") == str(tmp_path)


@pytest.mark.parametrize("projections", [lora.PROJECTIONS, ("q", "o")])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_loaded_adapter_has_equal_logits_at_another_scale(config, projections, tmp_path):
    params = write_base(tmp_path / "base", config)
    adapters = random_adapters(params, projections)
    write_adapter(tmp_path / "adapter", config, adapters, tmp_path / "base")
    loaded = peft_adapter.load(tmp_path / "adapter", config, scale=0.7)
    assert jax.tree.map(np.shape, loaded) == jax.tree.map(np.shape, adapters)
    tokens = random_tokens(config)
    expected, actual = (
        policy.logits(config, lora.attach(lora.FrozenBase(params, scale), tree), tokens)
        for tree, scale in ((adapters, ALPHA / RANK), (loaded, 0.7))
    )
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "quantization", "is_separate"),
    [
        ({}, "none", False),
        ({"dtype": "bfloat16"}, "none", True),
        ({"matmul_dtype": "bfloat16"}, "none", True),
        ({}, "int8", True),
        ({}, "fp8", True),
    ],
)
def test_adapter_stays_separate_if_the_engine_rounds_weights(
    options, quantization, is_separate, tmp_path, monkeypatch
):
    monkeypatch.setattr(matmul, "is_supported", lambda: True)
    config = CONFIGS["llama"]
    params = write_base(tmp_path / "base", config, dtype="bfloat16")
    _, base = weights.load(tmp_path / "base")
    # Below the rounding of bfloat16.
    adapters = jax.tree.map(lambda x: x * 0.01, random_adapters(params))
    write_adapter(tmp_path / "adapter", config, adapters, tmp_path / "base")
    expected = lora.attach(lora.FrozenBase(base, ALPHA / RANK), adapters)["layers"]["q"]

    cfg = RunConfig(
        policy=PolicyConfig(path=str(tmp_path / "adapter"), **options),
        engine=EngineConfig(quantization=quantization),
    )
    _, snapshot = loading.initial_policy(cfg)
    served = snapshot.params["layers"]["q"]
    assert (lora.DOWN in served) == is_separate
    kernel = lora.merged_kernel(served) if is_separate else served["kernel"]
    update = lora.merged_kernel(expected) - expected["kernel"]
    error = np.abs(kernel - expected["kernel"] - update).max()
    assert error < 0.01 * np.abs(update).max()


def test_base_with_adapter_is_the_one_of_the_exported_adapter(tmp_path):
    """Training starts from the exact merged weights, although the base is stored in bfloat16."""
    base, first, second = (tmp_path / name for name in ("base", "first", "second"))
    config = CONFIGS["llama"]
    write_base(base, config, dtype="bfloat16")
    _, params = weights.load(base)
    adapters = jax.tree.map(lambda x: x * 0.01, random_adapters(params))
    write_adapter(first, config, adapters, base)
    run = RunConfig(policy=PolicyConfig(path=str(first)), lora=LoRAConfig(rank=RANK, alpha=ALPHA))
    _, frozen = loading.load_policy(loading.with_policy_path(run, loading.frozen_base_path(run)))
    export.write_adapter(second, run, adapters)
    trained, exported = (
        lora.attach(lora.FrozenBase(tree, 1.0), peft_adapter.load(path, config, scale=1.0))
        for tree, path in ((frozen, first), (params, second))
    )
    for name in lora.PROJECTIONS:
        kernels = [lora.merged_kernel(tree["layers"][name]) for tree in (trained, exported)]
        np.testing.assert_allclose(*kernels, atol=1e-6)


def test_merge_keeps_dtype_of_other_tensors(tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    params = write_base(base, config, dtype="bfloat16", file_bytes=9_000)
    write_adapter(adapter, config, random_adapters(params, ("q",)), base)
    merged = policy.resolve_dir(adapter)
    dtypes = {
        name: str(tensor.dtype)
        for file in merged.glob("*.safetensors")
        for name, tensor in load_file(file).items()
    }
    assert len(list(merged.glob("*.safetensors"))) > 1
    for name, dtype in dtypes.items():
        assert dtype == ("float32" if "q_proj.weight" in name else "bfloat16")
    # The dtype in config.json is that of an export, which would round the merged weights to it.
    assert policy.checkpoint_dtype(merged) == "float32"


@pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}])
def test_adapter_of_some_layers_has_equal_logits_in_peft(options, tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    config = CONFIGS["llama"]
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    keep_layer(adapter, 1)
    tokens = random_tokens(config)
    cfg = RunConfig(policy=PolicyConfig(path=str(adapter), **options))
    _, snapshot = loading.initial_policy(cfg)
    expected = torch_logits(load_with_peft(base, adapter), tokens)
    np.testing.assert_allclose(policy.logits(config, snapshot.params, tokens), expected, atol=1e-4)
    loaded = peft_adapter.load(adapter, config, scale=1.0)["layers"]["q"]
    assert [bool(layer.any()) for layer in loaded[lora.UP]] == [False, True, False]


def test_adapter_of_some_layers_is_not_trained(tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    keep_layer(adapter, 1)
    cfg = RunConfig(
        policy=PolicyConfig(path=str(adapter)),
        lora=LoRAConfig(rank=RANK, alpha=ALPHA, create_new_adapter=False),
    )
    with pytest.raises(ConfigError, match=r"has no adapter of q in the layers 0, 2; set lora\.cr"):
        loading.load_trained_adapter(cfg, config)


def keep_layer(adapter, layer):
    """Restrict an adapter to a layer, as `layers_to_transform` of PEFT does."""
    file = adapter / "adapter_model.safetensors"
    tensors = {name: x for name, x in load_file(file).items() if f".layers.{layer}." in name}
    save_file(tensors, file, metadata={"format": "pt"})
    edit_config(adapter, layers_to_transform=[layer])


def test_adapter_of_another_architecture_is_not_loaded(tmp_path):
    params = write_base(tmp_path / "base", CONFIGS["llama"])
    write_adapter(tmp_path / "adapter", CONFIGS["llama"], random_adapters(params), "base")
    smaller = dataclasses.replace(CONFIGS["llama"], num_layers=2)
    wider = dataclasses.replace(CONFIGS["llama"], num_kv_heads=3)
    for config, message in (
        (smaller, "the base has no module of the tensor"),
        (wider, "does not fit the architecture"),
    ):
        with pytest.raises(ConfigError, match=message):
            peft_adapter.load(tmp_path / "adapter", config, scale=1.0)


def test_reduced_adapter_is_the_closest_of_its_rank(tmp_path):
    base, first, second = (tmp_path / name for name in ("base", "first", "second"))
    config = CONFIGS["llama"]
    params = write_base(base, config)
    adapters = random_adapters(params)
    write_adapter(first, config, adapters, base)
    write_adapter(second, config, adapters, base, initial_adapters=[first], max_rank=2)
    assert json.loads((second / "adapter_config.json").read_text())["r"] == 2
    sums, reduced = (load_file(d / "adapter_model.safetensors") for d in (first, second))
    for name in [name for name in sums if ".lora_A." in name]:
        down, up = sums[name], sums[name.replace("lora_A", "lora_B")]
        # The initial adapter and the run are equal, so the sum is twice either.
        left, values, right = np.linalg.svd(2 * ALPHA / RANK * up @ down)
        closest = left[:, :2] * values[:2] @ right[:2]
        actual = reduced[name.replace("lora_A", "lora_B")] @ reduced[name]
        np.testing.assert_allclose(actual, closest, atol=1e-4)
        assert values[2] > 0.1  # something is dropped


def test_merged_directory_follows_base_and_adapter(tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    adapters = random_adapters(write_base(base, config))
    write_adapter(adapter, config, adapters, base, dtype="bfloat16")
    first_dir = policy.resolve_dir(adapter)
    assert policy.resolve_dir(adapter) == first_dir
    write_adapter(adapter, config, jax.tree.map(lambda x: 2 * x, adapters), base)
    second_dir = policy.resolve_dir(adapter)
    assert second_dir != first_dir
    write_base(base, config, dtype="bfloat16")
    assert policy.resolve_dir(adapter) not in (first_dir, second_dir)


def test_directories_of_earlier_merges_are_not_used(tmp_path, monkeypatch):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    merged = policy.resolve_dir(adapter)
    monkeypatch.setattr(pretrained, "_MERGE_VERSION", "")
    assert policy.resolve_dir(adapter) != merged


def test_merged_directory_follows_tokenizer_files(tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    (base / "chat_template.jinja").write_text("old")
    assert (policy.resolve_dir(adapter) / "chat_template.jinja").read_text() == "old"
    (base / "chat_template.jinja").write_text("new")
    assert (policy.resolve_dir(adapter) / "chat_template.jinja").read_text() == "new"
    (base / "generation_config.json").write_text("{}")
    assert (policy.resolve_dir(adapter) / "generation_config.json").read_text() == "{}"


def test_merged_directory_contains_tokenizer_of_adapter(tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        (base / name).write_text("base")
    (adapter / "chat_template.jinja").write_text("adapter")
    merged = policy.resolve_dir(adapter)  # a template alone is not a tokenizer
    assert (merged / "chat_template.jinja").read_text() == "base"
    (adapter / "tokenizer.json").write_text("adapter")
    merged = policy.resolve_dir(adapter)
    assert (merged / "tokenizer.json").read_text() == "adapter"
    assert (merged / "chat_template.jinja").read_text() == "adapter"
    assert (merged / "generation_config.json").read_text() == "base"
    # A template in tokenizer_config.json must not have a file beside it, which would precede it.
    (adapter / "chat_template.jinja").unlink()
    (adapter / "tokenizer_config.json").write_text('{"chat_template": "adapter"}')
    assert not (policy.resolve_dir(adapter) / "chat_template.jinja").exists()


def test_adapter_of_imported_base_is_refused_with_its_fix(tmp_path):
    config = CONFIGS["llama"]
    params = write_base(tmp_path / "base", config)
    imported, adapter = tmp_path / "imported", tmp_path / "adapter"
    weights.import_weights(tmp_path / "base", imported)
    write_adapter(adapter, config, random_adapters(params), imported)
    with pytest.raises(ConfigError, match=f"export --input={imported} --output_dir=DIR\nThen set"):
        policy.resolve_dir(adapter)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), "cannot be read .*download it aga"),
        (lambda file: file.rename(file.with_name("pytorch_model.bin")), "save the weights, which"),
        (lambda file: file.unlink(), "copy or download all files of the policy again"),
    ],
)
def test_damaged_base_of_adapter_is_refused_with_its_fix(damage, message, tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    damage(base / "model.safetensors")
    with pytest.raises(ConfigError, match=message):
        policy.resolve_dir(adapter)


def test_adapter_of_imported_base_is_read_without_a_merge(tmp_path):
    config = CONFIGS["llama"]
    params = write_base(tmp_path / "base", config)
    (tmp_path / "base" / "tokenizer.json").write_text("base")
    imported, adapter = tmp_path / "imported", tmp_path / "adapter"
    weights.import_weights(tmp_path / "base", imported)
    write_adapter(adapter, config, random_adapters(params), imported)
    checksum = weights.checksum(adapter)
    assert weights.checksum(adapter) == checksum
    assert policy.tokenizer_dir(adapter) == imported
    assert policy.load_config(adapter).d_model == config.d_model
    prompt_record.write(imported, "compact")
    cfg = RunConfig(policy=PolicyConfig(path=str(adapter), dtype="bfloat16"))
    assert prompt_record.with_template(cfg).prompt.template == "compact"
    changed = weights.checksum(adapter)
    assert changed != checksum
    write_adapter(adapter, config, random_adapters(params, ("q",)), imported)
    assert weights.checksum(adapter) not in (checksum, changed)


def test_tokenizer_of_adapter_needs_no_merge(tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        (base / name).write_text("base")
    assert policy.tokenizer_dir(base) == base
    assert policy.tokenizer_dir(adapter) == base
    (adapter / "tokenizer.json").write_text("adapter")
    directory = policy.tokenizer_dir(adapter)
    assert policy.tokenizer_dir(adapter) == directory
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
    merged = policy.resolve_dir(adapter)
    names = {file.name for file in merged.iterdir() if file.suffix != ".safetensors"}
    assert names == {file.name for file in directory.iterdir()}
    for name in names:
        assert (directory / name).read_bytes() == (merged / name).read_bytes()


def test_adapter_of_lm_head_is_not_trained(tmp_path):
    config = CONFIGS["qwen2 untied"]
    adapter = tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(policy.abstract_params(config)), "base")
    file = adapter / "adapter_model.safetensors"
    parts = {"A": np.ones((RANK, 24), np.float32), "B": np.ones((101, RANK), np.float32)}
    head = {f"base_model.model.lm_head.lora_{part}.weight": x for part, x in parts.items()}
    save_file(load_file(file) | head, file)
    message = r"adapts lm_head.*lora\.create_new_adapter=True.*an adapter without lm_head"
    with pytest.raises(ConfigError, match=message):
        peft_adapter.load(adapter, config, scale=1.0)


def write_head_adapter(folder, base):
    """Write an adapter of lm_head with PEFT; return its model."""
    import peft
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype="float32")
    options = peft.LoraConfig(r=4, target_modules=["q_proj", "lm_head"])
    model = peft.get_peft_model(model, options)
    torch.manual_seed(0)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(folder, save_embedding_layers=True)
    names = load_file(folder / "adapter_model.safetensors")
    assert "base_model.model.lm_head.base_layer.weight" in names
    return model


def test_adapter_of_lm_head_is_merged(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    config = CONFIGS["qwen2 untied"]
    write_base(base, config)
    model = write_head_adapter(adapter, base)
    tokens = random_tokens(config)
    actual = policy.logits(*policy.load_hf(adapter), tokens)
    np.testing.assert_allclose(actual, torch_logits(model, tokens), atol=1e-4)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_adapter_of_tied_lm_head_is_refused(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    params = write_base(base, CONFIGS["llama"])
    write_head_adapter(adapter, base)
    # Some directories of tied models contain the tensor all the same.
    tensors = load_file(base / "model.safetensors")
    tensors["lm_head.weight"] = np.asarray(params["embed"])
    save_file(tensors, base / "model.safetensors")
    with pytest.raises(ConfigError, match=r"tie_word_embeddings=true\):\suse an adapter without"):
        policy.resolve_dir(adapter)


def test_adapter_with_config_of_its_base_is_merged(tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    merged = policy.resolve_dir(adapter)
    shutil.copy(base / "config.json", adapter)
    assert policy.resolve_dir(adapter) == merged
    assert policy.adapter_chain(adapter) == ([adapter], str(base))
    # With weights of a model, the directory is that model.
    shutil.copy(base / "model.safetensors", adapter)
    assert policy.resolve_dir(adapter) == adapter
    (adapter / "model.safetensors").unlink()
    (adapter / "params").mkdir()
    assert policy.resolve_dir(adapter) == adapter


def test_adapter_in_package_is_selected_by_name(tmp_path, monkeypatch):
    config, params = policy.load_hf("webagent-tiny")
    monkeypatch.setattr(hf, "PACKAGED_ADAPTERS", tmp_path)
    adapters = random_adapters(params, ("q", "down"))
    write_adapter(tmp_path / "tiny-shop", config, adapters, "webagent-tiny", dtype="bfloat16")
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), adapters)
    tokens = random_tokens(config)
    expected = policy.logits(
        config, lora.attach(lora.FrozenBase(params, ALPHA / RANK), rounded), tokens
    )
    actual = policy.logits(*policy.load_hf("tiny-shop"), tokens)
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert (policy.resolve_dir("tiny-shop") / "tokenizer.json").is_file()
    with pytest.raises(ConfigError, match="one of the names webagent-tiny, tiny-shop, smollm2"):
        policy.resolve_dir("tiny")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("use_dora", True),
        ("peft_type", "IA3"),
        ("rank_pattern", {"q_proj": 2}),
        ("layer_replication", [[1, 3], [0, 1]]),
    ],
)
def test_unsupported_option_is_refused(option, value, tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    edit_config(adapter, **{option: value})
    with pytest.raises(ConfigError, match=f"{option}=.*is not supported"):
        policy.resolve_dir(adapter)


def test_adapter_of_another_base_is_refused(tmp_path):
    config = CONFIGS["llama"]
    adapters = random_adapters(write_base(tmp_path / "base", config))
    for name, other in (("shape", CONFIGS["qwen2 untied"]), ("layers", None)):
        base, adapter = tmp_path / name, tmp_path / f"adapter-{name}"
        write_base(base, other or policy.ModelConfig(97, 32, 2, 4, 2, 8, 48, qkv_bias=False))
        write_adapter(adapter, config, adapters, base)
        with pytest.raises(ConfigError, match="does not fit"):
            policy.resolve_dir(adapter)
    write_adapter(tmp_path / "lost", config, adapters, tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"no policy at .*nowhere"):
        policy.resolve_dir(tmp_path / "lost")
    assert not list((tmp_path / "cache").rglob("config.json"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "adapter_config.json").write_text("{"), "is not a JSON object"),
        (lambda d: (d / "adapter_config.json").write_text("[1]"), "is not a JSON object"),
        (lambda d: edit_config(d, r=None), "has no r: save the adapter again"),
        (lambda d: edit_config(d, init_lora_weights="pissa"), "init_lora_weights='pissa' is not"),
        (lambda d: edit_config(d, base_model_name_or_path=""), "has no base_model_name_or_path"),
        (lambda d: (d / "adapter_model.safetensors").unlink(), "safe_serialization=True"),
        (lambda d: (d / "adapter_model.safetensors").write_bytes(b"\x10"), "cannot be read"),
        (lambda d: rename_tensor(d, "lora_embedding_A"), "tensor .*lora_embedding_A is not supp"),
        (
            lambda d: remove_tensor(d, ".lora_A."),
            r"contains no .*lora_A\.weight: save the adapter again",
        ),
    ],
)
def test_damaged_adapter_is_rejected(damage, message, tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    damage(adapter)
    with pytest.raises(ConfigError, match=message):
        policy.resolve_dir(adapter)


def test_adapter_does_not_hide_behind_model(tmp_path):
    config = CONFIGS["llama"]
    params = write_base(tmp_path, config)
    for name in ("config.json", "model.safetensors"):
        with pytest.raises(ConfigError, match="choose another directory"):
            write_adapter(tmp_path, config, random_adapters(params), tmp_path)
        (tmp_path / name).unlink()
    write_adapter(tmp_path, config, random_adapters(params), tmp_path)


def edit_config(directory, **options):
    file = directory / peft_adapter.CONFIG_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | options))


def rename_tensor(directory, suffix):
    file = directory / "adapter_model.safetensors"
    tensors = load_file(file)
    name = min(tensors)
    tensors[f"{name.rsplit('.lora_', 1)[0]}.{suffix}"] = tensors.pop(name)
    save_file(tensors, file)


def remove_tensor(directory, text):
    """Remove the first tensor whose name contains a text."""
    file = directory / "adapter_model.safetensors"
    tensors = load_file(file)
    del tensors[min(name for name in tensors if text in name)]
    save_file(tensors, file)


def test_adapters_in_package_are_complete():
    directories = sorted(path.parent for path in hf.PACKAGED_ADAPTERS.glob("*/adapter_config.json"))
    names = [directory.name for directory in directories]
    assert names == ["smollm2-135m-arena", "smollm2-135m-miniwob"]
    for directory in directories:
        config = peft_adapter.read_config(directory)
        assert config["base_model_name_or_path"] in PRETRAINED
        assert prompt_record.read(directory) == "compact"
        weights = directory / "adapter_model.safetensors"
        assert weights.stat().st_size < 12e6
        tensors = load_file(weights)
        # A and B of 7 projections in 30 layers.
        assert len(tensors) == 2 * 7 * 30
        assert all(np.abs(x.astype(np.float32)).max() > 0 for x in tensors.values())


@pytest.mark.slow  # downloads SmolLM2-135M
@pytest.mark.browser
def test_adapter_in_package_solves_held_out_tasks(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    cfg = miniwob.get_config()
    cfg = dataclasses.replace(
        cfg,
        policy=PolicyConfig(path="smollm2-135m-miniwob"),
        suite=dataclasses.replace(cfg.suite, tasks=("click-option", "enter-text", "focus-text")),
    )
    report = evaluate(cfg, tmp_path)
    assert report.n == 15
    assert report.success_rate > 0.8


def test_error_of_base_names_adapter(tmp_path):
    config = CONFIGS["llama"]
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    write_adapter(adapter, config, random_adapters(write_base(base, config)), base)
    last = tmp_path / "last"  # an adapter on top of the adapter
    shutil.copytree(adapter, last)
    edit_config(last, base_model_name_or_path=str(adapter))
    fix = r"base_model_name_or_path in a copy of its adapter_config\.json$"

    file = base / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": {"bits": 4}}))
    for path in (adapter, last):
        with pytest.raises(ConfigError, match=f"^the base of the adapter {adapter}: ") as error:
            policy.resolve_dir(path)
        assert "quantized weights are not supported: use the unquantized" in str(error.value)
        assert re.search(fix, str(error.value))
    with pytest.raises(ConfigError, match=r"^[^:]*base/config\.json has a quantization_config"):
        policy.load_config(base)

    shutil.rmtree(base)
    for function in (policy.resolve_dir, policy.adapter_chain):
        message = f"^the base of the adapter {adapter}: no policy at {base}"
        with pytest.raises(PolicyNotFoundError, match=message) as error:
            function(last)
        assert re.search(fix, str(error.value))
    assert not policy.is_policy_dir(last)


@pytest.mark.parametrize("bases", [{"a": "a"}, {"a": "b", "b": "a"}], ids=["itself", "cycle"])
@pytest.mark.timeout(60)
def test_adapter_that_is_its_own_base_raises_config_error(tmp_path, bases):
    for name, base in bases.items():
        (tmp_path / name).mkdir()
        content = {
            "peft_type": "LORA",
            "r": 2,
            "lora_alpha": 4,
            "base_model_name_or_path": str(tmp_path / base),
        }
        (tmp_path / name / peft_adapter.CONFIG_FILE).write_text(json.dumps(content))
    for function in (policy.resolve_dir, policy.adapter_chain):
        with pytest.raises(ConfigError, match="is the adapter itself"):
            function(tmp_path / "a")
