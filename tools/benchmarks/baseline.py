"""Peers, in environments of their own (third_party/README.md), and the model of google-tunix."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from webagent_jax.policy import ModelConfig

# Unrolled, as google-tunix is.
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
_TIMEOUT = 3600.0  # seconds


def ask(python: str, script: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What a script of third_party/ answers. Raises RuntimeError with its complaint if it fails."""
    told = subprocess.run(
        [python, str(_SCRIPTS / script)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT,
    )
    if told.returncode != 0:
        raise RuntimeError(f"{python} {script} failed:\n{told.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return answer


def sizes() -> dict[str, Any]:
    """Of the model, as the scripts ask for them."""
    return {
        "layers": MODEL.num_layers,
        "d": MODEL.d_model,
        "ffn": MODEL.d_ff,
        "heads": MODEL.num_heads,
        "kv": MODEL.num_kv_heads,
        "vocab": MODEL.vocab_size,
    }
