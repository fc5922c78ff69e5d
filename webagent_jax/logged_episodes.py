"""Episodes in the logs of a training run, as sources of demonstrations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from webagent_jax import demos
from webagent_jax.config import ConfigError
from webagent_jax.demos.dataset import Imported
from webagent_jax.tracking import episode_log
from webagent_jax.types import Episode, Outcome


def read_logs(run: Path) -> Iterator[Episode]:
    """Yield the episodes of a training run in the order of its updates.

    Logs of evaluations are not read: training on test tasks would contaminate the test split.

    Args:
        run: workdir of the training run.

    Raises:
        ConfigError: the workdir contains no episode logs.
    """
    logs = sorted((run / "episodes").glob("update-*.jsonl"))
    if not logs:
        raise ConfigError(
            f"{run} has no episodes of training: pass the workdir of a train grpo run"
        )
    for log in logs:
        yield from episode_log.read_episodes(log)


def shortest_by_task(episodes: Iterable[Episode]) -> list[Episode]:
    """Return one episode of each task, the first one with the fewest turns."""
    shortest: dict[str, Episode] = {}
    for episode in episodes:
        known = shortest.get(episode.task.id)
        if known is None or len(episode.turns) < len(known.turns):
            shortest[episode.task.id] = episode
    return list(shortest.values())


def import_successes(runs: Sequence[Path]) -> Imported:
    """Return the shortest success of each task as a demonstration, for rejection sampling.

    Skips episodes without a turn, with a response without an action, or that ended at a limit: the
    last ones would teach to continue after the task is solved. BC on the result is one step of
    expert iteration (STaR, arXiv 2203.14465).

    Args:
        runs: workdirs of training runs.

    Raises:
        ConfigError: a workdir contains no episode logs.
    """
    num_successes = num_invalid = num_truncated = 0

    def valid_successes() -> Iterator[Episode]:
        nonlocal num_successes, num_invalid, num_truncated
        for run in runs:
            for episode in read_logs(run):
                if episode.outcome is not Outcome.SUCCESS:
                    continue
                num_successes += 1
                if not demos.has_only_actions(episode):
                    num_invalid += 1
                elif episode.truncated:
                    num_truncated += 1
                else:
                    yield episode

    shortest = shortest_by_task(valid_successes())
    num_longer = num_successes - num_invalid - num_truncated - len(shortest)
    reasons = {
        "it has no turns, or a response contains no valid action": num_invalid,
        "it ended at the turn or token limit": num_truncated,
        "the task has a shorter or earlier success": num_longer,
    }
    skipped = {reason: count for reason, count in reasons.items() if count}
    return Imported(tuple(map(demos.from_episode, shortest)), skipped)
