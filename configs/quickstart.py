r"""Full pipeline on two CPU cores: webagent-tiny on 12 MiniWoB++ tasks.

Stages: base policy; behavior cloning (BC) on one demonstration per task until validation success is
flat; 16 updates of M-GRPO (16 groups of 8 episodes; other groups replace those without a signal).
Each stage is evaluated on the same 408 held-out episodes, sampled at temperature 1. Results:
docs/results.md.

    webagent quickstart --config=quickstart --workdir=runs/quickstart

`:smoke` reduces it to two tasks and one update, to test the installation. `:cot` is R1-CoT: 32
demonstrations per task with long thoughts. `:paper`, `:dr_grpo`, `:rloo`, `:dapo`, `:filtered_bc`,
`:awr`, `:reinforce`, `:released`, `:step_credit`, `:trust_region`, `:constant_turns` and
`:scaled_negatives` use another objective, `:adaptive` and `:success_replay` other groups
(docs/objectives.md). To compare objectives, start all of them from one BC policy:

    webagent train grpo --config=quickstart:awr \
        --config.policy.path=runs/quickstart/bc/policy --workdir=runs/awr
"""

from __future__ import annotations

from dataclasses import replace

from webagent_jax import config
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

# BC has both outcomes on training seeds of these tasks (20 to 85 % success, docs/lab_log.md):
# M-GRPO learns nothing from groups with equal rewards.
_TASKS = (
    "choose-list",
    "click-checkboxes",
    "click-dialog-2",
    "click-scroll-list",
    "click-shape",
    "click-tab",
    "click-tab-2-easy",
    "click-widget",
    "enter-text",
    "focus-text-2",
    "login-user",
    "navigate-tree",
)

_QUICKSTART = RunConfig(
    suite=SuiteConfig(tasks=_TASKS),
    engine=EngineConfig(slots=16, max_model_len=512),
    rollout=RolloutConfig(
        max_concurrent_episodes=16,
        max_turns=8,
        max_new_tokens=96,
        # After BC on one demonstration, decisions are nearly certain at 1: fewer groups have both
        # outcomes (docs/lab_log.md).
        temperature=1.3,
    ),
    bc=BCConfig(
        demos_per_task=1,
        # 120 updates; validation success is flat after update 60 (docs/results.md, Convergence of
        # behavior cloning).
        epochs=40,
        batch_episodes=4,
        row_tokens=512,
        optimizer=OptimizerConfig(
            learning_rate=5e-4, schedule="cosine", warmup_fraction=0.05, max_grad_norm=1.0
        ),
    ),
    grpo=GRPOConfig(
        updates=16,
        tasks_per_update=16,
        group_size=8,
        # One pass over each batch (epochs=1): three passes diverge (docs/lab_log.md).
        minibatches=4,
        max_extra_groups=8,
        kl_beta=0.001,
        row_tokens=512,
        # At temperature 1, one seed of three collapses at this rate (docs/results.md).
        optimizer=OptimizerConfig(learning_rate=5e-4, warmup_fraction=0.2, max_grad_norm=1.0),
    ),
    # Sampled, not greedy, because M-GRPO improves the sampled policy.
    eval=EvalConfig(seeds_per_task=34, temperature=1.0, max_turns=(8,)),
)


_GRPO = _QUICKSTART.grpo
# Each objective changes only the options that define it.
_OBJECTIVES: dict[str, GRPOConfig] = {
    # One step per batch keeps the ratio at 1, so the clip has no effect. All groups are kept.
    "paper": replace(_GRPO, minibatches=1, filter_groups=False),
    "dr_grpo": replace(
        _GRPO, loss_aggregation="constant_length", advantage_estimator="group_mean", kl_beta=0.0
    ),
    # Policy gradients have no ratio, so they take one step per batch.
    "rloo": replace(_GRPO, advantage_estimator="leave_one_out", policy_loss="logp", minibatches=1),
    "dapo": replace(
        _GRPO, loss_aggregation="token_mean", clip_high=0.28, kl_beta=0.0, truncated_episodes="mask"
    ),
    "filtered_bc": replace(
        _GRPO,
        loss_aggregation="token_mean",
        advantage_estimator="success",
        policy_loss="logp",
        kl_beta=0.0,
    ),
    "awr": replace(_GRPO, advantage_estimator="exponential", policy_loss="logp", kl_beta=0.0),
    "reinforce": replace(
        _GRPO,
        advantage_estimator="batch_mean",
        policy_loss="logp",
        minibatches=1,
        filter_groups=False,
    ),
    "released": replace(
        _GRPO,
        sequence_layout="webagent_r1_release",
        policy_loss="logp",
        minibatches=1,
        filter_groups=False,
    ),
    "step_credit": replace(_GRPO, step_advantage_weight=1.0),
    "trust_region": replace(_GRPO, kl_reference="previous", kl_beta=0.1),
    "constant_turns": replace(_GRPO, loss_aggregation="constant_turns"),
    "scaled_negatives": replace(_GRPO, negative_advantage_scale=0.5),
    "adaptive": replace(_GRPO, task_sampling="adaptive"),
}


# R1-CoT. Long thoughts contain the task, past steps and page. webagent-tiny was pretrained on short
# thoughts and needs more demonstrations for long ones (docs/results.md).
_COT = replace(
    _QUICKSTART,
    engine=replace(_QUICKSTART.engine, max_model_len=768),
    rollout=replace(_QUICKSTART.rollout, max_new_tokens=160),
    bc=replace(_QUICKSTART.bc, expert_thoughts="long", demos_per_task=32, epochs=4, row_tokens=768),
    grpo=replace(_GRPO, row_tokens=768),
)

# Two tasks and one update; the results are meaningless.
_SMOKE = replace(
    _QUICKSTART,
    suite=replace(_QUICKSTART.suite, tasks=_TASKS[:2]),
    rollout=replace(_QUICKSTART.rollout, max_concurrent_episodes=4),
    bc=replace(_QUICKSTART.bc, demos_per_task=2, epochs=1, batch_episodes=4),
    grpo=replace(
        _GRPO, updates=1, tasks_per_update=2, group_size=2, minibatches=2, max_extra_groups=0
    ),
    eval=replace(_QUICKSTART.eval, seeds_per_task=2),
)

_VARIANTS = {
    "": _QUICKSTART,
    "smoke": _SMOKE,
    "cot": _COT,
    **{name: replace(_QUICKSTART, grpo=grpo) for name, grpo in _OBJECTIVES.items()},
    # Replay needs tasks that recur: about six groups per task in a run.
    "success_replay": replace(
        _QUICKSTART,
        suite=replace(_QUICKSTART.suite, train_seeds_per_task=5),
        grpo=replace(_GRPO, success_replay=True),
    ),
}


def get_config(variant: str = "") -> RunConfig:
    """Return the config of a variant; ConfigError lists the variants if it is unknown."""
    return config.get_variant(_VARIANTS, variant)
