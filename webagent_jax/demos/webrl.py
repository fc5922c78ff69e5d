"""Demonstrations in WebRL's form: conversations as JSON, as LLaMA-Factory's "sharegpt" has them.

    [{"conversations": [
        {"from": "human", "value": "Task Instruction: ...\\n\\nRound 0\\n\\n<html> ..."},
        {"from": "gpt", "value": "# Element: ...\\ndo(action=\\"Click\\", element=\\"7\\")"}, ...]}]

A conversation shows one page or several, and `** Simplified html **` in the place of the others. So
an episode may lie in many conversations, one for each turn: they are put together again, where the
task and the replies before are the same. Qi et al. 2024, arXiv 2411.02337.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webagent_jax.agent import TEMPLATES, actions
from webagent_jax.demos.dataset import DemosError
from webagent_jax.demos.demonstration import Demonstration, DemoTurn
from webagent_jax.types import ActionKind, Decision, Observation, ParseError, Task
from webagent_jax.unicode import to_well_formed

_PLACEHOLDER = TEMPLATES["webarena"].placeholder
_TASK = re.compile(r"\s*Task Instruction:\s*(?P<intent>.*?)\s*(?=^Round \d+\s*$|\Z)", re.S | re.M)
_ROUND = re.compile(r"\s*Round \d+\s*\n")
_ASKS, _REPLIES = ("human", "user"), ("gpt", "assistant")


@dataclass(frozen=True)
class Imported:
    """What was read, and what was left out of it."""

    demonstrations: tuple[Demonstration, ...]
    left_out: Mapping[str, int]  # episodes, by the reason


@dataclass
class _Conversation:
    intent: str
    pages: list[str | None] = field(default_factory=list)  # None where a placeholder stands
    replies: list[str] = field(default_factory=list)

    def continues(self, earlier: _Conversation) -> bool:
        """Whether all that was said in an earlier one was said here too, with no other page."""
        same = self.replies[: len(earlier.replies)] == earlier.replies
        pages = zip(earlier.pages, self.pages, strict=False)
        agree = all(a is None or b is None or a == b for a, b in pages)
        return self.intent == earlier.intent and same and agree


def load(path: Path | str) -> Imported:
    """The episodes of a file, in its order.

    Left out are episodes with a page that no conversation shows, or a reply that holds no action.

    Raises:
        DemosError: the file does not have that form; says where.
    """
    path = Path(path)
    try:
        rows = to_well_formed(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise DemosError(f"{path} is not JSON: {error}") from error
    if not isinstance(rows, list):
        raise DemosError(f"{path} must hold a list of conversations")
    found: list[Demonstration] = []
    left_out: dict[str, int] = {}
    for number, episode in enumerate(_episodes(_read(row, i, path) for i, row in enumerate(rows))):
        made = _demonstration(episode, f"webrl/{path.stem}/{number}")
        if isinstance(made, str):
            left_out[made] = left_out.get(made, 0) + 1
        else:
            found.append(made)
    return Imported(tuple(found), left_out)


def _read(row: Any, number: int, path: Path) -> _Conversation:
    where = f"{path}, conversation {number}"
    messages: Sequence[Any] = row.get("conversations", ()) if isinstance(row, dict) else ()
    told = [(str(m.get("from")), str(m.get("value", ""))) for m in messages if isinstance(m, dict)]
    told = [message for message in told if message[0] != "system"]
    asked, replied = told[::2], told[1::2]
    in_turn = all(r in _ASKS for r, _ in asked) and all(r in _REPLIES for r, _ in replied)
    if not told or len(asked) != len(replied) or not in_turn:
        raise DemosError(f"{where}: wants human and gpt in turn, beginning with human")
    task = _TASK.match(asked[0][1])
    if task is None:
        raise DemosError(f"{where}: the first message does not begin with Task Instruction:")
    opened = [asked[0][1][task.end() :], *(text for _, text in asked[1:])]
    pages = [_ROUND.sub("", text, count=1).strip() for text in opened]
    return _Conversation(
        task["intent"],
        [None if page == _PLACEHOLDER else page for page in pages],
        [reply.strip() for _, reply in replied],
    )


def _episodes(conversations: Iterable[_Conversation]) -> Iterator[_Conversation]:
    """Conversations of one episode that follow one another are one."""
    current: _Conversation | None = None
    for following in conversations:
        if current is not None and following.continues(current):
            known = current.pages + [None] * (len(following.pages) - len(current.pages))
            pages = [b if a is None else a for a, b in zip(known, following.pages, strict=True)]
            current = _Conversation(following.intent, pages, following.replies)
            continue
        if current is not None:
            yield current
        current = following
    if current is not None:
        yield current


def _demonstration(episode: _Conversation, name: str) -> Demonstration | str:
    """Or the reason why it is none."""
    turns = []
    for page, reply in zip(episode.pages, episode.replies, strict=True):
        action = actions.parse(reply)
        if page is None:
            return "a page is shown by no conversation"
        if isinstance(action, ParseError):
            return "a reply holds no action"
        turns.append(DemoTurn(Observation(page, url=""), Decision(actions.thought(reply), action)))
    if turns[-1].decision.action.kind is not ActionKind.EXIT:
        return "it does not end with exit()"
    task = Task(id=name, suite="webrl", sites=(), intent=episode.intent, start_url="")
    return Demonstration(task, episode.intent, tuple(turns))
