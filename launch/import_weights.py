"""Import weights for `policy.path`: a Hugging Face directory or a GGUF file of llama.cpp.

A Hugging Face directory becomes an Orbax checkpoint, of which every process reads its shards:

    python launch/import_weights.py --path=Qwen2.5-3B --out=weights/qwen2.5-3b

A GGUF file (llama, qwen2 and qwen3) becomes a Hugging Face directory in float32:

    python launch/import_weights.py --gguf=qwen2.5-0.5b-instruct-q8_0.gguf --out=weights/qwen
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from webagent_jax import policy
from webagent_jax.policy import weights

_PATH = flags.DEFINE_string("path", None, "Hugging Face directory.")
_GGUF = flags.DEFINE_string("gguf", None, "GGUF file.")
flags.mark_flags_as_mutual_exclusive(["path", "gguf"], required=True)
_OUT = flags.DEFINE_string("out", None, "Folder to write to.", required=True)


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    try:
        if _PATH.value:
            weights.import_weights(_PATH.value, Path(_OUT.value))
        if _GGUF.value:
            policy.import_gguf(Path(_GGUF.value), Path(_OUT.value))
    except (FileNotFoundError, ValueError) as error:
        raise app.UsageError(str(error)) from error
    print(f"--config.policy.path={_OUT.value}")


if __name__ == "__main__":
    app.run(main)
