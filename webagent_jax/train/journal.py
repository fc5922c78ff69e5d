"""Finished episodes of a training on disk: what a killed run need not play again."""

from __future__ import annotations

import threading
from pathlib import Path

from webagent_jax.report import store
from webagent_jax.rollout.groups import Key
from webagent_jax.types import Episode


class Journal:
    """Episode log of a training, with a file for the groups scheduled at each update.

    Thread-safe. Every episode is on disk when `add` returns.
    """

    def __init__(self, folder: Path, host: int = 0) -> None:
        self._folder = folder
        self._suffix = f"-host-{host}" if host else ""
        self._lock = threading.Lock()

    def add(self, episode: Episode) -> None:
        """Append an episode to the file of its update, 1 for the first."""
        path = self._folder / f"update-{episode.update + 1:05d}{self._suffix}.jsonl"
        with self._lock:
            store.append_episodes(path, [episode])

    def load(self, since: int) -> dict[Key, Episode]:
        """Return all hosts' episodes of groups scheduled at update `since`, from 0, or later.

        Those that are to be played again are left out. Of several of one key it is the latest.
        """
        episodes = (
            episode
            for path in sorted(self._folder.glob("update-*.jsonl"))
            if int(path.stem.split("-")[1]) > since
            for episode in store.load_episodes(path)
        )
        return {(e.group, e.sibling): e for e in episodes if e.reward is not None}
