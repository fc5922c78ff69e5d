"""Run a benchmark of the project, with its baselines in the same run.

python launch/benchmark.py --benchmark=update --baseline_python=PATH --workdir=runs/benchmark

Baselines (third_party/README.md); one without its flag is skipped:

- `update`, `generate`: google-tunix, in the environment of --baseline_python.
- `language_model`: transformers on torch (--baseline_python=.venv/bin/python works) and llama.cpp
  (--baseline_checkout).
- `infinity`: the servers of the apps of --baseline_checkout, which this benchmark needs.
- `browser`: BrowserGym (--baseline_python), the parser of VisualAgentBench (--baseline_python and
  --baseline_checkout) and Playwright, which needs no flag.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/ is not part of the installed package
from webagent_jax import huge_pages

if __name__ == "__main__":
    # Before the imports below, which a restart would repeat.
    huge_pages.restart_with_huge_pages()

from absl import app, flags, logging

from tools import benchmarks
from webagent_jax.cli import errors
from webagent_jax.cli.arguments import reject_arguments

_BENCHMARK = flags.DEFINE_enum(
    "benchmark", None, sorted(benchmarks.SUITES), "Benchmark to run.", required=True
)
_REPEATS = flags.DEFINE_integer(
    "repeats", 3, "Runs per measurement; the result is their median.", lower_bound=1
)
_BASELINE_PYTHON = flags.DEFINE_string(
    "baseline_python", "", "Python interpreter of an environment with the baselines."
)
_BASELINE_CHECKOUT = flags.DEFINE_string(
    "baseline_checkout",
    "",
    "Checkout of VisualAgentBench (browser) or WebArena-Infinity (infinity), or folder with "
    "llama.cpp (language_model).",
)
_POLICY = flags.DEFINE_string(
    "policy",
    "webagent-tiny",
    "Policy of `evaluate`, `infinity` (tokenizer), `language_model` and `speculation`: name or "
    "directory.",
)
_EPISODES = flags.DEFINE_string(
    "episodes", "", "Workdir of a training whose episodes `speculation` replays."
)
_WORKDIR = flags.DEFINE_string("workdir", "runs/benchmark", "Folder for benchmark.json.")


def main(argv: Sequence[str]) -> None:
    """Run the benchmark and write benchmark.json."""
    reject_arguments(argv)
    logging.set_verbosity(logging.WARNING)  # orbax and uvicorn log every step at INFO
    options = benchmarks.Options(
        repeats=_REPEATS.value,
        baseline_python=_BASELINE_PYTHON.value,
        baseline_checkout=_BASELINE_CHECKOUT.value,
        policy=_POLICY.value,
        episodes=_EPISODES.value,
    )
    report = benchmarks.run(_BENCHMARK.value, options, print)
    workdir = Path(_WORKDIR.value)
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "benchmark.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    with errors.exit_on_user_error():
        # With FLAGS as the parser, errors of flags reach the line above.
        app.run(main, flags_parser=flags.FLAGS)
