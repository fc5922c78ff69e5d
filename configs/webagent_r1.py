"""The paper's M-GRPO (WebAgent-R1, arXiv 2505.16421, section 4.1) at 16,384 tokens of context.

What: behaviour cloning at 5e-5, then 40 updates of 16 tasks x 4 episodes, turns of up to 1,024 new
tokens, learning rate 1e-6, clip 0.2, KL 0.001; all params trained, in float32 with bfloat16
activations. Variants: `:qwen2.5-3b` and `:llama-3.1-8b`, instruct models in weights/.
Expected: the paper tells 33.9 % and 44.8 % on WebArena-Lite; not run here yet. Hardware and memory:
docs/recipes.md.

    python launch/compile_check.py --config=configs/webagent_r1.py:qwen2.5-3b --topology=v5e:4x4 \\
        --workdir=runs/compile-check
    python launch/train_grpo.py --config=configs/webagent_r1.py:qwen2.5-3b --workdir=runs/r1
"""

from __future__ import annotations

import ml_collections

from webagent_jax import config
from webagent_jax.config import (
    BCConfig,
    EngineConfig,
    EvalConfig,
    GRPOConfig,
    MeshConfig,
    OptimizerConfig,
    PolicyConfig,
    PromptConfig,
    RolloutConfig,
    RunConfig,
)

# Weights, devices along the tensor axis, MiB of the engine's cache (docs/recipes.md).
_VARIANTS = {
    "qwen2.5-3b": ("weights/Qwen2.5-3B-Instruct", 2, 4_608),
    "llama-3.1-8b": ("weights/Llama-3.1-8B-Instruct", 1, 0),
}
_CONTEXT = 16_384


def get_config(variant: str = "qwen2.5-3b") -> ml_collections.ConfigDict:
    if variant not in _VARIANTS:
        raise config.ConfigError(f"unknown variant {variant!r}; there are: {', '.join(_VARIANTS)}")
    weights, tensor, cache_mib = _VARIANTS[variant]
    return config.to_config_dict(
        RunConfig(
            policy=PolicyConfig(path=weights, dtype="bfloat16", remat="full"),
            mesh=MeshConfig(fsdp=-1, tensor=tensor, rows_per_device=1),
            prompt=PromptConfig(template="webarena"),
            engine=EngineConfig(slots=8, max_tokens=_CONTEXT, cache_mib=cache_mib),
            rollout=RolloutConfig(contexts=64, max_turns=15, max_new_tokens=1_024),
            bc=BCConfig(
                epochs=1,
                batch_episodes=128,
                row_tokens=_CONTEXT,
                optimizer=OptimizerConfig(
                    learning_rate=5e-5, schedule="cosine", warmup_fraction=0.05
                ),
            ),
            grpo=GRPOConfig(
                updates=40,
                tasks_per_update=16,
                group_size=4,
                kl_beta=0.001,
                row_tokens=_CONTEXT,
                optimizer=OptimizerConfig(learning_rate=1e-6, max_grad_norm=0.01),
            ),
            eval=EvalConfig(max_turns=30),
        )
    )
