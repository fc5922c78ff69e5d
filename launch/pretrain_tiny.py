"""Pretrain webagent-tiny, the base policy of the package, from random params.

python launch/pretrain_tiny.py --output_dir=webagent_jax/policy/webagent_tiny
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from webagent_jax.pretrain.train import PretrainConfig, pretrain

_DEFAULT = PretrainConfig()
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Output folder of the Hugging Face files.", required=True
)
_SEED = flags.DEFINE_integer("seed", _DEFAULT.seed, "Seed of params and training data.")
_UPDATES = flags.DEFINE_integer(
    "updates", _DEFAULT.updates, "Number of optimizer steps.", lower_bound=1
)


def main(argv: Sequence[str]) -> None:
    """Pretrain the policy and write it."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    cfg = dataclasses.replace(_DEFAULT, seed=_SEED.value, updates=_UPDATES.value)
    pretrain(cfg, Path(_OUTPUT_DIR.value))


if __name__ == "__main__":
    app.run(main)
