"""Program that scores episodes with the package webarena-verified, in its own environment.

    python -I score_verified.py --installation     # prints where the package is
    python -I score_verified.py < EPISODES.json    # prints one verdict per episode

EPISODES.json is a list of {"task_id", "environments", "response", "entries"}: the number of a task,
the package's configuration of its sites, the response of the agent, and HAR entries or null. Each
line of the output is {"score", "result"}; the score is null if the label needs a network log and
there is none.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import sys
from pathlib import Path
from typing import Any


def print_installation() -> None:
    """Print the folder of the package's data and its version, without importing it."""
    spec = importlib.util.find_spec("webarena_verified")
    if spec is None or spec.origin is None:
        sys.exit("webarena-verified is not installed")
    assets = str(Path(spec.origin).with_name("assets"))
    version = importlib.metadata.version("webarena-verified")
    print(json.dumps({"assets": assets, "version": version}))  # noqa: T201


class Scorer:
    """Scorer of the package, loaded once per configuration of the sites."""

    def __init__(self) -> None:
        self._instances: dict[str, Any] = {}

    def score(self, episode: dict[str, Any]) -> dict[str, Any]:
        """Return score and result of an episode."""
        # Imported here, so that --installation takes less than a second.
        from webarena_verified.types.tracing import NetworkTrace

        benchmark = self._instance(episode["environments"])
        task = benchmark.get_task(episode["task_id"])
        trace: Any = episode["entries"]
        if not trace:
            if task.network_event_evaluator_cfgs:
                return {"score": None, "result": {}}
            trace = NetworkTrace(is_playwright=False, src_file=Path("none"), events=())
        result = benchmark.evaluate_task(
            task_id=episode["task_id"], agent_response=episode["response"], network_trace=trace
        )
        return {"score": result.score, "result": json.loads(result.model_dump_json())}

    def _instance(self, environments: dict[str, Any]) -> Any:
        from webarena_verified.api import WebArenaVerified
        from webarena_verified.types.config import WebArenaVerifiedConfig

        key = json.dumps(environments)
        if key not in self._instances:
            config = WebArenaVerifiedConfig(environments=environments)
            self._instances[key] = WebArenaVerified(config=config)
        return self._instances[key]


def main(arguments: list[str]) -> None:
    """Print the installation, or the verdicts on the episodes in standard input."""
    if arguments == ["--installation"]:
        return print_installation()
    logging.disable(logging.CRITICAL)
    output, sys.stdout = sys.stdout, sys.stderr  # the package may print
    scorer = Scorer()
    for episode in json.load(sys.stdin):
        output.write(json.dumps(scorer.score(episode)) + "\n")
    output.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
