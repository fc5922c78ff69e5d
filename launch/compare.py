"""Evaluations side by side: one table and one figure, as the paper shows its ablations.

python launch/compare.py "R1/after BC=runs/r1/eval/bc" "R1/after RL=runs/r1/eval/grpo" \
    "R1-Zero/after RL=runs/zero/eval/grpo" --out=runs/ablation

NAME=DIR is one bar; NAME/SERIES=DIR is one of several bars over the same name, and every series has
a colour of its own. DIR holds an eval.json, or is one. Writes compare.md and compare.svg.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from webagent_jax import cli
from webagent_jax.report import eval_table, tables
from webagent_jax.tracking import atomic_files

_OUT = flags.DEFINE_string("out", None, "Folder for compare.md and compare.svg.", required=True)


def main(argv: Sequence[str]) -> None:
    with cli.told_plainly():
        entries = eval_table.read(argv[1:])
    rows, notes = eval_table.table(entries), eval_table.warnings(entries)
    out = Path(_OUT.value)
    atomic_files.write_text(
        out / "compare.md", "\n".join([tables.markdown(rows), *_paragraphs(notes)])
    )
    atomic_files.write_text(out / "compare.svg", eval_table.figure(entries))
    print("\n".join([tables.grid(rows), *notes]))
    print(f"Open {out / 'compare.svg'}")


def _paragraphs(notes: Sequence[str]) -> list[str]:
    return [f"\n{note}" for note in notes] + [""]


if __name__ == "__main__":
    app.run(main)
