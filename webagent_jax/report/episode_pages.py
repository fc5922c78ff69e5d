"""The folder `report/` beside report.html: every episode of the run, for its trajectory browser.

    index.js               what the page reads when it opens: a line per episode
    update-3/0.js, 1.js    episodes of one log, step by step; read when one of them is looked at
    update-3/entries.json  the log's part of the index, and which log it was made from
    pictures/              pages as the agent saw them

A page opened from disk may not fetch, but it may load scripts: so each file calls the page back
with what it holds. A log that has not changed since is not read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from webagent_jax import types
from webagent_jax.report import screenshots, trajectories
from webagent_jax.report.token_text import Pieces
from webagent_jax.report.token_text import directory as tokenizer_directory
from webagent_jax.tracking import atomic_files, episode_log

Json = dict[str, Any]

_FORM = 1  # of the files; those of another form are written anew
_CHUNK_BYTES = 200_000  # of one file of episodes; a longer episode has a file to itself


@dataclass(frozen=True)
class Log:
    """One file of episodes. Its id and an episode's place in it name the episode for ever."""

    id: str  # "grpo", "update-3"
    name: str  # for people
    update: int | None  # of training; None for an evaluation
    path: Path


def write(workdir: Path, logs: Sequence[Log]) -> int:
    """Brings `workdir/report` up to date. Returns the number of episodes.

    Raises ValueError that names file and line for a log that is broken in its middle.
    """
    folder = workdir / "report"
    directory = tokenizer_directory(workdir) if logs else None
    open_pieces = cache(lambda: Pieces(directory))
    tasks: dict[str, int] = {}
    rows: list[Json] = []
    for number, log in enumerate(logs):
        for found in _entries(log, folder, directory is not None, open_pieces):
            key = json.dumps(found["task"])
            place = tasks.setdefault(key, len(tasks))
            rows.append({**found, "task": place, "log": number})
    index = {
        "logs": [{"id": log.id, "name": log.name, "update": log.update} for log in logs],
        "tasks": [json.loads(key) for key in tasks],
        "episodes": rows,
    }
    if logs:
        atomic_files.write_text(folder / "index.js", f"trajectories.index({_plain(index)});\n")
    return len(rows)


def _entries(
    log: Log, folder: Path, with_text: bool, open_pieces: Callable[[], Pieces]
) -> Sequence[Mapping[str, Any]]:
    """The index lines of a log, with its other files beside them written where they are old."""
    known = folder / log.id / "entries.json"
    status = log.path.stat()
    made_from = [_FORM, status.st_size, status.st_mtime_ns, with_text]
    if known.exists():
        record = atomic_files.read_json(known)
        if record["made_from"] == made_from:
            return record["entries"]
    entries = []
    for number, chunk in enumerate(_chunks(_details(log, folder, open_pieces()))):
        details = ",\n".join(detail for _, detail in chunk)
        call = f'trajectories.chunk("{log.id}", {number}, [\n{details}\n]);\n'
        atomic_files.write_text(folder / log.id / f"{number}.js", call)
        entries += [{**entry, "chunk": number, "place": i} for i, (entry, _) in enumerate(chunk)]
    atomic_files.write_text(known, _plain({"made_from": made_from, "entries": entries}))
    return entries


def _details(log: Log, folder: Path, pieces: Pieces) -> Iterator[tuple[Json, str]]:
    """Of each episode its line of the index, and its steps as JSON."""
    for episode in episode_log.read_episodes(log.path):
        _keep_pictures(episode, log.path.parent / "pictures", folder / "pictures")
        entry = trajectories.entry(episode) | {"task": trajectories.task(episode)}
        yield entry, _plain(trajectories.detail(episode, pieces))


def _keep_pictures(episode: types.Episode, source: Path, folder: Path) -> None:
    for picture in trajectories.picture_bytes(episode):
        screenshots.keep(picture, source, folder)


def _chunks(details: Iterable[tuple[Json, str]]) -> Iterator[list[tuple[Json, str]]]:
    """Neighbours in one file, so that siblings are there when one of them is looked at."""
    chunk: list[tuple[Json, str]] = []
    size = 0
    for entry, detail in details:
        if chunk and size + len(detail) > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append((entry, detail))
        size += len(detail)
    if chunk:
        yield chunk


def _plain(value: Any) -> str:
    """JSON in ASCII: nothing in it can end a script or a string early."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
