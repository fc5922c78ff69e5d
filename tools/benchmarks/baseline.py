"""Scripts of the baselines, in their own environments, and the model for google-tunix."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from webagent_jax.policy import ModelConfig

# Unrolled like the model of google-tunix.
MODEL = ModelConfig(
    vocab_size=2048,
    d_model=256,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    d_ff=1024,
    unroll=4,
)
_SCRIPTS = Path(__file__).parents[2] / "third_party"
_TIMEOUT_SECONDS = 3600.0


def run_script(python: str, script: str, request: dict[str, Any]) -> dict[str, Any]:
    """Run a script of third_party/ and return its JSON output.

    Args:
        python: interpreter of the script.
        script: path of the script in third_party/.
        request: JSON values for its standard input.

    Raises:
        RuntimeError: the script failed; the message contains its standard error.
    """
    process = subprocess.run(
        [python, str(_SCRIPTS / script)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
    )
    if process.returncode != 0:
        raise RuntimeError(f"{python} {script} failed:\n{process.stderr[-2000:]}")
    output: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return output


def sizes() -> dict[str, Any]:
    """Return the sizes of the model, in the input format of the scripts."""
    return {
        "layers": MODEL.num_layers,
        "d": MODEL.d_model,
        "ffn": MODEL.d_ff,
        "heads": MODEL.num_heads,
        "kv": MODEL.num_kv_heads,
        "vocab": MODEL.vocab_size,
    }
