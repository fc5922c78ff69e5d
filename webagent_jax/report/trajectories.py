"""Episodes as JSON for the report page: index entries and turns.

The page inserts all strings as text nodes, so HTML in them is not interpreted.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from webagent_jax import types
from webagent_jax.agent import actions
from webagent_jax.report import audit, screenshots
from webagent_jax.report.screenshots import Rect
from webagent_jax.report.token_text import TokenDecoder
from webagent_jax.tracking import episode_stats

Json = dict[str, Any]

_MAX_CHANGES = 40  # maximum added and removed lines per turn
_MAX_ACTION_CHARS = 90  # maximum characters of an action in the index


def entry(episode: types.Episode) -> Json:
    """Return the index entry of an episode, without its task (see `task`)."""
    logps = [turn.completion.logp for turn in episode.turns]
    return {
        "outcome": str(episode.outcome),
        "reward": episode.reward,
        "trace": "".join(
            _grade(turn, next_observation) for turn, next_observation in _with_next(episode)
        ),
        "tokens": sum(len(turn.completion.token_ids) for turn in episode.turns),
        "seconds": round(episode.seconds, 2),
        "logp": _mean(np.concatenate(logps)) if logps else None,
        "group": episode.group,
        "attempt": episode.attempt,
        "answer": episode.answer,
        "infra_error": episode.infra_error,
        "action": [_describe_action(turn)[:_MAX_ACTION_CHARS] for turn in episode.turns],
        "findings": audit.find_invalid(episode),
        "screenshots": any(turn.screenshot for turn in episode.turns),
    }


def detail(episode: types.Episode, decoder: TokenDecoder) -> Json:
    """Return the turns of an episode.

    `prompt` of a turn is the number of characters it shares with the start of the previous prompt,
    and the rest. Complete prompts of a long episode would consist mostly of repetitions.
    """
    # All screenshots of an episode have the same crop.
    crop = screenshots.content_area(screenshot_bytes(episode))
    turns = []
    previous = ""
    for turn, next_observation in _with_next(episode):
        prompt = decoder.text(turn.prompt_ids)
        turns.append(_turn_record(turn, next_observation, crop) | response(turn, decoder))
        if prompt is not None:
            shared = _common_prefix_length(previous, prompt)
            # JavaScript counts UTF-16 units, Python counts code points.
            turns[-1]["prompt"] = [_utf16_length(prompt[:shared]), prompt[shared:]]
            previous = prompt
    return {"turns": turns, "last": _view(episode.final_screenshot, crop, None)}


def _turn_record(
    turn: types.Turn, next_observation: types.Observation | None, crop: Rect | None
) -> Json:
    observation = turn.observation
    element = _element(turn)
    lines = observation.text.splitlines()
    element_id = turn.action.element_id if isinstance(turn.action, types.Action) else None
    return {
        "url": observation.url,
        "title": observation.title,
        "error": observation.error,
        "observation": lines,
        "acted": [i for i, line in enumerate(lines) if _refers_to(line, element_id)],
        "truncated": observation.truncated,
        "shot": _view(turn.screenshot, crop, element.box if element else None),
        "page_changes": _page_changes(observation, next_observation) if next_observation else [],
        "seconds": {phase: round(seconds, 4) for phase, seconds in turn.seconds.items()},
    }


def response(turn: types.Turn, decoder: TokenDecoder) -> Json:
    """Return the response of a turn: action, thought, text and tokens."""
    completion = turn.completion
    versions = completion.policy_version
    return {
        "thought": actions.extract_thought(turn.response_text),
        "action": _describe_action(turn),
        "call": _call(turn.response_text),
        "response": turn.response_text,
        "invalid": isinstance(turn.action, types.ParseError),
        "prompt_tokens": len(turn.prompt_ids),
        "response_tokens": len(completion.token_ids),
        "finish": completion.finish,
        "pieces": decoder.pieces(completion.token_ids),
        "logp": [_finite(value) for value in completion.logp],
        "versions": [int(versions.min()), int(versions.max())] if len(versions) else None,
    }


def _grade(turn: types.Turn, next_observation: types.Observation | None) -> str:
    """Return `x` for a response without a valid action, `e` for an error, else `.`."""
    if isinstance(turn.action, types.ParseError):
        return "x"
    if next_observation and episode_stats.has_action_error(next_observation):
        return "e"
    return "."


def _with_next(episode: types.Episode) -> Iterator[tuple[types.Turn, types.Observation | None]]:
    """Yield each turn with the next observation; None for the last turn."""
    observations = [turn.observation for turn in episode.turns[1:]]
    return itertools.zip_longest(episode.turns, observations)


def _view(screenshot: bytes | None, crop: Rect | None, mark: Rect | None) -> Json | None:
    view = screenshots.make_view(screenshot, crop, mark)
    return dataclasses.asdict(view) if view else None


def _element(turn: types.Turn) -> types.Element | None:
    if isinstance(turn.action, types.ParseError) or turn.action.element_id is None:
        return None
    return turn.observation.elements.get(turn.action.element_id)


def _refers_to(line: str, element_id: str | None) -> bool:
    """Return whether the line contains the element: `button Ok [7]` or `<button id="7">`."""
    if element_id is None:
        return False
    return f" [{element_id}]" in line or f'id="{element_id}"' in line


def _describe_action(turn: types.Turn) -> str:
    action, element = turn.action, _element(turn)
    if isinstance(action, types.ParseError):
        return f"Not executed: {action.reason}"
    words = [str(action.kind)]
    if action.value:
        words.append(f"“{action.value}”")
    if element is not None:
        words.append(f"{'into' if action.kind is types.ActionKind.TYPE else 'on'} {element.kind}")
        words.append(f"“{element.name}”" if element.name else "")
    elif action.element_id is not None:
        words.append(f"on element {action.element_id}, which does not exist on the page")
    return " ".join(filter(None, words))


def _call(response: str) -> str:
    """Return the response without thought, tags and comments."""
    _, rest = actions.split_thought(response)
    call = re.sub(r"<think>.*?(</think>|$)|</?answer>", "", rest, flags=re.DOTALL)
    return "\n".join(
        line.strip()
        for line in call.splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    )


def _page_changes(
    previous: types.Observation, next_observation: types.Observation
) -> list[tuple[str, str]]:
    """Return the error, a change of the URL, and the removed and added lines of the page."""
    parts = [("error", next_observation.error)] if next_observation.error else []
    if next_observation.url != previous.url:
        parts.append(("=", f"new URL {next_observation.url}"))
    differences = difflib.unified_diff(
        previous.text.splitlines(), next_observation.text.splitlines(), n=0, lineterm=""
    )
    # The first two lines of a diff are its file names.
    changes = [(line[0], line[1:]) for line in list(differences)[2:] if line[0] in "+-"]
    parts += changes[:_MAX_CHANGES]
    if len(changes) > _MAX_CHANGES:
        parts.append(("=", f"and {len(changes) - _MAX_CHANGES} more lines changed"))
    return parts or [("=", "no change")]


def _common_prefix_length(a: str, b: str) -> int:
    differences = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differences, min(len(a), len(b)))


def _utf16_length(text: str) -> int:
    """Return the length in UTF-16 code units, as in JavaScript."""
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2


def _mean(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return round(float(finite.mean()), 4) if len(finite) else None


def _finite(value: float) -> float | None:
    """Round to four digits to keep the files small; return None for NaN and infinity."""
    return round(float(value), 4) if math.isfinite(value) else None


def screenshot_bytes(episode: types.Episode) -> Sequence[bytes]:
    """Return the screenshots of an episode."""
    images = [*(turn.screenshot for turn in episode.turns), episode.final_screenshot]
    return [image for image in images if image]


def task(episode: types.Episode) -> Mapping[str, str]:
    """Return id, site and intent of the task of an episode."""
    return {
        "id": episode.task.id,
        "site": episode_stats.site(episode),
        "intent": episode.intent or episode.task.intent,
    }
