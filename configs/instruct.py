r"""Any instruct model on the embedded arena (`:arena`) or on MiniWoB++ (`:miniwob`).

`policy.path` is a Hub id or directory of a Llama 3, Qwen2.5 or Qwen3 model, from 0.5B to 8B. The
prompt describes the actions (prompt.template=auto selects it), so M-GRPO also runs without BC:

    MODEL=Qwen/Qwen2.5-0.5B-Instruct
    webagent evaluate --config=instruct:arena --workdir=runs/instruct/base \
        --config.policy.path=$MODEL
    webagent train bc --config=instruct:arena --workdir=runs/instruct/bc \
        --config.policy.path=$MODEL
    webagent train grpo --config=instruct:arena --workdir=runs/instruct/grpo \
        --config.policy.path=runs/instruct/bc/policy --config.suite.arena.task_seed=1
    webagent evaluate --config=instruct:arena --workdir=runs/instruct/eval \
        --config.policy.path=runs/instruct/grpo/policy

On MiniWoB++, omit suite.arena.task_seed. The learning rates are those of the paper, for training of
all params. With adapters, use ten times the rates:

    --config.lora.rank=32 --config.bc.optimizer.learning_rate=5e-4 \
        --config.grpo.optimizer.learning_rate=1e-5

docs/recipes.md has the mesh, the memory and the expected hours by model and hardware. This project
has run neither variant.
"""

from __future__ import annotations

from webagent_jax import config
from webagent_jax.config import (
    ArenaConfig,
    BCConfig,
    BrowserConfig,
    EngineConfig,
    EvalConfig,
    GRPOConfig,
    MeshConfig,
    OptimizerConfig,
    PolicyConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
)
from webagent_jax.suites.miniwob_experts import EXPERTS

_SUITES = {
    "arena": SuiteConfig(
        name="arena",
        train_seeds_per_task=1,
        arena=ArenaConfig(task_seed=0, num_generated_tasks=1_000),
    ),
    # The tasks with an expert, which BC needs.
    "miniwob": SuiteConfig(name="miniwob", tasks=tuple(EXPERTS)),
}
# Tokens of prompt and response, tokens of a response, turns, demonstrations and evaluations per
# name. Prompts of 200 demonstrations of the arena have 1,691 tokens of SmolLM2 at most with the
# compact template; the template `webarena` adds 250.
_LIMITS = {"arena": (4_096, 512, 16, 1, 1), "miniwob": (2_048, 256, 10, 4, 5)}


def get_config(variant: str = "arena") -> RunConfig:
    """Return the config of a variant; ConfigError lists the variants if it is unknown."""
    suite = config.get_variant(_SUITES, variant)
    context, response, max_turns, demos_per_task, seeds_per_task = _LIMITS[variant]
    return RunConfig(
        policy=PolicyConfig(path="Qwen/Qwen2.5-0.5B-Instruct", dtype="bfloat16", remat="full"),
        mesh=MeshConfig(fsdp=-1, microbatch_rows_per_device=1),
        # The experts, which demonstrate for BC, read compact observations.
        browser=BrowserConfig(num_processes=4),
        suite=suite,
        engine=EngineConfig(slots=16, max_model_len=context),
        rollout=RolloutConfig(
            max_concurrent_episodes=64,
            max_turns=max_turns,
            max_new_tokens=response,
            episode_timeout=900.0,
        ),
        bc=BCConfig(
            demos_per_task=demos_per_task,
            # Thoughts of MiniWoB++ experts quote the task where a step needs it.
            expert_thoughts="restate" if variant == "arena" else "short",
            epochs=2,
            batch_episodes=16,
            row_tokens=context,
            optimizer=OptimizerConfig(learning_rate=5e-5, schedule="cosine", warmup_fraction=0.05),
        ),
        grpo=GRPOConfig(
            updates=100,
            tasks_per_update=16,
            group_size=8,
            row_tokens=context,
            checkpoint_interval=5,  # params and both moments, 12 bytes per param
            optimizer=OptimizerConfig(learning_rate=1e-6, warmup_fraction=0.05),
        ),
        # Sampling as in training, because M-GRPO improves the sampled policy.
        eval=EvalConfig(seeds_per_task=seeds_per_task, temperature=1.0, max_turns=(max_turns,)),
    )
