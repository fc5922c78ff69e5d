"""JSON serialization of episodes and evaluations, and the journal for resuming.

An episode is one line of JSON. Token ids and log-probabilities are base64 of little-endian arrays.
Screenshots are JPEG files in `screenshots/` next to the log, named by a hash of their content, so
that equal ones are stored once. Other files of an episode are in `files/ATTEMPT/TASK_ID/`.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import shutil
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from absl import logging

from webagent_jax import types
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.tracking import atomic_files, episode_stats

Json = dict[str, Any]
Key = TypeVar("Key", bound=Hashable)


def append_episodes(path: Path, episodes: Iterable[types.Episode]) -> None:
    """Append episodes to a log and create it if missing.

    Screenshots and other files are written before the line that names them. Only one writer per
    file at a time is supported. `Task.eval` must contain JSON values only.
    """
    atomic_files.append_jsonl(path, [_encode_episode(episode, path.parent) for episode in episodes])


def load_episodes(path: Path) -> tuple[types.Episode, ...]:
    """Return the episodes of a log as appended; empty if the file does not exist.

    An incomplete last line and missing screenshots are skipped with a warning.

    Raises:
        ConfigError: an episode is damaged or of another version.
        ValueError: another line is not valid JSON; the message names file and line.
    """
    return tuple(read_episodes(path))


def read_episodes(path: Path) -> Iterator[types.Episode]:
    """Yield the episodes of `load_episodes` one by one, for logs that do not fit into memory."""
    if not path.exists():
        return
    for record in atomic_files.read_jsonl(path):
        yield _decode(record, path)


def read_episode(path: Path, index: int) -> types.Episode:
    """Return one episode of a log, without the screenshots of the others.

    Raises:
        IndexError: the log has fewer episodes.
        ConfigError: the episode is damaged or of another version.
    """
    if index >= 0 and path.exists():
        for record in itertools.islice(atomic_files.read_jsonl(path), index, None):
            return _decode(record, path)
    raise IndexError(f"{path} has no episode {index}")


class EpisodeJournal(Generic[Key]):
    """Episodes of a run on disk, from which an interrupted run resumes. Thread-safe.

    Args:
        folder: folder of the log files.
        key: returns the identity of an episode within the run.
    """

    def __init__(self, folder: Path, key: Callable[[types.Episode], Key]) -> None:
        self._folder, self._key = folder, key
        self._lock = threading.Lock()

    def add(self, episode: types.Episode, file: str = "episodes.jsonl") -> None:
        """Append an episode to a file of the folder; it is on disk when the method returns."""
        # Worker threads add episodes, and a log supports one writer at a time.
        with self._lock:
            append_episodes(self._folder / file, [episode])

    def load(
        self, files: Iterable[str] = ("episodes.jsonl",), *, for_replay: bool = False
    ) -> dict[Key, types.Episode]:
        """Return the episodes of the files by key.

        The latest episode of a key replaces earlier ones. Episodes without a reward are omitted,
        since they run again.

        Args:
            files: names of files in the folder.
            for_replay: keep the episodes without a reward of updates before the newest one that has
                episodes with a reward. These were sampled after training without the former, and
                are on policy only if the replay trains without them too.
        """
        episodes = [e for file in files for e in load_episodes(self._folder / file)]
        newest = max((e.update for e in episodes if e.reward is not None), default=0)
        # In one update, a reward is later than none, but may be in the file of another process.
        episodes.sort(key=lambda e: (e.update, e.reward is not None))
        return {
            self._key(e): e
            for e in episodes
            if e.reward is not None or (for_replay and e.update < newest)
        }

    def delete(self) -> None:
        """Delete the folder of the journal, when its episodes are stored elsewhere."""
        shutil.rmtree(self._folder, ignore_errors=True)


def episode_files_dir(episode: types.Episode) -> Path:
    """Return the folder of `Episode.files`, relative to the log.

    The attempt comes first, so that the tasks of one attempt share a folder.
    """
    # Training runs a task again in later updates.
    update = (f"update-{episode.update}", f"group-{episode.group}") if episode.update >= 0 else ()
    return Path("files", *update, str(episode.attempt), episode.task.id)


def screenshot_name(screenshot: bytes) -> str:
    """Return the file name of a screenshot in `screenshots/` next to the log."""
    return f"{hashlib.sha256(screenshot).hexdigest()[:32]}.jpg"


def eval_json(report: types.EvalReport, config: RunConfig, commit: str) -> Json:
    """Return the content of `eval.json`; rates are in [0, 1], or None without a scored episode.

    `pass_at_k` is omitted for one attempt per task, `by_max_turns` for one turn limit, and `usage`
    without an endpoint.
    """
    has_limits = len(report.by_max_turns) > 1
    return {
        "success_rate": report.success_rate if report.n else None,
        "n": report.n,
        "ci95": list(report.ci95),
        "by_site": {site: _rate(rate) for site, rate in report.by_site.items()},
        "by_outcome": {str(outcome): n for outcome, n in report.by_outcome.items()},
        "attempts": report.attempts,
        **({"pass_at_k": _pass_at_k(report)} if report.attempts > 1 else {}),
        **({"by_max_turns": _by_max_turns(report)} if has_limits else {}),
        "mean_turns": report.mean_turns,
        "mean_response_tokens": report.mean_response_tokens,
        "turns": dataclasses.asdict(report.turns),
        "response_tokens": dataclasses.asdict(report.response_tokens),
        "episode_seconds": dataclasses.asdict(report.episode_seconds),
        "parse_error_rate": report.parse_error_rate,
        "invalid_action_rate": report.invalid_action_rate,
        "utilization": dict(report.utilization),
        **({"usage": dict(report.usage)} if report.usage else {}),
        "infra": [
            {"task_id": e.task.id, "attempt": e.attempt, "infra_error": e.infra_error}
            for e in episode_stats.infra_episodes(report.episodes)
        ],
        "seconds": report.seconds,
        "config": dataclasses.asdict(config),
        "commit": commit,
        "tasks": [_task_result(episode, config) for episode in report.episodes],
    }


def _rate(rate: types.SuccessRate) -> Json:
    success_rate = rate.success_rate if rate.n else None
    return {"success_rate": success_rate, "n": rate.n, "ci95": list(rate.ci95)}


def _pass_at_k(report: types.EvalReport) -> Json:
    return {
        str(k): {
            "rate": rate.success_rate if rate.n else None,
            # Number of tasks: those with at least k scored attempts.
            "n": rate.n,
            "ci95": list(rate.ci95),
        }
        for k, rate in report.pass_at_k.items()
    }


def _by_max_turns(report: types.EvalReport) -> list[Json]:
    return [{"max_turns": limit, **_rate(rate)} for limit, rate in report.by_max_turns.items()]


def _task_result(episode: types.Episode, config: RunConfig) -> Json:
    return {
        "task_id": episode.task.id,
        "attempt": episode.attempt,
        "site": episode_stats.site(episode),
        "reward": episode.reward,
        "outcome": str(episode.outcome),
        "turns": len(episode.turns),
        # Every episode runs to the largest limit; lower limits are computed from it.
        "max_turns_used": max(config.eval.max_turns),
        "response_tokens": sum(len(turn.completion.token_ids) for turn in episode.turns),
        "parse_errors": episode_stats.parse_errors(episode),
        "invalid_actions": episode_stats.invalid_actions(episode),
        "seconds": episode.seconds,
        "answer": episode.answer,
    }


# --- encoding -----------------------------------------------------------------------------------


def _encode_episode(episode: types.Episode, folder: Path) -> Json:
    screenshots = folder / "screenshots"
    for name, content in episode.files.items():
        atomic_files.write_bytes(folder / episode_files_dir(episode) / name, content)
    return {
        "task": dataclasses.asdict(episode.task),
        "intent": episode.intent,
        "turns": [_encode_turn(turn, screenshots) for turn in episode.turns],
        "reward": episode.reward,
        "outcome": str(episode.outcome),
        "answer": episode.answer,
        "seconds": episode.seconds,
        "infra_error": episode.infra_error,
        "final_screenshot": _write_screenshot(episode.final_screenshot, screenshots),
        "truncated": episode.truncated,
        "group": episode.group,
        "attempt": episode.attempt,
        "update": episode.update,
        "files": list(episode.files),
    }


def _encode_turn(turn: types.Turn, screenshots: Path) -> Json:
    completion = turn.completion
    return {
        "prompt_ids": _encode_array(turn.prompt_ids, "<i4"),
        "token_ids": _encode_array(completion.token_ids, "<i4"),
        "logp": _encode_array(completion.logp, "<f4"),
        "sampling_logp": (
            None
            if completion.sampling_logp is None
            else _encode_array(completion.sampling_logp, "<f4")
        ),
        "policy_version": _encode_array(completion.policy_version, "<i4"),
        "finish": completion.finish,
        "is_mistake": completion.is_mistake,
        "response_text": turn.response_text,
        "action": _encode_action(turn.action),
        "observation": dataclasses.asdict(turn.observation),
        "seconds": dict(turn.seconds),
        "screenshot": _write_screenshot(turn.screenshot, screenshots),
    }


def _encode_action(action: types.Action | types.ParseError) -> Json:
    if isinstance(action, types.ParseError):
        return {"parse_error": action.reason}
    return {"kind": str(action.kind), "element_id": action.element_id, "value": action.value}


def _encode_array(array: np.ndarray, dtype: str) -> str:
    return base64.b64encode(np.asarray(array, dtype).tobytes()).decode("ascii")


def _write_screenshot(screenshot: bytes | None, folder: Path) -> str | None:
    if screenshot is None:
        return None
    name = screenshot_name(screenshot)
    # The name is a hash of the content, so an existing file is equal.
    if not (folder / name).exists():
        atomic_files.write_bytes(folder / name, screenshot)
    return name


# --- decoding -----------------------------------------------------------------------------------


def _decode(record: Mapping[str, Any], path: Path) -> types.Episode:
    try:
        return _decode_episode(record, path.parent)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} contains an episode that is damaged or of another version of webagent_jax: "
            f"{error!r}"
        ) from error


def _decode_episode(record: Mapping[str, Any], folder: Path) -> types.Episode:
    task, screenshots = record["task"], folder / "screenshots"
    episode = types.Episode(
        # JSON has no tuples.
        task=types.Task(**{**task, "sites": tuple(task["sites"])}),
        intent=record["intent"],
        turns=tuple(_decode_turn(turn, screenshots) for turn in record["turns"]),
        reward=record["reward"],
        outcome=types.Outcome(record["outcome"]),
        answer=record["answer"],
        seconds=record["seconds"],
        infra_error=record["infra_error"],
        final_screenshot=_read_screenshot(record["final_screenshot"], screenshots),
        truncated=record["truncated"],
        group=record["group"],
        attempt=record["attempt"],
        update=record["update"],
    )
    contents = {
        name: _read_file(folder / episode_files_dir(episode) / name) for name in record["files"]
    }
    return dataclasses.replace(
        episode, files={name: content for name, content in contents.items() if content is not None}
    )


def _decode_turn(record: Mapping[str, Any], screenshots: Path) -> types.Turn:
    sampling_logp = record["sampling_logp"]
    return types.Turn(
        prompt_ids=_decode_array(record["prompt_ids"], "<i4", np.int32),
        completion=types.Completion(
            token_ids=_decode_array(record["token_ids"], "<i4", np.int32),
            logp=_decode_array(record["logp"], "<f4", np.float32),
            policy_version=_decode_array(record["policy_version"], "<i4", np.int32),
            finish=record["finish"],
            is_mistake=record["is_mistake"],
            sampling_logp=(
                None if sampling_logp is None else _decode_array(sampling_logp, "<f4", np.float32)
            ),
        ),
        response_text=record["response_text"],
        action=_decode_action(record["action"]),
        observation=_decode_observation(record["observation"]),
        seconds=record["seconds"],
        screenshot=_read_screenshot(record["screenshot"], screenshots),
    )


def _decode_action(record: Mapping[str, Any]) -> types.Action | types.ParseError:
    if "parse_error" in record:
        return types.ParseError(record["parse_error"])
    return types.Action(types.ActionKind(record["kind"]), record["element_id"], record["value"])


def _decode_observation(record: Mapping[str, Any]) -> types.Observation:
    elements = {
        element_id: types.Element(**{**element, "box": _box(element["box"])})
        for element_id, element in record["elements"].items()
    }
    return types.Observation(**{**record, "elements": elements})


def _box(values: Sequence[float]) -> tuple[float, float, float, float]:
    x, y, width, height = values
    return x, y, width, height


def _decode_array(text: str, dtype: str, native: type[np.generic]) -> Any:
    # frombuffer returns a read-only view of little-endian data; astype copies it.
    return np.frombuffer(base64.b64decode(text), dtype).astype(native)


def _read_screenshot(name: str | None, folder: Path) -> bytes | None:
    return None if name is None else _read_file(folder / name)


def _read_file(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        logging.warning("%s is missing; its episode is shown without it", path)
        return None
