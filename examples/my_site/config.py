"""Run on a page of your own: webagent-tiny, BC on eight demonstrations, then M-GRPO.

webagent quickstart --config=examples/my_site/config.py --workdir=runs/my_site
"""

from __future__ import annotations

from webagent_jax.config import (
    BCConfig,
    EngineConfig,
    EvalConfig,
    GRPOConfig,
    OptimizerConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
)

MY_SITE = RunConfig(
    suite=SuiteConfig(factory="examples.my_site.suite:make_suite"),
    engine=EngineConfig(slots=16, max_model_len=512),
    rollout=RolloutConfig(max_concurrent_episodes=16, max_turns=4, max_new_tokens=96),
    bc=BCConfig(
        demos_per_task=4,
        epochs=8,
        batch_episodes=2,
        row_tokens=512,
        optimizer=OptimizerConfig(learning_rate=5e-4, schedule="cosine", warmup_fraction=0.1),
    ),
    grpo=GRPOConfig(
        updates=6,
        tasks_per_update=6,
        group_size=8,
        minibatches=2,
        max_extra_groups=3,
        row_tokens=512,
        optimizer=OptimizerConfig(learning_rate=5e-4, warmup_fraction=0.2),
    ),
    # Sampling as in training, because M-GRPO improves the sampled policy.
    eval=EvalConfig(seeds_per_task=32, temperature=1.0, max_turns=(4,)),
)


def get_config() -> RunConfig:
    """Return the config."""
    return MY_SITE
