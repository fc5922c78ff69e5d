r"""SmolLM2-135M-Instruct on 56 tasks of MiniWoB++: BC, then M-GRPO, with LoRA adapters.

The tasks are those of WebGUM (arXiv 2305.11854, HTML only). BC trains on 48 demonstrations of each
of 50 tasks (`:bc`): two have no expert (click-checkboxes-soft, click-pie), and 4 have episodes of
3,000 to 7,000 tokens, which would take half of the time. Two more epochs, with half of the
learning rate, give the adapter in the package, `smollm2-135m-miniwob` (docs/results.md).
Hardware: two CPU cores, with --config.policy.matmul_dtype=bfloat16 --config.mesh.data=2
--config.mesh.fsdp=1 and XLA_FLAGS=--xla_force_host_platform_device_count=2. Every evaluation uses
all tasks, sampled at temperature 1.

    webagent collect --config=miniwob:bc --workdir=runs/miniwob/bc
    webagent train bc --config=miniwob:bc --workdir=runs/miniwob/bc
    webagent evaluate --config=miniwob --workdir=runs/miniwob/eval \
        --config.policy.path=runs/miniwob/bc/policy

`:grpo` is M-GRPO from the adapter, on 12 tasks with both outcomes. Started after two epochs of BC,
it had no gain over a third epoch of BC on these tasks, and success on the other tasks fell
(docs/results.md). The run in docs/lab_log.md has other tasks and another adapter.

    webagent train grpo --config=miniwob:grpo --workdir=runs/miniwob/grpo
    webagent evaluate --config=miniwob --workdir=runs/miniwob/eval_grpo \
        --config.policy.path=runs/miniwob/grpo/policy

`:all_tasks_grpo` is M-GRPO from the adapter on all 56 tasks, for a GPU and many CPU cores. It has
not been run there, and its options are not tuned.

    webagent train grpo --config=miniwob:all_tasks_grpo --workdir=runs/miniwob/all_tasks_grpo

`:after_arena_grpo` is M-GRPO from `smollm2-135m-arena` on 13 tasks. Its BC on the arena overwrote
part of what it had learned on MiniWoB++ before; M-GRPO restores some of it without demonstrations.

    webagent train grpo --config=miniwob:after_arena_grpo --workdir=runs/after_arena/grpo
    webagent evaluate --config=miniwob:after_arena_grpo --workdir=runs/after_arena/eval \
        --config.policy.path=runs/after_arena/grpo/policy --config.eval.temperature=0

`:tiny` is the quickstart with webagent-tiny on the 50 tasks of `:bc`, none of them selected by
success: BC on one demonstration per task, then M-GRPO, which chooses tasks adaptively.

    webagent quickstart --config=miniwob:tiny --workdir=runs/miniwob_tiny

`:short_bc` and `:short_grpo` continue from the adapter on tasks with short prompts and few turns:
BC on 12 until validation success is flat, then M-GRPO on six. docs/results.md starts from an
earlier adapter.
"""

from __future__ import annotations

from dataclasses import replace

from webagent_jax import config
from webagent_jax.config import (
    BCConfig,
    BrowserConfig,
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

_BC_TASKS = (
    "choose-date-easy",
    "choose-date-medium",
    "choose-list",
    "click-button",
    "click-button-sequence",
    "click-checkboxes",
    "click-checkboxes-transfer",
    "click-collapsible",
    "click-collapsible-2",
    "click-color",
    "click-dialog",
    "click-dialog-2",
    "click-link",
    "click-menu",
    "click-option",
    "click-scroll-list",
    "click-shades",
    "click-shape",
    "click-tab",
    "click-tab-2",
    "click-tab-2-hard",
    "click-test",
    "click-test-2",
    "click-widget",
    "count-shape",
    "email-inbox",
    "email-inbox-forward-nl",
    "email-inbox-forward-nl-turk",
    "email-inbox-nl-turk",
    "enter-date",
    "enter-password",
    "enter-text",
    "enter-text-dynamic",
    "enter-time",
    "focus-text",
    "focus-text-2",
    "grid-coordinate",
    "guess-number",
    "identify-shape",
    "login-user",
    "login-user-popup",
    "multi-layouts",
    "multi-orderings",
    "navigate-tree",
    "search-engine",
    "social-media",
    "social-media-some",
    "tic-tac-toe",
    "use-autocomplete",
    "use-spinner",
)

_LONG_TASKS = (
    "book-flight",
    "choose-date",
    "click-checkboxes-large",
    "social-media-all",
)
_TASKS_WITHOUT_EXPERT = ("click-checkboxes-soft", "click-pie")

# Tasks with both outcomes in a group of four attempts at one of two training seeds, sampled at
# temperature 1.3 after two epochs of BC. Tasks above 80 % and one of two similar email tasks are
# left out, so that each task has several groups.
_GRPO_TASKS = (
    "choose-date-medium",
    "click-collapsible-2",
    "click-shape",
    "click-tab-2",
    "count-shape",
    "email-inbox-forward-nl",
    "email-inbox-nl-turk",
    "identify-shape",
    "search-engine",
    "social-media",
    "social-media-some",
    "use-autocomplete",
)

# Tasks on which BC fails with some or all training seeds; these have the fewest tokens per episode.
_SHORT_TASKS = (
    "click-dialog-2",
    "click-shape",
    "count-shape",
    "enter-time",
    "identify-shape",
    "use-autocomplete",
)
_LONGER_TASKS = (
    "click-collapsible-2",
    "click-shades",
    "click-tab-2-hard",
    "enter-password",
    "login-user-popup",
    "tic-tac-toe",
)

# Of 37 tasks with short prompts, those with both outcomes in four attempts (two at each of two
# training seeds), sampled from `smollm2-135m-arena` at temperature 1.3.
_AFTER_ARENA_TASKS = (
    "choose-list",
    "click-button-sequence",
    "click-checkboxes",
    "click-collapsible-2",
    "click-menu",
    "click-scroll-list",
    "click-shape",
    "click-widget",
    "enter-date",
    "enter-password",
    "identify-shape",
    "login-user-popup",
    "use-autocomplete",
)

_ALL_TASKS = RunConfig(
    policy=PolicyConfig(path="smollm2-135m"),
    # BC teaches the grammar, and short prompts train faster.
    prompt=PromptConfig(template="compact"),
    lora=LoRAConfig(rank=16, alpha=32.0),
    mesh=MeshConfig(microbatch_rows_per_device=1),
    suite=SuiteConfig(tasks=(*_BC_TASKS, *_LONG_TASKS, *_TASKS_WITHOUT_EXPERT)),
    engine=EngineConfig(slots=16, max_model_len=1_536, steps_per_dispatch=4),
    rollout=RolloutConfig(
        max_concurrent_episodes=16, max_turns=16, max_new_tokens=128, episode_timeout=900.0
    ),
    bc=BCConfig(
        demos_per_task=48,
        epochs=1,
        batch_episodes=4,
        row_tokens=1_536,
        held_out_demos=60,
        eval_interval=100,
        eval_episodes=0,
        eval_decisions=60,
        checkpoint_interval=25,
        optimizer=OptimizerConfig(
            learning_rate=1e-3, schedule="cosine", warmup_fraction=0.05, max_grad_norm=1.0
        ),
    ),
    grpo=GRPOConfig(
        updates=12,
        tasks_per_update=12,
        group_size=8,
        # BC succeeds or fails in all attempts of a group on two thirds of the tasks.
        task_sampling="adaptive",
        minibatches=3,
        max_extra_groups=4,
        kl_beta=0.0,  # no pass over a reference policy
        row_tokens=1_536,
        optimizer=OptimizerConfig(
            learning_rate=4e-4, schedule="cosine", warmup_fraction=0.1, max_grad_norm=1.0
        ),
    ),
    eval=EvalConfig(seeds_per_task=5, temperature=1.0, max_turns=(16,)),
)

_BC = replace(_ALL_TASKS, suite=replace(_ALL_TASKS.suite, tasks=_BC_TASKS))

_GRPO = replace(
    _BC,
    policy=PolicyConfig(path="smollm2-135m-miniwob"),
    # The adapter continues, so that its rank stays 16.
    lora=replace(_BC.lora, create_new_adapter=False),
    suite=SuiteConfig(tasks=_GRPO_TASKS),
    # Decisions are nearly certain at temperature 1: few groups have both outcomes.
    rollout=replace(_BC.rollout, max_turns=8, temperature=1.3),
    grpo=replace(
        _BC.grpo,
        updates=14,
        task_sampling="uniform",
        truncated_episodes="zero",
        # At 3e-4 there is no gain either (docs/results.md).
        optimizer=OptimizerConfig(learning_rate=2e-4, warmup_fraction=0.05, max_grad_norm=1.0),
    ),
)

_SHORT_BC = replace(
    _ALL_TASKS,
    policy=PolicyConfig(path="smollm2-135m-miniwob"),
    suite=SuiteConfig(tasks=tuple(sorted((*_SHORT_TASKS, *_LONGER_TASKS)))),
    rollout=replace(_ALL_TASKS.rollout, max_turns=8),
    bc=replace(
        _ALL_TASKS.bc,
        demos_per_task=30,
        held_out_demos=0,
        eval_decisions=0,
        eval_interval=40,
        eval_episodes=48,
        checkpoint_interval=20,
        optimizer=replace(_ALL_TASKS.bc.optimizer, learning_rate=5e-4),
    ),
)

_SHORT_GRPO = replace(
    _SHORT_BC,
    # Policy of `:short_bc`, after its command in docs/results.md.
    policy=PolicyConfig(path="runs/miniwob_short/bc/policy"),
    suite=SuiteConfig(tasks=_SHORT_TASKS),
    # Decisions are nearly certain at temperature 1: few groups have both outcomes.
    rollout=replace(_SHORT_BC.rollout, max_turns=4, temperature=1.4),
    grpo=replace(
        _ALL_TASKS.grpo,
        updates=14,
        tasks_per_update=9,
        max_extra_groups=3,
        task_sampling="uniform",
        minibatches=2,
        optimizer=OptimizerConfig(learning_rate=4e-4, warmup_fraction=0.05, max_grad_norm=1.0),
    ),
    eval=replace(_ALL_TASKS.eval, seeds_per_task=34, max_turns=(4,)),
)

_AFTER_ARENA_GRPO = replace(
    _SHORT_GRPO,
    policy=PolicyConfig(path="smollm2-135m-arena"),
    # The adapter continues, so that its rank stays 16.
    lora=replace(_SHORT_GRPO.lora, create_new_adapter=False),
    suite=SuiteConfig(tasks=_AFTER_ARENA_TASKS),
    rollout=replace(_SHORT_GRPO.rollout, max_turns=8, temperature=1.0),
    grpo=replace(
        _SHORT_GRPO.grpo,
        updates=16,
        tasks_per_update=13,
        max_extra_groups=5,
        truncated_episodes="zero",
        # At 4e-4, greedy success falls (docs/lab_log.md).
        optimizer=replace(_SHORT_GRPO.grpo.optimizer, learning_rate=2e-4),
    ),
    eval=replace(_SHORT_GRPO.eval, seeds_per_task=16, max_turns=(8,)),
)

_ALL_TASKS_GRPO = replace(
    _ALL_TASKS,
    policy=PolicyConfig(path="smollm2-135m-miniwob", dtype="bfloat16"),
    # The adapter continues, so that its rank stays 16.
    lora=replace(_ALL_TASKS.lora, create_new_adapter=False),
    mesh=MeshConfig(microbatch_rows_per_device=8),
    browser=BrowserConfig(num_processes=8, worker_type="process"),
    engine=replace(_ALL_TASKS.engine, slots=96, num_speculative_tokens=3),
    rollout=replace(
        _ALL_TASKS.rollout, max_concurrent_episodes=128, temperature=1.2, episode_timeout=300.0
    ),
    grpo=replace(
        _ALL_TASKS.grpo,
        updates=40,
        # About two groups per task and update, so that a task is trained on several instances.
        tasks_per_update=48,
        max_extra_groups=16,
        minibatches=4,
        max_staleness=1,
        truncated_episodes="zero",
        optimizer=replace(_ALL_TASKS.grpo.optimizer, learning_rate=3e-4, warmup_fraction=0.02),
    ),
)

# The options of configs/quickstart.py, except for longer episodes and more groups per update.
_TINY = RunConfig(
    suite=SuiteConfig(tasks=_BC_TASKS),
    engine=EngineConfig(slots=16, max_model_len=1_536),
    rollout=RolloutConfig(
        max_concurrent_episodes=16, max_turns=12, max_new_tokens=96, temperature=1.3
    ),
    bc=BCConfig(
        demos_per_task=1,
        epochs=40,
        batch_episodes=4,
        row_tokens=1_536,
        eval_interval=100,
        eval_episodes=100,
        optimizer=OptimizerConfig(
            learning_rate=5e-4, schedule="cosine", warmup_fraction=0.05, max_grad_norm=1.0
        ),
    ),
    grpo=GRPOConfig(
        updates=24,
        tasks_per_update=32,
        group_size=8,
        # BC fails in all attempts on many tasks.
        task_sampling="adaptive",
        minibatches=4,
        max_extra_groups=16,
        kl_beta=0.001,
        row_tokens=1_536,
        optimizer=OptimizerConfig(learning_rate=5e-4, warmup_fraction=0.2, max_grad_norm=1.0),
    ),
    eval=EvalConfig(seeds_per_task=10, temperature=1.0, max_turns=(12,)),
)

_VARIANTS = {
    "": _ALL_TASKS,
    "all_tasks_grpo": _ALL_TASKS_GRPO,
    "bc": _BC,
    "grpo": _GRPO,
    "short_bc": _SHORT_BC,
    "short_grpo": _SHORT_GRPO,
    "after_arena_grpo": _AFTER_ARENA_GRPO,
    "tiny": _TINY,
}


def get_config(variant: str = "") -> RunConfig:
    """Return the config of a variant; ConfigError lists the variants if it is unknown."""
    return config.get_variant(_VARIANTS, variant)
