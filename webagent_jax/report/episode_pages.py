"""Directory `report/` next to report.html: all episodes of the run for the episode viewer.

    index.js               index with one entry per episode, loaded when the page opens
    update-3/0.js, 1.js    turns of the episodes of one log, loaded on demand
    update-3/entries.json  index entries of the log, and the version of the log they were built from
    screenshots/           screenshots of the observations

A page opened from disk cannot use fetch(), but it can load scripts. Each file therefore calls a
function of the page with its data. Unchanged logs are not read again.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from webagent_jax import config, types
from webagent_jax.config import GRPOConfig
from webagent_jax.report import audit, screenshots, trajectories
from webagent_jax.report.token_text import TokenDecoder
from webagent_jax.report.token_text import directory as tokenizer_directory
from webagent_jax.tracking import atomic_files, episode_log

Json = dict[str, Any]

_FORMAT_VERSION = 7  # file format version; files of another version are rebuilt
_CHUNK_BYTES = 200_000  # maximum size of a file with several episodes


@dataclass(frozen=True)
class EpisodeLogFile:
    """JSONL log of episodes. Log id and line index are the permanent id of an episode."""

    id: str  # "grpo", "update-3"
    name: str  # display name
    update: int | None  # training update; None for an evaluation
    path: Path  # JSONL file


@dataclass(frozen=True)
class LogAudit:
    """Number of episodes with each finding, in one evaluation or in all training logs."""

    id: str  # value of the filter for logs: "grpo", "training"
    name: str  # display name
    num_scored: int  # number of episodes with a reward
    findings: Mapping[str, int]  # number of episodes by finding, see `audit.Finding`


@dataclass(frozen=True)
class EpisodeIndex:
    """Summary of the files in `report/`."""

    num_episodes: int = 0
    audits: Sequence[LogAudit] = ()  # in the order of the run


def write(
    workdir: Path, logs: Sequence[EpisodeLogFile], run_config: Mapping[str, Any] | None = None
) -> EpisodeIndex:
    """Update `workdir/report` and return its summary.

    Args:
        workdir: workdir of the run.
        logs: episode logs of the run.
        run_config: config of the run, from which the advantages are computed. They are omitted
            without it, with that of another version, and if a log does not determine them.

    Raises:
        ValueError: a line before the last is not valid JSON; the message names file and line.
    """
    folder = workdir / "report"
    directory = tokenizer_directory(workdir) if logs else None
    grpo = _objective(run_config) if run_config else None
    # The tokenizer is loaded at most once, and not at all if no log has changed.
    open_decoder = cache(lambda: TokenDecoder(directory))
    # The processes of a run write a log each, and the advantages of an update depend on all.
    updates: dict[int | str, list[EpisodeLogFile]] = {}
    for log in logs:
        updates.setdefault(log.id if log.update is None else log.update, []).append(log)
    entries: dict[str, Sequence[Mapping[str, Any]]] = {}
    for update_logs in updates.values():
        entries |= _entries(update_logs, folder, grpo, directory is not None, open_decoder)
    tasks: dict[str, int] = {}
    rows: list[Json] = []
    for number, log in enumerate(logs):
        for entry in entries[log.id]:
            # Attempts at one task share its intent, so the index stores each task once.
            key = json.dumps(entry["task"])
            task_index = tasks.setdefault(key, len(tasks))
            rows.append({**entry, "task": task_index, "log": number})
    index = {
        "logs": [{"id": log.id, "name": log.name, "update": log.update} for log in logs],
        "tasks": [json.loads(key) for key in tasks],
        "findings": audit.DESCRIPTIONS,
        "episodes": rows,
    }
    if logs:
        atomic_files.write_text(folder / "index.js", f"trajectories.index({_ascii_json(index)});\n")
    return EpisodeIndex(len(rows), _audits(logs, rows))


def _audits(logs: Sequence[EpisodeLogFile], rows: Sequence[Json]) -> list[LogAudit]:
    """Return the audits of the evaluations and of the training, in the order of the logs."""
    names = {
        log.id if log.update is None else "training": log.name if log.update is None else "Training"
        for log in logs
    }
    scored: Counter[str] = Counter()
    findings: dict[str, Counter[str]] = {name: Counter() for name in names}
    for row in rows:
        log = logs[row["log"]]
        group = log.id if log.update is None else "training"
        if row["reward"] is not None:
            scored[group] += 1
            findings[group].update(row["findings"])
    return [LogAudit(group, name, scored[group], findings[group]) for group, name in names.items()]


def _entries(
    logs: Sequence[EpisodeLogFile],
    folder: Path,
    grpo: GRPOConfig | None,
    has_text: bool,
    open_decoder: Callable[[], TokenDecoder],
) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the index entries of each log by its id; rebuild the files if a log changed.

    Args:
        logs: an evaluation, or all logs of an update.
        folder: directory of the files.
        grpo: objective of the run; None if advantages are omitted.
        has_text: whether there is a tokenizer.
        open_decoder: returns the decoder of token ids.
    """
    status = [log.path.stat() for log in logs]
    # Size and time of a log detect changes; the flags a config or tokenizer that was added later.
    source_version = [
        _FORMAT_VERSION,
        [[each.st_size, each.st_mtime_ns] for each in status],
        grpo is not None,
        has_text,
    ]
    paths = {log.id: folder / log.id / "entries.json" for log in logs}
    if all(path.exists() for path in paths.values()):
        records = {log_id: atomic_files.read_json(path) for log_id, path in paths.items()}
        if all(record.get("source_version") == source_version for record in records.values()):
            return {log_id: record["entries"] for log_id, record in records.items()}
    short_episodes: list[types.Episode] = []
    entries = {log.id: _write_turns(log, folder, open_decoder(), short_episodes) for log in logs}
    if grpo is not None and logs[0].update is not None:
        rows = itertools.chain.from_iterable(entries.values())
        for entry, advantage in zip(rows, _advantages(short_episodes, grpo), strict=True):
            entry["advantage"] = advantage
    # Written last: after an interruption the logs have no valid version and are rebuilt.
    for log_id, path in paths.items():
        record = {"source_version": source_version, "entries": entries[log_id]}
        atomic_files.write_text(path, _ascii_json(record))
    return entries


def _write_turns(
    log: EpisodeLogFile, folder: Path, decoder: TokenDecoder, short_episodes: list[types.Episode]
) -> list[Json]:
    """Write the turns of the episodes of a log, and return its index entries; see `_details`."""
    entries: list[Json] = []
    # A chunk is written before the next one is built, so memory holds the turns of one chunk.
    for number, chunk in enumerate(_chunks(_details(log, folder, decoder, short_episodes))):
        details = ",\n".join(detail for _, detail in chunk)
        call = f'trajectories.chunk("{log.id}", {number}, [\n{details}\n]);\n'
        atomic_files.write_text(folder / log.id / f"{number}.js", call)
        entries += [{**entry, "chunk": number, "index": i} for i, (entry, _) in enumerate(chunk)]
    return entries


def _objective(run_config: Mapping[str, Any]) -> GRPOConfig | None:
    """Return the objective of the run; None if its logs do not determine the advantages."""
    try:
        cfg = config.from_config_dict(run_config)
    except config.ConfigError:  # another version of the package wrote it
        return None
    # Logs contain late attempts, which are not trained on, but not the replayed successes.
    if cfg.rollout.group_timeout or cfg.grpo.success_replay:
        return None
    # An asynchronous update trains on groups that earlier ones scheduled, in their logs.
    if cfg.grpo.advantage_estimator == "batch_mean" and cfg.grpo.max_staleness:
        return None
    return cfg.grpo


def _advantages(episodes: Sequence[types.Episode], grpo: GRPOConfig) -> list[float | None]:
    """Return the advantage of each episode of an update; None for one that is not trained on."""
    # Import on demand: the module imports JAX.
    from webagent_jax import learn

    by_attempt: dict[int, dict[int, types.Episode]] = {}
    # A repeated attempt replaces the earlier one. One with a reward is later than one without, but
    # may be in the log of another process.
    for episode in sorted(episodes, key=lambda e: e.reward is not None):
        by_attempt.setdefault(episode.group, {})[episode.attempt] = episode
    groups = [
        types.Group(next(iter(attempts.values())).task, tuple(attempts.values()))
        for attempts in by_attempt.values()
    ]
    if grpo.filter_groups:
        # The advantages of turns need all turns: without them, groups with equal rewards have none.
        no_steps = dataclasses.replace(grpo, step_advantage_weight=0.0)
        groups = [group for group in groups if learn.has_signal(group, no_steps)]
    totals = learn.count_totals(groups, grpo)
    gains = {id(e): gain for e, gain in learn.with_advantages(groups, grpo, totals)}
    return [round(gains[id(e)], 4) if id(e) in gains else None for e in episodes]


def _details(
    log: EpisodeLogFile, folder: Path, decoder: TokenDecoder, short_episodes: list[types.Episode]
) -> Iterator[tuple[Json, str]]:
    """Yield the index entry of each episode, and its turns as JSON.

    Each episode is added to `short_episodes` with its first turn only, because all episodes of a
    log together may not fit into memory.
    """
    for episode in episode_log.read_episodes(log.path):
        _link_screenshots(episode, log.path.parent / "screenshots", folder / "screenshots")
        entry = trajectories.entry(episode) | {"task": trajectories.task(episode)}
        turns = tuple(dataclasses.replace(turn, screenshot=None) for turn in episode.turns[:1])
        short_episodes.append(dataclasses.replace(episode, turns=turns, final_screenshot=None))
        yield entry, _ascii_json(trajectories.detail(episode, decoder))


def _link_screenshots(episode: types.Episode, source: Path, folder: Path) -> None:
    for screenshot in trajectories.screenshot_bytes(episode):
        screenshots.link_or_copy(screenshot, source, folder)


def _chunks(details: Iterable[tuple[Json, str]]) -> Iterator[list[tuple[Json, str]]]:
    """Yield lists of consecutive episodes, so that the attempts of a group share a file."""
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


def _ascii_json(value: Any) -> str:
    """Return JSON in ASCII: no character in it can end a script or a string early."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
