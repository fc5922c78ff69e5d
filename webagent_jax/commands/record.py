r"""Record demonstrations by hand: do the training tasks in a visible browser.

webagent record --config=quickstart --config.suite.factory=my_module:make_suite \
    --tasks=order,save-name --workdir=runs/mine/bc

Opens the start page of each task and prints its instruction. What you do is executed and stored as
actions of the agent. Episodes with reward 1 are kept; the same command continues with the tasks
that have no demonstration. `webagent train bc` with the same workdir trains on them.
"""

from __future__ import annotations

import io
import queue
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from absl import flags

from webagent_jax.cli.run_config import load_checked_config
from webagent_jax.cli.workdir import parse_workdir
from webagent_jax.tracking.progress import open_progress
from webagent_jax.tracking.workdir_lock import hold_lock

if TYPE_CHECKING:
    from webagent_jax.record_demos import Event

_TASKS = flags.DEFINE_list("tasks", [], "Names of the tasks; by default those of the config.")


def main(argv: Sequence[str]) -> None:
    """Record until all tasks have a demonstration, or the person quits."""
    workdir, cfg = parse_workdir(argv), load_checked_config()
    from webagent_jax.record_demos import record_demos

    if _TASKS.value:
        cfg = replace(cfg, suite=replace(cfg.suite, tasks=tuple(_TASKS.value)))
    lines: queue.SimpleQueue[Event] = queue.SimpleQueue()
    # A daemon thread: nothing can interrupt a wait for a line.
    threading.Thread(target=_read_lines, args=(lines,), name="terminal", daemon=True).start()
    with hold_lock(workdir), open_progress() as progress:
        record_demos(cfg, workdir / "demos", progress, lines)


def _read_lines(lines: queue.SimpleQueue[Event]) -> None:
    """Put each line of the terminal, and `/quit` when it is closed."""
    # Terminals may have another encoding than Python.
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    try:
        for line in sys.stdin:
            lines.put(line.rstrip("\n"))
    finally:
        lines.put("/quit")
