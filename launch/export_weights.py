"""Write an imported policy, or a checkpoint of a training, as a Hugging Face directory.

    python launch/export_weights.py --path=runs/grpo --out=weights/mine --dtype=bfloat16

With --adapter the LoRA adapters of a training are written in the format of PEFT instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from webagent_jax.train import export

_PATH = flags.DEFINE_string(
    "path", None, "Workdir of a training, or what import_weights.py wrote.", required=True
)
_OUT = flags.DEFINE_string("out", None, "Folder to write to.", required=True)
_DTYPE = flags.DEFINE_enum(
    "dtype", "", ["", "float32", "bfloat16"], "Of the tensors; empty: that of the original."
)
_ADAPTER = flags.DEFINE_bool("adapter", False, "Write the LoRA adapters alone, as PEFT reads them.")
_STEP = flags.DEFINE_integer("step", None, "Checkpoint of a training; the latest by default.")


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    try:
        write = export.export_adapter if _ADAPTER.value else export.export_weights
        write(Path(_PATH.value), Path(_OUT.value), dtype=_DTYPE.value, step=_STEP.value)
    except (FileNotFoundError, ValueError) as error:
        raise app.UsageError(str(error)) from error
    print(f"--config.policy.path={_OUT.value}")


if __name__ == "__main__":
    app.run(main)
