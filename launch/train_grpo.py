"""Multi-turn GRPO on live pages. Resumes by itself from its workdir.

python launch/train_grpo.py --config=configs/quickstart.py --config.policy.path=runs/bc/policy \
    --workdir=runs/grpo
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags, logging
from ml_collections import config_flags

from webagent_jax import config, train
from webagent_jax.report.progress import open_progress

_CONFIG = config_flags.DEFINE_config_file("config", "configs/quickstart.py", lock_config=True)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder for all that the run writes.", required=True
)


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    logging.set_verbosity(logging.WARNING)  # orbax and uvicorn tell of every step
    with open_progress() as progress:
        policy = train.grpo(config.from_config_dict(_CONFIG.value), Path(_WORKDIR.value), progress)
    print(policy)


if __name__ == "__main__":
    app.run(main)
