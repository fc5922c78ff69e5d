"""Print the memory of configs/instruct.py:arena on H100 GPUs, as the GPU compiler reports it.

python tools/gpu_memory.py               # needs no GPU: pip install "webagent_jax[cuda]"
python tools/gpu_memory.py Qwen2.5-0.5B  # one model

Every row compiles four programs, which takes about a minute on one core.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from configs import instruct  # noqa: E402
from webagent_jax import compile_check, config  # noqa: E402
from webagent_jax.config import LoRAConfig  # noqa: E402

MODELS = ("Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-3B", "Qwen2.5-7B", "Llama-3.1-8B")
TOPOLOGIES = ("h100:1", "h100:8")
RANKS = (32, 0)
GIB = 2**30


def main() -> None:
    """Print a table in Markdown."""
    print("| model | GPUs | trained | update | scoring | prefill | decode | maximum | |")
    print("|---|---|---|---|---|---|---|---|---|")
    cfg = config.from_config_dict(instruct.get_config("arena"))
    for model, topology, rank in itertools.product(sys.argv[1:] or MODELS, TOPOLOGIES, RANKS):
        recipe = replace(cfg, policy=replace(cfg.policy, path=model), lora=LoRAConfig(rank=rank))
        report = compile_check.check(recipe, topology, lambda message: None)
        totals = [program.total / GIB for program in report.programs]
        cells = (
            model,
            str(report.devices),
            f"LoRA {rank}" if rank else "all params",
            *(f"{total:.1f}" for total in totals),
            f"{max(totals):.1f} of {report.hbm / GIB:.1f}",
            "fits" if report.fits else "does not fit",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
