"""Progress that keeps the log messages of a run."""

from __future__ import annotations

from webagent_jax.tracking.progress import NullProgress


class RecordingProgress(NullProgress):
    """Progress with the logged lines in `lines`."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)
