"""The main job in small: webagent-tiny on 16 MiniWoB++ pages, live.

What: base policy, behaviour cloning on 8 demonstrations a page, 14 updates of M-GRPO (8 tasks x 8
episodes, flat groups replaced), each stage evaluated greedily on the same 400 held-out episodes.
Expected and measured figures: docs/results.md. Hardware: two CPU cores.

    python launch/quickstart.py --config=configs/quickstart.py --workdir=runs/quickstart

`:smoke` cuts it down to two pages and one update, to see that everything works.
"""

from __future__ import annotations

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
    "choose-list",
    "click-checkboxes",
    "click-checkboxes-large",
    "click-collapsible-2-nodelay",
    "click-dialog-2",
    "click-link",
    "click-option",
    "click-scroll-list",
    "click-tab-2",
    "email-inbox-delete",
    "enter-password",
    "enter-text",
    "login-user",
    "login-user-popup",
    "search-engine",
    "use-autocomplete-nodelay",
)

_QUICKSTART = RunConfig(
    suite=SuiteConfig(tasks=_TASKS),
    engine=EngineConfig(slots=16, max_tokens=448),
    rollout=RolloutConfig(contexts=16, max_turns=8, max_new_tokens=64),
    bc=BCConfig(
        demos_per_task=8,
        epochs=8,
        batch_episodes=16,
        row_tokens=448,
        optimizer=OptimizerConfig(
            learning_rate=1e-3, schedule="cosine", warmup_fraction=0.05, max_grad_norm=1.0
        ),
    ),
    grpo=GRPOConfig(
        updates=14,
        tasks_per_update=8,
        group_size=8,
        minibatches=2,
        max_refills=8,
        kl_beta=0.001,
        row_tokens=448,
        optimizer=OptimizerConfig(learning_rate=1e-4, max_grad_norm=1.0),
    ),
    eval=EvalConfig(episodes_per_task=25, max_turns=8),
)


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    if variant not in ("", "smoke"):
        raise config.ConfigError(f"unknown variant {variant!r}; there are: smoke")
    chosen = quickstart.smoke(_QUICKSTART) if variant else _QUICKSTART
    return config.to_config_dict(chosen)
