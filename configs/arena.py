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
"""

from __future__ import annotations

import ml_collections

from webagent_jax import config
from webagent_jax.config import (
    ArenaConfig,
    BCConfig,
    EngineConfig,
    EvalConfig,
    GRPOConfig,
    MeshConfig,
    OptimizerConfig,
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


def get_config() -> ml_collections.ConfigDict:
    return config.to_config_dict(_ARENA)
