"""Episodes as the report's page reads them: one line of the index, and every step in full.

The page interprets nothing of it: all text from here becomes the text of a node.
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
from webagent_jax.report import screenshots
from webagent_jax.report.screenshots import Rect
from webagent_jax.report.token_text import Pieces
from webagent_jax.tracking import episode_stats

Json = dict[str, Any]

_MOST_CHANGES = 40  # lines that came or went, told of one step
_LONGEST_ACTION = 90  # characters in the index


def entry(episode: types.Episode) -> Json:
    """What the list shows of an episode, and can be filtered by. Its task is told beside it."""
    logps = [turn.completion.logp for turn in episode.turns]
    return {
        "outcome": str(episode.outcome),
        "reward": episode.reward,
        "trace": "".join(_grade(turn, after) for turn, after in _with_next(episode)),
        "tokens": sum(len(turn.completion.token_ids) for turn in episode.turns),
        "seconds": round(episode.seconds, 2),
        "logp": _mean(np.concatenate(logps)) if logps else None,
        "group": episode.group,
        "sibling": episode.sibling,
        "answer": episode.answer,
        "note": episode.note,
        "did": [_in_words(turn)[:_LONGEST_ACTION] for turn in episode.turns],
        "pictures": any(turn.picture for turn in episode.turns),
    }


def detail(episode: types.Episode, pieces: Pieces) -> Json:
    """The steps of an episode.

    `prompt` of a step is how many characters it shares with the beginning of the step before, and
    the rest: written out, a long episode would be mostly its own repetition.
    """
    shown = [turn.picture for turn in episode.turns] + [episode.last_picture]
    crop = screenshots.content([picture for picture in shown if picture])
    steps = []
    before = ""
    for turn, after in _with_next(episode):
        prompt = pieces.text(turn.prompt_ids)
        steps.append(_step(turn, after, crop) | _tokens(turn, pieces))
        if prompt is not None:
            shared = _shared(before, prompt)
            steps[-1]["prompt"] = [_utf16_length(prompt[:shared]), prompt[shared:]]
            before = prompt
    return {"steps": steps, "last": _shot(episode.last_picture, crop, None)}


def _step(turn: types.Turn, after: types.Observation | None, crop: Rect | None) -> Json:
    seen = turn.observation
    element = _element(turn)
    lines = seen.text.splitlines()
    element_id = turn.action.element_id if isinstance(turn.action, types.Action) else None
    return {
        "url": seen.url,
        "title": seen.title,
        "told": seen.error,
        "seen": lines,
        "acted": [i for i, line in enumerate(lines) if _names(line, element_id)],
        "truncated": seen.truncated,
        "shot": _shot(turn.picture, crop, element.box if element else None),
        "thought": actions.thought(turn.reply),
        "did": _in_words(turn),
        "call": _call(turn.reply),
        "reply": turn.reply,
        "invalid": isinstance(turn.action, types.ParseError),
        "answer": _answer(seen, after) if after else [],
        "seconds": {phase: round(seconds, 4) for phase, seconds in turn.seconds.items()},
    }


def _tokens(turn: types.Turn, pieces: Pieces) -> Json:
    completion = turn.completion
    versions = completion.policy_version
    return {
        "prompt_tokens": len(turn.prompt_ids),
        "response_tokens": len(completion.token_ids),
        "finish": completion.finish,
        "pieces": pieces.pieces(completion.token_ids),
        "logp": [_finite(value) for value in completion.logp],
        "versions": [int(versions.min()), int(versions.max())] if len(versions) else None,
    }


def _grade(turn: types.Turn, after: types.Observation | None) -> str:
    """`x` when the reply held no readable action, `e` when the page told an error, else `.`."""
    if isinstance(turn.action, types.ParseError):
        return "x"
    return "e" if after and after.error else "."


def _with_next(episode: types.Episode) -> Iterator[tuple[types.Turn, types.Observation | None]]:
    """Each turn with what the agent saw next; None after the last."""
    following = [turn.observation for turn in episode.turns[1:]]
    return itertools.zip_longest(episode.turns, following)


def _shot(picture: bytes | None, crop: Rect | None, mark: Rect | None) -> Json | None:
    shot = screenshots.shot(picture, crop, mark)
    return dataclasses.asdict(shot) if shot else None


def _element(turn: types.Turn) -> types.Element | None:
    if isinstance(turn.action, types.ParseError) or turn.action.element_id is None:
        return None
    return turn.observation.elements.get(turn.action.element_id)


def _names(line: str, element_id: str | None) -> bool:
    """Is this the observation's line of the element: `button Ok [7]`, or `<button id="7">`."""
    if element_id is None:
        return False
    return f" [{element_id}]" in line or f'id="{element_id}"' in line


def _in_words(turn: types.Turn) -> str:
    action, element = turn.action, _element(turn)
    if isinstance(action, types.ParseError):
        return f"Nothing: {action.reason}"
    words = [str(action.kind)]
    if action.value:
        words.append(f"“{action.value}”")
    if element is not None:
        words.append(f"{'into' if action.kind is types.ActionKind.TYPE else 'on'} {element.kind}")
        words.append(f"“{element.name}”" if element.name else "")
    elif action.element_id is not None:
        words.append(f"on element {action.element_id}, which the page does not have")
    return " ".join(filter(None, words))


def _call(reply: str) -> str:
    """The reply less its thought and its tags."""
    call = re.sub(r"<think>.*?(</think>|$)|</?answer>", "", reply, flags=re.DOTALL)
    return "\n".join(
        line.strip()
        for line in call.splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    )


def _answer(before: types.Observation, after: types.Observation) -> list[tuple[str, str]]:
    """The error the agent was told, and the lines of the page that came and went."""
    said = [("error", after.error)] if after.error else []
    if after.url != before.url:
        said.append(("=", f"went to {after.url}"))
    differences = difflib.unified_diff(
        before.text.splitlines(), after.text.splitlines(), n=0, lineterm=""
    )
    changes = [(line[0], line[1:]) for line in list(differences)[2:] if line[0] in "+-"]
    said += changes[:_MOST_CHANGES]
    if len(changes) > _MOST_CHANGES:
        said.append(("=", f"and {len(changes) - _MOST_CHANGES} more lines changed"))
    return said or [("=", "nothing changed")]


def _shared(a: str, b: str) -> int:
    """Characters at the beginning of both."""
    differences = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differences, min(len(a), len(b)))


def _utf16_length(text: str) -> int:
    """As the page counts."""
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2


def _mean(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return round(float(finite.mean()), 4) if len(finite) else None


def _finite(value: float) -> float | None:
    """Four digits tell a probability well enough, and keep the files small."""
    return round(float(value), 4) if math.isfinite(value) else None


def picture_bytes(episode: types.Episode) -> Sequence[bytes]:
    everything = [*(turn.picture for turn in episode.turns), episode.last_picture]
    return [picture for picture in everything if picture]


def task(episode: types.Episode) -> Mapping[str, str]:
    return {
        "id": episode.task.id,
        "site": episode_stats.site(episode),
        "intent": episode.intent or episode.task.intent,
    }
