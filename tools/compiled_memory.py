"""Print the memory of configs/instruct.py:arena on GPUs and TPUs, as their compilers report it.

python tools/compiled_memory.py               # needs pip install "webagent_jax[cuda,tpu]"
python tools/compiled_memory.py Qwen2.5-0.5B  # one model
python tools/compiled_memory.py --hardware=h100

GPUs have a row for adapters and one for all params, TPUs one for the recipe of docs/recipes.md. A
row compiles four programs, which takes about a minute on one core. The last column is the maximum
that `webagent_jax/sizing.py` computes from shapes, without a compiler.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.recipes import HARDWARE, WORKLOADS, recipe, trained_and_mesh  # noqa: E402
from webagent_jax import compile_check, sizing  # noqa: E402
from webagent_jax.config import LoRAConfig, RunConfig  # noqa: E402
from webagent_jax.sizing import Hardware  # noqa: E402

MODELS = ("Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-3B", "Qwen2.5-7B", "Llama-3.1-8B")
TPU_MODELS = ("Qwen2.5-3B", "Llama-3.1-8B")
TOPOLOGIES = {
    "1 H100 80 GB": "h100:1",
    "8 H100 80 GB": "h100:8",
    "v5e-16": "v5e:4x4",
    "v5p-8": "v5p:2x2x1",
    "v6e-8": "v6e:2x4",
}
RANKS = (32, 0)
WORKLOAD = WORKLOADS["arena"]
GIB = 2**30


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=MODELS, help="models of the table")
    parser.add_argument("--hardware", default="", help="beginning of the chip: h100, v5e, v")
    args = parser.parse_args()
    print(
        "| model | hardware | trained | mesh | update | scoring | prefill | decode | maximum | "
        "| computed |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for model in args.models:
        for hardware in HARDWARE:
            if hardware.chip.startswith(args.hardware):
                for recipe in _recipes(model, hardware):
                    print(_row(recipe, hardware), flush=True)


def _recipes(model: str, hardware: Hardware) -> Iterator[RunConfig]:
    cfg = recipe("arena", model)
    if hardware.chip == "h100":
        yield from (replace(cfg, lora=LoRAConfig(rank=rank)) for rank in RANKS)
    elif model in TPU_MODELS:
        yield sizing.recommend(cfg, hardware, WORKLOAD).cfg


def _row(cfg: RunConfig, hardware: Hardware) -> str:
    report = compile_check.check(cfg, TOPOLOGIES[hardware.name], lambda message: None)
    # A rejected program has no sizes, but its name and the message of the compiler.
    totals = [0 if program.refusal else program.total / GIB for program in report.programs]
    estimate = sizing.estimate(cfg, hardware, WORKLOAD)
    cells = (
        cfg.policy.path,
        hardware.name,
        *trained_and_mesh(cfg, report.mesh),
        *(f"{total:.1f}" if total else "rejected" for total in totals),
        f"{max(totals):.1f} of {report.hbm / GIB:.1f}",
        "fits" if report.fits else "does not fit",
        f"{estimate.program_bytes / GIB:.1f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
