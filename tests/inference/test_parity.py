"""Tests of greedy completions against transformers on the same weights."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from webagent_jax import inference, policy

ROPE_SCALING = policy.RopeScaling(8.0, 1.0, 4.0, original_positions=64)
FAMILIES = {
    "qwen2": policy.ModelConfig(97, 32, 3, 4, 2, 8, 48, rope_theta=1_000.0),
    "llama": policy.ModelConfig(
        130, 48, 2, 6, 1, 8, 64, qkv_bias=False, tie_embeddings=False, rope_scaling=ROPE_SCALING
    ),
    "qwen3": policy.ModelConfig(101, 32, 2, 4, 2, 16, 48, qkv_bias=False, qk_norm=True),
}
NUM_PROMPTS, RESPONSE_TOKENS = 32, 64


@pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES)
def test_greedy_completions_match_transformers(config, tmp_path):
    import torch
    import transformers

    params = policy.init(config, jax.random.key(0))
    params = {**params, "embed": params["embed"] * 20.0}  # so that probabilities differ
    policy.save_hf(tmp_path, config, params)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 200, NUM_PROMPTS)
    prompts = [rng.integers(0, config.vocab_size, length) for length in lengths]
    ids = np.zeros((NUM_PROMPTS, lengths.max()), np.int64)
    mask = np.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, -len(prompt) :] = prompt
        mask[row, -len(prompt) :] = 1
    with torch.no_grad():
        expected = model.generate(
            torch.from_numpy(ids),
            attention_mask=torch.from_numpy(mask),
            do_sample=False,
            max_new_tokens=RESPONSE_TOKENS,
            min_new_tokens=RESPONSE_TOKENS,
            pad_token_id=0,
        ).numpy()[:, -RESPONSE_TOKENS:]
    with inference.Engine(config, params, slots=8, max_model_len=320) as engine:
        futures = [
            engine.submit(prompt, max_new_tokens=RESPONSE_TOKENS, temperature=0.0)
            for prompt in prompts
        ]
        actual = np.array([future.result(300).token_ids for future in futures])
    np.testing.assert_array_equal(actual, expected)
    assert len(np.unique(actual)) > 10
