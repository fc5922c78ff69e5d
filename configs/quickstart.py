"""The main job in small: webagent-tiny on 12 MiniWoB++ pages, live.

Stages: base policy; behavior cloning (BC) on 2 demonstrations per page until validation success is
flat; 16 updates of M-GRPO (12 tasks x 8 episodes, flat groups replaced). Each stage is evaluated on
the same 408 held-out episodes, sampled as in training.
Expected and measured figures: docs/results.md. Hardware: two CPU cores.

    python launch/quickstart.py --config=configs/quickstart.py --workdir=runs/quickstart

`:smoke` cuts it down to two pages and one update, to see that everything works. `:paper`,
`:dr_grpo`, `:rloo`, `:dapo`, `:filtered_bc`, `:awr`, `:reinforce` and `:released` are the same job
with another objective (docs/objectives.md). To compare them, begin with one cloned policy:

    python launch/train_grpo.py --config=configs/quickstart.py:awr \
        --config.policy.path=runs/quickstart/bc/policy --workdir=runs/awr
"""

from __future__ import annotations

from dataclasses import replace

import ml_collections

from webagent_jax import config, quickstart
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

_TASKS = (
    "buy-ticket",
    "choose-list",
    "click-checkboxes",
    "click-collapsible-2-nodelay",
    "click-menu",
    "click-option",
    "click-scroll-list",
    "click-tab",
    "click-tab-2",
    "email-inbox-important",
    "enter-text",
    "use-autocomplete-nodelay",
)

_QUICKSTART = RunConfig(
    suite=SuiteConfig(tasks=_TASKS),
    engine=EngineConfig(slots=16, max_tokens=512),
    rollout=RolloutConfig(contexts=16, max_turns=8, max_new_tokens=96),
    bc=BCConfig(
        demos_per_task=2,
        # 90 updates: validation success is flat from update 60 on (docs/results.md, Convergence of
        # behavior cloning).
        epochs=15,
        batch_episodes=4,
        row_tokens=512,
        optimizer=OptimizerConfig(
            learning_rate=5e-4, schedule="cosine", warmup_fraction=0.05, max_grad_norm=1.0
        ),
    ),
    grpo=GRPOConfig(
        updates=16,
        tasks_per_update=12,
        group_size=8,
        minibatches=4,
        max_refills=6,
        kl_beta=0.001,
        row_tokens=512,
        optimizer=OptimizerConfig(learning_rate=5e-4, warmup_fraction=0.2, max_grad_norm=1.0),
    ),
    # Sampled as in training: that is what M-GRPO improves.
    eval=EvalConfig(episodes_per_task=34, temperature=1.0, max_turns=(8,)),
)


_GRPO = _QUICKSTART.grpo
_OBJECTIVES: dict[str, GRPOConfig] = {  # each equal to the default but for what its name says
    # One step over each batch, groups without variance kept: the ratio stays 1, the clip idle.
    "paper": replace(_GRPO, minibatches=1, drop_flat_groups=False),
    "dr_grpo": replace(_GRPO, weights="constant_length", advantages="group_mean", kl_beta=0.0),
    # Policy gradients without a ratio: one step over each batch.
    "rloo": replace(_GRPO, advantages="leave_one_out", policy_loss="logp", minibatches=1),
    "dapo": replace(_GRPO, weights="token_mean", clip_high=0.28, kl_beta=0.0, truncated="mask"),
    "filtered_bc": replace(
        _GRPO, weights="token_mean", advantages="success", policy_loss="logp", kl_beta=0.0
    ),
    "awr": replace(_GRPO, advantages="exponential", policy_loss="logp", kl_beta=0.0),
    "reinforce": replace(
        _GRPO,
        advantages="batch_mean",
        policy_loss="logp",
        minibatches=1,
        drop_flat_groups=False,
    ),
    "released": replace(
        _GRPO, rows="released", policy_loss="logp", minibatches=1, drop_flat_groups=False
    ),
}


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    if variant in _OBJECTIVES:
        return config.to_config_dict(replace(_QUICKSTART, grpo=_OBJECTIVES[variant]))
    if variant not in ("", "smoke"):
        known = ", ".join(("smoke", *_OBJECTIVES))
        raise config.ConfigError(f"unknown variant {variant!r}; there are: {known}")
    chosen = quickstart.smoke(_QUICKSTART) if variant else _QUICKSTART
    return config.to_config_dict(chosen)
