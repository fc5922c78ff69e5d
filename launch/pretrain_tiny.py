"""Makes webagent-tiny, the base policy that is shipped with the package, from nothing.

python launch/pretrain_tiny.py --out=webagent_jax/policy/webagent_tiny
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from webagent_jax.pretrain.train import PretrainConfig, pretrain

_DEFAULT = PretrainConfig()
_OUT = flags.DEFINE_string("out", None, "Folder to write the Hugging Face files to.", required=True)
_SEED = flags.DEFINE_integer("seed", _DEFAULT.seed, "Of params and exercises.")
_UPDATES = flags.DEFINE_integer("updates", _DEFAULT.updates, "Optimizer updates.", lower_bound=1)


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    cfg = dataclasses.replace(_DEFAULT, seed=_SEED.value, updates=_UPDATES.value)
    pretrain(cfg, Path(_OUT.value))


if __name__ == "__main__":
    app.run(main)
