"""The project's own benchmarks; what is compared is measured in one run.

python launch/benchmark.py --suite=update --peer_python=PATH --workdir=runs/benchmark

The peer of `update` and `generate` is google-tunix (third_party/README.md), which needs an
environment of its own: --peer_python is its interpreter; without one the peer is left out. Peers of
`language_model` are transformers on torch (--peer_python=.venv/bin/python will do) and llama.cpp
(--peer_checkout). Those of `browser` are BrowserGym (--peer_python), VisualAgentBench's parser
(there too, from --peer_checkout) and plain Playwright, which needs nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags, logging

from webagent_jax import heap

sys.path.append(str(Path(__file__).parents[1]))  # tools/ is not part of the installed package
from tools import benchmarks

_SUITE = flags.DEFINE_enum(
    "suite", None, sorted(benchmarks.SUITES), "What to measure.", required=True
)
_REPEATS = flags.DEFINE_integer("repeats", 3, "Runs of which the median counts.", lower_bound=1)
_PEER = flags.DEFINE_string("peer_python", "", "Interpreter of an environment with the peers.")
_CHECKOUT = flags.DEFINE_string(
    "peer_checkout",
    "",
    "Checkout of VisualAgentBench, or folder with llama.cpp.",
)
_POLICY = flags.DEFINE_string(
    "policy", "webagent-tiny", "Name or directory, for `evaluate` and `language_model`."
)
_WORKDIR = flags.DEFINE_string("workdir", "runs/benchmark", "Folder for benchmark.json.")


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    heap.keep_freed_memory()  # as in every launcher
    logging.set_verbosity(logging.WARNING)  # orbax and uvicorn tell of every step
    report = benchmarks.run(
        _SUITE.value,
        _REPEATS.value,
        _PEER.value,
        print,
        peer_checkout=_CHECKOUT.value,
        policy=_POLICY.value,
    )
    workdir = Path(_WORKDIR.value)
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "benchmark.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    app.run(main)
