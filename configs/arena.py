r"""Small run on the embedded arena: webagent-tiny on five sites, BC and M-GRPO.

BC trains on expert demonstrations of 1,000 generated tasks, M-GRPO on other generated tasks. Each
stage is evaluated on the 165 test tasks, sampled as in training; no generated task is a test task.
The success of webagent-tiny is near zero (docs/results.md): the config is for policies that can
read pages of this size. Hardware: two CPU cores.

    webagent collect --config=arena --workdir=runs/arena/bc
    webagent train bc --config=arena --workdir=runs/arena/bc
    webagent train grpo --config=arena --workdir=runs/arena/grpo \
        --config.policy.path=runs/arena/bc/policy --config.suite.arena.task_seed=1
    webagent evaluate --config=arena --workdir=runs/arena/eval \
        --config.policy.path=runs/arena/grpo/policy

`:smollm2` evaluates SmolLM2-135M-Instruct with the adapter in the package, `smollm2-135m-arena`,
and continues its training; the thoughts of experts restate the task. The adapter was trained from
`smollm2-135m-miniwob` (before commit b20f94c) in four stages of BC on different tasks: first
turns, so that it learns to base actions on the task; the first and two other turns; complete
demonstrations; and 7,423 more. Results: docs/results.md. --config.policy.matmul_dtype=bfloat16
is faster on CPUs with AVX512-BF16, --config.policy.dtype=bfloat16 on GPUs and TPUs.

    webagent evaluate --config=arena:smollm2 --workdir=runs/arena_eval

    webagent train bc --config=arena:first_turns --workdir=runs/arena_first
    webagent train bc --config=arena:three_turns --workdir=runs/arena_three
    webagent train bc --config=arena:all_turns --workdir=runs/arena_all
    webagent evaluate --config=arena:smollm2 --workdir=runs/arena_all/eval \
        --config.policy.path=runs/arena_all/policy

The last stage needs an accelerator. Its demonstrations are collected in four parts, which also
several machines can do:

    webagent export --input=runs/arena_all --output_dir=runs/arena_all/rank16 --adapter \
        --max_rank=16 --dtype=bfloat16
    for seed in 11 12 13 14; do
        webagent collect --config=arena:many_demos --config.suite.arena.task_seed=$seed \
            --workdir=runs/demos$seed
    done
    webagent import demos --workdir=runs/arena_many \
        --merge=runs/demos11,runs/demos12,runs/demos13,runs/demos14
    webagent train bc --config=arena:many_demos --workdir=runs/arena_many

`:short_bc` trains the adapter of the third stage on 22 templates with short episodes until
validation success is flat. `:short_grpo` is M-GRPO from there. Task seed 7 has other tasks, for
evaluation. The adapter is the result of `webagent export` above; without the stages, take it from
the history of the repository:

    mkdir -p runs/arena_all/rank16
    git archive 7cc3af8:webagent_jax/policy/adapters/smollm2-135m-arena | \
        tar -x -C runs/arena_all/rank16
    webagent train bc --config=arena:short_bc --workdir=runs/arena_short/bc
    webagent train grpo --config=arena:short_grpo --workdir=runs/arena_short/grpo
    webagent evaluate --config=arena:short_grpo --workdir=runs/arena_short/eval \
        --config.policy.path=runs/arena_short/grpo/policy \
        --config.suite.arena.task_seed=7 --config.suite.arena.num_generated_tasks=2200

`:few_demos_bc` is BC on 24 of these demonstrations, which leaves headroom for M-GRPO.
`:few_demos_grpo` is M-GRPO from there on eight templates that BC sometimes solves.

    webagent train bc --config=arena:few_demos_bc --workdir=runs/arena_few/bc
    webagent train grpo --config=arena:few_demos_grpo --workdir=runs/arena_few/grpo
    webagent evaluate --config=arena:few_demos_grpo --workdir=runs/arena_few/eval \
        --config.policy.path=runs/arena_few/grpo/policy \
        --config.suite.arena.task_seed=7 --config.suite.arena.num_generated_tasks=6500

`:few_demos_adaptive_grpo` is M-GRPO from there on all 22 templates, without this selection; it
samples tasks adaptively, because BC solves some templates always and others never. Train BC longer
first: with greedy decoding, 60 more updates gain as much as this run.

    webagent train grpo --config=arena:few_demos_adaptive_grpo --workdir=runs/arena_few/adaptive
    webagent evaluate --config=arena:few_demos_adaptive_grpo --workdir=runs/arena_few/eval_all \
        --config.policy.path=runs/arena_few/adaptive/policy \
        --config.suite.arena.task_seed=7 --config.suite.arena.num_generated_tasks=3000

`:test_templates_bc` is BC on 448 demonstrations of the templates of the test tasks, from the same
adapter, and `:test_templates_grpo` is M-GRPO from there. Both need an accelerator and, for its
throughput, `--config.browser.num_processes=8`. On machines with many cores,
`--config.browser.worker_type=process` runs the worker of each Chromium in a process of its own.

    webagent train bc --config=arena:test_templates_bc --workdir=runs/arena_test_templates/bc
    webagent train grpo --config=arena:test_templates_grpo --workdir=runs/arena_test_templates/grpo
"""

from __future__ import annotations

from dataclasses import replace

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
    PromptConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
)

_ARENA = RunConfig(
    mesh=MeshConfig(microbatch_rows_per_device=2),
    suite=SuiteConfig(
        name="arena",
        train_seeds_per_task=1,
        arena=ArenaConfig(task_seed=0, num_generated_tasks=1_000),
    ),
    # Limits that fit 240 demonstrations of generated tasks. Tokens of their longest prompts: median
    # 655, 99th percentile 1,210, maximum 1,323; of their longest responses: 66, 141 and 166. Limits
    # of 1,024 and 96 tokens exclude the prompts of 29 and the responses of 25.
    engine=EngineConfig(slots=16, max_model_len=1_536),
    rollout=RolloutConfig(
        max_concurrent_episodes=12, max_turns=16, max_new_tokens=192, episode_timeout=600.0
    ),
    bc=BCConfig(
        demos_per_task=1,
        epochs=4,
        # Small batches: to learn element references, steps matter more than tokens per step.
        batch_episodes=2,
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
        max_extra_groups=12,
        row_tokens=1_536,
        optimizer=OptimizerConfig(learning_rate=3e-4, warmup_fraction=0.2, max_grad_norm=1.0),
    ),
    # Sampling as in training, because M-GRPO improves the sampled policy.
    eval=EvalConfig(seeds_per_task=1, temperature=1.0, max_turns=(16,)),
)


# Adapters make an update a third shorter than full training, and the result a few MB. Prompts of
# 200 demonstrations have 769 tokens in the median and 1,691 at most, responses 77 and 153.
_SMOLLM2 = replace(
    _ARENA,
    policy=PolicyConfig(path="smollm2-135m-arena"),
    # BC teaches the grammar, and short prompts train faster.
    prompt=PromptConfig(template="compact"),
    lora=LoRAConfig(rank=16, alpha=32.0),
    mesh=MeshConfig(microbatch_rows_per_device=1),
    engine=replace(_ARENA.engine, max_model_len=2_048, steps_per_dispatch=4),
    rollout=replace(_ARENA.rollout, max_new_tokens=224),
    bc=replace(
        _ARENA.bc,
        expert_thoughts="restate",
        batch_episodes=4,
        row_tokens=2_048,
        held_out_demos=60,
        eval_interval=100,
        eval_episodes=0,
        checkpoint_interval=25,
    ),
    grpo=replace(_ARENA.grpo, row_tokens=2_048),
)

# On a CPU, token throughput is the bottleneck: first turns have the shortest prompts.
_FIRST_TURNS = replace(
    _SMOLLM2,
    policy=PolicyConfig(path="smollm2-135m-miniwob"),
    suite=replace(_SMOLLM2.suite, arena=replace(_SMOLLM2.suite.arena, num_generated_tasks=1_400)),
    bc=replace(
        _SMOLLM2.bc,
        epochs=1,
        batch_episodes=5,
        turns_per_demo=1,
        held_out_demos=650,
        eval_decisions=96,
        eval_interval=150,
    ),
)

# Experts make mistakes and correct them, because the policy will make some too.
_THREE_TURNS = replace(
    _FIRST_TURNS,
    # Adapter of `:first_turns`, after its command above.
    policy=PolicyConfig(path="runs/arena_first/adapter"),
    suite=replace(
        _SMOLLM2.suite,
        arena=replace(_SMOLLM2.suite.arena, task_seed=2, num_generated_tasks=1_380),
    ),
    bc=replace(
        _FIRST_TURNS.bc,
        mistake_rate=0.15,
        batch_episodes=3,
        turns_per_demo=3,
        held_out_demos=120,
        eval_interval=210,
        checkpoint_interval=20,
    ),
)

# The turns of a complete demonstration share more tokens; five of six are not first turns.
_ALL_TURNS = replace(
    _THREE_TURNS,
    policy=PolicyConfig(path="runs/arena_three/adapter"),
    suite=replace(
        _THREE_TURNS.suite,
        arena=replace(_THREE_TURNS.suite.arena, task_seed=3, num_generated_tasks=1_100),
    ),
    bc=replace(_THREE_TURNS.bc, turns_per_demo=0, held_out_demos=200, eval_interval=150),
)

# Two epochs of 7,423 demonstrations; the earlier stages have about 2,870 in total.
_MANY_DEMOS = replace(
    _ALL_TURNS,
    # Output of `webagent export` above.
    policy=PolicyConfig(path="runs/arena_all/rank16", dtype="bfloat16"),
    # The adapter in the package is this one, so it keeps its rank.
    lora=replace(_ALL_TURNS.lora, create_new_adapter=False),
    mesh=MeshConfig(microbatch_rows_per_device=8),
    suite=replace(
        _ALL_TURNS.suite,
        arena=replace(_ALL_TURNS.suite.arena, task_seed=11, num_generated_tasks=2_000),
    ),
    bc=replace(
        _ALL_TURNS.bc,
        epochs=2,
        batch_episodes=8,
        eval_decisions=128,
        eval_interval=900,
        checkpoint_interval=500,
    ),
)

# Templates with the fewest tokens per episode: experts solve them in two or three actions, on pages
# of up to 310 tokens. Those with few tasks are left out.
_SHORT_TEMPLATES = (
    "admin/no-such-customer",
    "admin/no-such-order",
    "code/clone-address",
    "forum/points",
    "map/address",
    "map/coordinates",
    "map/hours",
    "map/list-in-town",
    "map/no-phone",
    "map/phone",
    "map/place-missing",
    "shop/category",
    "shop/latest-reviewer",
    "shop/material",
    "shop/price",
    "shop/price-difference",
    "shop/product",
    "shop/product-missing",
    "shop/recent-order",
    "shop/search",
    "shop/search-sorted",
    "shop/sku",
)

_SHORT_BC = replace(
    _SMOLLM2,
    # Output of `webagent export` above; the adapter in the package solves most of these tasks.
    policy=PolicyConfig(path="runs/arena_all/rank16"),
    lora=replace(_SMOLLM2.lora, create_new_adapter=False),
    suite=replace(
        _SMOLLM2.suite,
        tasks=_SHORT_TEMPLATES,
        # All templates together; about 350 tasks are those of the short ones.
        arena=replace(_SMOLLM2.suite.arena, task_seed=5, num_generated_tasks=4_000),
    ),
    rollout=replace(_SMOLLM2.rollout, max_concurrent_episodes=16, max_turns=6),
    bc=replace(
        _SMOLLM2.bc,
        epochs=1,
        held_out_demos=0,
        eval_decisions=0,
        eval_interval=20,
        eval_episodes=48,
        checkpoint_interval=10,
        optimizer=replace(_SMOLLM2.bc.optimizer, learning_rate=5e-4),
    ),
    eval=EvalConfig(split="train", seeds_per_task=1, temperature=1.0, max_turns=(6,)),
)

_SHORT_GRPO = replace(
    _SHORT_BC,
    # Adapter of `:short_bc`, after its command above.
    policy=PolicyConfig(path="runs/arena_short/bc/adapter"),
    suite=replace(_SHORT_BC.suite, arena=replace(_SHORT_BC.suite.arena, task_seed=6)),
    # At temperature 1.2 and learning rate 3e-4, responses degrade after five updates. The longest
    # response of 174 demonstrations has 88 tokens. More episodes than slots keep them occupied.
    rollout=replace(_SHORT_BC.rollout, max_new_tokens=112, max_concurrent_episodes=32),
    grpo=replace(
        _SMOLLM2.grpo,
        updates=12,
        tasks_per_update=6,
        group_size=8,
        max_extra_groups=3,
        minibatches=2,
        kl_beta=0.0,  # no pass over a reference policy
        optimizer=OptimizerConfig(learning_rate=1.5e-4, warmup_fraction=0.05, max_grad_norm=1.0),
    ),
)

# About one demonstration per template, many epochs: validation success is flat at the end.
_FEW_DEMOS_BC = replace(_SHORT_BC, bc=replace(_SHORT_BC.bc, epochs=10, held_out_demos=276))

# Templates with groups of both outcomes and less than 77 % success in M-GRPO from `:few_demos_bc`
# on all 22 (docs/lab_log.md), and with 20 tasks or more. M-GRPO needs several groups of each.
_FEW_DEMOS_GRPO = replace(
    _SHORT_GRPO,
    # Adapter of `:few_demos_bc`, after its command above.
    policy=PolicyConfig(path="runs/arena_few/bc/adapter"),
    suite=replace(
        _SHORT_GRPO.suite,
        tasks=(
            "forum/points",
            "map/coordinates",
            "map/hours",
            "shop/category",
            "shop/latest-reviewer",
            "shop/material",
            "shop/price",
            "shop/search",
        ),
        # 33 of each template.
        arena=replace(_SHORT_GRPO.suite.arena, num_generated_tasks=8_000),
    ),
    grpo=replace(
        _SHORT_GRPO.grpo,
        updates=16,
        truncated_episodes="zero",
        optimizer=replace(_SHORT_GRPO.grpo.optimizer, learning_rate=2e-4),
    ),
)

# An update has up to 9 groups: in 18 updates about 7 of each template, more of those with signal.
_FEW_DEMOS_ADAPTIVE_GRPO = replace(
    _FEW_DEMOS_GRPO,
    suite=replace(_FEW_DEMOS_GRPO.suite, tasks=_SHORT_TEMPLATES),
    grpo=replace(_FEW_DEMOS_GRPO.grpo, updates=18, task_sampling="adaptive"),
)

# Three or four demonstrations of each template of the test tasks, which leaves room for M-GRPO.
_TEST_TEMPLATES_BC = replace(
    _SMOLLM2,
    # Output of `webagent export` above.
    policy=PolicyConfig(path="runs/arena_all/rank16", dtype="bfloat16"),
    lora=replace(_SMOLLM2.lora, create_new_adapter=False),
    mesh=MeshConfig(microbatch_rows_per_device=4),
    suite=replace(
        _SMOLLM2.suite,
        arena=ArenaConfig(task_seed=5, num_generated_tasks=512, test_templates_only=True),
    ),
    bc=replace(
        _SMOLLM2.bc,
        epochs=6,
        held_out_demos=0,
        eval_decisions=64,
        eval_interval=180,
        eval_episodes=64,
        checkpoint_interval=180,
        optimizer=replace(_SMOLLM2.bc.optimizer, learning_rate=5e-4),
    ),
)

_TEST_TEMPLATES_GRPO = replace(
    _TEST_TEMPLATES_BC,
    # Adapter of `:test_templates_bc`, after its command above.
    policy=PolicyConfig(path="runs/arena_test_templates/bc/adapter", dtype="bfloat16"),
    mesh=MeshConfig(microbatch_rows_per_device=8),
    engine=replace(_SMOLLM2.engine, slots=96, num_speculative_tokens=3),
    # `many_demos` solves no task across sites.
    suite=replace(
        _TEST_TEMPLATES_BC.suite,
        tasks=("shop", "admin", "code", "map", "forum"),
        arena=replace(_TEST_TEMPLATES_BC.suite.arena, task_seed=6, num_generated_tasks=1_500),
    ),
    rollout=replace(_SMOLLM2.rollout, max_concurrent_episodes=128),
    grpo=replace(
        _FEW_DEMOS_GRPO.grpo,
        updates=40,
        tasks_per_update=16,
        max_extra_groups=8,
        minibatches=4,
        max_staleness=1,
        optimizer=replace(_FEW_DEMOS_GRPO.grpo.optimizer, warmup_fraction=0.02),
    ),
)

_VARIANTS = {
    "": _ARENA,
    "smollm2": _SMOLLM2,
    "first_turns": _FIRST_TURNS,
    "three_turns": _THREE_TURNS,
    "all_turns": _ALL_TURNS,
    "many_demos": _MANY_DEMOS,
    "short_bc": _SHORT_BC,
    "short_grpo": _SHORT_GRPO,
    "few_demos_bc": _FEW_DEMOS_BC,
    "few_demos_grpo": _FEW_DEMOS_GRPO,
    "few_demos_adaptive_grpo": _FEW_DEMOS_ADAPTIVE_GRPO,
    "test_templates_bc": _TEST_TEMPLATES_BC,
    "test_templates_grpo": _TEST_TEMPLATES_GRPO,
}


def get_config(variant: str = "") -> RunConfig:
    """Return the config of a variant; ConfigError lists the variants if it is unknown."""
    return config.get_variant(_VARIANTS, variant)
