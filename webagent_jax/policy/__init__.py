"""The policy: a pure Flax decoder whose params are plain pytrees."""

from webagent_jax.policy.hf import copy_tokenizer, directory, load_hf, save_hf
from webagent_jax.policy.scoring import Scores, score
from webagent_jax.policy.transformer import (
    Cache,
    ModelConfig,
    Params,
    RopeScaling,
    forward,
    forward_cached,
    init,
    init_cache,
    logits,
    unembed,
)

__all__ = [
    "Cache",
    "ModelConfig",
    "Params",
    "RopeScaling",
    "Scores",
    "copy_tokenizer",
    "directory",
    "forward",
    "forward_cached",
    "init",
    "init_cache",
    "load_hf",
    "logits",
    "save_hf",
    "score",
    "unembed",
]
