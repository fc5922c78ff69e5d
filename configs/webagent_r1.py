"""The paper's M-GRPO (WebAgent-R1, arXiv 2505.16421, section 4.1) on WebArena-Lite.

What: behaviour cloning at 5e-5, then 40 updates of 16 tasks x 4 episodes of up to 15 turns of 1,024
new tokens, 16,384 tokens of context, learning rate 1e-6, clip 0.2, KL 0.001; all params trained, in
float32 with bfloat16 activations. Evaluation: the 165 tasks, greedy, up to 30 turns. Variants:
`:qwen2.5-3b` and `:llama-3.1-8b`, instruct models in weights/. Sites and task files are your own,
see docs/webarena.md; without a judge (suite.webarena.judge) 40 of the 165 tasks are left out.
Expected: the paper tells 33.9 % and 44.8 % on WebArena-Lite; not run here yet. Hardware and memory:
docs/recipes.md.

    python launch/compile_check.py --config=configs/webagent_r1.py:qwen2.5-3b --topology=v5e:4x4 \\
        --workdir=runs/compile-check
    python launch/train_grpo.py --config=configs/webagent_r1.py:qwen2.5-3b --workdir=runs/r1
    python launch/evaluate.py --config=configs/webagent_r1.py:qwen2.5-3b --workdir=runs/r1-eval \\
        --config.policy.path=runs/r1/policy
"""

from __future__ import annotations

import ml_collections

from webagent_jax import config
from webagent_jax.config import (
    BCConfig,
    BrowserConfig,
    EngineConfig,
    EvalConfig,
    GRPOConfig,
    MeshConfig,
    OptimizerConfig,
    PolicyConfig,
    PromptConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
    WebArenaConfig,
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
            # Real sites are slow, and their pages long: 7,300 tokens of GitLab's and more.
            browser=BrowserConfig(
                processes=4,
                observation="webarena_lite",
                observation_chars=24_000,
                call_timeout=30.0,
                navigation_timeout=60.0,
                settle_timeout=5.0,
            ),
            suite=SuiteConfig(
                name="webarena_lite",
                train_seeds=1,
                webarena=WebArenaConfig(
                    train_file="tasks/train_webarena_lite.raw.json",
                    test_file="tasks/test_webarena_lite.raw.json",
                ),
            ),
            engine=EngineConfig(slots=8, max_tokens=_CONTEXT, cache_mib=cache_mib),
            rollout=RolloutConfig(
                contexts=64, max_turns=15, max_new_tokens=1_024, episode_timeout=1_800.0
            ),
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
            eval=EvalConfig(episodes_per_task=1, max_turns=(30,)),
        )
    )
