"""Weights in and out, and logits against transformers on the same weights."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from webagent_jax import policy

SIZES = {
    "tied": policy.ModelConfig(97, 32, 3, 4, 2, 8, 48, rope_theta=1_000.0),
    "untied": policy.ModelConfig(101, 24, 2, 3, 3, 8, 40, tie_embeddings=False),
    "one group": policy.ModelConfig(64, 48, 2, 6, 1, 8, 64, rope_theta=1_000_000.0),
}


def random_params(config):
    """Params with no zero anywhere, so that a forgotten bias or norm shows."""
    params = policy.init(config, jax.random.key(0))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noise = [0.1 * jax.random.normal(k, p.shape) for k, p in zip(keys, leaves, strict=True)]
    return jax.tree.map(lambda a, b: a + b, params, jax.tree.unflatten(tree, noise))


@pytest.mark.parametrize("config", SIZES.values(), ids=SIZES)
def test_logits_agree_with_transformers(config, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    params = random_params(config)
    policy.save_hf(tmp_path, config, params)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, 33))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        theirs = model(torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(policy.logits(config, params, tokens), theirs, atol=1e-4)


@pytest.mark.parametrize("config", SIZES.values(), ids=SIZES)
def test_round_trip_is_bit_exact(config, tmp_path):
    params = random_params(config)
    policy.save_hf(tmp_path, config, params)
    loaded_config, loaded = policy.load_hf(tmp_path)
    assert loaded_config == config
    jax.tree.map(np.testing.assert_array_equal, loaded, params)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architectures", ["GPT2LMHeadModel"]),
        ("hidden_act", "gelu"),
        ("use_sliding_window", True),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
    ],
)
def test_unsupported_models_are_refused_by_name(field, value, tmp_path):
    config = SIZES["tied"]
    policy.save_hf(tmp_path, config, policy.init(config, jax.random.key(0)))
    raw = json.loads((tmp_path / "config.json").read_text()) | {field: value}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=field.rstrip("s")):
        policy.load_hf(tmp_path)


def test_a_missing_directory_says_what_is_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match="webagent-tiny"):
        policy.load_hf(tmp_path / "nothing")
