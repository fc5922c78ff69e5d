"""The policy: a pure Flax decoder whose params are plain pytrees."""

from webagent_jax.policy.gguf_import import import_gguf
from webagent_jax.policy.hf import (
    copy_tokenizer,
    directory,
    is_directory,
    load_config,
    load_hf,
    save_hf,
    stored_dtype,
)
from webagent_jax.policy.scoring import Scores, score
from webagent_jax.policy.transformer import (
    Cache,
    ModelConfig,
    Params,
    RopeScaling,
    abstract_params,
    count_params,
    forward,
    forward_cached,
    init,
    init_cache,
    logits,
    unembed,
    weight_bytes,
)

__all__ = [
    "Cache",
    "ModelConfig",
    "Params",
    "RopeScaling",
    "Scores",
    "abstract_params",
    "copy_tokenizer",
    "count_params",
    "directory",
    "forward",
    "forward_cached",
    "import_gguf",
    "init",
    "init_cache",
    "is_directory",
    "load_config",
    "load_hf",
    "logits",
    "save_hf",
    "score",
    "stored_dtype",
    "unembed",
    "weight_bytes",
]
