"""Real episodes in a suite whose agent follows a script of element names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.rollout import EpisodeConfig, run_episode
from webagent_jax.types import AgentRequest, Completion, Episode, InfraError, Suite, Task

Step = tuple[str, ...]
"""("Click", name), ("Type", name, text) or ("exit", message)."""


@cache
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


class ScriptedAgent:
    """Agent that writes the action of each step for the element of this name."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps: Iterator[Step] = iter(steps)

    def respond(self, request: AgentRequest) -> Completion:
        kind, name, *text = next(self._steps)
        if kind == "exit":
            action = f"exit(message={json.dumps(name)})"
        else:
            elements = request.observation.elements
            target = next((i for i, e in elements.items() if e.name == name), None)
            if target is None:
                raise InfraError(f"no element {name!r} in: {request.observation.text}")
            argument = f"argument={json.dumps(text[0])}, " if text else ""
            action = f'do(action="{kind}", {argument}element="{target}")'
        ids = np.asarray(
            tokenizer().encode_response(f"<think> go </think> <answer> {action} </answer>"),
            np.int32,
        )
        return Completion(ids, np.zeros(len(ids), np.float32), np.zeros_like(ids), "stop")


def run_script(suite: Suite, task: Task, *steps: Step) -> Episode:
    """Run one episode of a task; without an exit step it is truncated after the last step."""
    config = EpisodeConfig(
        tokenizer(),
        PromptFormat(TEMPLATES["compact"]),
        max_turns=len(steps),
        max_prompt_tokens=100_000,
        timeout=120.0,
    )
    environment = suite.make_env(task)
    try:
        return run_episode(environment, ScriptedAgent(steps), task, config)
    finally:
        environment.close()
