"""Demonstration and its conversion from and to an Episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from webagent_jax.agent import ChatTokenizer, PromptFormat, actions, build_messages, format_response
from webagent_jax.types import (
    Action,
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
    """Observation and decision of one turn."""

    observation: Observation  # the dataset stores it without `elements`
    decision: Decision  # thought and action, and whether it is a mistake


@dataclass(frozen=True, slots=True)
class Demonstration:
    """Successful episode, independent of tokenizer and template."""

    task: Task  # the dataset stores it without `storage_state`, `template` and `eval`
    intent: str  # instruction of the episode
    turns: tuple[DemoTurn, ...]

    def trained_turns(self) -> list[int]:
        """Return the indices of the turns that BC trains on: all except injected mistakes."""
        return [i for i, turn in enumerate(self.turns) if not turn.decision.is_mistake]


def ends_with_success(episode: Episode) -> bool:
    """Return whether a success ended by itself.

    One that was cut off would teach to continue after the task is solved.
    """
    return episode.outcome is Outcome.SUCCESS and not episode.truncated


def has_only_actions(episode: Episode) -> bool:
    """Return whether there are responses, and all have actions that a demonstration can store.

    A policy may succeed despite parse errors, or with a value that is too long or contains a tag.
    An episode whose first prompt was too long has no turns; its task may be solved at the start.
    """
    return bool(episode.turns) and all(is_storable(turn.action) for turn in episode.turns)


def is_storable(action: Action | ParseError) -> TypeGuard[Action]:
    """Return whether an action can be read from the dataset, and from a response with thoughts."""
    if isinstance(action, ParseError):
        return False
    call = actions.format_action(action)
    read_actions = map(actions.parse, (call, format_response("", action, thinking=True)))
    return all(isinstance(a, Action) and actions.format_action(a) == call for a in read_actions)


def from_episode(episode: Episode) -> Demonstration:
    """Return the demonstration of a successful episode.

    Raises:
        ValueError: the reward is not 1, or a response contains no action that can be stored.
    """
    if episode.reward != 1:
        raise ValueError(
            f"the episode of {episode.task.id} has reward {episode.reward}; "
            "only episodes with reward 1 are demonstrations: skip the others"
        )
    return Demonstration(episode.task, episode.intent, tuple(map(_demo_turn, episode.turns)))


def _demo_turn(turn: Turn) -> DemoTurn:
    if not is_storable(turn.action):
        raise ValueError(
            f"the response {turn.response_text!r} contains no action that can be stored: "
            "skip its episode"
        )
    thought = actions.extract_thought(turn.response_text)
    is_mistake = turn.completion.is_mistake
    return DemoTurn(turn.observation, Decision(thought, turn.action, is_mistake=is_mistake))


def to_episode(
    demonstration: Demonstration, tokenizer: ChatTokenizer, prompt: PromptFormat
) -> Episode:
    """Return the episode of a policy with this tokenizer and prompt format.

    Log-probabilities and policy versions are 0, because no policy sampled the responses.

    Args:
        demonstration: demonstration to convert.
        tokenizer: tokenizer of the policy.
        prompt: format of prompts and responses.
    """
    turns: list[Turn] = []
    for turn in demonstration.turns:
        # `turns` contains the earlier responses as ids, so prompts are built as in rollouts.
        conversation = build_messages(prompt, demonstration.intent, turns, turn.observation)
        response_text = format_response(
            turn.decision.thought, turn.decision.action, prompt.thinking
        )
        completion = Completion.unsampled(
            tokenizer.encode_response(response_text), is_mistake=turn.decision.is_mistake
        )
        turns.append(
            Turn(
                prompt_ids=tokenizer.prompt_ids(conversation),
                completion=completion,
                response_text=response_text,
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
