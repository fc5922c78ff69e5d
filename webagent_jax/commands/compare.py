r"""Compare evaluations in one table and one bar chart, like the ablations of the paper.

webagent compare "R1/after BC=runs/r1/eval/bc" "R1/after RL=runs/r1/eval/grpo" \
    "R1-Zero/after RL=runs/zero/eval/grpo" --output_dir=runs/ablation

NAME=DIR adds one bar; NAME/SERIES=DIR adds one of several bars with the same name, and each series
has its own color. DIR alone is also the name. DIR is an eval.json or a folder with one. Writes
compare.md and compare.svg.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.tracking import atomic_files

_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder for compare.md and compare.svg.", required=True
)


def main(argv: Sequence[str]) -> None:
    """Write and print the comparison."""
    from webagent_jax.report import eval_table, tables

    entries = eval_table.read(argv[1:])
    rows, notes = eval_table.table(entries), eval_table.warnings(entries)
    out = Path(_OUTPUT_DIR.value)
    atomic_files.write_text(
        out / "compare.md", "\n".join([tables.markdown(rows), *_paragraphs(notes)])
    )
    atomic_files.write_text(out / "compare.svg", eval_table.figure(entries))
    print("\n".join([tables.grid(rows), *notes]))
    print(f"Open {out / 'compare.svg'}")


def _paragraphs(notes: Sequence[str]) -> list[str]:
    return [f"\n{note}" for note in notes] + [""]
