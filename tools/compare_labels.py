"""List the reference answers of WebArena-Lite that WebArena-Verified accepts, and the others.

python tools/compare_labels.py test_webarena_lite.raw.json --verified_python=PYTHON

Sends each reference answer of the file through the package's scorer, as the message of an agent.
Only tasks that both label sets score by an answer alone are compared. A difference may be one of
the question or of the format: read both lines.
"""

from __future__ import annotations

import argparse
import json
import sys

from webagent_jax.config import ConfigError, WebArenaConfig
from webagent_jax.suites.webarena import catalog, verified
from webagent_jax.types import Task


def main() -> None:
    """Print the accepted tasks, then instruction and answer of both sides for each other task."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", help="task file with old_task_id")
    parser.add_argument("--verified_python", default="", help="interpreter with the package")
    arguments = parser.parse_args()
    try:
        installation = verified.find_installation(arguments.verified_python)
        config = WebArenaConfig(labels="verified", verified_python=installation.python)
        labels = {task.eval["webarena_id"]: task for task in verified.read_tasks(config)}
        tasks = [task for task in catalog.load_file(arguments.file) if _is_answered(task, labels)]
    except ConfigError as error:
        sys.exit(str(error))
    requests = [_request(task, labels[task.eval["webarena_id"]]) for task in tasks]
    verdicts = list(zip(tasks, verified.score(installation.python, requests), strict=True))
    accepted = [_number(task) for task, verdict in verdicts if verdict.score == 1]
    num_compared = sum(verdict.score is not None for _, verdict in verdicts)
    print(f"{len(accepted)} of {num_compared} answers accepted: {', '.join(accepted)}")
    for task, verdict in verdicts:
        if verdict.score == 0:
            label = labels[task.eval["webarena_id"]]
            expected = verdict.result["evaluators_results"][0]["expected"]
            print(
                f"\n{_number(task)} ({task.eval['webarena_id']})  {task.intent}\n  {_answer(task)}"
            )
            print(f"  verified: {label.intent}\n  {json.dumps(expected)}")


def _is_answered(task: Task, labels: dict[int, Task]) -> bool:
    label = labels[task.eval["webarena_id"]]
    return task.eval["eval_types"] == ["string_match"] and label.eval["task_type"] == "RETRIEVE"


def _request(task: Task, label: Task) -> verified.ScoreRequest:
    spec = label.eval
    return verified.ScoreRequest(
        spec["webarena_id"],
        {site: f"http://{site}.invalid" for site in label.sites},
        verified.agent_response(_answer(task), spec["task_type"], spec["item_type"]),
        None,
    )


def _answer(task: Task) -> str:
    """Return the references of a task as one message, the first of each alternative."""
    texts: list[str] = []
    for value in task.eval["reference_answers"].values():
        texts += [value] if isinstance(value, str) else value
    return "; ".join(text.partition(" |OR| ")[0] for text in texts)


def _number(task: Task) -> str:
    return task.id.rpartition("/")[2]


if __name__ == "__main__":
    main()
