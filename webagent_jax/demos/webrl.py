r"""Import of WebRL demonstrations: JSON conversations in the "sharegpt" format of LLaMA-Factory.

    [{"conversations": [
        {"from": "human", "value": "Task Instruction: ...\n\nRound 0\n\n<html> ..."},
        {"from": "gpt", "value": "# Element: ...\ndo(action=\"Click\", element=\"7\")"}, ...]}]

A conversation contains one or more pages, and the placeholder `** Simplified html **` for the
others. An episode may therefore span many conversations, one per turn. They are merged if the task
and the earlier responses are equal. Qi et al. 2024, arXiv 2411.02337.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_jax.agent import TEMPLATES, actions
from webagent_jax.demos.dataset import DemosError, Imported
from webagent_jax.demos.demonstration import Demonstration, DemoTurn, is_storable
from webagent_jax.types import ActionKind, Decision, Observation, Task
from webagent_jax.unicode import to_well_formed

_PLACEHOLDER = TEMPLATES["webarena"].placeholder
# The intent ends at the first line `Round k`, or at the end of the message.
_TASK = re.compile(r"\s*Task Instruction:\s*(?P<intent>.*?)\s*(?=^Round \d+\s*$|\Z)", re.S | re.M)
_ROUND = re.compile(r"\s*Round \d+\s*\n")
_HUMAN_ROLES, _MODEL_ROLES = ("human", "user"), ("gpt", "assistant")


@dataclass
class _Conversation:
    intent: str
    pages: list[str | None]  # None for a placeholder
    responses: list[str]

    def continues(self, earlier: _Conversation) -> bool:
        """Return whether `earlier` is a prefix: equal responses, and pages equal where present."""
        same_responses = self.responses[: len(earlier.responses)] == earlier.responses
        # zip ends with the shorter list: only common turns are compared.
        pages = zip(earlier.pages, self.pages, strict=False)
        same_pages = all(a is None or b is None or a == b for a, b in pages)
        return self.intent == earlier.intent and same_responses and same_pages


def load(path: Path | str) -> Imported:
    """Return the episodes of a file in order.

    Skips episodes with a page that no conversation contains, with a response without a valid
    action, or without exit() at the end.

    Raises:
        DemosError: the file does not have the WebRL format; the message names the position.
    """
    path = Path(path)
    try:
        # JSON escapes may decode to lone surrogates, which tokenizers reject.
        rows = to_well_formed(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise DemosError(f"{path} is not JSON: {error}") from error
    if not isinstance(rows, list):
        raise DemosError(f"{path} must contain a list of conversations")
    demonstrations: list[Demonstration] = []
    skipped: dict[str, int] = {}
    for number, episode in enumerate(_episodes(_read(row, i, path) for i, row in enumerate(rows))):
        result = _demonstration(episode, f"webrl/{path.stem}/{number}")
        if isinstance(result, str):
            skipped[result] = skipped.get(result, 0) + 1
        else:
            demonstrations.append(result)
    return Imported(tuple(demonstrations), skipped)


def _read(row: Any, number: int, path: Path) -> _Conversation:
    position = f"{path}, conversation {number}"
    items = row.get("conversations") if isinstance(row, dict) else None
    items = items if isinstance(items, list) else []
    messages = [(str(m.get("from")), str(m.get("value", ""))) for m in items if isinstance(m, dict)]
    messages = [message for message in messages if message[0] != "system"]
    prompts, responses = messages[::2], messages[1::2]
    is_alternating = all(role in _HUMAN_ROLES for role, _ in prompts) and all(
        role in _MODEL_ROLES for role, _ in responses
    )
    if not messages or len(prompts) != len(responses) or not is_alternating:
        raise DemosError(f"{position}: messages must alternate between human and gpt, human first")
    task = _TASK.match(prompts[0][1])
    if task is None:
        raise DemosError(f"{position}: the first message must begin with Task Instruction:")
    # The first message contains the task before its page.
    texts = [prompts[0][1][task.end() :], *(text for _, text in prompts[1:])]
    pages = [_ROUND.sub("", text, count=1).strip() for text in texts]
    return _Conversation(
        task["intent"],
        [None if page == _PLACEHOLDER else page for page in pages],
        [response.strip() for _, response in responses],
    )


def _episodes(conversations: Iterable[_Conversation]) -> Iterator[_Conversation]:
    """Yield one conversation per episode: merge consecutive conversations of one episode."""
    current: _Conversation | None = None
    for conversation in conversations:
        if current is not None and conversation.continues(current):
            # The later conversation has all responses; earlier ones may have pages that it lacks.
            padded = current.pages + [None] * (len(conversation.pages) - len(current.pages))
            pages = [b if a is None else a for a, b in zip(padded, conversation.pages, strict=True)]
            current = _Conversation(conversation.intent, pages, conversation.responses)
            continue
        if current is not None:
            yield current
        current = conversation
    if current is not None:
        yield current


def _demonstration(episode: _Conversation, name: str) -> Demonstration | str:
    """Return the demonstration, or the reason to skip the episode."""
    turns = []
    for page, response in zip(episode.pages, episode.responses, strict=True):
        action = actions.parse(response)
        if page is None:
            return "a page is missing from all conversations"
        if not is_storable(action):
            return "a response contains no valid action"
        turns.append(
            DemoTurn(Observation(page, url=""), Decision(actions.extract_thought(response), action))
        )
    if turns[-1].decision.action.kind is not ActionKind.EXIT:
        return "it does not end with exit()"
    task = Task(id=name, suite="webrl", sites=(), intent=episode.intent, start_url="")
    return Demonstration(task, episode.intent, tuple(turns))
