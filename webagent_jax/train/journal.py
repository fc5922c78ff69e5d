"""Finished episodes of a training on disk: what a killed run need not play again."""

from __future__ import annotations

import threading
from pathlib import Path

from webagent_jax.report import store
from webagent_jax.rollout.groups import Key
from webagent_jax.types import Episode


class Journal:
    """One file for the episodes that ended while an update was being made ready.

    Thread-safe. Every episode is on disk when `add` returns.
    """

    def __init__(self, folder: Path, host: int = 0) -> None:
        self._folder = folder
        self._suffix = f"-host-{host}" if host else ""
        self._lock = threading.Lock()
        self._update = 0

    def turn_to(self, update: int) -> None:
        """Episodes from now on are those of this update, 1 for the first."""
        with self._lock:
            self._update = update

    def add(self, episode: Episode) -> None:
        with self._lock:
            store.append_episodes(self._path(self._update), [episode])

    def load(self, since: int) -> dict[Key, Episode]:
        """All hosts' of update `since` and later ones, less those that are to be played again."""
        found = (
            episode
            for path in sorted(self._folder.glob("update-*.jsonl"))
            if int(path.stem.split("-")[1]) >= since
            for episode in store.load_episodes(path)
        )
        return {(e.group, e.sibling): e for e in found if e.reward is not None}

    def _path(self, update: int) -> Path:
        return self._folder / f"update-{update:05d}{self._suffix}.jsonl"
