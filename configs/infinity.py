r"""WebArena-Infinity: tasks of generated single-page apps, from your own checkout.

    git clone https://github.com/web-arena-x/webarena-infinity DIR
    python launch/evaluate.py --config=configs/infinity.py --config.suite.infinity.path=DIR \
        --config.policy.path=POLICY --workdir=runs/infinity

docs/infinity.md describes the suite. For a chat endpoint, replace the policy by the options of
docs/chat_endpoints.md. The test split has the real tasks of two apps without training tasks;
--config.suite.infinity.test_split=tasks selects held-out tasks of the other apps,
--config.suite.infinity.difficulties=easy one difficulty.

The limits are those of the published evaluation of WebArena-Lite, 30 turns and 16,384 tokens of
context; pages have up to 6,200 tokens. webagent-tiny, the default policy, has 2,048 positions. This
project has trained no policy on this suite.
"""

from __future__ import annotations

import ml_collections

from webagent_jax import config
from webagent_jax.config import (
    BCConfig,
    EngineConfig,
    EvalConfig,
    GRPOConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
)

_CONTEXT = 16_384  # tokens of prompt and response


def get_config() -> ml_collections.ConfigDict:
    """Return the config."""
    return config.to_config_dict(
        RunConfig(
            suite=SuiteConfig(name="infinity", train_seeds_per_task=1),
            engine=EngineConfig(slots=8, max_model_len=_CONTEXT),
            rollout=RolloutConfig(
                max_concurrent_episodes=8,
                max_turns=30,
                max_new_tokens=512,
                episode_timeout=1_800.0,
            ),
            bc=BCConfig(row_tokens=_CONTEXT),
            grpo=GRPOConfig(row_tokens=_CONTEXT),
            eval=EvalConfig(seeds_per_task=1, max_turns=(30,)),
        )
    )
