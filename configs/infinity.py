r"""WebArena-Infinity: tasks of generated single-page apps, from your own checkout.

    git clone https://github.com/web-arena-x/webarena-infinity DIR
    webagent evaluate --config=infinity --config.suite.infinity.path=DIR \
        --config.policy.path=POLICY --workdir=runs/infinity

docs/infinity.md describes the suite. For a chat endpoint, replace the policy by the options of
docs/chat_endpoints.md. The test split has the real tasks of two apps without training tasks;
--config.suite.infinity.test_split=tasks selects held-out tasks of the other apps,
--config.suite.infinity.difficulties=easy one difficulty.

The limits are those of the published evaluation of WebArena-Lite, 30 turns and 16,384 tokens of
context; pages have up to 6,200 tokens. webagent-tiny, the default policy, has 2,048 positions.

`:bc` trains LoRA adapters on demonstrations of the training tasks that have experts, from an
adapter that read other sites before.

    webagent collect --config=infinity:bc \
        --config.suite.infinity.path=DIR --workdir=runs/infinity/bc
    webagent train bc --config=infinity:bc \
        --config.suite.infinity.path=DIR --workdir=runs/infinity/bc
"""

from __future__ import annotations

from dataclasses import replace

from webagent_jax import config
from webagent_jax.config import (
    BCConfig,
    EngineConfig,
    EvalConfig,
    GRPOConfig,
    LoRAConfig,
    MeshConfig,
    OptimizerConfig,
    PolicyConfig,
    PromptConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
)
from webagent_jax.suites.infinity.experts import SOLUTIONS

_CONTEXT = 16_384  # tokens of prompt and response


_INFINITY = RunConfig(
    suite=SuiteConfig(name="infinity", train_seeds_per_task=1),
    engine=EngineConfig(slots=8, max_model_len=_CONTEXT),
    rollout=RolloutConfig(
        max_concurrent_episodes=8, max_turns=30, max_new_tokens=512, episode_timeout=1_800.0
    ),
    bc=BCConfig(demos_per_task=1, row_tokens=_CONTEXT),
    grpo=GRPOConfig(row_tokens=_CONTEXT),
    eval=EvalConfig(seeds_per_task=1, max_turns=(30,)),
)

_BC = replace(
    _INFINITY,
    policy=PolicyConfig(path="smollm2-135m-miniwob"),
    prompt=PromptConfig(template="compact"),
    lora=LoRAConfig(rank=16, alpha=32.0),
    mesh=MeshConfig(microbatch_rows_per_device=1),
    suite=replace(_INFINITY.suite, tasks=tuple(sorted(SOLUTIONS))),
    # The prompts of the demonstrations have at most 4,367 tokens.
    engine=EngineConfig(slots=8, max_model_len=4_608, steps_per_dispatch=4),
    rollout=replace(_INFINITY.rollout, max_turns=16, max_new_tokens=192),
    bc=BCConfig(
        demos_per_task=1,
        expert_thoughts="restate",
        epochs=4,
        batch_episodes=2,
        row_tokens=4_608,
        eval_episodes=0,
        eval_decisions=24,
        checkpoint_interval=10,
        optimizer=OptimizerConfig(learning_rate=1e-3, warmup_fraction=0.05, max_grad_norm=1.0),
    ),
    grpo=GRPOConfig(row_tokens=4_608),
    eval=EvalConfig(seeds_per_task=1, temperature=1.0, max_turns=(16,)),
)

_VARIANTS = {"": _INFINITY, "bc": _BC}


def get_config(variant: str = "") -> RunConfig:
    """Return the config of a variant; ConfigError lists the variants if it is unknown."""
    return config.get_variant(_VARIANTS, variant)
