"""Replay of earlier successes in groups without a success (ARPO, arXiv 2505.16282)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from webagent_jax import distributed
from webagent_jax.config import RunConfig
from webagent_jax.tracking import episode_log
from webagent_jax.train.resume import episode_file
from webagent_jax.types import Episode, Group


class Location(NamedTuple):
    """Place of an episode in the logs of a run."""

    update: int  # update that scheduled it
    process: int  # process that recorded it
    group: int  # index of its group
    attempt: int


class SuccessReplay:
    """Latest successful episode of each task, which replaces a failure in groups without a success.

    A replayed episode keeps the log-probabilities of the policy that sampled it, so its importance
    weight applies. Only locations are in memory; the episodes are in the logs of the run.

    Without `grpo.success_replay`, this class stores nothing and changes no group.

    Args:
        cfg: config of the run.
        folder: folder of the episode logs, which all processes can read.
        saved: `state` of the interrupted run; empty at the start of a run.
    """

    def __init__(self, cfg: RunConfig, folder: Path, saved: Mapping[str, Sequence[int]]) -> None:
        self._is_enabled, self._folder = cfg.grpo.success_replay, folder
        self._truncated_episodes = cfg.grpo.truncated_episodes
        self._locations = {task_id: Location(*values) for task_id, values in saved.items()}

    def fill(self, group: Group) -> Group:
        """Return the group; if all of it failed, a stored success replaces its last failure."""
        scored = [e for e in group.episodes if e.reward is not None]
        location = self._locations.get(group.task.id)
        # As in the objective, "zero" makes a truncated success a failure.
        is_zeroed = self._truncated_episodes == "zero"
        has_success = any(e.reward and not (is_zeroed and e.truncated) for e in scored)
        if not scored or has_success or location is None:
            return group
        success = self._read(location)
        # The log may have been deleted.
        if success is None:
            return group
        episodes = tuple(success if e is scored[-1] else e for e in group.episodes)
        return replace(group, episodes=episodes)

    def record(self, episodes: Sequence[Episode]) -> None:
        """Add the successes that this process collected for an update; a collective call."""
        if not self._is_enabled:
            return
        process = distributed.process_index()
        # Otherwise the objective would not use a replayed success as one.
        uses_truncated = self._truncated_episodes == "score"
        locations = {
            e.task.id: Location(e.update, process, e.group, e.attempt)
            for e in episodes
            if e.reward == 1 and (uses_truncated or not e.truncated)
        }
        for process_locations in distributed.allgather(locations):
            self._locations |= {
                task_id: Location(*values) for task_id, values in process_locations.items()
            }

    def state(self) -> dict[str, Location]:
        """Return the state for a checkpoint, equal on all processes."""
        return dict(self._locations)

    def _read(self, location: Location) -> Episode | None:
        own = self._folder / episode_file(location.update, location.process)
        # After a resume with another number of processes, the process that records an episode may
        # not be the one that logged it.
        logs = self._folder.glob(f"{Path(episode_file(location.update, 0)).stem}*.jsonl")
        for log in dict.fromkeys((own, *sorted(logs))):
            found = None
            for episode in episode_log.read_episodes(log):
                # The last one: an interrupted run may have logged an episode twice.
                if (episode.group, episode.attempt) == (location.group, location.attempt):
                    found = episode
            if found is not None:
                return found
        return None
