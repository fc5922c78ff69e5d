"""Episodes and evaluations on disk.

An episode is one line of JSON: token ids and log-probabilities as base64 of little-endian arrays,
pictures as JPEG files in `pictures/` beside the log, named by content so that equal pages are
kept once.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from webagent_jax import types
from webagent_jax.config import RunConfig
from webagent_jax.tracking import atomic_files, episode_stats

Json = dict[str, Any]


def append_episodes(path: Path, episodes: Iterable[types.Episode]) -> None:
    """Adds episodes to a log, made if need be. One writer per file at a time.

    Pictures are written before the line that names them. `Task.eval` must hold JSON values only.
    """
    pictures = path.parent / "pictures"
    atomic_files.append_jsonl(path, [_encode_episode(episode, pictures) for episode in episodes])


def load_episodes(path: Path) -> tuple[types.Episode, ...]:
    """The episodes of a log, exactly as they were appended; none when there is no such file.

    A half-written last line, and a picture that is gone, are left out with a warning. Raises
    ValueError that names file and line for a broken line elsewhere.
    """
    return tuple(read_episodes(path))


def read_episodes(path: Path) -> Iterator[types.Episode]:
    """The same one by one, for logs that are larger than memory should be."""
    if not path.exists():
        return
    pictures = path.parent / "pictures"
    for record in atomic_files.read_jsonl(path):
        yield _decode_episode(record, pictures)


def picture_name(picture: bytes) -> str:
    """The file of a picture, in `pictures/` beside the log."""
    return f"{hashlib.sha256(picture).hexdigest()[:32]}.jpg"


def eval_json(report: types.EvalReport, config: RunConfig, commit: str) -> Json:
    """An evaluation as `eval.json` holds it; rates in [0, 1].

    What was asked for once only is left out: pass@k of one attempt, success by one turn limit, the
    usage of an endpoint where there was none.
    """
    limits = len(report.by_max_turns) > 1
    return {
        "success_rate": report.success_rate,
        "n": report.n,
        "ci95": list(report.ci95),
        "by_site": {site: _rate(rate) for site, rate in report.by_site.items()},
        "by_outcome": {str(outcome): n for outcome, n in report.by_outcome.items()},
        "attempts": report.attempts,
        **({"pass_at_k": _pass_at_k(report)} if report.attempts > 1 else {}),
        **({"by_max_turns": _by_max_turns(report)} if limits else {}),
        "mean_turns": report.mean_turns,
        "mean_response_tokens": report.mean_response_tokens,
        "turns": dataclasses.asdict(report.turns),
        "response_tokens": dataclasses.asdict(report.response_tokens),
        "episode_seconds": dataclasses.asdict(report.episode_seconds),
        "parse_error_rate": report.parse_error_rate,
        "invalid_action_rate": report.invalid_action_rate,
        "busy": dict(report.busy),
        **({"usage": dict(report.usage)} if report.usage else {}),
        "infra": [
            {"task_id": e.task.id, "attempt": e.sibling, "note": e.note}
            for e in episode_stats.infra(report.episodes)
        ],
        "seconds": report.seconds,
        "config": dataclasses.asdict(config),
        "commit": commit,
        "tasks": [_task_result(episode, config) for episode in report.episodes],
    }


def _rate(rate: types.Rate) -> Json:
    return {"success_rate": rate.success_rate, "n": rate.n, "ci95": list(rate.ci95)}


def _pass_at_k(report: types.EvalReport) -> Json:
    return {
        str(k): {"rate": rate.success_rate, "ci95": list(rate.ci95)}
        for k, rate in report.pass_at_k.items()
    }


def _by_max_turns(report: types.EvalReport) -> list[Json]:
    return [{"max_turns": limit, **_rate(rate)} for limit, rate in report.by_max_turns.items()]


def _task_result(episode: types.Episode, config: RunConfig) -> Json:
    return {
        "task_id": episode.task.id,
        "attempt": episode.sibling,
        "site": episode_stats.site(episode),
        "reward": episode.reward,
        "outcome": str(episode.outcome),
        "turns": len(episode.turns),
        "max_turns_used": max(config.eval.max_turns),  # the limit it was played under
        "response_tokens": sum(len(turn.completion.token_ids) for turn in episode.turns),
        "parse_errors": episode_stats.parse_errors(episode),
        "invalid_actions": episode_stats.invalid_actions(episode),
        "seconds": episode.seconds,
        "answer": episode.answer,
    }


# --- to JSON ------------------------------------------------------------------------------------


def _encode_episode(episode: types.Episode, pictures: Path) -> Json:
    return {
        "task": dataclasses.asdict(episode.task),
        "intent": episode.intent,
        "turns": [_encode_turn(turn, pictures) for turn in episode.turns],
        "reward": episode.reward,
        "outcome": str(episode.outcome),
        "answer": episode.answer,
        "seconds": episode.seconds,
        "note": episode.note,
        "last_picture": _write_picture(episode.last_picture, pictures),
        "truncated": episode.truncated,
        "group": episode.group,
        "sibling": episode.sibling,
        "update": episode.update,
    }


def _encode_turn(turn: types.Turn, pictures: Path) -> Json:
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
        "reply": turn.reply,
        "action": _encode_action(turn.action),
        "observation": dataclasses.asdict(turn.observation),
        "seconds": dict(turn.seconds),
        "picture": _write_picture(turn.picture, pictures),
    }


def _encode_action(action: types.Action | types.ParseError) -> Json:
    if isinstance(action, types.ParseError):
        return {"parse_error": action.reason}
    return {"kind": str(action.kind), "element_id": action.element_id, "value": action.value}


def _encode_array(array: np.ndarray, dtype: str) -> str:
    return base64.b64encode(np.asarray(array, dtype).tobytes()).decode("ascii")


def _write_picture(picture: bytes | None, folder: Path) -> str | None:
    if picture is None:
        return None
    name = picture_name(picture)
    if not (folder / name).exists():
        atomic_files.write_bytes(folder / name, picture)
    return name


# --- and back -----------------------------------------------------------------------------------


def _decode_episode(record: Mapping[str, Any], pictures: Path) -> types.Episode:
    task = record["task"]
    outcome = types.Outcome(record["outcome"])
    return types.Episode(
        task=types.Task(**{**task, "sites": tuple(task["sites"])}),
        intent=record["intent"],
        turns=tuple(_decode_turn(turn, pictures) for turn in record["turns"]),
        reward=record["reward"],
        outcome=outcome,
        answer=record["answer"],
        seconds=record["seconds"],
        note=record["note"],
        last_picture=_read_picture(record["last_picture"], pictures),
        # Older records do not tell it of a success.
        truncated=record.get("truncated", outcome is types.Outcome.TRUNCATED),
        group=record.get("group", -1),  # which older records do not have
        sibling=record.get("sibling", 0),
        update=record.get("update", -1),
    )


def _decode_turn(record: Mapping[str, Any], pictures: Path) -> types.Turn:
    sampling_logp = record.get("sampling_logp")  # which older records do not have
    return types.Turn(
        prompt_ids=_decode_array(record["prompt_ids"], "<i4", np.int32),
        completion=types.Completion(
            token_ids=_decode_array(record["token_ids"], "<i4", np.int32),
            logp=_decode_array(record["logp"], "<f4", np.float32),
            policy_version=_decode_array(record["policy_version"], "<i4", np.int32),
            finish=record["finish"],
            sampling_logp=sampling_logp and _decode_array(sampling_logp, "<f4", np.float32),
        ),
        reply=record["reply"],
        action=_decode_action(record["action"]),
        observation=_decode_observation(record["observation"]),
        seconds=record["seconds"],
        picture=_read_picture(record["picture"], pictures),
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
    return np.frombuffer(base64.b64decode(text), dtype).astype(native)


def _read_picture(name: str | None, folder: Path) -> bytes | None:
    if name is None:
        return None
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        logging.warning("%s is gone; its step is shown without a picture", folder / name)
        return None
