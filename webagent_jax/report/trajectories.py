"""Episodes for the trajectory viewer: which ones to show, and what to say of each step."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from webagent_jax import types
from webagent_jax.agent import actions
from webagent_jax.report.pictures import Rect, Shot, content, shot
from webagent_jax.report.workdir import STAGES

PICTURE_BUDGET = 6_500_000  # bytes of JPEG in one report; a third more once they are base64


@dataclass(frozen=True)
class Step:
    shot: Shot | None
    url: str
    title: str
    seen: Sequence[tuple[str, bool]]  # lines of the observation; is it the acted element's
    thought: str
    did: str  # in words
    call: str  # as the model wrote it, less the thought
    invalid: bool
    answer: Sequence[tuple[str, str]]  # what the page answered: ("error" | "+" | "-" | "=", text)
    prompt_tokens: int
    response_tokens: int


@dataclass(frozen=True)
class Player:
    """One episode, step by step."""

    stage: str
    outcome: types.Outcome
    reward: float | None
    answer: str | None
    note: str
    seconds: float
    response_tokens: int
    steps: Sequence[Step]
    last: Shot | None  # the page as the episode left it

    @property
    def name(self) -> str:
        return STAGES[self.stage]


@dataclass(frozen=True)
class Case:
    """One task under one policy, or under two: before and after."""

    task_id: str
    site: str
    intent: str
    players: Sequence[Player]


def choose(episodes: Mapping[str, Sequence[types.Episode]], limit: int = 12) -> list[Case]:
    """Cases with pictures, as different as possible: each kind of change in turn, then each site.

    Args:
      episodes: by stage.
      limit: of cases; fewer when their pictures would weigh more than PICTURE_BUDGET.
    """
    queues = _by_change(_pairs(episodes))
    chosen: list[Case] = []
    weight = 0
    for pair in _in_turn(queues):
        weight += sum(len(picture) for _, episode in pair for picture in _pictures(episode))
        if len(chosen) == limit or (chosen and weight > PICTURE_BUDGET):
            break
        chosen.append(_case(pair))
    return chosen


# --- which -------------------------------------------------------------------------------------

_Pair = tuple[tuple[str, types.Episode], ...]  # one or two stages with their episode of a task


def _pairs(episodes: Mapping[str, Sequence[types.Episode]]) -> Iterator[_Pair]:
    """Per task the last two stages that have pictures of it."""
    by_task: dict[str, dict[str, types.Episode]] = defaultdict(dict)
    for stage in STAGES:
        for episode in episodes.get(stage, ()):
            if episode.turns and any(_pictures(episode)):
                by_task[episode.task.id].setdefault(stage, episode)
    for found in by_task.values():
        yield tuple(found.items())[-2:]


def _by_change(pairs: Iterable[_Pair]) -> list[list[_Pair]]:
    """Queues of learned, forgotten, never and always solved tasks; the longest episodes first."""
    order = ((False, True), (True, False), (False, False), (True, True), (True,), (False,))
    queues: dict[tuple[bool, ...], list[_Pair]] = {change: [] for change in order}
    for pair in pairs:
        change = tuple(episode.outcome is types.Outcome.SUCCESS for _, episode in pair)
        queues[change].append(pair)
    for queue in queues.values():
        queue.sort(key=lambda pair: -len(pair[-1][1].turns))
    return list(queues.values())


def _in_turn(queues: Sequence[list[_Pair]]) -> Iterator[_Pair]:
    """One pair of each queue in turn, of sites not shown yet as long as the queue has some."""
    shown: set[tuple[str, ...]] = set()
    while any(queues):
        for queue in filter(None, queues):
            fresh = (pair for pair in queue if pair[0][1].task.sites not in shown)
            pair = next(fresh, queue[0])
            queue.remove(pair)
            shown.add(pair[0][1].task.sites)
            yield pair


def _pictures(episode: types.Episode) -> list[bytes]:
    everything = [*(turn.picture for turn in episode.turns), episode.last_picture]
    return [picture for picture in everything if picture]


# --- what --------------------------------------------------------------------------------------


def _case(pair: _Pair) -> Case:
    _, episode = pair[-1]
    crop = content([picture for _, played in pair for picture in _pictures(played)])
    players = [_player(stage, played, crop) for stage, played in pair]
    return Case(episode.task.id, ", ".join(episode.task.sites), episode.intent, players)


def _player(stage: str, episode: types.Episode, crop: Rect | None) -> Player:
    following = [*(turn.observation for turn in episode.turns[1:]), None]
    steps = [_step(turn, after, crop) for turn, after in zip(episode.turns, following, strict=True)]
    return Player(
        stage=stage,
        outcome=episode.outcome,
        reward=episode.reward,
        answer=episode.answer,
        note=episode.note,
        seconds=episode.seconds,
        response_tokens=sum(step.response_tokens for step in steps),
        steps=steps,
        last=shot(episode.last_picture, crop, None),
    )


def _step(turn: types.Turn, after: types.Observation | None, crop: Rect | None) -> Step:
    seen = turn.observation
    element_id = turn.action.element_id if isinstance(turn.action, types.Action) else None
    element = seen.elements.get(element_id) if element_id else None
    return Step(
        shot=shot(turn.picture, crop, element.box if element else None),
        url=seen.url,
        title=seen.title,
        seen=[(line, _names(line, element_id)) for line in seen.text.splitlines()],
        thought=actions.thought(turn.reply),
        did=_in_words(turn.action, element),
        call=_call(turn.reply),
        invalid=isinstance(turn.action, types.ParseError),
        answer=_answer(seen, after) if after else (),
        prompt_tokens=len(turn.prompt_ids),
        response_tokens=len(turn.completion.token_ids),
    )


def _names(line: str, element_id: str | None) -> bool:
    """Is this the observation's line of the element: `button Ok [7]`, or `<button id="7">`."""
    if element_id is None:
        return False
    return f" [{element_id}]" in line or f'id="{element_id}"' in line


def _in_words(action: types.Action | types.ParseError, element: types.Element | None) -> str:
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
    said += changes[:8]
    if len(changes) > 8:
        said.append(("=", f"and {len(changes) - 8} more lines changed"))
    return said or [("=", "nothing changed")]
