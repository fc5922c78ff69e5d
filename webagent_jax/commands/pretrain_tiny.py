"""Pretrain webagent-tiny, the base policy of the package, from random params.

webagent pretrain-tiny --output_dir=webagent_jax/policy/webagent_tiny
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.cli.arguments import reject_arguments

_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Output folder of the Hugging Face files.", required=True
)
_SEED = flags.DEFINE_integer("seed", None, "Seed of params and training data.", lower_bound=0)
_UPDATES = flags.DEFINE_integer("updates", None, "Number of optimizer steps.", lower_bound=1)


def main(argv: Sequence[str]) -> None:
    """Pretrain the policy and write it."""
    from webagent_jax.pretrain.train import PretrainConfig, pretrain

    reject_arguments(argv)
    default = PretrainConfig()
    cfg = dataclasses.replace(
        default,
        seed=default.seed if _SEED.value is None else _SEED.value,
        updates=_UPDATES.value or default.updates,
    )
    pretrain(cfg, Path(_OUTPUT_DIR.value))
