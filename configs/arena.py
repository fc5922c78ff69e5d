"""The embedded arena in small: webagent-tiny on five sites, from demonstrations to M-GRPO.

What: behaviour cloning on oracle demonstrations of 1,000 tasks drawn anew, then M-GRPO on others,
each stage evaluated on the 165 test tasks, sampled as in training. No test task is among those
drawn.
Expected: next to nothing with webagent-tiny (docs/results.md); it is here for policies that read
pages of this size. Hardware: two CPU cores; 11 minutes for the demonstrations, 12 for an epoch, 6
for M-GRPO, 3 for an evaluation.

    python launch/collect_demos.py --config=configs/arena.py --workdir=runs/arena/bc
    python launch/train_bc.py --config=configs/arena.py --workdir=runs/arena/bc
    python launch/train_grpo.py --config=configs/arena.py --workdir=runs/arena/grpo \\
        --config.policy.path=runs/arena/bc/policy --config.suite.arena.fresh_seed=1
    python launch/evaluate.py --config=configs/arena.py --workdir=runs/arena/eval \\
        --config.policy.path=runs/arena/grpo/policy

`:smollm2` trains LoRA adapters of SmolLM2-135M-Instruct on thoughts that restate the task. Decision
accuracy after one epoch on the first turns of one site is in docs/results.md; no run over all turns
has been measured.
"""

from __future__ import annotations

from dataclasses import replace

import ml_collections

from webagent_jax import config
from webagent_jax.config import (
    ArenaConfig,
    BCConfig,
    EngineConfig,
    EvalConfig,
    GRPOConfig,
    LoRAConfig,
    MeshConfig,
    OptimizerConfig,
    PolicyConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
)

_ARENA = RunConfig(
    mesh=MeshConfig(rows_per_device=2),
    suite=SuiteConfig(
        name="arena", train_seeds=1, arena=ArenaConfig(fresh_seed=0, fresh_tasks=1_000)
    ),
    # Of 240 demonstrations of drawn tasks, the longest prompts take 655 tokens in the median, 1,210
    # at the 99th percentile and 1,323 at most; the longest responses 66, 141 and 166. These limits
    # hold all of them; 1,024 and 96 tokens would cut the prompts of 29 and the responses of 25.
    engine=EngineConfig(slots=16, max_tokens=1_536),
    rollout=RolloutConfig(contexts=12, max_turns=16, max_new_tokens=192, episode_timeout=600.0),
    bc=BCConfig(
        demos_per_task=1,
        epochs=4,
        batch_episodes=2,  # many small updates: pointing needs steps more than tokens
        row_tokens=1_536,
        optimizer=OptimizerConfig(
            learning_rate=1e-3, schedule="cosine", warmup_fraction=0.05, max_grad_norm=1.0
        ),
    ),
    grpo=GRPOConfig(
        updates=6,
        tasks_per_update=6,
        group_size=6,
        minibatches=2,
        max_refills=12,
        row_tokens=1_536,
        optimizer=OptimizerConfig(learning_rate=3e-4, warmup_fraction=0.2, max_grad_norm=1.0),
    ),
    # Sampled as in training: that is what M-GRPO improves.
    eval=EvalConfig(episodes_per_task=1, temperature=1.0, max_turns=(16,)),
)


# Adapters in place of all params: an update is a third shorter, and the result a few MB. Prompts of
# 200 demonstrations take 769 tokens in the median and 1,691 at most, responses 77 and 153.
_SMOLLM2 = replace(
    _ARENA,
    policy=PolicyConfig(path="smollm2-135m"),
    lora=LoRAConfig(rank=16, alpha=32.0),
    mesh=MeshConfig(rows_per_device=1),
    suite=replace(_ARENA.suite, arena=replace(_ARENA.suite.arena, thoughts="restate")),
    engine=replace(_ARENA.engine, max_tokens=2_048),
    rollout=replace(_ARENA.rollout, max_new_tokens=224),
    bc=replace(
        _ARENA.bc,
        batch_episodes=4,
        row_tokens=2_048,
        held_out_demos=60,
        eval_updates=100,
        eval_episodes=0,
        checkpoint_updates=25,
    ),
    grpo=replace(_ARENA.grpo, row_tokens=2_048),
)

_VARIANTS = {"": _ARENA, "smollm2": _SMOLLM2}


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    if variant not in _VARIANTS:
        known = ", ".join(filter(None, _VARIANTS))
        raise config.ConfigError(f"unknown variant {variant!r}; there are: {known}")
    return config.to_config_dict(_VARIANTS[variant])
