"""Export an imported policy or a checkpoint of a training run as a Hugging Face directory.

webagent export --input=runs/grpo --output_dir=weights/exported --dtype=bfloat16

--adapter writes the LoRA adapters of a training run in the format of PEFT instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from absl import flags

from webagent_jax.cli.arguments import reject_arguments
from webagent_jax.config import ConfigError

_INPUT = flags.DEFINE_string(
    "input", None, "Workdir of a training run, or output of `import weights`.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Output folder.", required=True)
_DTYPE = flags.DEFINE_enum(
    "dtype",
    "",
    ["", "float32", "bfloat16"],
    "Dtype of the tensors; empty: float32 for a training run, else that of the input.",
)
_ADAPTER = flags.DEFINE_bool(
    "adapter", False, "Write only the LoRA adapters, in the format of PEFT."
)
_MAX_RANK = flags.DEFINE_integer(
    "max_rank",
    None,
    "Largest rank of the adapter with --adapter. A run that started from an adapter has the rank "
    "of both; singular values beyond --max_rank are dropped.",
    lower_bound=1,
)
_UPDATE = flags.DEFINE_integer(
    "update", None, "Update of the checkpoint of a training run to export; by default the latest."
)


def main(argv: Sequence[str]) -> None:
    """Write the files and print the option that selects them."""
    from webagent_jax.train import export

    reject_arguments(argv)
    try:
        write = export.export_weights
        if _ADAPTER.value:
            write = partial(export.export_adapter, max_rank=_MAX_RANK.value)
        elif _MAX_RANK.value:
            raise ConfigError("--max_rank applies to adapters: add --adapter")
        elif _UPDATE.value is not None and not Path(_INPUT.value, "checkpoints").is_dir():
            raise ConfigError(
                f"--update applies to training runs, and {_INPUT.value} contains no checkpoints/: "
                "omit --update"
            )
        write(Path(_INPUT.value), Path(_OUTPUT_DIR.value), dtype=_DTYPE.value, update=_UPDATE.value)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(str(error)) from error
    print(f"--config.policy.path={_OUTPUT_DIR.value}")
