"""Architectures of published models, for memory estimates before the weights are downloaded.

Each preset repeats the config.json of its model; weights are always read from a Hugging Face
directory.
"""

from __future__ import annotations

from webagent_jax.policy.transformer import ModelConfig, RopeScaling

# vocabulary, width, layers, heads, key-value heads, head width, MLP width
_Sizes = tuple[int, int, int, int, int, int, int]


def _qwen2(sizes: _Sizes, is_tied: bool = True) -> ModelConfig:
    return ModelConfig(*sizes, rope_theta=1e6, tie_embeddings=is_tied)


def _qwen3(sizes: _Sizes, is_tied: bool = True) -> ModelConfig:
    return ModelConfig(
        *sizes,
        rope_theta=1e6,
        tie_embeddings=is_tied,
        qkv_bias=False,
        qk_norm=True,
        max_positions=40_960,
    )


def _llama(sizes: _Sizes, factor: float, is_tied: bool = True) -> ModelConfig:
    return ModelConfig(
        *sizes,
        rope_theta=500_000.0,
        rope_scaling=RopeScaling(factor, 1.0, 4.0, 8192),
        rms_eps=1e-5,
        tie_embeddings=is_tied,
        qkv_bias=False,
        max_positions=131_072,
    )


MODEL_PRESETS: dict[str, ModelConfig] = {
    "Qwen2.5-0.5B": _qwen2((151936, 896, 24, 14, 2, 64, 4864)),
    "Qwen2.5-1.5B": _qwen2((151936, 1536, 28, 12, 2, 128, 8960)),
    "Qwen2.5-3B": _qwen2((151936, 2048, 36, 16, 2, 128, 11008)),
    "Qwen2.5-7B": _qwen2((152064, 3584, 28, 28, 4, 128, 18944), is_tied=False),
    "Qwen3-0.6B": _qwen3((151936, 1024, 28, 16, 8, 128, 3072)),
    "Qwen3-1.7B": _qwen3((151936, 2048, 28, 16, 8, 128, 6144)),
    "Qwen3-4B": _qwen3((151936, 2560, 36, 32, 8, 128, 9728)),
    "Qwen3-8B": _qwen3((151936, 4096, 36, 32, 8, 128, 12288), is_tied=False),
    "Llama-3.2-1B": _llama((128256, 2048, 16, 32, 8, 64, 8192), factor=32.0),
    "Llama-3.2-3B": _llama((128256, 3072, 28, 24, 8, 128, 8192), factor=32.0),
    "Llama-3.1-8B": _llama((128256, 4096, 32, 32, 8, 128, 14336), factor=8.0, is_tied=False),
}
"""Architectures by model name; instruct variants have the architecture of their base."""


def find_preset(path: str) -> ModelConfig | None:
    """Return the preset named by the last part of a path without "-Instruct", or None."""
    return MODEL_PRESETS.get(path.rstrip("/").split("/")[-1].removesuffix("-Instruct"))
