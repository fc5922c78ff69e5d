"""Decoder language model in Flax with params as plain pytrees, and its file formats."""

from webagent_jax.policy.gguf_import import import_gguf
from webagent_jax.policy.hf import (
    adapter_chain,
    checkpoint_dtype,
    copy_tokenizer,
    is_policy_dir,
    load_config,
    load_hf,
    resolve_dir,
    save_hf,
    tokenizer_dir,
)
from webagent_jax.policy.scoring import Scores, score
from webagent_jax.policy.transformer import (
    ModelConfig,
    Params,
    RopeScaling,
    abstract_params,
    count_params,
    forward,
    init,
    logits,
    unembed,
    weight_bytes,
)

__all__ = [
    "ModelConfig",
    "Params",
    "RopeScaling",
    "Scores",
    "abstract_params",
    "adapter_chain",
    "checkpoint_dtype",
    "copy_tokenizer",
    "count_params",
    "forward",
    "import_gguf",
    "init",
    "is_policy_dir",
    "load_config",
    "load_hf",
    "logits",
    "resolve_dir",
    "save_hf",
    "score",
    "tokenizer_dir",
    "unembed",
    "weight_bytes",
]
