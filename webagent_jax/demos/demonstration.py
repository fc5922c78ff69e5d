"""The noun of this room, and its way from and to an Episode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from webagent_jax.agent import ChatTokenizer, Template, actions, messages, reply_text
from webagent_jax.types import (
    Completion,
    Decision,
    Episode,
    Observation,
    Outcome,
    ParseError,
    Task,
    Turn,
)


@dataclass(frozen=True, slots=True)
class DemoTurn:
    observation: Observation  # what was seen; its `elements` are not kept
    decision: Decision  # what was thought and done about it


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An episode that earned its reward, free of any tokenizer and template."""

    task: Task  # less its `storage_state` and `eval`, which no learner looks at
    intent: str  # as the page told it
    turns: tuple[DemoTurn, ...]


def from_episode(episode: Episode) -> Demonstration:
    """Raises ValueError when the episode is not one to imitate."""
    if episode.reward != 1:
        raise ValueError(
            f"the episode of {episode.task.id} has reward {episode.reward}; "
            "only episodes of reward 1 are demonstrations: leave the others out"
        )
    return Demonstration(episode.task, episode.intent, tuple(map(_demo_turn, episode.turns)))


def _demo_turn(turn: Turn) -> DemoTurn:
    if isinstance(turn.action, ParseError):
        raise ValueError(
            f"the reply {turn.reply!r} holds no action ({turn.action.reason}); "
            "nobody should learn it: leave the episode out"
        )
    return DemoTurn(turn.observation, Decision(actions.thought(turn.reply), turn.action))


def to_episode(
    demonstration: Demonstration, tokenizer: ChatTokenizer, template: Template, thinking: bool
) -> Episode:
    """The episode as a policy with this tokenizer and template would have lived it.

    Log-probabilities and policy versions are 0: nobody sampled the replies.
    """
    turns: list[Turn] = []
    for turn in demonstration.turns:
        conversation = messages(template, thinking, demonstration.intent, turns, turn.observation)
        reply = reply_text(turn.decision.thought, turn.decision.action, thinking)
        ids = tokenizer.encode_reply(reply)
        completion = Completion(
            token_ids=ids,
            logp=np.zeros(len(ids), np.float32),
            policy_version=np.zeros(len(ids), np.int32),
            finish="stop",
        )
        turns.append(
            Turn(
                prompt_ids=tokenizer.prompt_ids(conversation),
                completion=completion,
                reply=reply,
                action=turn.decision.action,
                observation=turn.observation,
            )
        )
    return Episode(
        task=demonstration.task,
        intent=demonstration.intent,
        turns=tuple(turns),
        reward=1.0,
        outcome=Outcome.SUCCESS,
    )
