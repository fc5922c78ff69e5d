"""Turns a Hugging Face directory into an Orbax checkpoint, of which every host reads its shards.

python launch/import_weights.py --path=Qwen2.5-3B --out=weights/qwen2.5-3b
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from webagent_jax import weights

_PATH = flags.DEFINE_string("path", None, "Hugging Face directory.", required=True)
_OUT = flags.DEFINE_string("out", None, "Folder to write to.", required=True)


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    try:
        weights.import_weights(_PATH.value, Path(_OUT.value))
    except (FileNotFoundError, ValueError) as error:
        raise app.UsageError(str(error)) from error
    print(f"--config.policy.path={_OUT.value}")


if __name__ == "__main__":
    app.run(main)
