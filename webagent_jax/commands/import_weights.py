"""Import weights for `policy.path`: a Hugging Face directory or a GGUF file of llama.cpp.

webagent import weights --input=Qwen2.5-3B --output_dir=weights/qwen2.5-3b
webagent import weights --gguf=qwen2.5-0.5b-instruct-q8_0.gguf --output_dir=weights/qwen

A Hugging Face directory becomes an Orbax checkpoint, from which each process reads only its shards.
A GGUF file (llama, qwen2 and qwen3) becomes a Hugging Face directory in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.cli.arguments import reject_arguments
from webagent_jax.config import ConfigError

_INPUT = flags.DEFINE_string("input", None, "Hugging Face directory to import.")
_GGUF = flags.DEFINE_string("gguf", None, "GGUF file to import.")
flags.mark_flags_as_mutual_exclusive(["input", "gguf"], required=True)
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Output folder.", required=True)


def main(argv: Sequence[str]) -> None:
    """Import the weights and print the option that selects them."""
    from webagent_jax import policy
    from webagent_jax.policy import weights

    reject_arguments(argv)
    try:
        if _INPUT.value:
            weights.import_weights(_INPUT.value, Path(_OUTPUT_DIR.value))
        if _GGUF.value:
            policy.import_gguf(Path(_GGUF.value), Path(_OUTPUT_DIR.value))
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(str(error)) from error
    print(f"--config.policy.path={_OUTPUT_DIR.value}")
