"""Greedy replies against those of transformers on the same weights."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from webagent_jax import inference, policy

SCALED = policy.RopeScaling(8.0, 1.0, 4.0, original_positions=64)
FAMILIES = {
    "qwen2": policy.ModelConfig(97, 32, 3, 4, 2, 8, 48, rope_theta=1_000.0),
    "llama": policy.ModelConfig(
        130, 48, 2, 6, 1, 8, 64, qkv_bias=False, tie_embeddings=False, rope_scaling=SCALED
    ),
    "qwen3": policy.ModelConfig(101, 32, 2, 4, 2, 16, 48, qkv_bias=False, qk_norm=True),
}
PROMPTS, REPLY = 32, 64


@pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES)
def test_greedy_replies_are_those_of_transformers(config, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    params = policy.init(config, jax.random.key(0))
    params = {**params, "embed": params["embed"] * 20.0}  # so that tokens differ in probability
    policy.save_hf(tmp_path, config, params)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 200, PROMPTS)
    prompts = [rng.integers(0, config.vocab_size, length) for length in lengths]
    ids = np.zeros((PROMPTS, lengths.max()), np.int64)
    mask = np.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, -len(prompt) :] = prompt
        mask[row, -len(prompt) :] = 1
    with torch.no_grad():
        theirs = model.generate(
            torch.from_numpy(ids),
            attention_mask=torch.from_numpy(mask),
            do_sample=False,
            max_new_tokens=REPLY,
            min_new_tokens=REPLY,
            pad_token_id=0,
        ).numpy()[:, -REPLY:]
    with inference.Engine(config, params, slots=8, max_model_len=320) as engine:
        futures = [
            engine.submit(prompt, max_new_tokens=REPLY, temperature=0.0) for prompt in prompts
        ]
        ours = np.array([future.result(300).token_ids for future in futures])
    np.testing.assert_array_equal(ours, theirs)
    assert len(np.unique(ours)) > 10
