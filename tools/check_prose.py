"""Check docstring openings and names against the style guide.

python tools/check_prose.py         # percentages and the worst files
python tools/check_prose.py --list  # also every hit

Exits with 1 if more than 1 % of the docstrings open with a forbidden word, or more than 0.5 % of
the names contain one. Field terms such as `sorted`, `cached` or `held_out` are allowed.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("webagent_jax", "launch", "configs", "tools", "tests")
NUM_WORST_FILES = 5
MAX_DOCSTRING_PERCENT = 1.0
MAX_NAME_PERCENT = 0.5

OPENINGS = frozenset("what who where how of as that whether one".split())
# Forbidden as any word of a name.
WORDS = frozenset(
    """
    asked begun bidden borne brought chosen drawn found given gone gotten grown heard kept known
    learnt lent made meant met mended played said seen shown spent spoilt spoken spoke stumbled
    taken theirs told thrown tried waited wanted whoever whose wiped worn written
    everybody nobody somebody everything everywhere nowhere somewhere elsewhere meanwhile
    """.split()
)
# Forbidden only as the whole name, because terms such as `top_left` contain them.
WHOLE_NAMES = frozenset(
    """
    about above across after again against ahead alone apart around as aside at away before behind
    below beside between beyond by during even ever filled for here how in inside into joined left
    measured mine moved near needed of off on once opened ours over own placed since so than there
    through till timed to together too toward under until upon what who whole with within without
    yet
    """.split()
)


@dataclass
class Tally:
    """Counts of one rule."""

    label: str  # description of the counted items
    limit: float  # highest allowed percentage
    totals: Counter[str] = field(default_factory=Counter)  # number of items by file
    hits: list[tuple[str, int, str]] = field(default_factory=list)  # file, line, text

    def add(self, file: str, line: int, text: str, *, is_hit: bool) -> None:
        """Count one item."""
        self.totals[file] += 1
        if is_hit:
            self.hits.append((file, line, text))

    @property
    def percent(self) -> float:
        """Percentage of items that break the rule."""
        return 100 * len(self.hits) / max(self.totals.total(), 1)

    def print_summary(self, *, list_hits: bool) -> None:
        """Print the percentage with the worst files, and optionally every hit."""
        count = f"{len(self.hits)} of {self.totals.total()}"
        print(f"{self.label}: {count}, {self.percent:.2f} % (limit {self.limit:g} %)")
        for file, number in Counter(file for file, _, _ in self.hits).most_common(NUM_WORST_FILES):
            print(f"  {number:4} of {self.totals[file]:4}  {file}")
        for file, line, text in sorted(self.hits) if list_hits else ():
            print(f"{file}:{line}: {text}")


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and summary of every docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text.splitlines()[0]


def bound_names(node: ast.AST, scope: str = "") -> Iterator[tuple[str, str, int]]:
    """Yield scope, name and line of every name that the code binds, imports excluded."""
    for child in ast.iter_child_nodes(node):
        inner = scope
        match child:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                inner = f"{scope}.{name}"
                yield scope, name, child.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield scope, name, child.lineno
            case ast.arg(arg=name):
                yield scope, name, child.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield scope, name, child.lineno
        yield from bound_names(child, inner)


def is_forbidden(name: str) -> bool:
    """Return whether the name breaks the rule; magic methods never do."""
    if name.startswith("__"):
        return False
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).strip("_").lower()
    words = name.replace("not_found", "").split("_")
    return name in WHOLE_NAMES or not WORDS.isdisjoint(words)


def main() -> None:
    """Check all files and print the summaries."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every hit")
    arguments = parser.parse_args()
    openings = Tally("docstrings with a forbidden opening", MAX_DOCSTRING_PERCENT)
    names = Tally("names with a forbidden word", MAX_NAME_PERCENT)
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        file = str(path.relative_to(ROOT))
        tree = ast.parse(path.read_text())
        for line, summary in docstrings(tree):
            opening = re.split(r"[^\w-]", summary.lower(), maxsplit=1)[0]
            openings.add(file, line, summary, is_hit=opening in OPENINGS)
        lines = {(scope, name): line for scope, name, line in reversed([*bound_names(tree)])}
        for (_, name), line in lines.items():
            names.add(file, line, name, is_hit=is_forbidden(name))
    for tally in (openings, names):
        tally.print_summary(list_hits=arguments.list)
    sys.exit(any(tally.percent > tally.limit for tally in (openings, names)))


if __name__ == "__main__":
    main()
