"""Print the table of docs/recipes.md: training, mesh, memory and hours by model and hardware.

python tools/recipes.py                # the models of the page; --update replaces its table
python tools/recipes.py Qwen/Qwen3-4B  # other models

All values are computed from shapes by webagent_jax/sizing.py; none is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from configs import instruct  # noqa: E402
from tools.results.formatting import table_of  # noqa: E402
from webagent_jax import sizing  # noqa: E402
from webagent_jax.config import RunConfig  # noqa: E402
from webagent_jax.sizing import Hardware, Workload  # noqa: E402

PAGE = ROOT / "docs" / "recipes.md"
START, END = "<!-- table: recipes -->\n", "<!-- end of table -->"
MODELS = (
    "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen2.5-3B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
    "meta-llama/Llama-3.1-8B-Instruct",
)
# One process per GPU or engine; on TPUs one process per host, whose chips share an engine.
HARDWARE = (
    Hardware("1 H100 80 GB", "h100", 1, (1,), 0),
    Hardware("8 H100 80 GB", "h100", 8, (1, 2), 0),
    Hardware("v5e-16", "v5e", 16, (4, 2), 4),
    Hardware("v5p-8", "v5p", 4, (4, 2), 1),
    Hardware("v6e-8", "v6e", 8, (8, 4, 2), 1),
)
# Turns, prompts and responses of the experts' episodes, with longer responses (docs/recipes.md).
WORKLOADS = {
    "arena": Workload(turns=6.0, prompt_tokens=1_000, response_tokens=120),
    "miniwob": Workload(turns=3.0, prompt_tokens=500, response_tokens=80),
}


def rows(models: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of every row."""
    for model in models:
        for hardware in HARDWARE:
            cells = []
            for variant, workload in WORKLOADS.items():
                result = sizing.recommend(recipe(variant, model), hardware, workload)
                cells.append(_cells(hardware, result))
            (arena, miniwob) = cells
            name = model.rpartition("/")[2].removesuffix("-Instruct")
            yield (name, hardware.name, *arena, miniwob[-1])


def recipe(variant: str, model: str) -> RunConfig:
    """Return a variant of configs/instruct.py with another model."""
    cfg = instruct.get_config(variant)
    return replace(cfg, policy=replace(cfg.policy, path=model))


def _cells(hardware: Hardware, result: sizing.Sizing) -> tuple[str, ...]:
    memory = sizing.CHIPS[hardware.chip].hbm / 2**30
    return (
        *trained_and_mesh(result.cfg, result.mesh),
        str(result.cfg.engine.tensor_parallel_size),
        f"{result.max_bytes / 2**30:.1f} of {memory:.1f}",
        f"{result.hours:.1f}" if result.fits else "does not fit",
    )


def trained_and_mesh(cfg: RunConfig, mesh: Mapping[str, int]) -> tuple[str, str]:
    """Return the cells "LoRA 32" and "data 2 x tensor 4"."""
    rank = cfg.lora.rank
    axes = " x ".join(f"{axis} {size}" for axis, size in mesh.items() if size > 1)
    return f"LoRA {rank}" if rank else "all params", axes or "one device"


def table(models: Sequence[str]) -> str:
    """Return the table of Hub ids or names of models in Markdown."""
    header = (
        "model",
        "hardware",
        "trained",
        "mesh",
        "devices per engine",
        "GiB per device",
        "hours, arena",
        "hours, MiniWoB++",
    )
    return table_of(header, list(rows(models)))


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="Hub id or name of a model")
    parser.add_argument("--update", action="store_true", help="replace the table in the page")
    args = parser.parse_args()
    if args.update and args.models:
        parser.error("--update writes the models of the page: remove the names")
    try:
        text = table(args.models or MODELS)
    # An unknown model, or one whose context is shorter than the prompts.
    except (FileNotFoundError, ValueError) as error:
        parser.error(str(error))
    if args.update:
        page = PAGE.read_text()
        before, rest = page.split(START)
        _, after = rest.split(END)
        PAGE.write_text(f"{before}{START}\n{text}\n\n{END}{after}")
    print(text)


if __name__ == "__main__":
    main()
