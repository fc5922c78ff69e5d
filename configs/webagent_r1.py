r"""Configurations of WebAgent-R1 (arXiv 2505.16421) on WebArena-Lite: R1, R1-Zero and R1-CoT.

| variant | initialization of M-GRPO | default policy.path |
|---|---|---|
| `:r1` | instruct model, then BC on the demonstrations of WebRL | runs/r1/bc/policy |
| `:cot` | instruct model, then BC on demonstrations with long thoughts | runs/cot/bc/policy |
| `:zero` | instruct model | weights/Qwen2.5-3B-Instruct |

The model is Qwen2.5-3B-Instruct; `:llama-3.1-8b-r1`, `:llama-3.1-8b-cot` and `:llama-3.1-8b-zero`
use Llama-3.1-8B-Instruct. All variants use the thinking prompt and train all params, in float32
with bfloat16 activations. You provide sites and task files (docs/webarena.md); without a judge
(suite.webarena.judge) 56 of the 165 test tasks are skipped, and training tasks of that kind.
Hardware and memory: docs/sizing.md.

    hf download Qwen/Qwen2.5-3B-Instruct --local-dir weights/Qwen2.5-3B-Instruct

Values from the paper:

- BC: learning rate 5e-5 (cosine, 5 % warmup), 128 (h, a) pairs per update.
- M-GRPO: learning rate 1e-6, 16 tasks per update, clip 0.2, KL 0.001, temperature 1, top-p 1,
  16,384 tokens of context, 1,024 new tokens per turn.

Values from its code: groups of 4 without replacement, 40 updates (one epoch of 647 tasks), up to 15
turns in training and 30 in evaluation, gradient norm clipped at 0.01.

R1. Download `web_policy_sft.json` from THUDM/WebRL, folder LLaMA-Factory/data:

    webagent import demos --webrl=web_policy_sft.json --workdir=runs/r1/bc
    webagent train bc --config=webagent_r1:r1 --workdir=runs/r1/bc \
        --config.policy.path=weights/Qwen2.5-3B-Instruct
    webagent train grpo --config=webagent_r1:r1 --workdir=runs/r1/grpo

R1-CoT. In the paper QwQ-32B writes the thoughts, but the file is not published. Create
`cot_sft.json` in the format of WebRL, with responses `<think> long thought </think> <answer>
do(...) </answer>`:

    webagent import demos --webrl=cot_sft.json --workdir=runs/cot/bc
    webagent train bc --config=webagent_r1:cot --workdir=runs/cot/bc \
        --config.policy.path=weights/Qwen2.5-3B-Instruct
    webagent train grpo --config=webagent_r1:cot --workdir=runs/cot/grpo

R1-Zero:

    webagent train grpo --config=webagent_r1:zero --workdir=runs/zero/grpo

Instead of `webagent import demos`, `webagent collect --demo_source=policy` collects demonstrations
of a model behind a chat endpoint (docs/chat_endpoints.md).

Evaluation of runs/r1/grpo/policy (and of runs/r1/bc/policy, runs/cot, runs/zero in the same way):
greedy, and sampled as published (temperature 1, top-p 0.9, 2,048 new tokens, stop after 5 identical
or unparsable responses in a row):

    webagent evaluate --config=webagent_r1:r1 --workdir=runs/r1/greedy \
        --config.policy.path=runs/r1/grpo/policy
    webagent evaluate --config=webagent_r1:r1 --workdir=runs/r1/published \
        --config.policy.path=runs/r1/grpo/policy --config.eval.temperature=1 \
        --config.eval.top_p=0.9 --config.eval.max_new_tokens=2048 --config.eval.max_repeats=5

The paper reports these success rates before and after M-GRPO with Qwen2.5-3B: R1-Zero 6.1 -> 4.8 %,
R1-CoT 24.5 -> 30.3 %, R1 20.0 -> 33.9 %. R1 with Llama-3.1-8B, which starts from the checkpoint of
WebRL, reaches 44.8 %. This project has not run these configurations.
"""

from __future__ import annotations

from webagent_jax import config
from webagent_jax.config import (
    BCConfig,
    BrowserConfig,
    EngineConfig,
    EvalConfig,
    GRPOConfig,
    MeshConfig,
    OptimizerConfig,
    PolicyConfig,
    PromptConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
    WebArenaConfig,
)

# Path, size of the tensor axis, KV cache in MiB (docs/sizing.md).
_MODELS = {
    "": ("weights/Qwen2.5-3B-Instruct", 2, 4_608),
    "llama-3.1-8b-": ("weights/Llama-3.1-8B-Instruct", 1, 0),
}
_VARIANTS = {
    f"{prefix}{kind}": (model, kind)
    for prefix, model in _MODELS.items()
    for kind in ("r1", "cot", "zero")
}
_CONTEXT = 16_384


def get_config(variant: str = "r1") -> RunConfig:
    """Return the config of a variant; ConfigError lists the variants if it is unknown."""
    (weights, tensor, cache_mib), kind = config.get_variant(_VARIANTS, variant)
    # r1 and cot start M-GRPO from the policy of BC; M-GRPO without BC is R1-Zero.
    path = weights if kind == "zero" else f"runs/{variant}/bc/policy"
    return RunConfig(
        policy=PolicyConfig(path=path, dtype="bfloat16", remat="full"),
        mesh=MeshConfig(fsdp=-1, tensor=tensor, microbatch_rows_per_device=1),
        prompt=PromptConfig(template="webarena", thinking=True),
        # Real sites are slow and have long pages: 7,300 tokens or more on GitLab.
        browser=BrowserConfig(
            num_processes=4,
            observation_format="webarena_lite",
            max_observation_chars=24_000,
            call_timeout=30.0,
            navigation_timeout=60.0,
            settle_timeout=5.0,
        ),
        suite=SuiteConfig(
            name="webarena_lite",
            train_seeds_per_task=1,
            webarena=WebArenaConfig(
                train_file="tasks/train_webarena_lite.raw.json",
                test_file="tasks/test_webarena_lite.raw.json",
            ),
        ),
        engine=EngineConfig(slots=8, max_model_len=_CONTEXT, kv_cache_mib=cache_mib),
        rollout=RolloutConfig(
            max_concurrent_episodes=64,
            max_turns=15,
            max_new_tokens=1_024,
            episode_timeout=1_800.0,
        ),
        bc=BCConfig(
            demos_per_task=1,
            epochs=1,
            # 128 (h, a) pairs, as the 1,124 trajectories of WebRL have 8.4 turns each. An epoch
            # has 75 updates.
            batch_episodes=15,
            row_tokens=_CONTEXT,
            optimizer=OptimizerConfig(learning_rate=5e-5, schedule="cosine", warmup_fraction=0.05),
        ),
        grpo=GRPOConfig(
            updates=40,
            tasks_per_update=16,
            group_size=4,
            kl_beta=0.001,
            filter_groups=False,
            row_tokens=_CONTEXT,
            checkpoint_interval=5,  # params and both moments, 12 bytes per param
            optimizer=OptimizerConfig(learning_rate=1e-6, max_grad_norm=0.01),
        ),
        eval=EvalConfig(seeds_per_task=1, max_turns=(30,)),
    )
