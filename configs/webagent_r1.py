"""The recipes of WebAgent-R1 (arXiv 2505.16421) on WebArena-Lite: R1, R1-Zero and R1-CoT.

| variant | initialization of M-GRPO | policy.path by default |
|---|---|---|
| `:r1` | instruct model, then BC on WebRL's demonstrations | runs/r1/bc/policy |
| `:cot` | instruct model, then BC on demonstrations with long thoughts | runs/cot/bc/policy |
| `:zero` | instruct model | weights/Qwen2.5-3B-Instruct |

The model is Qwen2.5-3B-Instruct; `:llama-3.1-8b-r1`, `:llama-3.1-8b-cot` and `:llama-3.1-8b-zero`
take Llama-3.1-8B-Instruct. Instruct models lie in weights/. All variants use the thinking prompt.
Everything is trained, in float32 with bfloat16 activations. Sites and task files are your own, see
docs/webarena.md; without a judge (suite.webarena.judge) 40 of the 165 test tasks are left out.
Hardware and memory: docs/recipes.md.

From the paper: BC at 5e-5 (cosine, 5 % warm-up) with 128 (h, a) pairs per update; M-GRPO with
learning rate 1e-6, 16 tasks per update, clip 0.2, KL 0.001, temperature 1 and top-p 1, 16,384
tokens of context, 1,024 new tokens per turn. From its code: groups of 4, none of them replaced, 40
updates (one epoch of 647 tasks), up to 15 turns in training and 30 in evaluation, gradient norm
clipped at 0.01.

R1. `web_policy_sft.json` lies in THUDM/WebRL under LLaMA-Factory/data:

    python launch/import_demos.py --webrl=web_policy_sft.json --workdir=runs/r1/bc
    python launch/train_bc.py --config=configs/webagent_r1.py:r1 --workdir=runs/r1/bc \\
        --config.policy.path=weights/Qwen2.5-3B-Instruct
    python launch/train_grpo.py --config=configs/webagent_r1.py:r1 --workdir=runs/r1/grpo

R1-CoT. In the paper QwQ-32B writes the thoughts; the file is not published. `cot_sft.json` is a
file of your own in WebRL's form, with responses `<think> long thought </think> <answer> do(...)
</answer>`:

    python launch/import_demos.py --webrl=cot_sft.json --workdir=runs/cot/bc
    python launch/train_bc.py --config=configs/webagent_r1.py:cot --workdir=runs/cot/bc \\
        --config.policy.path=weights/Qwen2.5-3B-Instruct
    python launch/train_grpo.py --config=configs/webagent_r1.py:cot --workdir=runs/cot/grpo

R1-Zero:

    python launch/train_grpo.py --config=configs/webagent_r1.py:zero --workdir=runs/zero/grpo

In place of import_demos, `launch/collect_demos.py --by=policy` lets a model behind an endpoint
demonstrate live (docs/endpoints.md).

Evaluation of runs/r1/grpo/policy, likewise of runs/r1/bc/policy, runs/cot and runs/zero: greedy,
and sampled as published (temperature 1, top-p 0.9, 2,048 new tokens, stop after 5 identical or
unreadable responses in a row):

    python launch/evaluate.py --config=configs/webagent_r1.py:r1 --workdir=runs/r1/greedy \\
        --config.policy.path=runs/r1/grpo/policy
    python launch/evaluate.py --config=configs/webagent_r1.py:r1 --workdir=runs/r1/published \\
        --config.policy.path=runs/r1/grpo/policy --config.eval.temperature=1 \\
        --config.eval.top_p=0.9 --config.eval.max_new_tokens=2048 --config.eval.max_repeats=5

Expected: the paper reports success rates of 6.1 -> 4.8 % for R1-Zero, 24.5 -> 30.3 for R1-CoT and
20.0 -> 33.9 for R1 with Qwen2.5-3B, before and after M-GRPO, and 44.8 % for R1 with Llama-3.1-8B,
which starts from WebRL's checkpoint. Not run here.
"""

from __future__ import annotations

import ml_collections

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

# Weights, devices along the tensor axis, MiB of the engine's cache (docs/recipes.md).
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


def get_config(variant: str = "r1") -> ml_collections.ConfigDict:
    if variant not in _VARIANTS:
        raise config.ConfigError(f"unknown variant {variant!r}; there are: {', '.join(_VARIANTS)}")
    (weights, tensor, cache_mib), kind = _VARIANTS[variant]
    # M-GRPO without BC is R1-Zero: r1 and cot have no policy to begin with until BC has made it.
    path = weights if kind == "zero" else f"runs/{variant}/bc/policy"
    return config.to_config_dict(
        RunConfig(
            policy=PolicyConfig(path=path, dtype="bfloat16", remat="full"),
            mesh=MeshConfig(fsdp=-1, tensor=tensor, rows_per_device=1),
            prompt=PromptConfig(template="webarena", thinking=True),
            # Real sites are slow, and their pages long: 7,300 tokens of GitLab's and more.
            browser=BrowserConfig(
                processes=4,
                observation="webarena_lite",
                observation_chars=24_000,
                call_timeout=30.0,
                navigation_timeout=60.0,
                settle_timeout=5.0,
            ),
            suite=SuiteConfig(
                name="webarena_lite",
                train_seeds=1,
                webarena=WebArenaConfig(
                    train_file="tasks/train_webarena_lite.raw.json",
                    test_file="tasks/test_webarena_lite.raw.json",
                ),
            ),
            engine=EngineConfig(slots=8, max_tokens=_CONTEXT, cache_mib=cache_mib),
            rollout=RolloutConfig(
                contexts=64, max_turns=15, max_new_tokens=1_024, episode_timeout=1_800.0
            ),
            bc=BCConfig(
                epochs=1,
                # 128 (h, a) pairs: WebRL's 1,124 trajectories have 8.4 turns each, so that an epoch
                # has 75 updates.
                batch_episodes=15,
                row_tokens=_CONTEXT,
                optimizer=OptimizerConfig(
                    learning_rate=5e-5, schedule="cosine", warmup_fraction=0.05
                ),
            ),
            grpo=GRPOConfig(
                updates=40,
                tasks_per_update=16,
                group_size=4,
                kl_beta=0.001,
                drop_flat_groups=False,
                row_tokens=_CONTEXT,
                optimizer=OptimizerConfig(learning_rate=1e-6, max_grad_norm=0.01),
            ),
            eval=EvalConfig(episodes_per_task=1, max_turns=(30,)),
        )
    )
