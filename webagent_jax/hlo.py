"""Loops and estimated cycles of a compiled program, from its text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) .*\{$")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_WHILE = re.compile(r" while\(.*body=%?([\w.\-]+)")
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CALL = re.compile(r" call\(.*to_apply=%?([\w.\-]+)")
_BRANCHES = re.compile(r" conditional\(.*branch_computations=\{([^}]*)\}")
_TRUE_FALSE = re.compile(
    r" conditional\(.*true_computation=%?([\w.\-]+), false_computation=%?(\S+)"
)


@dataclass
class _Computation:
    """Computation of an HLO module."""

    cycles: int = 0  # of its own instructions
    loops: list[tuple[str, int | None]] = field(default_factory=list)  # body, known trip count
    calls: list[tuple[str, ...]] = field(default_factory=list)  # alternatives, of which one runs


def count_dynamic_loops(program: str) -> int:
    """Return the number of loops without a trip count known at compile time.

    A GPU waits for the host in every iteration of such a loop.
    """
    lines = (line for line in program.splitlines() if _WHILE.search(line))
    return sum(not _TRIP_COUNT.search(line) for line in lines)


def estimated_cycles(program: str, iterations: Sequence[int]) -> int:
    """Return the cycles that the TPU compiler estimates, without memory stalls.

    A conditional counts as its most expensive branch.

    Args:
        program: text of the optimized HLO module.
        iterations: trip counts of the loops without a known one, by nesting depth among them.
    """
    computations: defaultdict[str, _Computation] = defaultdict(_Computation)
    entry = name = ""
    for line in program.splitlines():
        if header := _HEADER.match(line):
            name = header[2]
            entry = name if header[1] else entry
        computation = computations[name]
        computation.cycles += sum(map(int, _CYCLES.findall(line)))
        if loop := _WHILE.search(line):
            known = _TRIP_COUNT.search(line)
            computation.loops.append((loop[1], int(known[1]) if known else None))
        elif call := _CALL.search(line):
            computation.calls.append((call[1],))
        elif branches := _BRANCHES.search(line):
            computation.calls.append(tuple(re.findall(r"[\w.\-]+", branches[1])))
        elif branches := _TRUE_FALSE.search(line):
            computation.calls.append((branches[1], branches[2]))

    def total(name: str, depth: int) -> int:
        computation = computations[name]
        cycles = computation.cycles
        for body, known in computation.loops:
            if known is None:
                cycles += iterations[depth] * total(body, depth + 1)
            else:
                cycles += known * total(body, depth)
        return cycles + sum(max(total(n, depth) for n in names) for names in computation.calls)

    return total(entry, 0)
